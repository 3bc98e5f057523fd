package partition

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

func cpus(t *testing.T, list string) model.CPUSet {
	t.Helper()
	s, err := model.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func placed(t *testing.T, msec int64, list string) write {
	return write{nsec: msec * 1e6, value: model.Place(cpus(t, list))}
}

func limited(msec, quota int64) write {
	return write{nsec: msec * 1e6, value: model.Bandwidth(model.CPUMax{QuotaUsec: quota, PeriodUsec: 100_000})}
}

func same(a, b stat.Number) bool {
	return a == b || !a.Known() && !b.Known()
}

// moved makes moves of times and CPUs by turns.
func moved(pairs ...int64) []openloop.Move {
	var list []openloop.Move
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, openloop.Move{Nsec: pairs[i], CPU: int(pairs[i+1])})
	}
	return list
}

func TestHandBack(t *testing.T) {
	const step = int64(1000e6)
	for _, c := range []struct {
		name               string
		service, batch     []write
		moves              []openloop.Move
		had                bool
		freed, grown, runs stat.Number
		cpus               string
	}{
		{
			name:    "batch work is sent off, the service let on, and runs there",
			service: []write{placed(t, 0, "0"), placed(t, 1062, "0-1")}, batch: []write{placed(t, 0, "1-3"), placed(t, 1060, "2-3")},
			moves: moved(900e6, 1, 1010e6, 0, 1065e6, 1), had: true, freed: 60, grown: 62, runs: 65, cpus: "1",
		},
		{
			name:    "parked: a limit says that the core is free",
			service: []write{placed(t, 0, "0"), placed(t, 1062, "0-1")}, batch: []write{placed(t, 0, "1"), limited(500, -1), limited(1061, 1000)},
			moves: moved(1061e6, 1), had: true, freed: 61, grown: 62, runs: 61, cpus: "1",
		},
		{
			name:    "batch work was parked already: the step says nothing",
			service: []write{placed(t, 0, "0-1")}, batch: []write{placed(t, 0, "1")}, moves: moved(1010e6, 1), had: false, freed: stat.Absent(), grown: stat.Absent(), runs: stat.Absent(),
		},
		{
			name:    "nothing was written in time",
			service: []write{placed(t, 0, "0"), placed(t, 9000, "0-1")}, batch: []write{placed(t, 0, "1"), limited(9000, 1000)}, had: true, freed: stat.Absent(), grown: stat.Absent(), runs: stat.Absent(),
		},
		{
			name:    "let on, but never seen there",
			service: []write{placed(t, 0, "0"), placed(t, 1100, "0-1")}, batch: []write{placed(t, 0, "1"), limited(1100, 1000)},
			moves: moved(1200e6, 0), had: true, freed: 100, grown: 100, runs: stat.Absent(), cpus: "1",
		},
	} {
		h := handBack(step, 2*time.Second, c.service, c.batch, c.moves)
		if h.HadBE != c.had || !same(h.FreedMsec, c.freed) || !same(h.GrownMsec, c.grown) || !same(h.RunMsec, c.runs) || h.CPUs != c.cpus {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

func TestSpread(t *testing.T) {
	if s := spread(nil); s.N != 0 || !same(s.P50, stat.Absent()) || !same(s.Most, stat.Absent()) {
		t.Errorf("nothing: %+v", s)
	}
	var list []stat.Number
	for i := 200; i > 0; i-- {
		list = append(list, stat.Number(i), stat.Absent())
	}
	if s := spread(list); s.N != 200 || s.P50 != 100 || s.P99 != 198 || s.Most != 200 {
		t.Errorf("1 to 200: %+v", s)
	}
	b, err := json.Marshal(spread(nil))
	if err != nil || string(b) != `{"n":0,"p50":null,"p99":null,"most":null}` {
		t.Errorf("%s, %v", b, err)
	}
}

func TestResizes(t *testing.T) {
	w := writes{service: []write{placed(t, 1, "0-3"), placed(t, 20, "0-4"), placed(t, 30, "0-4"), limited(35, -1), placed(t, 40, "0-3"), placed(t, 90, "0-5")}}
	if n := w.resizes(10e6, 80e6); n != 2 {
		t.Errorf("%d resizes, expected 2: one write repeats what stands, one is outside", n)
	}
}

// Equal loads have equal requests, the rate is what was asked, and it steps when it says.
func TestLoad(t *testing.T) {
	l := Load{Seed: 3, Low: 100, High: 1000, LeadIn: time.Second, LowFor: 4 * time.Second, HighFor: 5 * time.Second, Steps: 3, Work: 2 * time.Millisecond}
	list := l.arrivals()
	if !slices.Equal(list, l.arrivals()) {
		t.Error("the same load has other requests")
	}
	if !slices.IsSortedFunc(list, func(a, b openloop.Request) int { return int(a.At - b.At) }) {
		t.Error("requests are not in order")
	}
	steps := l.steps()
	if len(steps) != 3 || steps[0] < 4.6e9 || steps[0] > 5.4e9 {
		t.Fatalf("steps %v", steps)
	}
	work := int64(0)
	for _, s := range steps {
		low, high := 0, 0
		for _, a := range list {
			switch {
			case int64(a.At) >= s-3e9 && int64(a.At) < s:
				low++
			case int64(a.At) >= s && int64(a.At) < s+5e9:
				high++
			}
		}
		if low < 200 || low > 400 || high < 4600 || high > 5400 {
			t.Errorf("%d requests in the three seconds before a step, %d in the five after", low, high)
		}
	}
	for _, a := range list {
		work += int64(a.CPU)
	}
	if mean := work / int64(len(list)); mean < 1.9e6 || mean > 2.1e6 {
		t.Errorf("a request takes %d ns in the mean", mean)
	}
}

// synthetic is a block whose requests take so long.
func synthetic(arm Arm, low, high float64, backs ...HandBack) block {
	b := block{arm: arm, from: 0, to: 20e9, steps: []int64{10e9}, service: 10, batch: 15, backs: backs}
	for at := int64(0); at < 20e9; at += 10e6 {
		took := low
		if at >= 10e9 && at < 15e9 {
			took = high
		}
		b.log.Answers = append(b.log.Answers, openloop.Answer{AtNsec: at, BeganNsec: at, DoneNsec: at + int64(took*1e6)})
	}
	return b
}

func TestSummarise(t *testing.T) {
	back := HandBack{HadBE: true, FreedMsec: 60, GrownMsec: 61, RunMsec: 70}
	h := summarise([]block{synthetic(ArmNone, 2, 50), synthetic(ArmOurs, 2, 4, back, HandBack{FreedMsec: stat.Absent(), GrownMsec: stat.Absent(), RunMsec: stat.Absent()})}, 2)
	none, ours := &h.Rows[1], &h.Rows[4]
	if none.Arm != ArmNone || none.P50 != 2 || none.P99 != 50 || none.After50 != 50 || none.Service != 0.5 || none.Batch != 0.75 || none.Used != 0.625 {
		t.Errorf("%+v", none)
	}
	if never := summarise([]block{synthetic(ArmOurs, 2, 4, HandBack{HadBE: true, FreedMsec: stat.Absent(), GrownMsec: stat.Absent(), RunMsec: stat.Absent()})}, 2); never.Freed.N != 1 || never.Freed.P99.Text(1) != "never" {
		t.Errorf("a core that was not handed back: %+v", never.Freed)
	}
	if ours.After99 != 4 || ours.HandBacks != 1 || h.Freed.N != 1 || h.Ran.P99 != 70 {
		t.Errorf("%+v %+v", ours, h)
	}
}

// The verdict: a goal that is missed fails, one that cannot be told does not pass.
func TestJudge(t *testing.T) {
	table := func(worst, use stat.Number) TwinTable {
		return TwinTable{judged: true, Rows: []TwinRow{
			{Arm: ArmNone, Worst: 2, Utilisation: 1}, {Arm: ArmIdle, Worst: 1.5, Utilisation: 1}, {Arm: ArmShares, Worst: 1.5, Utilisation: 1}, {Arm: ArmOurs, Worst: worst, Utilisation: use},
		}}
	}
	beaten := table(1.05, 0.95)
	beaten.find(ArmIdle).Worst = 1
	beside := beaten
	beside.judged = false
	good := Spread{N: 40, P50: 60, P99: 90, Most: 95}
	for _, c := range []struct {
		name string
		r    Result
		code int
		want report.Outcome
	}{
		{"all met", Result{Host: &HostResult{Freed: good, Ran: good}, Twin: []TwinTable{table(1.05, 0.95)}}, 0, report.Pass},
		{"too late", Result{Host: &HostResult{Freed: good, Ran: Spread{N: 40, P99: 130}}}, 1, report.Fail},
		{"too few to tell", Result{Host: &HostResult{Freed: Spread{N: 9, P99: 60}, Ran: good}}, 3, report.CouldNotTell},
		{"too noisy to tell", Result{Host: &HostResult{Freed: good, Ran: good, Steal: 0.3}}, 3, report.CouldNotTell},
		{"others on the host", Result{Host: &HostResult{Freed: good, Ran: good, Rows: []HostRow{{Arm: ArmAlone, After99: 9000}}}}, 3, report.CouldNotTell},
		{"never", Result{Host: &HostResult{Freed: Spread{P99: stat.Absent()}, Ran: Spread{P99: stat.Absent()}}}, 3, report.CouldNotTell},
		{"tail", Result{Twin: []TwinTable{table(1.2, 0.95)}}, 1, report.Fail},
		{"utilisation", Result{Twin: []TwinTable{table(1.0, 0.8)}}, 1, report.Fail},
		{"beaten", Result{Twin: []TwinTable{beaten}}, 1, report.Fail},
		{"beaten where it is not judged", Result{Twin: []TwinTable{table(1.05, 0.95), beside}}, 0, report.Pass},
		{"absent", Result{Twin: []TwinTable{table(stat.Absent(), stat.Absent())}}, 1, report.Fail},
	} {
		c.r.judge()
		if c.r.Code != c.code || c.r.Verdict != c.want.String() {
			t.Errorf("%s: %s (%d): %s", c.name, c.r.Verdict, c.r.Code, c.r.Why)
		}
		if len(c.r.Twin) > 0 {
			continue
		}
		var text strings.Builder
		if err := c.r.WriteText(&text); err != nil || !strings.Contains(text.String(), c.want.String()) {
			t.Errorf("%s: %v\n%s", c.name, err, text.String())
		}
	}
}
