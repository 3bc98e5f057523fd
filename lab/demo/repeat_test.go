package demo

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/lab/report"
)

// Equal seeds draw equal demos, all different and none of those on which parameters are chosen; more of them begin alike.
func TestSeedsOfDemos(t *testing.T) {
	a, b := Seeds(1, 40), Seeds(1, 20)
	if !slices.Equal(a[:20], b) || slices.Equal(b, Seeds(2, 20)) {
		t.Errorf("%v, %v", a, b)
	}
	slices.Sort(a)
	if len(slices.Compact(a)) != 40 || a[0] < firstSeed {
		t.Errorf("%v", a)
	}
}

func TestSeries(t *testing.T) {
	demo := func(seed uint64, out report.Outcome, holds ...HoldRow) *Outcome {
		o := &Outcome{Seed: seed, Holds: holds, Rows: []Row{{Way: wayQuiet, P99: 0.5}, {Way: wayNone, P99: 20}, {Way: wayOurs, P99: 1, BEWork: 1.2}, {Way: wayIdle, P99: 4, BEWork: 1.5}}}
		o.conclude(out, "because")
		return o
	}
	right, wrong := HoldRow{Task: "/batch-1", Antagonist: true}, HoldRow{Task: "/batch-2"}
	pass, fail, dark := demo(1001, report.Pass, right), demo(1002, report.Fail, right, wrong), demo(1003, report.CouldNotTell)
	dark.Rows = nil
	for _, c := range []struct {
		list   []*Outcome
		failed []FailedDemo
		asked  int
		want   report.Outcome
	}{
		{[]*Outcome{pass, dark}, nil, 2, report.Pass},
		{[]*Outcome{pass, fail, dark}, nil, 3, report.Fail},
		{[]*Outcome{dark}, nil, 1, report.CouldNotTell},
		{[]*Outcome{pass}, []FailedDemo{{1004, "no memcached"}}, 2, report.Fail},
		{[]*Outcome{pass}, nil, 2, report.Fail},
	} {
		if got := (&Series{Outcomes: c.list, Failed: c.failed, Asked: c.asked}).Outcome(); got != c.want {
			t.Errorf("%d demos: %s, want %s", len(c.list), got, c.want)
		}
	}
	var b strings.Builder
	s := &Series{Seed: 7, Outcomes: []*Outcome{pass, fail, dark}, Failed: []FailedDemo{{1004, "no memcached"}}, Asked: 4}
	if err := s.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"3 demos: 1 passed, 1 failed, 1 could not tell", "1001 0 0.5 20 1 4 2 0.05 80 the antagonist 1002", "1002 1 0.5 20 1 4 2 0.05 80 the antagonist, /batch-2",
		"1003 3 - - - - - - - nobody", "1004 - - - - - - - - not played", "1001: Passed: because", "1003: Could not tell: because", "1004: no memcached",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
