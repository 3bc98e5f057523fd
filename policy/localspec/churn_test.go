package localspec

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A job whose tasks live for a window each never has a spec, and must not grow for that.
func TestShortLivedTasksLeaveNothingBehind(t *testing.T) {
	p := Params{RecalculateNsec: 1e18, AgeWeight: 0.9, MinTasks: 5, MinSamplesPerTask: 100}
	var s State
	for num := range model.TaskNum(1_000_000) {
		task := &model.Task{Num: num + 1, Job: "web"}
		for src := range model.Source(2) {
			s.Add(Params{}, task, src, 1, 1, inf)
		}
		s.Forget(p, task)
		if s.Recalculate(p, 0) != nil {
			t.Fatal("published from tasks with a sample each")
		}
	}
	b, err := json.Marshal(&s)
	if err != nil || len(b) > 1000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for i := range s.Entries {
		if e := &s.Entries[i]; cap(e.Tasks) > 8 || e.Ended != 1_000_000 || e.EndedRobust != 0 || e.Recent.N != 1_000_000 {
			t.Errorf("%+v", e)
		}
	}
}

// Forgetting changes no spec: neither when it is published nor what it says.
func TestForgettingChangesNoSpec(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	p := Params{RecalculateNsec: 50, AgeWeight: 0.9, MinTasks: 3, MinSamplesPerTask: 5, OnDoubling: true}
	var forgets, keeps State
	next, published := model.TaskNum(1), 0
	var alive []*model.Task
	for now := range int64(3000) {
		if len(alive) < 6 && rng.IntN(3) == 0 {
			alive = append(alive, &model.Task{Num: next, Job: string(rune('a' + rng.IntN(2)))})
			next++
		}
		for _, task := range alive {
			if src, v := model.Source(rng.IntN(2)), rng.Float64(); rng.IntN(2) == 0 {
				forgets.Add(Params{}, task, src, v, v, 0.99)
				keeps.Add(Params{}, task, src, v, v, 0.99)
			}
		}
		if len(alive) > 0 && rng.IntN(8) == 0 {
			i := rng.IntN(len(alive))
			forgets.Forget(p, alive[i])
			alive = slices.Delete(alive, i, i+1)
		}
		a, b := forgets.Recalculate(p, now), keeps.Recalculate(p, now)
		if len(a) != len(b) {
			t.Fatalf("seed %d, %d: %d specs, without forgetting %d", seed, now, len(a), len(b))
		}
		for i := range a {
			published++
			if *a[i] != *b[i] {
				t.Fatalf("seed %d, %d: %+v, without forgetting %+v", seed, now, a[i], b[i])
			}
		}
	}
	if published < 20 {
		t.Errorf("%d specs: this tests nothing", published)
	}
}

func TestContributorsAreBounded(t *testing.T) {
	var s State
	for num := range model.TaskNum(maxContributors + 100) {
		s.Add(Params{}, &model.Task{Num: num + 1, Job: "web"}, model.SourceCPI, 1, 1, inf)
	}
	if e := &s.Entries[0]; len(e.Tasks) != maxContributors || e.Recent.N != maxContributors+100 {
		t.Errorf("%d contributors, %v samples", len(e.Tasks), e.Recent.N)
	}
}
