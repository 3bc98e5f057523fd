package spec

import (
	"bytes"
	"encoding/gob"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/commensal-io/commensal/model"
)

// What each node and each task of a job take is small, and still right: moments of a million samples are those that doubles give, and who sends more
// samples than a tally can count has samples enough all the same.
func TestSmallIsRight(t *testing.T) {
	if w, p, y, x := unsafe.Sizeof(Who{}), unsafe.Sizeof(Part{}), unsafe.Sizeof(Tally{}), unsafe.Sizeof(Signal{}); w != 12 || p != 8 || y != 8 || x != 88 {
		t.Errorf("%d bytes a node, %d with a signal, %d a task, %d a signal", w, p, y, x)
	}
	rng := rand.New(rand.NewPCG(11, 11))
	var want Moments
	small := Job{Signals: make([]Signal, 1)}
	for range 1_000_000 / 50 {
		var m Moments
		for range 50 {
			v, cpu := 1.8+0.16*rng.NormFloat64(), rng.Float64()
			m.add(v, cpu)
			want.add(v, cpu)
		}
		small.give(small.who(3), 50, m.Usage, func(int) Moments { return m })
	}
	got := small.moments(&small.Signals[0], 0)
	if got.N != want.N || math.Abs(got.Mean/want.Mean-1) > 5e-6 || math.Abs(got.stddev()/want.stddev()-1) > 5e-5 || math.Abs(got.Usage/want.Usage-1) > 5e-6 {
		t.Errorf("%+v, want %+v", got, want)
	}
	s, p := Job{}, Defaults()
	for range 3 {
		s.tally(&p, 7, MaxSamplesPerTask-1, nil)
	}
	s.tally(&p, 7, math.MaxUint32, nil)
	s.tally(&p, 8, 99, nil)
	if n, about := s.haveEnough(&p, anySignal); len(s.Tallies) != 2 || s.Tallies[0].Day != recently|MaxSamplesPerTask || n != 1 || about != 1 {
		t.Errorf("%+v", s.Tallies)
	}
}

// What an earlier version kept, with more room a task and node, is read: specs and history stay, and samples of the last minutes and tallies begin anew.
func TestWhatWasKeptLargerIsRead(t *testing.T) {
	type from struct {
		Node uint32
		M    Moments
	}
	type tally struct {
		Task       uint64
		Day, Night uint32
	}
	type signal struct {
		Source     model.Source
		Definition string
		Recent     []from
		Sketch     struct{ Bins []Bin }
		History    Moments
		Tasks      []tally
		AtNsec     int64
		Spec       *model.Spec
	}
	type job struct {
		Key      Key
		Signals  []signal
		Revision uint64
	}
	type state struct {
		Nodes map[string]uint32
		Jobs  map[Key]*job
	}
	old := state{map[string]uint32{"n0": 0}, map[Key]*job{web: {web, []signal{{
		Definition: "d", Recent: []from{{0, Moments{N: 5, Mean: 2}}}, History: Moments{N: 5000, Mean: 1.8, M2: 128}, Tasks: []tally{{1 << 60, 1 << 20, 1 << 20}}, AtNsec: start, Spec: &model.Spec{Mean: 1.8, StdDev: 0.16},
	}}, 3}}}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(old); err != nil {
		t.Fatal(err)
	}
	var kept Kept
	if err := gob.NewDecoder(&b).Decode(&kept); err != nil {
		t.Fatal(err)
	}
	s := kept.Recall(1)
	j := s.Jobs[web]
	if sig := j.Signals[0]; len(j.Since) != 0 || len(j.Tallies) != 0 || sig.History.N != 5000 || inForce(j, 0).Mean != 1.8 {
		t.Fatalf("%+v", sig)
	}
	p := Defaults()
	fleet(s, &p, 10, 200, func(int) float64 { return 1.8 })
	if sheets, _ := s.Calculate(&p, start+p.PeriodNsec); len(sheets) != 1 || sheets[0].Revision != 4 || sheets[0].Specs[0].NumSamples < 6990 {
		t.Errorf("%+v", sheets)
	}
}
