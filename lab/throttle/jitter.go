package throttle

import (
	"time"

	"github.com/commensal-io/commensal/lab/stat"
)

// Jitter is figure 12: the CPU use of one bursty instance, by the second and by 50 ms.
type Jitter struct {
	Column   Column `json:"column"`
	Instance string `json:"instance"`
	// QuotaCPUs is the instance's quota in CPUs, as the container runtime gave it.
	QuotaCPUs float64   `json:"quota_cpus"`
	Fine      []float64 `json:"cpus_50ms"`
	Coarse    []float64 `json:"cpus_1s"`
	FineMax   float64   `json:"max_50ms"`
	CoarseMax float64   `json:"max_1s"`
	Mean      float64   `json:"mean"`
	// FineAbove and CoarseAbove are the shares of the windows that are above the quota.
	FineAbove   float64 `json:"share_above_quota_50ms"`
	CoarseAbove float64 `json:"share_above_quota_1s"`
}

// jitterOf makes the figure of readings that were taken every 50 ms.
func jitterOf(c Column, in *Instance, readings []Reading, instance int) Jitter {
	j := Jitter{Column: c, Instance: in.Name, QuotaCPUs: float64(in.QuotaUsec) / float64(in.PeriodUsec)}
	if len(readings) < 2 {
		return j
	}
	j.Fine = use(readings, instance, sampleEvery)
	j.Coarse = use(readings, instance, time.Second)
	j.FineMax, j.FineAbove = peak(j.Fine, j.QuotaCPUs)
	j.CoarseMax, j.CoarseAbove = peak(j.Coarse, j.QuotaCPUs)
	j.Mean = stat.Mean(j.Fine)
	return j
}

// use is the CPUs that an instance used in each stretch of about so long.
func use(readings []Reading, instance int, length time.Duration) []float64 {
	one := make([]Reading, len(readings))
	for i := range readings {
		one[i] = Reading{MonoNsec: readings[i].MonoNsec, UsageNsec: readings[i].UsageNsec[instance : instance+1]}
	}
	return utilisations(one, 1, length, total)
}

// peak returns the largest value and the share of those above a level.
func peak(v []float64, level float64) (most, above float64) {
	for _, x := range v {
		most = max(most, x)
		if x > level {
			above += 1 / float64(len(v))
		}
	}
	return most, above
}
