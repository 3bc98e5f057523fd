package cpupool

import (
	"math/rand/v2"

	"github.com/commensal-io/commensal/model"
)

// service is one LC task: in each CFS period of 100 ms it is asked for some work, does what
// its quota lets it, and what it could not do waits.
type service struct {
	view    model.TaskView
	demand  func() float64 // microseconds of CPU time in a period
	backlog float64
	used    float64
	periods uint64
	limited uint64
	claim   *model.Claim
}

const period = 100_000

func newService(num model.TaskNum, quota int64, demand func() float64) *service {
	s := &service{demand: demand}
	s.view.Task = model.Task{Num: num, Path: "/lc", Class: model.LC}
	found := model.Bandwidth(model.CPUMax{QuotaUsec: quota, PeriodUsec: period})
	s.view.Knobs[model.CPUBandwidth] = model.KnobView{Known: true, Found: found, Now: found}
	return s
}

func (s *service) knob() *model.KnobView { return &s.view.Knobs[model.CPUBandwidth] }
func (s *service) quota() int64          { return s.knob().Now.QuotaUsec }
func (s *service) found() int64          { return s.knob().Found.QuotaUsec }

// play is one CFS period.
func (s *service) play() {
	s.backlog += s.demand()
	use := s.backlog
	if q := s.quota(); q > 0 && use > float64(q) {
		use = float64(q)
		s.limited++
	}
	s.backlog -= use
	s.used += use
	s.periods++
}

// server plays kernel, ledger and clock around the policy.
type server struct {
	p        Params
	s        State
	v        model.CPUView
	w        model.Wishes
	pulse    model.Pulse
	services []*service
	other    float64 // LC CPU time that is none of the services'
	now      int64   // nanoseconds
	said     []model.Decision
	claims   int
	writes   int
	refuse   int64 // quotas above it are refused; 0: none is
	spoil    func(*model.Pulse)
}

func newServer(p Params, cpus int, services ...*service) *server {
	h := &server{p: p, services: services, now: 1e9}
	h.v.Mode, h.v.Changed, h.v.PoolCPUs = model.ModeEnforce, true, model.FullSet(cpus)
	h.v.Tasks = make([]model.TaskView, len(services))
	for i, s := range services {
		h.v.Tasks[i] = s.view
	}
	return h
}

// step is one pulse.
func (h *server) step(detail bool) {
	h.v.NowNsec = h.now
	h.pulse = model.Pulse{MonoNsec: h.now, Tasks: h.pulse.Tasks[:0]}
	sum := h.other
	for i, s := range h.services {
		if h.v.Tasks[i] != s.view {
			h.v.Tasks[i], h.v.Changed = s.view, true
		}
		sum += s.used
		h.pulse.Tasks = append(h.pulse.Tasks, model.TaskPulse{
			Num: s.view.Task.Num, Usage: model.Read(uint64(s.used * 1000)), Periods: model.Read(s.periods), Throttled: model.Read(s.limited),
		})
	}
	h.pulse.LCUsage = model.Read(uint64(sum * 1000))
	if !detail {
		h.pulse.Tasks = nil
	}
	if h.spoil != nil {
		h.spoil(&h.pulse)
	}
	h.v.Pulse = &h.pulse
	h.w.Reset()
	h.s.Step(&h.p, &h.v, &h.w)
	h.v.Changed = false
	h.said = append(h.said, h.w.Decisions...)
	h.settle()
}

// settle is the ledger, with the claims of this policy alone.
func (h *server) settle() {
	h.claims += len(h.w.Claims)
	for _, d := range h.w.Drops {
		if s := h.service(d.Task); s != nil && s.claim != nil && s.claim.Kind == d.Kind {
			s.claim = nil
		}
	}
	for i := range h.w.Claims {
		c := h.w.Claims[i]
		h.service(c.Task).claim = &c
	}
	for _, s := range h.services {
		k := s.knob()
		if s.claim != nil && h.now >= s.claim.ExpiresNsec {
			s.claim = nil
		}
		want := k.Found.QuotaUsec
		if s.claim != nil {
			want = s.claim.QuotaUsec
		}
		if h.refuse > 0 && want > h.refuse {
			s.claim, k.Refused, k.Why = nil, true, "invalid argument"
			want = k.Found.QuotaUsec
		} else if s.claim != nil {
			k.Refused, k.Why = false, ""
		}
		if want != k.Now.QuotaUsec {
			h.writes++
		}
		k.Now.QuotaUsec, k.Ours = want, s.claim != nil
	}
}

func (h *server) service(num model.TaskNum) *service {
	for _, s := range h.services {
		if s.view.Task.Num == num {
			return s
		}
	}
	return nil
}

// run plays CFS periods; a pulse comes each second, or so many periods.
func (h *server) run(periods, pulse int) {
	for n := range periods {
		for _, s := range h.services {
			s.play()
		}
		h.now += period * 1000
		if (n+1)%pulse == 0 {
			h.step(h.s.Detail(&h.p, h.now))
		}
	}
}

func (h *server) count(kind model.DecisionKind) int {
	n := 0
	for _, d := range h.said {
		if d.Kind == kind {
			n++
		}
	}
	return n
}

func even(usec float64) func() float64 { return func() float64 { return usec } }

// bursts asks for little, and now and then for much.
func bursts(rng *rand.Rand, usec, spike, often float64) func() float64 {
	return func() float64 {
		if rng.Float64() < often {
			return spike * (0.5 + rng.Float64())
		}
		return usec * 2 * rng.Float64()
	}
}
