package cgroup

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// parserCase is one row of a parser's table; ok false wants ErrMalformed and nothing else.
type parserCase[T comparable] struct {
	name, text string
	want       T
	ok         bool
}

func runParser[T comparable](t *testing.T, parse func([]byte) (T, error), cases []parserCase[T]) {
	t.Helper()
	for _, c := range cases {
		got, err := parse([]byte(c.text))
		if got != c.want || (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrMalformed)) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// fuzzParser checks that a parser's error is ErrMalformed, short, and beside a zero value.
func fuzzParser[T comparable](f *testing.F, parse func([]byte) (T, error), seeds ...string) {
	for _, s := range append(seeds, "", "\n", "x y z\n", strings.Repeat("9", 40), strings.Repeat("a ", 400)) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parse(data)
		var zero T
		if err != nil && (got != zero || !errors.Is(err, ErrMalformed) || len(err.Error()) > 1000) {
			t.Errorf("%q: %+v beside %v", data, got, err)
		}
	})
}

const stat612 = "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnice_usec 0\nnr_periods 42\nnr_throttled 12\nthrottled_usec 1708\nnr_bursts 2\nburst_usec 7\n"

func TestParseThrottling(t *testing.T) {
	quota := CPUStat{HasQuota: true, NrPeriods: 42, NrThrottled: 12, ThrottledNsec: 1708000}
	burst := quota
	burst.HasBursts, burst.NrBursts, burst.BurstNsec = true, 2, 7000
	runParser(t, parseThrottling, []parserCase[CPUStat]{
		{"6.12", stat612, burst, true},
		{"before 5.14", "usage_usec 1\nnr_periods 42\nnr_throttled 12\nthrottled_usec 1708\n", quota, true},
		{"without the controller", "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\n", CPUStat{}, true},
		{"half a quota", "usage_usec 1\nnr_periods 42\nnr_throttled 12\n", CPUStat{}, false},
		{"no usage", "nr_periods 42\nnr_throttled 12\nthrottled_usec 1708\n", CPUStat{}, false},
		{"empty", "", CPUStat{}, false},
		{"no number", "usage_usec 1\nnr_periods x\nnr_throttled 1\nthrottled_usec 1\n", CPUStat{}, false},
		{"too many microseconds", "usage_usec 1\nnr_periods 1\nnr_throttled 1\nthrottled_usec 18446744073709552\n", CPUStat{}, false},
	})
}

func TestParseCPUTime(t *testing.T) {
	runParser(t, parseCPUTime, []parserCase[CPUTime]{
		{"6.12", stat612, CPUTime{3000000, 2000000, 1000000}, true},
		{"the largest", "usage_usec 18446744073709551\nuser_usec 0\nsystem_usec 0", CPUTime{UsageNsec: 18446744073709551000}, true},
		{"overflow", "usage_usec 18446744073709552\nuser_usec 0\nsystem_usec 0", CPUTime{}, false},
		{"no system time", "usage_usec 1\nuser_usec 1\n", CPUTime{}, false},
		{"negative", "usage_usec -1\nuser_usec 1\nsystem_usec 0\n", CPUTime{}, false},
	})
}

func FuzzParseStatLines(f *testing.F) {
	fuzzParser(f, parseThrottling, stat612, "usage_usec 1\nuser_usec 2\nsystem_usec 3")
}

func FuzzParseCPUTime(f *testing.F) { fuzzParser(f, parseCPUTime, stat612) }

func TestParseCPUMax(t *testing.T) {
	runParser(t, parseCPUMax, []parserCase[CPUMax]{
		{"none", "max 100000\n", CPUMax{QuotaUsec: -1, PeriodUsec: 100000}, true},
		{"some", "20000 50000\n", CPUMax{QuotaUsec: 20000, PeriodUsec: 50000}, true},
		{"no newline", "20000 50000", CPUMax{QuotaUsec: 20000, PeriodUsec: 50000}, true},
		{"one number", "20000\n", CPUMax{}, false},
		{"three", "20000 50000 1\n", CPUMax{}, false},
		{"v1's none", "-1 100000\n", CPUMax{}, false},
		{"negative", "-2 100000\n", CPUMax{}, false},
		{"no period", "max 0\n", CPUMax{}, false},
		{"max period", "max max\n", CPUMax{}, false},
		{"empty", "", CPUMax{}, false},
	})
}

func FuzzParseCPUMax(f *testing.F) {
	f.Add([]byte("max 100000\n"))
	f.Add([]byte("20000 100000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseCPUMax(data)
		if err != nil {
			if m != (CPUMax{}) || !errors.Is(err, ErrMalformed) {
				t.Errorf("%+v beside %v", m, err)
			}
			return
		}
		// What is written of it reads back.
		steps := planCPUMaxV2(CPUMax{QuotaUsec: m.QuotaUsec, PeriodUsec: m.PeriodUsec + 1}, m)
		if again, err := parseCPUMax([]byte(steps[0].value)); err != nil || again != m {
			t.Errorf("%+v is written %q, which reads %+v, %v", m, steps[0].value, again, err)
		}
	})
}

// FuzzPlanCPUMaxV2: each step is legal, and the last state is the one that was asked for.
func FuzzPlanCPUMaxV2(f *testing.F) {
	f.Add(uint32(0), uint32(99000), uint32(0), uint32(1), uint32(99000), uint32(0))
	f.Add(uint32(19001), uint32(99000), uint32(20000), uint32(1), uint32(0), uint32(1))
	f.Add(uint32(1), uint32(0), uint32(1000), uint32(8), uint32(5), uint32(4000000))
	f.Fuzz(func(t *testing.T, q1, p1, b1, q2, p2, b2 uint32) {
		from, to := fuzzLimit(q1, p1, b1), fuzzLimit(q2, p2, b2)
		now := from
		steps := planCPUMaxV2(from, to)
		if len(steps) > 2 {
			t.Errorf("%d steps", len(steps))
		}
		for _, s := range steps {
			switch s.file {
			case maxFile:
				m, err := parseCPUMax([]byte(s.value))
				must(t, err)
				now.QuotaUsec, now.PeriodUsec = m.QuotaUsec, m.PeriodUsec
			case maxBurstFile:
				v, err := parseInt([]byte(s.value))
				must(t, err)
				now.BurstUsec = v
			}
			if err := now.validate(); err != nil || !IsIntermediate(from, to, now) {
				t.Errorf("%s to %s passes through %s: %v", from, to, now, err)
			}
		}
		if now != to {
			t.Errorf("%s to %s ends at %s", from, to, now)
		}
	})
}

func TestWeightAndShares(t *testing.T) {
	for weight, shares := range map[uint64]uint64{0: 3, 1: 10, 2: 20, 99: 1014, 100: 1024, 101: 1034, 10000: 102400} {
		if got := weightToShares(weight); got != shares {
			t.Errorf("weightToShares(%d) = %d, want %d", weight, got, shares)
		}
	}
	for shares, weight := range map[uint64]uint64{0: 1, 2: 1, 3: 1, 16: 2, 1019: 100, 1024: 100, 1029: 100, 102400: 10000, 262144: 10000, math.MaxUint64: 10000} {
		if got := sharesToWeight(shares); got != weight {
			t.Errorf("sharesToWeight(%d) = %d, want %d", shares, got, weight)
		}
	}
	for weight := uint64(1); weight <= maxWeight; weight++ {
		if got := sharesToWeight(weightToShares(weight)); got != weight {
			t.Fatalf("weight %d comes back as %d", weight, got)
		}
	}
}

func TestParseEvents(t *testing.T) {
	runParser(t, parseEvents, []parserCase[Events]{
		{"busy", "populated 1\nfrozen 0\n", Events{Populated: true, HasFrozen: true}, true},
		{"frozen", "populated 1\nfrozen 1\n", Events{Populated: true, Frozen: true, HasFrozen: true}, true},
		{"before 5.2", "populated 0\n", Events{}, true},
		{"with a line to come", "new x\npopulated 0\nfrozen 0\n", Events{HasFrozen: true}, true},
		{"no populated", "frozen 0\n", Events{}, false},
		{"two", "populated 2\n", Events{}, false},
		{"no value", "populated\n", Events{}, false},
		{"empty", "", Events{}, false},
	})
}

func FuzzParseEvents(f *testing.F) {
	fuzzParser(f, parseEvents, "populated 1\nfrozen 0\n", "populated")
}

func TestParseFlag(t *testing.T) {
	runParser(t, parseFlag, []parserCase[bool]{{"no", "0\n", false, true}, {"yes", "1", true, true}, {"two", "2\n", false, false}, {"empty", "", false, false}, {"words", "yes\n", false, false}})
}

func FuzzParseFlag(f *testing.F) { fuzzParser(f, parseFlag, "0\n", "1\n") }

func TestParseType(t *testing.T) {
	runParser(t, parseType, []parserCase[Type]{
		{"domain", "domain\n", Domain, true}, {"root", "domain threaded\n", DomainThreaded, true}, {"invalid", "domain invalid\n", DomainInvalid, true},
		{"threaded", "threaded\n", Threaded, true}, {"empty", "", "", false}, {"other", "domain  invalid\n", "", false},
	})
}

func FuzzParseType(f *testing.F) { fuzzParser(f, parseType, "domain threaded\n", "threaded") }

func TestParseControllers(t *testing.T) {
	for text, want := range map[string][]Controller{"cpuset cpu io\n": {"cpuset", "cpu", "io"}, "": nil, "\n": nil, "perf_event net_cls2\n": {"perf_event", "net_cls2"}} {
		if got, err := parseControllers([]byte(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"+cpu\n", "CPU\n", "cpu,io\n", "a\x00b"} {
		if got, err := parseControllers([]byte(text)); !errors.Is(err, ErrMalformed) || got != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func FuzzParseControllers(f *testing.F) {
	fuzzParser(f, func(data []byte) (string, error) {
		list, err := parseControllers(data)
		for _, c := range list {
			if !strings.Contains(string(data), string(c)) || c == "" {
				return "", errors.New("invented " + string(c))
			}
		}
		if err != nil && list != nil {
			return "list", err
		}
		return "", err
	}, "cpuset cpu io memory\n", "cpu")
}

func TestParsePartition(t *testing.T) {
	for text, want := range map[string]Partition{
		"member": {Kind: Member}, "root": {Kind: PartitionRoot}, "isolated": {Kind: Isolated}, "root invalid": {Kind: PartitionRoot, Invalid: true},
		"root invalid (Parent is not a partition root)":                    {PartitionRoot, true, "Parent is not a partition root"},
		"isolated invalid (cpuset.cpus and cpuset.cpus.exclusive are (x))": {Isolated, true, "cpuset.cpus and cpuset.cpus.exclusive are (x)"},
	} {
		got, err := parsePartition(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "member invalid", "Root", "root ", "root broken", "root invalid ", "root invalid ()", "root invalid (x", "root invalid x", "other"} {
		if got, err := parsePartition(text); !errors.Is(err, ErrMalformed) || got != (Partition{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func FuzzParsePartition(f *testing.F) {
	for _, s := range []string{"member", "root invalid (x)", "isolated invalid", "root invalid ()"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if p, err := parsePartition(line); err == nil && p.String() != line {
			t.Errorf("%q: %+v", line, p)
		}
	})
}

func TestAbsentControllerError(t *testing.T) {
	e := &AbsentControllerError{Path: "/a/b", Controller: CPU, StopsAt: "/a"}
	if !errors.Is(e, ErrNoController) || errors.Is(e, ErrUnsupported) || e.Error() != "controller is not enabled for /a/b: cgroup.subtree_control of /a lacks cpu" {
		t.Error(e)
	}
	e.StopsAt = ""
	if !strings.Contains(e.Error(), "the hierarchy has no controller cpu") {
		t.Error(e)
	}
}
