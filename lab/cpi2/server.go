package cpi2

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/outlier"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// platform is the CPU type of all machines here, for the specs.
const platform = "twin-skylake"

// windowSeconds is CPI2 table 2: 10 seconds, once a minute.
const windowSeconds = 10

// server is a mix that is being played.
type server struct {
	mix  *mix
	host *twin.Host
	next int // of mix.plan
	nums map[string]model.TaskNum
	snap model.Snapshot
	prev model.Snapshot
	obs  model.Observation // of the last window
	min  int               // minutes played
}

func newServer(m *mix) (*server, error) {
	mach, err := machine.New(m.config, m.seed)
	if err != nil {
		return nil, err
	}
	return &server{mix: m, host: twin.NewHost(mach, true), nums: map[string]model.TaskNum{}}, nil
}

// fork copies the server between two minutes.
func (s *server) fork() *server {
	return &server{mix: s.mix, host: s.host.Fork(), next: s.next, nums: maps.Clone(s.nums), min: s.min}
}

// advance lets happen what is due and plays a second.
func (s *server) advance() error {
	m := s.host.Machine()
	for s.next < len(s.mix.plan) && s.mix.plan[s.next].atNsec <= m.NowNsec() {
		if err := s.act(&s.mix.plan[s.next]); err != nil {
			return err
		}
		s.next++
	}
	m.Advance(1e9)
	return nil
}

func (s *server) act(a *action) error {
	switch {
	case a.start != nil:
		n, err := s.host.Start(a.start.task, a.start.cfg)
		if err != nil {
			return err
		}
		s.nums[a.start.task.Path] = n
		return nil
	case a.stop != "":
		return s.host.Stop(s.nums[a.stop])
	}
	phys, err := s.host.Physical(s.nums[a.rate])
	if err != nil {
		return err
	}
	for i := range s.mix.plan {
		if p := s.mix.plan[i].start; p != nil && p.task.Path == a.rate {
			return s.host.Machine().SetRate(phys, p.cfg.Requests.PerSecond*a.times)
		}
	}
	return fmt.Errorf("cpi2: no task %s to change the load of", a.rate)
}

// minute plays a minute: a window of 10 seconds, in which the watchers are told of its
// begin and end, and 50 seconds more. Watchers tick once a second, as the agent does.
func (s *server) minute(watchers ...*watcher) error {
	for second := range 60 {
		mark := model.WindowMark(0)
		switch second {
		case 0:
			mark = model.WindowStart
		case windowSeconds:
			mark = model.WindowEnd
		}
		var snap *model.Snapshot
		if mark != 0 {
			if err := s.host.Observe(mark, &s.snap); err != nil {
				return err
			}
			snap = &s.snap
			s.window(mark)
		}
		for _, w := range watchers {
			w.tick(s, snap)
		}
		if err := s.advance(); err != nil {
			return err
		}
	}
	s.min++
	return nil
}

// window keeps what the window says, for those who judge.
func (s *server) window(mark model.WindowMark) {
	if mark == model.WindowEnd {
		model.Observe(&s.prev, &s.snap, &s.obs)
		return
	}
	tasks := append(s.prev.Tasks[:0], s.snap.Tasks...)
	s.prev = s.snap
	s.prev.Tasks = tasks
}

// seen returns what the last window says of a task; ok is false when it says nothing or
// the task hardly ran (table 2: 0.25 CPU-sec/sec).
func (s *server) seen(n model.TaskNum) (o *model.TaskObservation, ok bool) {
	for i := range s.obs.Tasks {
		if o := &s.obs.Tasks[i]; o.Num == n {
			return o, o.CPU.Outcome == model.OK && o.CPU.V >= requiredCPU && o.Signals[model.SourceCPI].Outcome == model.OK
		}
	}
	return nil, false
}

const requiredCPU = 0.25

// utilisation is the share of the machine's CPUs that was busy in the last window.
func (s *server) utilisation() float64 { return s.obs.Busy.V / float64(s.obs.CPUs) }

// hold caps a task by hand, as the seed's authors did; 0 frees it.
func (s *server) hold(n model.TaskNum, cpu float64) error {
	phys, err := s.host.Physical(n)
	if err != nil {
		return err
	}
	v := machine.CPUMax(twin.Unlimited())
	if cpu > 0 {
		v = machine.CPUMax{QuotaUsec: int64(cpu * capPeriodUsec), PeriodUsec: capPeriodUsec}
	}
	return s.host.Machine().SetCPUMax(phys, v)
}

const capPeriodUsec = 250_000 // section 5: 25 ms in each 250 ms

// watcher is an engine that looks at a server, and acts on it when it may.
type watcher struct {
	eng      *engine.Engine
	enforces bool
	seq      uint64
	results  []model.Result
	knobs    []model.KnobReading
	// told is called with what each tick leads to; it may be nil.
	told func(in *engine.Input, out *engine.Output)
}

// params are the engine's, with the seed's own values.
func params(mode model.Mode, mutate func(*engine.Params)) (engine.Params, error) {
	c, ok := config.Defaults(config.ProfileCPI2)
	if !ok {
		return engine.Params{}, fmt.Errorf("cpi2: no profile %s", config.ProfileCPI2)
	}
	c.Signals = []string{model.SourceCPI.String()}
	p := c.Params(platform)
	p.Mode = mode
	// Specs come from the fleet, here from Fleet; what this node would learn is not used.
	p.Spec.RecalculateNsec = 1 << 62
	if mutate != nil {
		mutate(&p)
	}
	return p, nil
}

// newWatcher returns an engine that was sent the fleet's specs.
func newWatcher(p engine.Params, specs []model.Spec) *watcher {
	e := engine.New(p)
	e.State.Specs = sent(specs)
	return &watcher{eng: e, enforces: p.Mode == model.ModeEnforce}
}

// resume returns an engine with other parameters that goes on where a state left off.
func resume(p engine.Params, state []byte, seq uint64) (*watcher, error) {
	var st engine.State
	if err := json.Unmarshal(state, &st); err != nil {
		return nil, fmt.Errorf("cpi2: an engine's state: %w", err)
	}
	e, err := engine.Resume(p, &st)
	if err != nil {
		return nil, err
	}
	return &watcher{eng: e, enforces: p.Mode == model.ModeEnforce, seq: seq}, nil
}

func (w *watcher) tick(s *server, snap *model.Snapshot) {
	w.seq++
	w.knobs = s.host.Knobs(w.knobs[:0])
	in := engine.Input{Seq: w.seq, MonoNsec: s.host.Machine().NowNsec(), Snapshot: snap, Results: w.results, Knobs: w.knobs}
	in.WallNsec = in.MonoNsec
	out := w.eng.Step(&in)
	w.results = w.results[:0]
	if w.enforces {
		w.results = s.host.Apply(out.Changes, w.results)
	}
	if w.told != nil {
		w.told(&in, out)
	}
}

// threshold is the outlier threshold of a spec (table 2: 2 sigma).
func threshold(sp *model.Spec) float64 {
	p := outlier.Params{Sigmas: 2}
	return p.Threshold(sp)
}
