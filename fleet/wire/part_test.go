package wire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
)

const nowMsec = 1_790_000_000_000

// drawn is a batch with samples, decisions and incidents of many jobs, each of which can be told from all others.
func drawn(rng *rand.Rand) *Batch {
	b := &Batch{Node: "n", Spool: "0123456789abcdef", Seq: 7, Boot: "b", Platform: "p", Program: "v", Lost: rng.Uint64N(3), Rollout: "r"}
	for i := range rng.IntN(40) {
		b.Tasks = append(b.Tasks, Task{Num: uint32(i), Path: fmt.Sprintf("/t%d", i), Job: fmt.Sprintf("job-%d", rng.IntN(15)), Class: model.Class(rng.IntN(3))})
	}
	if len(b.Tasks) > 0 {
		b.Samples.Signals = []Signal{{Source: model.SourceCPI, Definition: "d"}, {Source: model.SourceSlowdown}}
		for i := range rng.IntN(500) {
			s := &b.Samples
			s.Task, s.WallMsec = append(s.Task, uint32(rng.IntN(len(b.Tasks)))), append(s.WallMsec, nowMsec+int64(i))
			s.CPU, s.Flags = append(s.CPU, rng.Float32()), append(s.Flags, uint32(rng.IntN(8)))
			for k := range s.Signals {
				v := rng.Float32()
				if rng.IntN(5) == 0 {
					v = float32(math.NaN())
				}
				s.Signals[k].Values = append(s.Signals[k].Values, v)
			}
		}
	}
	for i := range rng.IntN(20) {
		b.Decisions = append(b.Decisions, model.Decision{WallNsec: nowMsec * 1e6, Path: fmt.Sprintf("/t%d", rng.IntN(60)), Reason: fmt.Sprint(i)})
	}
	for i := range rng.IntN(10) {
		b.Incidents = append(b.Incidents, &model.Incident{ID: fmt.Sprint(i), OpenedWall: nowMsec * 1e6, VictimJob: fmt.Sprintf("job-%d", rng.IntN(20)), Rounds: []model.Round{{ChosenPath: fmt.Sprintf("/t%d", rng.IntN(40))}}})
	}
	return b
}

// rows are a batch's samples, decisions and incidents as texts, in their order.
func rows(b *Batch) (list []string) {
	s := &b.Samples
	for i := range s.Task {
		line := fmt.Sprintf("sample %+v %d %v %d", b.Tasks[s.Task[i]], s.WallMsec[i], s.CPU[i], s.Flags[i])
		for k := range s.Signals {
			line += fmt.Sprintf(" %s %s %v", s.Signals[k].Source, s.Signals[k].Definition, s.Signals[k].Values[i])
		}
		list = append(list, line)
	}
	for i := range b.Decisions {
		list = append(list, "decision "+b.Decisions[i].Reason+" "+b.Decisions[i].Path)
	}
	for _, inc := range b.Incidents {
		list = append(list, "incident "+inc.ID)
	}
	return list
}

// Split is a partition: nothing is lost, nothing is there twice, all of a job is in its part, and each part is a batch that a hub takes.
func TestSplitIsAPartition(t *testing.T) {
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any seed will do
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		b, parts := drawn(rng), 1+rng.IntN(MaxParts)
		want := rows(b)
		at := map[string]int{}
		for i, row := range want {
			at[row] = i
		}
		list := b.Split(parts)
		var got []string
		var lost uint64
		for i, p := range list {
			if i > 0 && p.Part <= list[i-1].Part || p.Part >= parts {
				t.Fatalf("part %d of %d", p.Part, parts)
			}
			if err := p.Check("n", nowMsec); err != nil {
				t.Fatal(err)
			}
			of := rows(p)
			if len(of) == 0 && len(p.Tasks) == 0 && len(list) > 1 {
				t.Fatalf("part %d is empty", p.Part)
			}
			if !slices.IsSortedFunc(of, func(a, b string) int { return at[a] - at[b] }) {
				t.Fatalf("part %d has another order", p.Part)
			}
			for k := range p.Samples.Task {
				if job := p.Tasks[p.Samples.Task[k]].Job; PartOf(job, parts) != p.Part {
					t.Fatalf("a sample of %s in part %d of %d", job, p.Part, parts)
				}
			}
			for _, inc := range p.Incidents {
				if PartOf(inc.VictimJob, parts) != p.Part {
					t.Fatalf("an incident of %s in part %d of %d", inc.VictimJob, p.Part, parts)
				}
				chosen := slices.IndexFunc(b.Tasks, func(t Task) bool { return t.Path == inc.Rounds[0].ChosenPath })
				if chosen >= 0 && !slices.Contains(p.Tasks, b.Tasks[chosen]) {
					t.Fatalf("part %d does not know who was held", p.Part)
				}
			}
			if p.Boot != "b" || p.Platform != "p" || p.Program != "v" || p.Rollout != "r" {
				t.Fatalf("part %d: %+v", p.Part, p)
			}
			got, lost = append(got, of...), lost+p.Lost
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || lost != b.Lost {
			t.Fatalf("in %d parts: %d rows of %d, %d lost of %d: %s", parts, len(got), len(want), lost, b.Lost, cmp.Diff(want, got))
		}
	}
	b := drawn(rng)
	if list := b.Split(1); len(list) != 1 || list[0] != b {
		t.Error("one part is not the batch itself")
	}
	if list := (&Batch{Node: "n", Lost: 3}).Split(8); len(list) != 1 || list[0].Lost != 3 || list[0].Part != 0 {
		t.Errorf("%+v", list)
	}
	// A decision goes with its task.
	b = &Batch{Tasks: []Task{{Path: "/web", Job: "web"}}, Decisions: []model.Decision{{Path: "/web"}, {Path: "/gone"}}}
	b.Samples = Samples{Task: []uint32{0}, WallMsec: []int64{1}, CPU: []float32{1}, Flags: []uint32{0}}
	list := b.Split(8)
	if len(list) != 2 || list[0].Part != 0 || list[0].Decisions[0].Path != "/gone" || list[1].Part != 3 || list[1].Decisions[0].Path != "/web" {
		t.Errorf("%+v", list)
	}
}

// The part of a job is the same for ever and everywhere: these are of Python's hashlib.
func TestPartOf(t *testing.T) {
	for job, want := range map[string][3]int{"web": {3, 11, 1}, "batch": {3, 11, 1}, "search/frontend": {5, 37, 1}, "": {3, 35, 2}} {
		if got := [3]int{PartOf(job, 8), PartOf(job, 64), PartOf(job, 3)}; got != want {
			t.Errorf("%q: %v, want %v", job, got, want)
		}
		if PartOf(job, 1) != 0 || PartOf(job, 0) != 0 {
			t.Errorf("%q is not in the only part", job)
		}
	}
}

func TestSubjectsOfParts(t *testing.T) {
	for part := range MaxParts {
		subject := Up("web-1", part)
		if node, got, err := ParseUp(subject); node != "web-1" || got != part || err != nil {
			t.Errorf("%s: %s %d %v", subject, node, got, err)
		}
	}
	if Up("n", 0) != "commensal.v1.up.n" || Up("n", 3) != "commensal.v1.up.n.3" {
		t.Errorf("%s %s", Up("n", 0), Up("n", 3))
	}
	for _, bad := range []string{"n.0", "n.64", "n.-1", "n.x", "n.03", "n.1.2", "n."} {
		if node, _, err := ParseUp(UpPrefix + bad); err == nil || node != "n" || !strings.Contains(err.Error(), "expected 1 to 63") {
			t.Errorf("%s: %s %v", bad, node, err)
		}
	}
}
