package uncore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
)

// boxes bounds of how many units of a die the counters are opened. A die has up to some sixty CHAs, and addresses are hashed over
// all of them, so a few see the same mix of reads; only within the clusters of sub-NUMA clustering each has its own,
// so those that are taken are spread over the die. Four cost 12 descriptors and four readings a window.
const boxes = 4

// fewest is from how many reads on their mean is one. A memory with less to do in a window is not slow.
const fewest = 100

// longest is more than any memory takes: what says so counts something else.
const longest = 1e6 // ns

// Why there is no latency at present.
var (
	ErrNoPMU     = errors.New("the kernel shows no such PMU (virtual machines have none; else its driver is not loaded)")
	ErrNoDie     = errors.New("no CPU of this cache is online, or the kernel does not number it")
	ErrFresh     = errors.New("counting began just now")
	ErrIdle      = errors.New("too few reads of memory")
	ErrWaiting   = errors.New("somebody else has the counters")
	ErrBackwards = errors.New("a counter went backwards")
	ErrAbsurd    = errors.New("the counters say what cannot be")
)

// Counters are one group of events on a CPU, as *perf.Group is.
type Counters interface {
	Enable() error
	Read(values []uint64) (enabled, running uint64, ended bool, err error)
	Close() error
}

// Opener opens a group of events, disabled, as perf.OpenRaw does.
type Opener func(cpu int, events []perf.Raw) (Counters, error)

// Perf opens the running kernel's.
func Perf(cpu int, events []perf.Raw) (Counters, error) {
	g, err := perf.OpenRaw(cpu, events)
	if err != nil {
		return nil, err // and no *perf.Group that is nil
	}
	return g, nil
}

// Meter says of each last-level cache of the machine how long reads that missed it took. Not for concurrent use.
type Meter struct {
	files  hostfs.FS
	open   Opener
	method *method
	units  []unit
	online []int
	dies   map[int]*die // by the cache's number, which is resctrl's domain
}

// unit is a PMU with its events encoded.
type unit struct {
	pmu    *PMU
	events []perf.Raw
}

// die is what is counted of one cache's CPUs.
type die struct{ boxes []box }

// box is a unit on one die.
type box struct {
	*unit
	cpu      int
	counters Counters // nil: not open
	seen     []uint64 // the last reading, running last
	now      []uint64
}

// NewMeter finds out how this machine is asked, and opens nothing yet. Errors wrap ErrUnknownCPU, ErrNoPMU, ErrMalformed or that
// of a file.
func NewMeter(files hostfs.FS, open Opener) (*Meter, error) {
	how, err := methodOf(files)
	if err != nil {
		return nil, err
	}
	names, err := Names(files, how.pmu)
	if err != nil || len(names) == 0 {
		return nil, errors.Join(fmt.Errorf("%s, %s in %s: %w", how.cpu, how.pmu, devices, ErrNoPMU), err)
	}
	m := &Meter{files: files, open: open, method: how}
	for i := range min(boxes, len(names)) {
		u := unit{}
		if u.pmu, err = ReadPMU(files, names[i*len(names)/min(boxes, len(names))]); err != nil {
			return nil, err
		}
		for _, terms := range []string{how.wait, how.requests, how.clock} {
			if terms == "" {
				continue
			}
			e, err := u.pmu.Encode(terms)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", how.cpu, err)
			}
			u.events = append(u.events, e)
		}
		m.units = append(m.units, u)
	}
	return m, m.look()
}

// String says what is counted, and where.
func (m *Meter) String() string {
	names := make([]string, len(m.units))
	for i := range m.units {
		names[i] = m.units[i].pmu.Name
	}
	return fmt.Sprintf("%s: %s, of %d last-level caches", m.method.cpu, strings.Join(names, ", "), len(m.dies))
}

// look finds the dies again when other CPUs are online than before: the kernel may count a die on another CPU then.
func (m *Meter) look() error {
	online, err := cputopology.ReadOnline(m.files)
	if err != nil || slices.Equal(online, m.online) {
		return err
	}
	topology, err := cputopology.Read(m.files)
	if err != nil {
		return err
	}
	caches := map[int]int{}
	for i := range topology.CPUs {
		if c := &topology.CPUs[i]; c.LLC.Level == 3 && c.LLC.ID != cputopology.Unknown {
			caches[c.ID] = c.LLC.ID
		}
	}
	dies := map[int]*die{}
	for i := range m.units {
		u := &m.units[i]
		list, err := u.pmu.CPUs()
		if err != nil {
			return err
		}
		for _, cpu := range list {
			if id, ok := caches[cpu]; ok {
				if dies[id] == nil {
					dies[id] = &die{}
				}
				n := len(u.events)
				dies[id].boxes = append(dies[id].boxes, box{unit: u, cpu: cpu, seen: make([]uint64, n+1), now: make([]uint64, n+1)})
			}
		}
	}
	m.Close()
	m.online, m.dies = online, dies
	return nil
}

// Start opens the counters of all dies. The error is that of the first where none could be opened; single ones are tried again
// by Read.
func (m *Meter) Start() error {
	first, begun := error(nil), false
	for _, d := range m.dies {
		_, err := d.start(m.open)
		if begun = begun || err == nil; first == nil {
			first = err
		}
	}
	switch {
	case begun:
		return nil
	case first != nil:
		return first
	}
	return ErrNoDie
}

// Read returns how long reads that missed a cache took on average since the last Read of it. Errors wrap those above, or
// perf's.
func (m *Meter) Read(cache int) (nsec uint64, err error) {
	if err := m.look(); err != nil {
		return 0, err
	}
	d := m.dies[cache]
	if d == nil {
		return 0, fmt.Errorf("cache %d: %w", cache, ErrNoDie)
	}
	switch begun, err := d.start(m.open); {
	case err != nil:
		return 0, err
	case begun:
		return 0, ErrFresh
	}
	sum, err := d.read(len(m.units[0].events))
	if err != nil {
		if !errors.Is(err, ErrWaiting) && !errors.Is(err, ErrBackwards) {
			d.close()
		}
		return 0, err
	}
	return m.method.latency(sum)
}

// latency makes nanoseconds of what was counted: wait, requests, the clock where there is one, and ns of counting. All are of the
// same instants, so where the counters were shared with others nothing has to be scaled.
func (m *method) latency(sum []uint64) (nsec uint64, err error) {
	if sum[1] < fewest {
		return 0, ErrIdle
	}
	mean := float64(sum[0]) / float64(sum[1]) * m.stepNsec
	if m.clock != "" {
		mean = float64(sum[0]) / float64(sum[1]) * float64(sum[3]) / float64(sum[2])
	}
	if !(mean >= 1 && mean <= longest) { // nor NaN, of a clock that stood still
		return 0, fmt.Errorf("%w: %v ns", ErrAbsurd, mean)
	}
	return uint64(math.Round(mean)), nil
}

// start opens what is not open, and reports whether anything was not.
func (d *die) start(open Opener) (begun bool, err error) {
	for i := range d.boxes {
		b := &d.boxes[i]
		if b.counters != nil {
			continue
		}
		begun = true
		if b.counters, err = open(b.cpu, b.events); err == nil {
			err = b.counters.Enable()
		}
		if err != nil {
			d.close()
			return true, fmt.Errorf("%s: %w", b.pmu.Name, err)
		}
		clear(b.seen)
	}
	return begun, nil
}

// read returns what was counted since the last reading: the events, and ns. Boxes that had to wait for others' counters all the
// time are left out; the rest speaks for them.
func (d *die) read(events int) ([]uint64, error) {
	sum, fell := make([]uint64, events+1), false
	for i := range d.boxes {
		b := &d.boxes[i]
		_, running, ended, err := b.counters.Read(b.now[:events])
		switch {
		case errors.Is(err, perf.ErrStarved):
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", b.pmu.Name, err)
		case ended:
			return nil, fmt.Errorf("%s on CPU %d: %w", b.pmu.Name, b.cpu, perf.ErrOffline)
		}
		b.now[events] = running
		for k, v := range b.now {
			fell = fell || v < b.seen[k]
			sum[k] += v - b.seen[k]
		}
		copy(b.seen, b.now)
	}
	switch {
	case fell:
		return nil, ErrBackwards
	case sum[events] == 0:
		return nil, ErrWaiting
	}
	return sum, nil
}

func (d *die) close() {
	for i := range d.boxes {
		if b := &d.boxes[i]; b.counters != nil {
			_ = b.counters.Close() // what cannot be closed cannot be closed again
			b.counters = nil
		}
	}
}

// Close closes all counters.
func (m *Meter) Close() {
	for _, d := range m.dies {
		d.close()
	}
}
