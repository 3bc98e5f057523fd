package load

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

func arrivals(c Config) []arrival {
	var all []arrival
	s := newSchedule(c)
	for {
		a, ok := s.next()
		if !ok {
			return all
		}
		all = append(all, a)
	}
}

func scheduleConfig() Config {
	return Config{
		RatePerSec: 4000, Connections: 8, KeyCount: 1000, SetFraction: 0.1,
		Duration: 20 * time.Second, Seed: 42,
	}
}

func TestScheduleIsRepeatable(t *testing.T) {
	c := scheduleConfig()
	first := arrivals(c)
	if !slices.Equal(first, arrivals(c)) {
		t.Error("the same seed gave another schedule")
	}
	c.Seed++
	if slices.Equal(first, arrivals(c)) {
		t.Error("another seed gave the same schedule")
	}
	c.Seed--
	c.SetFraction, c.KeyCount, c.Connections = 0.9, 7, 2
	for i, a := range arrivals(c) {
		if a.at != first[i].at {
			t.Fatal("other choices moved the times")
		}
	}
}

// A Poisson process: counts of equal spans have equal mean and variance, and gaps have
// the standard deviation of their mean. The seed is fixed, so the bounds (five standard
// errors) hold or do not, once and for all.
func TestScheduleIsPoisson(t *testing.T) {
	c := scheduleConfig()
	all := arrivals(c)
	const span = 10 * time.Millisecond
	counts := make([]float64, c.Duration/span)
	var gaps []float64
	for i, a := range all {
		counts[a.at/span]++
		if i > 0 {
			if a.at < all[i-1].at {
				t.Fatal("times go back")
			}
			gaps = append(gaps, (a.at - all[i-1].at).Seconds())
		}
	}
	n := float64(len(counts))
	mean, variance := moments(counts)
	if want := 40.0; math.Abs(mean-want) > 5*math.Sqrt(want/n) {
		t.Errorf("mean count %.3f, want %.1f", mean, want)
	}
	// The variance of a sample variance of a Poisson variable is about (2λ²+λ)/n.
	if want := 40.0; math.Abs(variance-want) > 5*math.Sqrt((2*want*want+want)/n) {
		t.Errorf("variance of counts %.3f, want %.1f", variance, want)
	}
	gapMean, gapVariance := moments(gaps)
	if cv := math.Sqrt(gapVariance) / gapMean; math.Abs(cv-1) > 0.02 {
		t.Errorf("coefficient of variation of the gaps %.4f, want 1", cv)
	}
	sets, keys, conns := 0, map[uint32]bool{}, make([]int, c.Connections)
	for _, a := range all {
		if a.set {
			sets++
		}
		keys[a.key] = true
		conns[a.conn]++
	}
	if share := float64(sets) / float64(len(all)); math.Abs(share-0.1) > 0.01 {
		t.Errorf("share of sets %.4f, want 0.1", share)
	}
	if len(keys) != c.KeyCount {
		t.Errorf("%d keys of %d used", len(keys), c.KeyCount)
	}
	for i, n := range conns {
		if math.Abs(float64(n)-10000) > 500 {
			t.Errorf("connection %d carries %d of %d", i, n, len(all))
		}
	}
}

func moments(v []float64) (mean, variance float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	for _, x := range v {
		variance += (x - mean) * (x - mean)
	}
	return mean, variance / float64(len(v)-1)
}

func TestScheduleFollowsRates(t *testing.T) {
	c := scheduleConfig()
	c.Rates = []RateStep{
		{5 * time.Second, 0}, {7 * time.Second, 10_000}, {8 * time.Second, 100}, {18 * time.Second, 0},
	}
	per := map[time.Duration]int{}
	for _, a := range arrivals(c) {
		per[a.at/time.Second]++
	}
	sum := func(from, to time.Duration) (n float64) {
		for s := from; s < to; s++ {
			n += float64(per[s])
		}
		return n
	}
	for _, w := range []struct {
		from, to time.Duration
		want     float64
	}{{0, 5, 20000}, {5, 7, 0}, {7, 8, 10000}, {8, 18, 1000}, {18, 20, 0}} {
		if got := sum(w.from, w.to); math.Abs(got-w.want) > 5*math.Sqrt(w.want) {
			t.Errorf("from %d to %d s: %v requests, want about %v", w.from, w.to, got, w.want)
		}
	}
	// Steps that change nothing must not change the process but for rounding.
	c.Rates = nil
	plain := arrivals(c)
	c.Rates = []RateStep{{time.Second, 4000}, {1500 * time.Millisecond, 4000}}
	stepped := arrivals(c)
	if len(plain) != len(stepped) {
		t.Fatalf("%d and %d requests", len(plain), len(stepped))
	}
	for i := range plain {
		if d := plain[i].at - stepped[i].at; d < -2 || d > 2 {
			t.Fatalf("request %d moved by %v", i, d)
		}
	}
}

func TestConfigIsRefused(t *testing.T) {
	good := Config{Network: "unix", Address: "/tmp/s", RatePerSec: 1, Duration: time.Second}
	if _, _, err := good.withDefaults(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"not loopback":     func(c *Config) { c.Network, c.Address = "tcp", "192.0.2.1:11211" },
		"any address":      func(c *Config) { c.Network, c.Address = "tcp", "0.0.0.0:11211" },
		"a name":           func(c *Config) { c.Network, c.Address = "tcp", "localhost:11211" },
		"udp":              func(c *Config) { c.Network = "udp" },
		"no rate":          func(c *Config) { c.RatePerSec = 0 },
		"NaN rate":         func(c *Config) { c.RatePerSec = math.NaN() },
		"infinite rate":    func(c *Config) { c.RatePerSec = math.Inf(1) },
		"negative rate":    func(c *Config) { c.RatePerSec = -1 },
		"negative step":    func(c *Config) { c.Rates = []RateStep{{-1, 1}} },
		"unordered steps":  func(c *Config) { c.Rates = []RateStep{{2, 1}, {1, 1}} },
		"equal steps":      func(c *Config) { c.Rates = []RateStep{{2, 1}, {2, 1}} },
		"bad step":         func(c *Config) { c.Rates = []RateStep{{2, math.NaN()}} },
		"no duration":      func(c *Config) { c.Duration = 0 },
		"tiny window":      func(c *Config) { c.Window = 1 },
		"too many windows": func(c *Config) { c.Window, c.Duration = time.Millisecond, time.Hour },
		"connections":      func(c *Config) { c.Connections = 5000 },
		"keys":             func(c *Config) { c.KeyCount = -1 },
		"value":            func(c *Config) { c.ValueBytes = 1 << 20 },
		"sets":             func(c *Config) { c.SetFraction = 1.5 },
		"NaN sets":         func(c *Config) { c.SetFraction = math.NaN() },
		"grace":            func(c *Config) { c.Grace = -1 },
	} {
		c := good
		change(&c)
		if _, err := Run(t.Context(), c, nil); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
