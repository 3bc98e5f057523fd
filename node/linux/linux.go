// Package linux is the node on which the agent runs: kernel drivers behind node.Host.
package linux

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/commensal-io/commensal/kernel/blkio"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/procstat"
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
	Counters      bool            // open hardware counters where the machine has them
	Places        bool            // tasks may be placed: say which of them cannot be
	Classes       bool            // tasks may be put into classes of service: say what the machine has of them
	Memory        bool            // say what the CPUs of each domain move to and from memory
	Monitor       bool            // say what tasks have of the last-level caches and move to and from memory
	Targets       []string        // jobs that keep a target: of tasks that cannot all be counted so theirs come first
	InUse         bool            // say how much memory the tasks and the machine use, and how long they wait for it
	Sizes         bool            // say how much memory they use once a minute
	Ages          model.AskedAges // say how long pages lay idle
	Homes         bool            // say on which memory nodes the pages of LC tasks lie
	GPUs          GPUSource       // say what GPUs do, so often; nil: nobody does
	GPUEvery      time.Duration
	IO            bool // say what tasks do on block devices, and how long they wait for them
	CapsOnly      bool // nobody asks about knobs that are not held, nor on which CPUs a task may wait: do not read them
	Log           *slog.Logger

	// What is no file. nil is the running kernel's; a simulated kernel has its own.
	Delay  taskstats.Source // stays the caller's to close
	Opener CounterOpener
	Clock  Clock
	Waits  WaitSource        // stays the caller's to close; nil: nobody measures who makes whom wait
	Beside func(work func()) // begins slow work; nil: in a goroutine
	Pages  numa.Calls        // find and move pages
	Ender  cgroup.Ender      // ends processes
	// Latency is how long memory takes to answer, and stays the caller's to close; nil: nobody knows.
	Latency MemoryLatency
	// Stalls watches for programs that wait for memory (Host.Watch).
	Stalls func(some, full float64) (StallSource, error)
}

// Host implements node.Host on the running kernel.
type Host struct {
	opt   Options
	cg    cgroup.Driver
	knobs *Knobs

	stat  *procstat.Reader
	root  cgroup.RootUsage // exact where /proc/stat counts ticks; may be nil
	delay taskstats.Source // nil: no delay
	perf  *counters        // nil: no hardware counters

	room     room              // what there is of memory
	inUseNow bool              // memory is read in this snapshot
	homesOf  []model.PageHomes // of this snapshot
	homesNow bool              // where pages lie is read in this snapshot
	sized    int64             // when it was last read for Sizes, monotonic; 0: never
	stalls   StallSource       // nil: nobody says when programs wait for some
	ages     ages              // how long pages lay idle
	guests   *guests           // of tasks that are virtual machines
	gpus     gpus

	waits waits // who makes whom wait

	readers []func() taskReader // what else is read of a task here

	io      []model.IOSample // of the reading at hand
	devices []blkio.Stat     // scratch
	delayed bool             // the kernel accounts how long threads wait for devices, and nothing better tells

	tasks       []*watched // ordered by number
	nextNum     model.TaskNum
	discovered  int64 // monotonic; 0: never
	discoveries int   // how many there were
	pids        []int32
	stats       []taskstats.Stats
	asked       []*watched // whose members are asked about
	again       []*watched // once more in one reading
	delays      delays
	ops         []op
	results     []model.Result // of changes, until they are asked for
	beside      *beside
	classes     *classes // nil: nobody puts tasks into classes of service
	online      int
	topology    topology
	pulse       pulse
	byCPU       byCPU
	holders     holders
	bound       bound
	missing     []string
	nested      nested
	outages     outages
}

var (
	_ node.Host    = (*Host)(nil)
	_ node.Looking = (*Host)(nil)
)

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
	h := &Host{opt: o, cg: cg, nextNum: 1, waits: waits{source: o.Waits}} // task 0 is the whole node, in decisions
	h.guests = newGuests(m, cg, &o)
	h.beside = newBeside(m, cg, &o, h.guests)
	if o.Journal != nil {
		h.knobs = newKnobs(cg, o.FS, o.Clock, o.Journal)
	}
	if h.stat, err = procstat.Open(o.FS); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if h.root, err = cg.OpenRootUsage(); err != nil {
		h.lacks("exact CPU time of the whole node (ticks are used)", err)
	}
	if o.Places {
		h.byCPU.open(cg)
	}
	h.openDelay()
	h.openReaders(m)
	h.room.open(h)
	h.ages.open(h, m)
	h.gpus.open(h)
	if o.Counters {
		if h.perf, err = openCounters(o.FS, o.Opener, m); err != nil {
			h.lacks("CPI", err)
		}
	}
	if c := newClasses(o.FS, m, o.Clock, o.Beside, o.Journal); o.Classes || o.Memory || o.Monitor || len(c.noted) > 0 || c.counts { // an earlier agent left some
		h.classes, c.worker.meter.latency = c, o.Latency
		c.worker.moved = o.Memory
	}
	if o.Classes {
		h.classes.look()
	}
	return h, nil
}

// openDelay prefers taskstats, which keeps the delay of threads that died.
func (h *Host) openDelay() {
	if h.opt.Delay != nil {
		h.delay = h.opt.Delay
		return
	}
	dial := func() (taskstats.Source, error) { return taskstats.DialTaskstats() }
	n, err := dial()
	if err == nil {
		h.delay, h.delays.dial = n, dial
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

// CoreCycles reports whether the machine counts hardware events but no reference cycles.
func (h *Host) CoreCycles() bool {
	return h.perf != nil && !slices.Contains(h.perf.events, perf.RefCycles)
}

// Close lets go of all descriptors and leaves what is held as it is.
func (h *Host) Close() error {
	h.guests.cancel()
	h.beside.close()
	h.ages.close()
	h.gpus.close()
	h.guests.close()
	if h.classes != nil {
		h.classes.close()
	}
	errs := []error{h.stat.Close(), h.room.close(), h.holders.close()}
	if h.stalls != nil {
		errs = append(errs, h.stalls.Close())
	}
	if h.root != nil {
		errs = append(errs, h.root.Close())
	}
	if h.byCPU.file != nil {
		errs = append(errs, h.byCPU.file.Close())
	}
	if h.delay != nil && h.opt.Delay == nil {
		errs = append(errs, h.delay.Close())
	}
	if h.knobs != nil {
		h.knobs.close()
	}
	for _, w := range h.tasks {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}

// Apply implements node.Host.
func (h *Host) Apply(changes []model.Change) {
	h.ops = h.ops[:0]
	for i := range changes {
		c := &changes[i]
		switch w := h.find(c.Task()); {
		case c.Kind == model.Stop:
			h.beside.end(c)
		case h.knobs == nil || w == nil && c.Scope == model.ScopeTask:
			h.gone(c)
		case c.Value.Knob.Spec().Beside && h.classes == nil:
			h.results = append(h.results, refusal(c, errNoClasses))
		case c.Scope == model.ScopeCLOS:
			h.classes.take(*c, model.Task{})
		case c.Value.Knob == model.ServiceClass:
			h.classes.take(*c, w.task)
		case c.Kind == model.Run:
			h.beside.start(*c, w.task)
		default:
			h.ops = append(h.ops, op{c, &w.task})
		}
	}
	if h.knobs == nil {
		return
	}
	from := len(h.results)
	h.results = h.knobs.apply(h.ops, h.results)
	for i := from; i < len(h.results); i++ {
		if r := &h.results[i]; r.Kind == model.Refused {
			h.askLimit(h.find(r.Task())) // the controller may be gone
		}
	}
	if h.classes != nil {
		h.classes.goOn()
	}
	now := h.opt.Clock.MonoNsec()
	h.tellLeftovers(h.knobs.putBackLeftovers(now, len(changes) > 0))
	h.tendJournal(now)
}

// Results implements node.Host.
func (h *Host) Results(dst []model.Result) []model.Result {
	dst = append(dst, h.results...)
	h.results = h.results[:0]
	if h.classes != nil {
		dst = h.classes.results(dst, h.opt.Clock.MonoNsec())
	}
	return h.beside.take(dst)
}

// gone answers a change of a task that is not there.
func (h *Host) gone(c *model.Change) {
	if c.Kind == model.Disown {
		return
	}
	none := model.Ask(c.Value.Knob)
	h.results = append(h.results, model.Result{
		Seq: c.Seq, Target: c.Target, Kind: model.Vanished, Found: none, Now: none, Error: "the task is gone", MonoNsec: h.opt.Clock.MonoNsec(),
	})
}

// Knobs implements node.Host.
func (h *Host) Knobs(dst []model.KnobReading) []model.KnobReading {
	if h.knobs == nil {
		return dst
	}
	if h.classes != nil {
		dst = h.classes.compare(dst)
	}
	return h.knobs.compare(h.tasks, dst)
}

// Restore implements node.Host.
func (h *Host) Restore() (node.Report, error) {
	if h.knobs == nil {
		return node.Report{}, nil
	}
	items := h.knobs.putBackAll()
	if h.classes != nil {
		items = append(items, h.classes.restore()...)
	}
	return node.Report{Items: items}, nil
}
