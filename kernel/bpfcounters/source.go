// Package bpfcounters counts hardware and software events of many cgroups with one group of perf events a CPU: a BPF
// program at the context switch reads it and adds what it grew to the cgroup that leaves the CPU. It gives the same
// counts as package perf's OpenCgroup, with
//
//	events × (CPUs + 1) + 6 descriptors in all + 1 a cgroup
//
// instead of (events + 2) × CPUs + 1 a cgroup, and it costs a switch the same however many cgroups are counted.
// docs/COUNTERS.md has the measurements on which the choice between the two stands.
//
// Nothing is pinned: when the process ends, however it does, the kernel detaches the program and frees all of it. Outside
// of windows nothing is attached, and the counters are disabled.
//
// What it does not do: a task that moves to another cgroup while it runs takes the stretch since its CPU last
// switched between cgroups along (package perf is told of the move). Counts are charged when a cgroup leaves
// a CPU, so a reading between Start and Stop is behind unless Flush came before.
package bpfcounters

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/perf"
)

var (
	// ErrFull means that as many cgroups are counted as the source was opened for.
	ErrFull = errors.New("no room for another cgroup")
	// errLayout means that the kernel's structures are not what the program knows; it comes with perf.ErrNotSupported.
	errLayout = errors.New("unknown layout")
)

// Source counts the same events of many cgroups. Not for concurrent use.
type Source struct {
	events   []perf.Event
	groups   []*perf.Group // by place in cpus; nil while the CPU is offline
	cpus     []int
	possible int // CPUs that this kernel may ever have: the width of per-CPU maps
	maps     objects
	onSwitch *ebpf.Program
	flush    *ebpf.Program
	link     link.Link // nil outside of windows
	free     []uint32  // slots that no cgroup has
	tasks    map[*Task]struct{}
	values   []uint64
}

// Open loads the programs and opens the events, disabled, on the CPUs; CPUs that are offline are taken up by the first
// Start that finds them online. maxTasks bounds the cgroups that can be counted at a time: each takes 8 × (events + 2)
// bytes a possible CPU, taken at once. Errors wrap perf.ErrNotSupported (also of a kernel without BTF or BPF),
// perf.ErrPermission, perf.ErrTooManyFiles, perf.ErrTooManyEvents or perf.ErrOffline where they apply, and nothing is
// left open then.
func Open(cpus []int, events []perf.Event, maxTasks int) (*Source, error) {
	if len(cpus) == 0 || len(events) == 0 || maxTasks < 1 {
		return nil, fmt.Errorf("bpfcounters: open %d events on %d CPUs for %d cgroups: %w", len(events), len(cpus), maxTasks, unix.EINVAL)
	}
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("bpfcounters: possible CPUs: %w", err)
	}
	for _, cpu := range cpus {
		if cpu < 0 || cpu >= possible {
			return nil, fmt.Errorf("bpfcounters: CPU %d of %d: %w", cpu, possible, unix.EINVAL)
		}
	}
	s := &Source{
		events:   append([]perf.Event(nil), events...),
		cpus:     append([]int(nil), cpus...),
		groups:   make([]*perf.Group, len(cpus)),
		possible: possible,
		tasks:    map[*Task]struct{}{},
		values:   make([]uint64, len(events)),
	}
	if err := haveRoom(len(events)*(len(cpus)+1) + loadingFiles); err != nil {
		return nil, fmt.Errorf("bpfcounters: open %d events on %d CPUs: %w", len(events), len(cpus), sorted(err))
	}
	for slot := range maxTasks {
		s.free = append(s.free, uint32(maxTasks-1-slot))
	}
	if err := s.load(maxTasks); err != nil {
		return nil, errors.Join(fmt.Errorf("bpfcounters: %w", sorted(err)), s.Close())
	}
	if err := s.openGroups(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// loadingFiles is how many descriptors maps, programs and BTF take while they are loaded, with some to spare.
const loadingFiles = 16

// haveRoom says whether so many descriptors are to be had: it takes them and gives them back. Without it a limit that is
// met while the library looks for the tracepoint would be told as a tracepoint that this kernel lacks.
func haveRoom(descriptors int) error {
	taken := make([]int, 0, descriptors)
	defer func() {
		for _, fd := range taken {
			_ = unix.Close(fd)
		}
	}()
	for range descriptors {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return err
		}
		taken = append(taken, fd)
	}
	return nil
}

// load makes the maps and loads the programs.
func (s *Source) load(maxTasks int) error {
	if err := rlimit.RemoveMemlock(); err != nil { // kernels before 5.11 account maps to it; nothing is done on others
		return err
	}
	at, err := resolveOffsets()
	if err != nil {
		return err
	}
	record := uint32(8 * words(len(s.events)))
	for range s.events {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "commensal_event", Type: ebpf.PerfEventArray, MaxEntries: uint32(s.possible)})
		if err != nil {
			return fmt.Errorf("map of events: %w", err)
		}
		s.maps.events = append(s.maps.events, m)
	}
	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&s.maps.state, ebpf.MapSpec{Name: "commensal_state", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: record, MaxEntries: 1}},
		{&s.maps.slots, ebpf.MapSpec{Name: "commensal_slots", Type: ebpf.Hash, KeySize: 8, ValueSize: 4, MaxEntries: uint32(maxTasks)}},
		{&s.maps.counts, ebpf.MapSpec{Name: "commensal_count", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: record, MaxEntries: uint32(maxTasks)}},
	} {
		if *m.to, err = ebpf.NewMap(&m.spec); err != nil {
			return fmt.Errorf("map %s: %w", m.spec.Name, err)
		}
	}
	if s.onSwitch, err = ebpf.NewProgram(switchProgram(at, s.maps)); err != nil {
		return fmt.Errorf("program at the switch: %w", err)
	}
	if s.flush, err = ebpf.NewProgram(flushProgram(s.maps)); err != nil {
		return fmt.Errorf("program to flush: %w", err)
	}
	return nil
}

// sorted gives an error of loading the names that package perf has for them. What the verifier says of the program is
// none of them: it would be a fault of ours.
func sorted(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return err
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: %w", perf.ErrTooManyFiles, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("needs CAP_BPF and CAP_PERFMON, and a kernel that is not locked down: %w: %w", perf.ErrPermission, err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, btf.ErrNotFound), errors.Is(err, os.ErrNotExist),
		errors.Is(err, errLayout), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: %w", perf.ErrNotSupported, err)
	}
	return err
}

// openGroups opens the events of every CPU; one at least must be online.
func (s *Source) openGroups() error {
	online := 0
	for i := range s.cpus {
		err := s.openGroup(i)
		switch {
		case err == nil:
			online++
		case !errors.Is(err, perf.ErrOffline):
			return err
		}
	}
	if online == 0 {
		return fmt.Errorf("bpfcounters: open on %d CPUs: %w", len(s.cpus), perf.ErrOffline)
	}
	return nil
}

// openGroup opens the events of one CPU and shows them to the program.
func (s *Source) openGroup(i int) error {
	cpu := s.cpus[i]
	g, err := perf.OpenCPU(cpu, s.events)
	if err != nil {
		return fmt.Errorf("bpfcounters: %w", err)
	}
	for k, fd := range g.FDs() {
		if err := s.maps.events[k].Put(uint32(cpu), uint32(fd)); err != nil {
			return errors.Join(fmt.Errorf("bpfcounters: %v of CPU %d: %w", s.events[k], cpu, err), g.Close())
		}
	}
	s.groups[i] = g
	return nil
}

// Start begins a window: it attaches the program and enables the events, also on CPUs that came online since. If
// anything refuses, all is stopped again.
func (s *Source) Start() error {
	if s.link != nil {
		return nil
	}
	err := s.revive()
	if err == nil { // first, so that no switch is missed; while the events stand still it charges nothing
		s.link, err = link.AttachTracing(link.TracingOptions{Program: s.onSwitch})
	}
	for _, g := range s.groups {
		if err == nil && g != nil {
			err = g.Enable()
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("bpfcounters: start: %w", err), s.Stop())
	}
	return nil
}

// revive opens the events of CPUs that came online, and anew those of CPUs that went away meanwhile: the kernel never
// counts with them again.
func (s *Source) revive() error {
	for i, g := range s.groups {
		if g != nil {
			_, _, ended, err := g.Read(s.values)
			if err != nil && !errors.Is(err, perf.ErrStarved) {
				return err
			}
			if !ended {
				continue
			}
			if err := s.drop(i); err != nil {
				return err
			}
		}
		err := s.openGroup(i)
		if err == nil { // its events begin at zero
			err = s.forget(s.cpus[i])
		}
		if err != nil && !errors.Is(err, perf.ErrOffline) {
			return err
		}
	}
	return nil
}

// forget makes zero of where a CPU's events were last read. Nothing is attached.
func (s *Source) forget(cpu int) error {
	n := words(len(s.events))
	first, state := uint32(0), make([]uint64, s.possible*n)
	if err := lookup(s.maps.state.FD(), &first, state); err != nil {
		return err
	}
	clear(state[cpu*n : (cpu+1)*n])
	return update(s.maps.state.FD(), &first, state)
}

// drop closes the events of a CPU and takes them from the program.
func (s *Source) drop(i int) error {
	var err error
	for _, array := range s.maps.events {
		err = errors.Join(err, array.Delete(uint32(s.cpus[i])))
	}
	err = errors.Join(err, s.groups[i].Close())
	s.groups[i] = nil
	return err
}

// Stop ends a window: it disables the events, charges what is left on every CPU, and detaches the program. It
// does all of it whatever fails, and returns what failed.
func (s *Source) Stop() error {
	var err error
	for _, g := range s.groups {
		if g != nil {
			err = errors.Join(err, g.Disable())
		}
	}
	if s.link != nil {
		err = errors.Join(err, s.Flush(), s.link.Close())
		s.link = nil
	}
	if err != nil {
		return fmt.Errorf("bpfcounters: stop: %w", err)
	}
	return nil
}

// Flush charges, on every CPU, what was counted since its last switch between cgroups: one interrupt a CPU. Stop does so
// by itself.
func (s *Source) Flush() error {
	if s.link == nil {
		return nil
	}
	for i, g := range s.groups {
		if g == nil {
			continue
		}
		if err := runOn(s.flush.FD(), s.cpus[i]); err != nil && !errors.Is(err, unix.ENXIO) { // ENXIO: offline by now
			return fmt.Errorf("bpfcounters: flush CPU %d: %w", s.cpus[i], err)
		}
	}
	return nil
}

// Close stops, closes all tasks and everything else, and returns what failed.
func (s *Source) Close() error {
	err := s.Stop()
	for t := range s.tasks {
		err = errors.Join(err, t.Close())
	}
	for _, g := range s.groups {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
	}
	clear(s.groups)
	for _, p := range []**ebpf.Program{&s.onSwitch, &s.flush} {
		err = errors.Join(err, (*p).Close())
		*p = nil
	}
	for _, m := range append(s.maps.events, s.maps.state, s.maps.slots, s.maps.counts) {
		err = errors.Join(err, m.Close())
	}
	s.maps = objects{}
	return err
}
