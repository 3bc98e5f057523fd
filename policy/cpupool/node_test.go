package cpupool_test

import (
	"math/rand/v2"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpupool"
)

// service is one LC task: in each CFS period of 100 ms it is asked for some work, does what
// its quota lets it, and what it could not do waits.
type service struct {
	*enginetest.Task
	demand  func() float64 // microseconds of CPU time in a period
	backlog float64
	used    float64
	periods uint64
	limited uint64
}

const period = 100_000

func newService(num int, quota int64, demand func() float64) *service {
	return &service{Task: enginetest.NewTask(num, model.LC).Quota(quota, period), demand: demand}
}

// spiky is a service that is let have 2 CPUs and often wants more for a moment.
func spiky(num int) *service {
	return newService(num, 2*period, bursts(rand.New(rand.NewPCG(1, 1)), 20_000, 5*period, 0.1))
}

func (s *service) knob() *enginetest.Knob { return &s.Knobs[model.CPUBandwidth] }
func (s *service) quota() int64           { return s.knob().Value.QuotaUsec }

func (s *service) found() int64 {
	if k := s.knob(); k.Ours {
		return k.Found.QuotaUsec
	}
	return s.quota()
}

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

// server is a node of services.
type server struct {
	*enginetest.Node
	p        *cpupool.Params
	s        *cpupool.State
	pulse    model.Pulse
	services []*service
	other    float64 // LC CPU time that is none of the services'
	be       float64 // CPU time of everybody else
	spoil    func(*model.Pulse)
}

// newServer has so many CPUs; 0: they cannot be read.
func newServer(p cpupool.Params, cpus int, services ...*service) *server {
	topology := enginetest.Flat(cpus)
	if cpus == 0 {
		topology = nil
	}
	h := &server{Node: enginetest.New(enginetest.Params(), topology), services: services}
	for _, s := range services {
		h.Add(s.Task)
	}
	h.p, h.s = &h.Engine.Params.CPU.CPUPool, &h.Engine.State.CPU.CPUPool
	*h.p = p
	h.mode(model.ModeEnforce)
	h.Pulse = &h.pulse
	return h
}

func (h *server) mode(m model.Mode) { h.Engine.Params.CPU.CPUPoolMode = m }

// claim returns what the policy claims for a service, nil when that is nothing.
func (h *server) claim(s *service) *model.Claim {
	return h.Claim(model.PolicyCPUPool, s.Num, model.CPUBandwidth)
}

// step is one pulse.
func (h *server) step(detail bool) {
	h.pulse = model.Pulse{MonoNsec: h.NowNsec, Tasks: h.pulse.Tasks[:0]}
	sum := h.other
	for _, s := range h.services {
		sum += s.used
		h.pulse.Tasks = append(h.pulse.Tasks, model.TaskPulse{
			Num: s.Num, Usage: model.Read(uint64(s.used * 1000)), Periods: model.Read(s.periods), Throttled: model.Read(s.limited),
		})
	}
	h.pulse.LCUsage = model.Read(uint64(sum * 1000))
	if detail {
		h.pulse.NodeUsage = model.Read(uint64((sum + h.be) * 1000))
	} else {
		h.pulse.Tasks = nil
	}
	if h.spoil != nil {
		h.spoil(&h.pulse)
	}
	h.Beat(0)
}

// run plays CFS periods; a pulse comes each second, or so many periods.
func (h *server) run(periods, pulse int) {
	for n := range periods {
		for _, s := range h.services {
			s.play()
		}
		h.NowNsec += period * 1000
		if (n+1)%pulse == 0 {
			h.step(h.Engine.NeedsDetail(h.NowNsec))
		}
	}
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
