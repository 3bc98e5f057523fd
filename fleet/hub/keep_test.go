package hub

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// manyJobs is a learner of so many thousand jobs with four signals of four nodes; no node is the only one to speak of more than a thousand.
func manyJobs(thousands int) *spec.State {
	s, p, rng := spec.New(), spec.Defaults(), rand.New(rand.NewPCG(4, 4))
	for i := range 4 * thousands {
		b := &wire.Batch{Node: fmt.Sprint("n", i%thousands), Platform: "cpu"}
		for _, src := range []model.Source{model.SourceCPI, model.SourceSlowdown, model.SourcePressure, model.SourceWait} {
			b.Samples.Signals = append(b.Samples.Signals, wire.Signal{Source: src, Definition: "d"})
		}
		x, first := &b.Samples, (i+i/thousands)%thousands*1000
		for job := range 1000 {
			b.Tasks = append(b.Tasks, wire.Task{Path: fmt.Sprint("/", job), Job: fmt.Sprint("job-", first+job)})
			for range 25 {
				x.Task, x.CPU, x.WallMsec, x.Flags = append(x.Task, uint32(job)), append(x.CPU, rng.Float32()), append(x.WallMsec, 0), append(x.Flags, wire.Usable) //nolint:gosec // few
				for k := range x.Signals {
					x.Signals[k].Values = append(x.Signals[k].Values, float32(rng.ExpFloat64()))
				}
			}
		}
		s.Add(&p, b)
	}
	return s
}

// heap is how much is in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// weighed looks now and then, before it hands bytes on, how much is in use.
type weighed struct {
	r         io.Reader
	w         io.Writer
	n, looked int
	most      uint64
	look      func()
}

func (x *weighed) count(n int) {
	if x.n += n; x.n-x.looked >= 1<<20 {
		x.look()
		x.looked, x.most = x.n, max(x.most, heap())
	}
}

func (x *weighed) Write(b []byte) (int, error) {
	x.count(len(b))
	return x.w.Write(b)
}

func (x *weighed) Read(b []byte) (int, error) {
	n, err := x.r.Read(b)
	x.count(n)
	return n, err
}

// What is learned is written and read without a copy of it in memory, and who writes leaves the lock to others.
func TestKeepingTakesNoCopy(t *testing.T) {
	of, path := manyJobs(10), filepath.Join(t.TempDir(), "learned")
	var lock sync.Mutex
	free := 0
	out := &weighed{look: func() {
		if lock.TryLock() {
			free++
			lock.Unlock()
		}
	}}
	before := heap()
	if err := store.ReplaceWith(path, func(w io.Writer) error {
		out.w = w
		return learned{}.pack(out, of, &lock)
	}); err != nil {
		t.Fatal(err)
	}
	const room = 4 << 20 // for who compresses
	if out.n < 7<<20 || out.most > before+room {
		t.Errorf("of %d KiB that are kept %d are in memory beside what is learned; at most %d are expected", out.n>>10, (int64(out.most)-int64(before))>>10, room>>10) //nolint:gosec // it fits
	}
	if free < 5 {
		t.Errorf("the lock is free at %d looks of %d", free, out.n>>20)
	}
	jobs := len(of.Jobs)
	runtime.KeepAlive(of)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // reading only
	in := &weighed{r: f, look: func() {}}
	_, back, err := unpack(in)
	after := heap()
	if err != nil || len(back.Jobs) != jobs || in.n != out.n || in.most < after/2 || in.most > after+room { // most jobs are there before the last bytes are read
		t.Errorf("%d jobs of %d, %v; %d KiB in use before the last of %d are read, %d after it", len(back.Jobs), jobs, err, in.most>>10, in.n>>10, after>>10)
	}
	runtime.KeepAlive(back)
}

// What a hub that was killed wrote of what is learned is gone at the next start, and what cannot be written whole leaves the file as it was.
func TestWhatWasNotKeptWhole(t *testing.T) {
	h, err := New(testConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if h.store, err = store.Open(filepath.Join(h.cfg.Dir, "store")); err != nil {
		t.Fatal(err)
	}
	h.learner = manyJobs(1)
	if err := h.keepState(0); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	if err := store.ReplaceWith(h.learnedFile(), func(w io.Writer) error {
		if _, err := w.Write([]byte("half")); err != nil {
			t.Error(err)
		}
		return full
	}); !errors.Is(err, full) {
		t.Error(err)
	}
	in := func() []string {
		files, err := filepath.Glob(h.learnedFile() + "*")
		if err != nil {
			t.Error(err)
		}
		return files
	}
	if got := in(); len(got) != 1 {
		t.Errorf("after an error there are %v", got)
	}
	if err := os.WriteFile(h.learnedFile()+".new123", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.learner = nil
	if err := h.recall(); err != nil || len(h.learner.Jobs) != 1000 {
		t.Errorf("%d jobs come back: %v", len(h.learner.Jobs), err)
	}
	if got := in(); len(got) != 1 {
		t.Errorf("after a start there are %v", got)
	}
}
