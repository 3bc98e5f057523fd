package probe

// Some probes are system calls. A captured tree has their outcomes in a file of its own, one a line, so that it gives
// the same answers as the machine did:
//
//	taskstats: ok
//	perf cycles: not supported: perf: open cycles on this process: event not supported by this machine: no such file or directory

import (
	"errors"
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/schedwait"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/kernel/uncore"
)

// callsFile is in the root of a captured tree, where no kernel file can be.
const callsFile = "/calls"

// calls are the probes that are system calls. Errors wrap the sentinels of packages taskstats and perf.
type calls interface {
	taskstats() error
	event(perf.Event) error
	cgroupEvent(dir string) error // of the group in dir
	programs() error              // that tell who makes whom wait
	latency(*uncore.Meter) error  // of memory
}

// kernelCalls asks the running kernel.
type kernelCalls struct{ fs hostfs.FS }

func (kernelCalls) taskstats() error {
	n, err := taskstats.DialTaskstats()
	if err != nil {
		return err
	}
	return n.Close()
}

func (kernelCalls) event(e perf.Event) error { return perf.Supported(e) }

func (kernelCalls) programs() error { return schedwait.Supported() }

func (kernelCalls) latency(m *uncore.Meter) error {
	defer m.Close()
	return m.Start()
}

func (k kernelCalls) cgroupEvent(dir string) error {
	fd, closeDir, err := k.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	c, err := perf.OpenCgroup(fd, []int{0}, []perf.Event{perf.TaskClock})
	if err == nil {
		err = c.Close()
	}
	return errors.Join(err, closeDir())
}

// outcomes are captured calls by the finding's name; nil: it went well.
type outcomes map[string]error

func (o outcomes) taskstats() error         { return o.outcome(Taskstats) }
func (o outcomes) event(e perf.Event) error { return o.outcome(eventName(e)) }
func (o outcomes) cgroupEvent(string) error { return o.outcome(PerfPerCgroup) }
func (o outcomes) programs() error          { return o.outcome(BPFPrograms) }

func (o outcomes) latency(*uncore.Meter) error { return o.outcome(MemoryLatency) }

func (o outcomes) outcome(name string) error {
	err, ok := o[name]
	if !ok {
		return fmt.Errorf("%s: no line %q", callsFile, name)
	}
	return err
}

// eventName is the finding about an event.
func eventName(e perf.Event) string {
	switch e {
	case perf.Cycles:
		return PerfCycles
	case perf.RefCycles:
		return PerfRefCycles
	case perf.Instructions:
		return PerfInstructions
	case perf.LLCMisses:
		return PerfLLCMisses
	}
	return "perf " + e.String()
}

// sentinels are the errors that answers depend on, by the word that stands for them.
var sentinels = []struct {
	word string
	errs []error
}{
	{"not supported", []error{perf.ErrNotSupported, taskstats.ErrNotSupported, schedwait.ErrNotSupported}},
	{"permission", []error{perf.ErrPermission, taskstats.ErrPermission, schedwait.ErrPermission}},
	{"refused", []error{schedwait.ErrRefused}},
	{"not cgroup2", []error{perf.ErrNotCgroup2}},
}

// capturedError is an outcome that was written down: its text, and what it was.
type capturedError struct {
	text string
	errs []error
}

func (e *capturedError) Error() string   { return e.text }
func (e *capturedError) Unwrap() []error { return e.errs }

// capturedCalls reads the outcomes of a captured tree; nil when it has none.
func (p *prober) capturedCalls() calls {
	text, err := p.read(callsFile)
	if err != nil {
		return nil
	}
	return parseOutcomes(text)
}

// parseOutcomes reads lines "name: ok" and "name: word: text"; others are left out.
func parseOutcomes(text string) outcomes {
	o := outcomes{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		if rest == "ok" {
			o[name] = nil
			continue
		}
		word, why, ok := strings.Cut(rest, ": ")
		if !ok {
			continue
		}
		e := &capturedError{text: why}
		for _, s := range sentinels {
			if s.word == word {
				e.errs = s.errs
			}
		}
		o[name] = e
	}
	return o
}

// format is what parseOutcomes reads.
func (o outcomes) format() string {
	var b strings.Builder
	for _, name := range []string{Taskstats, PerfCycles, PerfRefCycles, PerfInstructions, PerfLLCMisses, PerfPerCgroup, MemoryLatency, BPFPrograms} {
		err, made := o[name]
		switch {
		case !made:
		case err == nil:
			fmt.Fprintf(&b, "%s: ok\n", name)
		default:
			fmt.Fprintf(&b, "%s: %s: %s\n", name, word(err), oneLine(err.Error()))
		}
	}
	return b.String()
}

// word is the word for an error.
func word(err error) string {
	for _, s := range sentinels {
		for _, sentinel := range s.errs {
			if errors.Is(err, sentinel) {
				return s.word
			}
		}
	}
	return "other"
}

// noted makes calls and keeps their outcomes.
type noted struct {
	calls
	made outcomes
}

func (n noted) taskstats() error {
	n.made[Taskstats] = n.calls.taskstats()
	return n.made[Taskstats]
}

func (n noted) event(e perf.Event) error {
	err := n.calls.event(e)
	n.made[eventName(e)] = err
	return err
}

func (n noted) cgroupEvent(dir string) error {
	n.made[PerfPerCgroup] = n.calls.cgroupEvent(dir)
	return n.made[PerfPerCgroup]
}

func (n noted) programs() error {
	n.made[BPFPrograms] = n.calls.programs()
	return n.made[BPFPrograms]
}

func (n noted) latency(m *uncore.Meter) error {
	n.made[MemoryLatency] = n.calls.latency(m)
	return n.made[MemoryLatency]
}
