// Package buckettest is a bucket in memory that goes wrong when it is told to, and what is asked of every bucket.
package buckettest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/commensal-io/commensal/fleet/bucket"
)

// Fault is what becomes of one request.
type Fault int

// Faults.
const (
	None     Fault = iota
	Refuse         // it fails, and nothing is done
	Forget         // it seems done, and nothing is
	Unheard        // it is done, and fails
	Late           // it fails, and is done later
	Half           // half of it is done, and fails: of a Put, half of the object is there; of a Get, half comes
	HalfTold       // the same, and seems well
	Before         // whoever asks crashes before it is done ...
	After          // ... and after it
	NumFaults
)

// Crash is the panic of who asks.
type Crash struct{}

// ErrFault is what requests fail with.
var ErrFault = errors.New("the bucket fails, as it was told to")

// Memory is a bucket in memory.
type Memory struct {
	// Fault says what becomes of a request: put, get, stat, list, delete. nil: all is well.
	Fault func(what, name string) Fault
	// Silent: it says no sums.
	Silent bool

	mu      sync.Mutex
	objects map[string][]byte
	late    []func()
}

// NewMemory makes an empty one.
func NewMemory() *Memory { return &Memory{objects: map[string][]byte{}} }

func (m *Memory) String() string { return "memory" }

// Settle does what is late. n: how many; -1: all.
func (m *Memory) Settle(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ; n != 0 && len(m.late) > 0; n-- {
		m.late[0]()
		m.late = m.late[1:]
	}
}

// Names lists all objects.
func (m *Memory) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Object returns what an object has; nil: it is not there.
func (m *Memory) Object(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[name]
}

// Remove takes an object away, as a stranger does.
func (m *Memory) Remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
}

func (m *Memory) fault(what, name string) Fault {
	if m.Fault == nil {
		return None
	}
	return m.Fault(what, name)
}

// change does, half does or does not do something.
func (m *Memory) change(fault Fault, whole, half func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch fault {
	case Refuse:
		return ErrFault
	case Forget:
		return nil
	case Late:
		m.late = append(m.late, whole)
		return ErrFault
	case Half:
		half()
		return ErrFault
	case HalfTold:
		half()
		return nil
	case Before:
		panic(Crash{})
	case After:
		whole()
		panic(Crash{})
	case Unheard:
		whole()
		return ErrFault
	}
	whole()
	return nil
}

// Put implements bucket.Objects.
func (m *Memory) Put(_ context.Context, name string, r io.ReadSeeker, size int64, sum [sha256.Size]byte) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if int64(len(b)) != size || sha256.Sum256(b) != sum {
		return errors.New("put: size or SHA-256 is another than what was said")
	}
	return m.change(m.fault("put", name), func() { m.objects[name] = b }, func() { m.objects[name] = b[:len(b)/2] })
}

// asked is what becomes of a request that changes nothing.
func asked(fault Fault) error {
	switch fault {
	case None, HalfTold:
		return nil
	case Before, After:
		panic(Crash{})
	}
	return ErrFault
}

// Get implements bucket.Objects.
func (m *Memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	fault := m.fault("get", name)
	if err := asked(fault); err != nil && fault != Half {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[name]
	switch {
	case !ok:
		return nil, bucket.ErrNone
	case fault == HalfTold:
		return io.NopCloser(bytes.NewReader(b[:len(b)/2])), nil
	case fault == Half:
		return io.NopCloser(io.MultiReader(bytes.NewReader(b[:len(b)/2]), failing{})), nil
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, ErrFault }

// Stat implements bucket.Objects.
func (m *Memory) Stat(_ context.Context, name string) (bucket.Object, error) {
	if err := asked(m.fault("stat", name)); err != nil {
		return bucket.Object{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[name]
	if !ok {
		return bucket.Object{}, bucket.ErrNone
	}
	o := bucket.Object{Name: name, Bytes: int64(len(b))}
	if !m.Silent {
		sum := sha256.Sum256(b)
		o.Sum = sum[:]
	}
	return o, nil
}

// List implements bucket.Objects.
func (m *Memory) List(_ context.Context, prefix string) ([]bucket.Object, error) {
	if err := asked(m.fault("list", prefix)); err != nil {
		return nil, err
	}
	var list []bucket.Object
	for _, name := range m.Names() {
		if strings.HasPrefix(name, prefix) {
			list = append(list, bucket.Object{Name: name, Bytes: int64(len(m.Object(name)))})
		}
	}
	return list, nil
}

// Delete implements bucket.Objects.
func (m *Memory) Delete(_ context.Context, name string) error {
	return m.change(m.fault("delete", name), func() { delete(m.objects, name) }, func() {})
}
