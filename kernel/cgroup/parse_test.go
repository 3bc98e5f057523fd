package cgroup

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParseCPUStat(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       CPUStat
		ok         bool
	}{
		{"6.18", "nr_periods 118\nnr_throttled 37\nthrottled_time 2910412386\nnr_bursts 2\nburst_time 91\n",
			CPUStat{HasQuota: true, NrPeriods: 118, NrThrottled: 37, ThrottledNsec: 2910412386, HasBursts: true, NrBursts: 2, BurstNsec: 91}, true},
		{"before 5.14", "nr_periods 1\nnr_throttled 2\nthrottled_time 3\n", CPUStat{HasQuota: true, NrPeriods: 1, NrThrottled: 2, ThrottledNsec: 3}, true},
		{"with a line to come", "nr_periods 1\nnew_line x y\nnr_throttled 2\nthrottled_time 3\n", CPUStat{HasQuota: true, NrPeriods: 1, NrThrottled: 2, ThrottledNsec: 3}, true},
		{"half a burst", "nr_periods 1\nnr_throttled 2\nthrottled_time 3\nnr_bursts 4\n", CPUStat{HasQuota: true, NrPeriods: 1, NrThrottled: 2, ThrottledNsec: 3, NrBursts: 4}, true},
		{"missing", "nr_periods 1\nthrottled_time 3\n", CPUStat{}, false},
		{"empty", "", CPUStat{}, false},
		{"no number", "nr_periods 1\nnr_throttled x\nthrottled_time 3\n", CPUStat{}, false},
		{"negative", "nr_periods -1\nnr_throttled 2\nthrottled_time 3\n", CPUStat{}, false},
		{"overflow", "nr_periods 18446744073709551616\nnr_throttled 2\nthrottled_time 3\n", CPUStat{}, false},
	} {
		got, err := parseCPUStat([]byte(c.text))
		if got != c.want || (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrMalformed)) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func FuzzParseCPUStat(f *testing.F) {
	f.Add([]byte("nr_periods 118\nnr_throttled 37\nthrottled_time 2910412386\nnr_bursts 2\nburst_time 91\n"))
	f.Add([]byte("nr_periods 1\nnr_throttled 2\nthrottled_time 3"))
	f.Add([]byte(" \n\nnr_periods"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseCPUStat(data)
		if err != nil {
			if got != (CPUStat{}) || !errors.Is(err, ErrMalformed) {
				t.Errorf("%+v beside %v", got, err)
			}
			return
		}
		if !strings.Contains(string(data), "nr_throttled") {
			t.Errorf("%+v from %q", got, data)
		}
	})
}

func TestParseNumbers(t *testing.T) {
	for text, want := range map[string]int64{"-1\n": -1, "0": 0, "20000\n": 20000} {
		if got, err := parseInt([]byte(text)); err != nil || got != want {
			t.Errorf("parseInt(%q) = %d, %v", text, got, err)
		}
	}
	if got, err := parseUint([]byte("18446744073709551615\n")); err != nil || got != math.MaxUint64 {
		t.Errorf("parseUint = %d, %v", got, err)
	}
	for _, text := range []string{"", "\n", "x", "1 2", " 1", "18446744073709551616", strings.Repeat("9", 5000)} {
		_, err := parseUint([]byte(text))
		_, err2 := parseInt([]byte(text))
		if !errors.Is(err, ErrMalformed) || !errors.Is(err2, ErrMalformed) || len(err.Error()) > 200 {
			t.Errorf("%.20q: %v, %v", text, err, err2)
		}
	}
}

func FuzzParseNumbers(f *testing.F) {
	for _, s := range []string{"1046385113204\n", "-1\n", "", "+1", "0x1", "1_000"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, err := parseUint(data); err == nil {
			if again, err := parseUint(strconv.AppendUint(nil, v, 10)); err != nil || again != v {
				t.Errorf("%q: %d, again %d, %v", data, v, again, err)
			}
		}
		if v, err := parseInt(data); err == nil {
			if again, err := parseInt(strconv.AppendInt(nil, v, 10)); err != nil || again != v {
				t.Errorf("%q: %d, again %d, %v", data, v, again, err)
			}
		}
	})
}

func TestParseProcs(t *testing.T) {
	got, err := parseProcs([]int32{7}, []byte("13136\n13137\n\n0\n"))
	if err != nil || !slices.Equal(got, []int32{7, 13136, 13137, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"x\n", "-3\n", "2147483648\n", "1 2\n"} {
		if _, err := parseProcs(nil, []byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseProcs(f *testing.F) {
	for _, s := range []string{"13136\n13137\n", "", "1", "\n\n", "99999999999\n", "-1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseProcs(nil, data)
		if err == nil && len(got) > len(data) {
			t.Errorf("%d ids from %d bytes", len(got), len(data))
		}
		if slices.ContainsFunc(got, func(p int32) bool { return p < 0 }) {
			t.Errorf("negative id in %v", got)
		}
	})
}

func TestParseFreezerState(t *testing.T) {
	for text, want := range map[string]FreezerState{"THAWED\n": Thawed, "FREEZING\n": Freezing, "FROZEN\n": Frozen, "": "", "frozen\n": "", "FROZEN \n": ""} {
		got, err := parseFreezerState([]byte(text))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func FuzzParseFreezerState(f *testing.F) {
	f.Add([]byte("THAWED\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := parseFreezerState(data); err == nil && strings.TrimSuffix(string(data), "\n") != string(got) {
			t.Errorf("%q from %q", got, data)
		}
	})
}

func TestCheckPath(t *testing.T) {
	for path, ok := range map[string]bool{
		"/": true, "/a": true, "/a/b": true, "/a..b": true, "/..a": true,
		"": false, "a": false, "/a/": false, "//a": false, "/a//b": false, "/..": false, "/a/../b": false, "/.": false,
	} {
		if err := checkPath(path); (err == nil) != ok {
			t.Errorf("checkPath(%q) = %v", path, err)
		}
	}
	if got := ancestors("/a/b/c"); !slices.Equal(got, []string{"/a/b", "/a"}) {
		t.Errorf("ancestors = %v", got)
	}
	if got := ancestors("/a"); len(got) != 0 {
		t.Errorf("ancestors = %v", got)
	}
}
