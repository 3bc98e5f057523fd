package model

import (
	"math"
	"testing"
)

func TestSection5_CapLevels(t *testing.T) {
	const period = int64(250e6)
	tests := []struct {
		name   string
		cpus   float64
		period int64
		want   CPUMax
	}{
		{"section 5: 25 ms in each 250 ms window", 0.1, period, CPUMax{QuotaUsec: 25_000, PeriodUsec: 250_000}},
		{"section 5: best effort", 0.01, period, CPUMax{QuotaUsec: 2_500, PeriodUsec: 250_000}},
		{"several CPUs", 3, period, CPUMax{QuotaUsec: 750_000, PeriodUsec: 250_000}},
		{"the period is stretched under the least quota", 0.002, period, CPUMax{QuotaUsec: 1_000, PeriodUsec: 500_000}},
		{"the least there is", 0.0001, period, CPUMax{QuotaUsec: 1_000, PeriodUsec: 1_000_000}},
		{"zero", 0, period, CPUMax{QuotaUsec: 1_000, PeriodUsec: 1_000_000}},
		{"negative", -1, period, CPUMax{QuotaUsec: 1_000, PeriodUsec: 1_000_000}},
		{"a period too short", 0.5, 1, CPUMax{QuotaUsec: 1_000, PeriodUsec: 2_000}},
		{"a period too long", 0.5, 1e12, CPUMax{QuotaUsec: 500_000, PeriodUsec: 1_000_000}},
	}
	for _, tt := range tests {
		if got := CapFor(tt.cpus, tt.period); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// Whatever is asked for, the kernel's bounds hold, and a huge cap never becomes a tiny one.
func TestCapForAdversarial(t *testing.T) {
	odd := []float64{0, 1e-300, 5e-324, 0.1, 1, 64, 1e5, 1e12, 1e300, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(), -5}
	for _, c := range odd {
		for _, p := range []int64{math.MinInt64, -1, 0, 1, 1e6, 250e6, 1e9, math.MaxInt64} {
			m := CapFor(c, p)
			if m.QuotaUsec < 1000 || m.PeriodUsec < 1000 || m.PeriodUsec > 1_000_000 || m.QuotaUsec >= 1<<44 || m.BurstUsec != 0 {
				t.Errorf("CapFor(%v, %d) = %+v", c, p, m)
			}
			if c >= 1 && m.Ratio() < 0.99 {
				t.Errorf("CapFor(%v, %d) holds to %v", c, p, m.Ratio())
			}
		}
	}
}

// A burst that was within the quota found stays within a quota that a policy lowers; one
// that the kernel takes above its quota is left as it is.
func TestBurstFollowsTheQuotaDown(t *testing.T) {
	base := CPUMax{QuotaUsec: 200_000, PeriodUsec: 100_000}
	for _, c := range []struct{ quota, burst, want int64 }{
		{0, 200_000, 200_000}, {100_000, 200_000, 100_000}, {100_000, 2_000_000, 2_000_000}, {400_000, 200_000, 200_000}, {10, 0, 0},
	} {
		claim := Claim{Kind: ClaimRaise, Value: Bandwidth(CPUMax{QuotaUsec: c.quota, BurstUsec: c.burst})}
		got, _ := raised(Bandwidth(base), []Claim{claim})
		if got.BurstUsec != c.want || got.QuotaUsec < minQuotaUsec {
			t.Errorf("quota %d, burst %d: %+v, want burst %d", c.quota, c.burst, got, c.want)
		}
	}
}

// A crash in the midst of putting back a quota under which another program's burst has no room leaves one of ours.
func TestBetweenLimitsABurstWithoutRoomIsLowered(t *testing.T) {
	at := func(quota, burst int64) Setting {
		return Bandwidth(CPUMax{QuotaUsec: quota, PeriodUsec: 20_000, BurstUsec: burst})
	}
	from, to := at(380_000, 214_431), at(190_000, 214_431)
	for now, ours := range map[Setting]bool{
		from: true, at(380_000, 190_000): true, at(190_000, 190_000): true, at(-1, 190_000): true,
		at(380_000, 189_999): false, at(200_000, 190_000): false, at(380_000, 0): false,
	} {
		if got := CPUBandwidth.Spec().Between(now, from, to); got != ours {
			t.Errorf("%s: ours: %t", now, got)
		}
	}
	if CPUBandwidth.Spec().Between(at(380_000, 190_000), from, at(190_000, 100_000)) {
		t.Error("a burst that has room is lowered to what is meant, and to nothing else")
	}
}
