package hardcap_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/hardcap"
)

// What incidents do is told by the stories in engine/testdata. Here is what becomes of the
// policy's list of claims when the ledger, the kernel, or somebody else ends one of them.

// shop is a node with a service (task 1), a quiet neighbour (2) and one that grinds from second
// 40 to 75 (3) and hurts the service by it. Each second is a window.
type shop struct {
	*enginetest.Node
	t      *testing.T
	s      *hardcap.State
	second int
	counts [3]model.TaskSample
	busy   float64
	stale  map[string]bool // claims that the ledger did not have after the step before
}

func newShop(t *testing.T) *shop {
	t.Helper()
	c, _ := config.Defaults(config.ProfileSingleNode)
	c.Policies.Mode = model.ModeEnforce
	n := enginetest.New(c.Params("test"), nil, enginetest.NewTask(1, model.LC), enginetest.NewTask(2, model.BE), enginetest.NewTask(3, model.BE))
	return &shop{Node: n, t: t, s: &n.Engine.State.Hardcap}
}

// knob is the grinder's.
func (h *shop) knob() *enginetest.Knob { return &h.Task(3).Knobs[model.CPUBandwidth] }

func (h *shop) tick() {
	used := [3]float64{1, 0.3, 0}
	if h.second >= 40 && h.second < 75 && h.Task(3) != nil {
		used[2] = min(3, h.knob().Value.Ratio())
	}
	cpi := 1.5 * (1 + []float64{-0.01, 0, 0.01, 0}[h.second%4])
	s := h.Snapshot()
	s.Mark, s.Node.CPUs = model.WindowStart|model.WindowEnd, 16
	for i := range h.counts {
		c := &h.counts[i]
		c.Num = model.TaskNum(i + 1)
		add := func(which model.TaskCounter, by float64) { c.C[which] = model.Read(c.C[which].Value + uint64(by)) }
		rise := 1.0
		if i == 0 {
			rise += 0.5 * max(0, used[2]-0.1)
		}
		add(model.CountUsage, used[i]*1e9)
		add(model.CountThrottled, 0)
		add(model.CountRun, used[i]*1e9)
		add(model.CountDelay, 0)
		add(model.CountCycles, used[i]*2e9)
		add(model.CountRefCycles, used[i]*2e9)
		add(model.CountInstructions, used[i]*2e9/(cpi*rise))
		add(model.CountLLCMisses, used[i]*1e6)
		h.busy += used[i]
		if h.Task(c.Num) != nil {
			s.Tasks = append(s.Tasks, *c)
		}
	}
	s.Node.C[model.CountBusy], s.Node.C[model.CountSteal] = model.Read(uint64(h.busy*1e9)), model.Read(0)
	h.Beat(enginetest.Sec)
	h.check()
	h.second++
}

// check: the ledger has no claim that the policy does not want, and the policy wants none for
// two steps that the ledger does not have.
func (h *shop) check() {
	h.t.Helper()
	stale, found := map[string]bool{}, 0
	for i := range h.s.Claims {
		c := &h.s.Claims[i]
		key := fmt.Sprint(c.Target, c.Incident)
		if old := h.Claim(model.PolicyHardcap, c.Num, model.CPUBandwidth); old != nil && old.Is(c) {
			found++
		} else if stale[key] = true; h.stale[key] {
			h.t.Fatalf("second %d: still wants %+v", h.second, c)
		}
	}
	if h.stale = stale; found != h.Claims() {
		h.t.Fatalf("second %d: %d claims stand, the policy wants %d of them", h.second, h.Claims(), found)
	}
}

func (h *shop) run(until int) {
	for h.second < until {
		h.tick()
	}
}

func (h *shop) said(text string) bool {
	for i := range h.Said {
		if strings.Contains(h.Said[i].Reason, text) {
			return true
		}
	}
	return false
}

// A claim that helps stands until its time is over, and then the knob is as it was found.
func TestClaimStands(t *testing.T) {
	t.Parallel()
	h := newShop(t)
	h.Engine.Params.Hardcap.DurationNsec = 60 * enginetest.Sec
	h.run(50)
	c := h.Claim(model.PolicyHardcap, 3, model.CPUBandwidth)
	if c == nil || len(h.s.Claims) != 1 || c.Cap != 0.1 || h.knob().Value.Ratio() != 0.1 || h.Count(model.DecideVerified) != 1 {
		h.Dump(t)
		t.Fatalf("claim %+v, wanted %+v, in force %s", c, h.s.Claims, h.knob().Value)
	}
	h.run(120)
	if len(h.s.Claims)+h.Claims() != 0 || h.knob().Ours || h.knob().Value.QuotaUsec != -1 || !h.said("the cap's time is over") {
		h.Dump(t)
		t.Errorf("wanted %+v, in force %s", h.s.Claims, h.knob().Value)
	}
}

// What is decided by a spec of the fleet says by which sheet; what is decided by the node's own says nothing of one.
func TestDecisionsCiteTheSheet(t *testing.T) {
	t.Parallel()
	for _, sheet := range []uint64{0, 7} {
		h := newShop(t)
		spec := model.Spec{Job: "t1", Source: model.SourceCPI, NumSamples: 1000, Tasks: 5, UsageMean: 1, Mean: 1.5, StdDev: 0.02, Sheet: sheet}
		if err := h.Engine.State.Specs.Teach(h.Engine.Params.Spec, &spec, 0); err != nil {
			t.Fatal(err)
		}
		h.run(50)
		cited := map[model.DecisionKind]int{}
		for i := range h.Said {
			d := &h.Said[i]
			if v, ok := d.Fact(model.FactSheet); ok != (sheet != 0 && d.Incident != "") || ok && v != float64(sheet) {
				t.Errorf("sheet %d: %+v", sheet, d)
			}
			cited[d.Kind]++
		}
		if cited[model.DecideAnomaly] == 0 || cited[model.DecideCap] == 0 || cited[model.DecideVerified] == 0 {
			h.Dump(t)
			t.Fatal(cited)
		}
	}
}

// Whoever ends a claim: the policy does not ask for it again, and leaves nothing behind but what
// somebody else wrote.
func TestClaimEnds(t *testing.T) {
	t.Parallel()
	stranger := model.Bandwidth(model.CPUMax{QuotaUsec: 77_000, PeriodUsec: 100_000})
	free := model.Bandwidth(model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000})
	tell := func(kind, job string) func(*shop) {
		return func(h *shop) { h.Tell(model.Command{Kind: kind, Task: 3, Job: job}) }
	}
	for _, c := range []struct {
		name   string
		at     int
		do     func(*shop)
		said   string
		kind   model.DecisionKind
		leaves model.Setting
		caps   int // how often the grinder is chosen in all
	}{
		{"an operator frees the task", 47, tell(model.CommandUncap, ""), "ann frees it", model.DecideOperator, free, 1},
		{"protection is turned off for the job", 47, tell(model.CommandProtectOff, "t1"), "protection was turned off for its job", model.DecideRelease, free, 1},
		{"protection is turned off for all", 47, tell(model.CommandProtectOff, ""), "would hold", model.DecideOperator, free, 2},
		{"the mode is observe", 47, func(h *shop) { h.Engine.Params.Mode = model.ModeObserve }, "would hold", model.DecideCap, free, 2},
		{"the kill switch", 47, func(h *shop) { h.Kill = true }, "everything is released", model.DecideKill, free, 2},
		{"a stranger writes the knob", 47, func(h *shop) { h.Stranger(3, stranger) }, "it was left, and claims on it are void", model.DecideForeign, stranger, 2},
		{"the kernel refuses", 30, func(h *shop) { h.Task(3).Refuse(model.CPUBandwidth, "invalid argument") }, "hold was refused: invalid argument", model.DecideRefused, free, 1},
		{"the task goes", 47, func(h *shop) { h.Remove(3) }, "back under its threshold", model.DecideVerified, model.Setting{}, 1},
		{"the victim goes", 47, func(h *shop) { h.Remove(1) }, "the victim's cgroup is gone", model.DecideGone, free, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newShop(t)
			h.run(c.at)
			if had := h.Claims() == 1 && len(h.s.Claims) == 1; had != (c.at > 42) {
				h.Dump(t)
				t.Fatalf("%d claims, wanted %+v", h.Claims(), h.s.Claims)
			}
			c.do(h)
			h.run(74)
			if h.Claims() != 0 || len(h.s.Claims) != 0 || !h.said(c.said) || h.Count(c.kind) == 0 || h.Count(model.DecideCap) != c.caps {
				h.Dump(t)
				t.Errorf("%d claims, wanted %+v", h.Claims(), h.s.Claims)
			}
			if task := h.Task(3); task != nil && (h.knob().Value != c.leaves || h.knob().Ours) {
				t.Errorf("left with %s, ours %t", h.knob().Value, h.knob().Ours)
			}
		})
	}
}
