package partition

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/lab/stat"
)

// short plays a table for two minutes of a day that is as long.
func short(t *testing.T, seed uint64, table TwinTable) *TwinTable {
	t.Helper()
	table.shape = newShape(seed, 2*time.Minute, 2*time.Minute, table.Surges).times(table.Size)
	table.CPUs, table.day = 64, 120
	table.arms = append([]Arm{ArmAlone, ArmNone, ArmOurs}, oracles()...)
	table.Rows, table.sizes = make([]TwinRow, len(table.arms)), make([][]write, len(table.arms))
	for a, arm := range table.arms {
		if err := table.play(context.Background(), Options{Seed: seed, Log: io.Discard}, a, arm); err != nil {
			t.Fatal(err)
		}
	}
	table.compare()
	return &table
}

// The tail is within the goal, and utilisation within three points of what one has who knows the
// load, at the same tail; with surges within ten, on a tide that is five times as fast as that
// of a whole run and alarms that much oftener.
func TestTwin(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	for i, most := range []stat.Number{0.03, 0.10, 0.03} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			meetsGoals(t, short(t, 7, twinTables()[i]), most)
		})
	}
}

func meetsGoals(t *testing.T, table *TwinTable, most stat.Number) {
	alone, none, ours := table.find(ArmAlone), table.find(ArmNone), table.find(ArmOurs)
	for _, r := range table.Rows {
		t.Logf("%-20s p99 x %.3f, after a surge x %.3f, utilisation %.3f, %d resizes", r.Arm, r.Worst, r.WorstAfter, r.Utilisation, r.Resizes)
	}
	if ours.Worst > wantedTail {
		t.Errorf("p99 is %.3f of that without BE", ours.Worst)
	}
	if none.Worst < 1.2 || none.Utilisation < 0.98 {
		t.Errorf("without control p99 is %.3f of that without BE, at a utilisation of %.3f: nothing to protect from", none.Worst, none.Utilisation)
	}
	if best := table.frontier(max(ours.Worst, table.find(oracle(3)).Worst)); !(ours.Utilisation >= best-most) {
		t.Errorf("utilisation: %.3f without BE, ours %.3f, who knows the load %.3f", alone.Utilisation, ours.Utilisation, best)
	}
	if ours.Resizes == 0 || ours.Resizes > 2*60 || ours.Batch <= 0 || alone.Batch != 0 {
		t.Errorf("%+v", ours)
	}
	if len(table.Chart().Series) != 2 {
		t.Error("the chart lacks a line")
	}
	table.Rows = append(table.Rows, TwinRow{Arm: ArmIdle, Services: alone.Services}, TwinRow{Arm: ArmShares, Services: alone.Services})
	r := Result{Twin: []TwinTable{*table}}
	r.judge()
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), string(oracle(2))) {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// Between two oracles the frontier is a line, and beyond them it is not known.
func TestFrontier(t *testing.T) {
	table := TwinTable{Rows: []TwinRow{
		{Arm: ArmAlone, Worst: 1}, {Arm: oracle(1), Worst: 1.8, Utilisation: 0.95}, {Arm: oracle(2), Worst: 1.2, Utilisation: 0.9}, {Arm: oracle(3), Worst: 1, Utilisation: 0.8},
	}}
	for worst, want := range map[stat.Number]stat.Number{1.8: 0.95, 1.5: 0.925, 1.1: 0.85, 1: 0.8, 0.9: stat.Absent(), 2: stat.Absent()} {
		if got := table.frontier(worst); got.Text(4) != want.Text(4) {
			t.Errorf("at %.1f: %.4f, expected %.4f", worst, got, want)
		}
	}
}

// A baseline beats ours where it is as good to the services and uses more; one that is cheaper for
// them or for the machine alone does not.
func TestBeaten(t *testing.T) {
	table := TwinTable{What: "x", Rows: []TwinRow{
		{Arm: ArmNone, Worst: 1.4, Utilisation: 1}, {Arm: ArmIdle, Worst: 1.06, Utilisation: 0.99}, {Arm: ArmShares, Worst: 1, Utilisation: 0.86}, {Arm: ArmOurs, Worst: 1.05, Utilisation: 0.86},
	}}
	if got := table.beaten(); got != "(c) cpu.idle: 1.06 at 99.0 %" {
		t.Error(got)
	}
	if g := table.goals()[2]; g.Met || g.Got != table.beaten() {
		t.Errorf("%+v", g)
	}
	table.find(ArmIdle).Worst = 1.07
	if g := table.goals()[2]; !g.Met || g.Got != "nobody" {
		t.Errorf("%+v", g)
	}
}

// Requests with tails, bursts and parts ask for as many CPUs as plain ones, and their tail is longer.
func TestKinds(t *testing.T) {
	shape := newShape(3, 40*time.Second, 40*time.Second, false)
	var plain *TwinRow
	for _, kind := range []Kind{{}, {Tails: true}, {Bursts: true}, {FanOut: true}, {true, true, true}} {
		r, err := newTwinRun(&twinCase{seed: 3, threads: 1, kind: kind, shape: &shape, arm: ArmAlone})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.play(context.Background()); err != nil {
			t.Fatal(err)
		}
		row, err := r.row()
		if err != nil {
			t.Fatal(err)
		}
		if plain == nil {
			plain = row
		}
		t.Logf("%+v: %.2f CPUs, p99 %.1f ms", kind, row.Service, row.Services[0].P99)
		if row.Service < 0.9*plain.Service || row.Service > 1.1*plain.Service || kind.Tails && !kind.FanOut && row.Services[0].P99 < 1.5*plain.Services[0].P99 || row.Lost > 0 {
			t.Errorf("%+v: %.2f CPUs, p99 %.1f ms, %d lost; plain %.2f, %.1f", kind, row.Service, row.Services[0].P99, row.Lost, plain.Service, plain.Services[0].P99)
		}
	}
}

// At the agent's defaults every arm has as many steps as a p99 wants.
func TestDefaultsOnTheHost(t *testing.T) {
	if s := sizeOfHost(Options{Defaults: true, Quick: true}); s.rounds*s.steps < leastSteps || s.steps != s.ourSteps {
		t.Errorf("%+v", s)
	}
	if got, want := hostConfig("/a", "/b", true).Policies.CPU.CPUSet.FloorCores, hostConfig("/a", "/b", false).Policies.CPU.CPUSet.FloorCores; got != 1 || want != 0 {
		t.Errorf("floors of %v and %v cores", got, want)
	}
}

// The same seed gives the same figures.
func TestTwinRepeats(t *testing.T) {
	shape := newShape(3, 20*time.Second, 20*time.Second, true)
	var first string
	for i := range 2 {
		r, err := newTwinRun(&twinCase{seed: 3, threads: 2, batch: loudBatch, shape: &shape, arm: ArmOurs, sockets: "gather"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.play(context.Background()); err != nil {
			t.Fatal(err)
		}
		row, err := r.row()
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = string(b)
		} else if string(b) != first {
			t.Errorf("%s\n%s", first, b)
		}
	}
}

// A load swings tenfold, and stays within what is asked.
func TestShape(t *testing.T) {
	s := newShape(1, 20*time.Minute, 10*time.Minute, true)
	low, high := s.cpus[0], 0.0
	for _, v := range s.cpus {
		low, high = min(low, v), max(high, v)
	}
	if low < 1 || low > nightCPU*1.5 || high < noonCPU || high > mostCPU*1.6 || len(s.surges) < 20 {
		t.Errorf("from %.1f to %.1f CPUs, %d surges", low, high, len(s.surges))
	}
	for _, at := range s.surges {
		if !s.after(at) || !s.after(at+afterSeconds-1) {
			t.Errorf("the seconds after %d are not known as such", at)
		}
	}
	tide := newShape(1, 20*time.Minute, 10*time.Minute, false)
	if most := slices.Max(tide.cpus); len(tide.surges) != 0 || most < noonCPU || most > 1.5*noonCPU {
		t.Errorf("without surges: up to %.1f CPUs, %d surges", most, len(tide.surges))
	}
	if s.after(s.surges[0] - 1) {
		t.Error("the second before a surge counts")
	}
}
