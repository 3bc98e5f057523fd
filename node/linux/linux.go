// Package linux is the node on which the agent runs: kernel drivers behind node.Host.
package linux

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/match"
)

// Options say what to watch and where to journal.
type Options struct {
	FS            hostfs.FS
	Rules         *match.Rules
	Journal       *journal.Journal // nil: the host can be observed but not acted on
	DiscoverEvery time.Duration
	Counters      bool // open hardware counters where the machine has them
	Log           *slog.Logger

	// What is no file. nil is the running kernel's; a simulated kernel has its own.
	Delay  taskstats.Source // stays the caller's to close
	Opener CounterOpener
	Clock  Clock
}

// Host implements node.Host on the running kernel.
type Host struct {
	opt   Options
	cg    cgroup.Driver
	knobs *Knobs

	stat  *procstat.Reader
	root  cgroup.RootUsage // exact where /proc/stat counts ticks; may be nil
	stall *psi.Reader      // nil: no PSI
	delay taskstats.Source // nil: no delay
	perf  *counters        // nil: no hardware counters

	tasks      []*watched // ordered by number
	nextNum    model.TaskNum
	discovered int64 // monotonic; 0: never
	pids       []int32
	stats      []taskstats.Stats
	again      []relisted
	online     int
	missing    []string
}

var _ node.Host = (*Host)(nil)

// ErrNoTasks: the machine has no cgroups that the agent could watch at all.
var ErrNoTasks = errors.New("no cgroup driver for this machine")

// Open opens the drivers. What this machine lacks is listed by Missing and is no error,
// except the cgroups themselves.
func Open(o Options) (*Host, error) {
	if o.Clock == nil {
		o.Clock = RealClock{}
	}
	if o.Opener == nil {
		o.Opener = perfOpener{o.FS}
	}
	m, err := cgroup.Discover(o.FS)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTasks, err)
	}
	cg, err := cgroup.Open(o.FS, m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTasks, err)
	}
	h := &Host{opt: o, cg: cg}
	if o.Journal != nil {
		h.knobs = newKnobs(cg, o.Journal)
	}
	if h.stat, err = procstat.Open(o.FS); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if h.root, err = cg.OpenRootUsage(); err != nil {
		h.lacks("exact CPU time of the whole node (ticks are used)", err)
	}
	if h.stall, err = psi.Open(o.FS, psi.CPU.Path()); err != nil {
		h.lacks("system PSI", err)
	}
	h.openDelay()
	if o.Counters {
		if h.perf, err = openCounters(o.FS, o.Opener, m); err != nil {
			h.lacks("CPI", err)
		}
	}
	if cpus, err := cputopology.ReadOnline(o.FS); err == nil {
		h.online = len(cpus)
	}
	return h, nil
}

// openDelay prefers taskstats, which keeps the delay of threads that died.
func (h *Host) openDelay() {
	if h.opt.Delay != nil {
		h.delay = h.opt.Delay
		return
	}
	n, err := taskstats.DialTaskstats()
	if err == nil {
		h.delay = n
		return
	}
	h.lacks("taskstats (thread schedstat is used)", err)
	h.delay = taskstats.NewSchedstat(h.opt.FS)
}

func (h *Host) lacks(what string, err error) {
	h.missing = append(h.missing, fmt.Sprintf("%s: %v", what, err))
}

// Missing says which measurements this machine does not give, and why.
func (h *Host) Missing() []string { return h.missing }

// Close lets go of all descriptors and leaves what is held as it is.
func (h *Host) Close() error {
	errs := []error{h.stat.Close()}
	if h.root != nil {
		errs = append(errs, h.root.Close())
	}
	if h.stall != nil {
		errs = append(errs, h.stall.Close())
	}
	if h.delay != nil && h.opt.Delay == nil {
		errs = append(errs, h.delay.Close())
	}
	for _, w := range h.tasks {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}

// Apply implements node.Host.
func (h *Host) Apply(changes []model.Change, dst []model.Result) []model.Result {
	for i := range changes {
		c := &changes[i]
		w := h.find(c.Task)
		if w == nil || h.knobs == nil {
			if c.Kind != model.Disown {
				dst = append(dst, model.Result{Seq: c.Seq, Task: c.Task, Kind: model.Vanished, Error: "the task is gone", MonoNsec: h.opt.Clock.MonoNsec()})
			}
			continue
		}
		var r model.Result
		switch c.Kind {
		case model.Hold:
			if r = h.knobs.hold(&w.task, c.Value); r.Kind == model.Refused {
				h.askLimit(w) // the controller may be gone
			}
		case model.Release:
			r = h.knobs.release(&w.task)
		case model.Disown:
			h.knobs.disown(w.task.Path)
			continue
		}
		r.Seq, r.MonoNsec = c.Seq, h.opt.Clock.MonoNsec()
		dst = append(dst, r)
	}
	if h.knobs != nil {
		h.tellLeftovers(h.knobs.putBackLeftovers(h.opt.Clock.MonoNsec()))
	}
	return dst
}

// Knobs implements node.Host.
func (h *Host) Knobs(dst []model.KnobReading) []model.KnobReading {
	if h.knobs == nil {
		return dst
	}
	for _, w := range h.tasks {
		l := h.knobs.j.Limit(w.task.Path)
		if l == nil {
			continue
		}
		r := model.KnobReading{Task: w.task.Num, Outcome: model.OK}
		v, err := h.knobs.read(w.task.Path, w.task.Inode)
		switch {
		case errors.Is(err, cgroup.ErrVanished):
			r.Outcome = model.Absent
		case err != nil:
			r.Outcome = model.Unavailable
		case l.Ours(v) && v != h.knobs.held[w.task.Path]:
			// A change of ours that was refused half way: nobody else wrote this.
			r.Outcome = model.Unavailable
		}
		r.Value = v
		dst = append(dst, r)
	}
	return dst
}

// Restore implements node.Host.
func (h *Host) Restore() (node.Report, error) {
	if h.knobs == nil {
		return node.Report{}, nil
	}
	return node.Report{Items: h.knobs.restore(h.knobs.j.Outstanding())}, nil
}
