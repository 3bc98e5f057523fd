package throttle

import (
	"slices"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/stat"
)

// Column is one way to run the pool.
type Column string

// The columns, in the order in which they take turns.
const (
	Default   Column = "kernel default"
	BurstOnly Column = "burst only"
	AIMDOnly  Column = "AIMD only"
	All       Column = "all"
	// BucketOnly is what the kernel carries and nothing more, k = 1 on mainline; BucketPool is that
	// with the pool. They are columns of the hard loads.
	BucketOnly Column = "bucket only"
	BucketPool Column = "bucket and pool"
)

func columns() []Column { return []Column{Default, BurstOnly, AIMDOnly, All} }

// burst, userSpace and pool say which policies a column has: userSpace carries what the kernel's
// bucket is too small for.
func (c Column) burst() bool     { return c.userSpace() || c == BucketOnly || c == BucketPool }
func (c Column) userSpace() bool { return c == BurstOnly || c == All }
func (c Column) pool() bool      { return c == AIMDOnly || c == BucketPool || c == All }

const (
	// windowTime is Alibaba's: the policy's step, and the window of "U < 45 %".
	windowTime = 5 * time.Second
	// momentPeriods is over how many periods short-term utilisation is taken (section
	// 4.1, U_max).
	momentPeriods = 5
	// theBurstiest is how many instances figure 15a shows.
	theBurstiest = 5
)

// Block is one column, played once.
type Block struct {
	Column    Column          `json:"column"`
	Round     int             `json:"round"`
	Instances []InstanceBlock `json:"instances"`
	// U is the pool's utilisation over each window of 5 s, Moments over each 5 periods.
	U       []float64 `json:"u_windows"`
	Moments []float64 `json:"u_5_periods,omitempty"`
	// Outside is the CPUs that others than the instances used, and that a hypervisor
	// took, on average.
	Outside float64 `json:"outside_cpus"`
	// Quota is the mean over instances of the quota in force at the block's end, over the
	// one they began with; BurstK the same of burst over quota.
	Quota  float64 `json:"quota_at_end"`
	BurstK float64 `json:"burst_over_quota_at_end"`
}

// InstanceBlock is what one instance saw in a block.
type InstanceBlock struct {
	Name     string  `json:"name"`
	Requests int     `json:"requests"`
	MeanMsec float64 `json:"mean_ms"`
	P99Msec  float64 `json:"p99_ms"`
	// Unfinished are requests that were never answered; they are in the figures with the
	// time for which we waited.
	Unfinished int    `json:"unfinished"`
	Periods    uint64 `json:"nr_periods"`
	Throttled  uint64 `json:"nr_throttled"`
	// Windows are those of 5 s in the block, and WindowsThrottled those of them in which
	// a quota stopped the instance.
	Windows          int `json:"windows"`
	WindowsThrottled int `json:"windows_throttled"`
	// WindowsBorrowed are those in which it used what its bucket had kept.
	WindowsBorrowed int `json:"windows_borrowed"`
}

// answer fills in response times of requests that were to come at or after from.
func (b *InstanceBlock) answer(list []Response, from time.Duration) {
	var took []float64
	for _, r := range list {
		if r.AtUsec < from.Microseconds() {
			continue
		}
		took = append(took, float64(r.TookUsec)/1000)
		if r.Unfinished {
			b.Unfinished++
		}
	}
	b.Requests = len(took)
	if len(took) > 0 {
		b.MeanMsec, b.P99Msec = stat.Mean(took), stat.Quantile(0.99, took)
	}
}

// Reading is what the kernel says of the instances at one time.
type Reading struct {
	MonoNsec  int64
	UsageNsec []uint64         // by instance
	Stat      []cgroup.CPUStat // by instance; nil in the readings between
	OtherNsec uint64           // CPU time of the machine, with what was stolen
}

// use fills in what the readings of a block say: the pool's utilisation and who was
// throttled; used is the CPU time that counts in the former. The first and the last reading have Stat, and about every windowTime one
// between.
func (b *Block) use(readings []Reading, poolCPUs float64, period time.Duration, used func(*Reading) uint64) {
	if len(readings) < 2 {
		return
	}
	b.U = utilisations(readings, poolCPUs, windowTime, used)
	b.Moments = utilisations(readings, poolCPUs, momentPeriods*period, used)
	first, last := &readings[0], &readings[len(readings)-1]
	ours := total(last) - total(first)
	elapsed := float64(last.MonoNsec - first.MonoNsec)
	b.Outside = max(0, float64(last.OtherNsec)-float64(first.OtherNsec)-float64(ours)) / elapsed
	b.countThrottled(readings)
}

// countThrottled counts the throttled periods of each instance, and its windows.
func (b *Block) countThrottled(readings []Reading) {
	var prev *Reading
	for k := range readings {
		r := &readings[k]
		if r.Stat == nil {
			continue
		}
		if prev != nil {
			for i := range b.Instances {
				in := &b.Instances[i]
				in.Periods += r.Stat[i].NrPeriods - prev.Stat[i].NrPeriods
				throttled := r.Stat[i].NrThrottled - prev.Stat[i].NrThrottled
				in.Throttled += throttled
				in.Windows++
				if throttled > 0 {
					in.WindowsThrottled++
				}
				if r.Stat[i].NrBursts > prev.Stat[i].NrBursts {
					in.WindowsBorrowed++
				}
			}
		}
		prev = r
	}
}

// all is the CPU time of everybody on the machine.
func all(r *Reading) uint64 { return r.OtherNsec }

// total is that of the instances.
func total(r *Reading) (sum uint64) {
	for _, v := range r.UsageNsec {
		sum += v
	}
	return sum
}

// utilisations returns the share of the pool that was used in each stretch of at least so
// long, one after the other. A reading may come late: what counts is when it came.
func utilisations(readings []Reading, cpus float64, length time.Duration, used func(*Reading) uint64) []float64 {
	const early = 0.97 // a reading a little before its time still ends a stretch
	var list []float64
	from := &readings[0]
	for i := 1; i < len(readings); i++ {
		r := &readings[i]
		elapsed := r.MonoNsec - from.MonoNsec
		if float64(elapsed) < early*float64(length) {
			continue
		}
		list = append(list, float64(used(r)-used(from))/float64(elapsed)/cpus)
		from = r
	}
	return list
}

// Summary is one column over all its blocks.
type Summary struct {
	Column Column `json:"column"`
	// ThrottledInstances is the share of instances that a quota stopped in a window of 5 s:
	// Alibaba's measure, 73.4 % before and 0.12 % after. EverThrottled is the share that it
	// stopped at any time in a block, which is stricter the longer a block is.
	ThrottledInstances stat.Interval `json:"throttled_instances"`
	EverThrottled      stat.Interval `json:"ever_throttled"`
	// Borrowed is the share of instances that used their bucket in a window: Alibaba's 0.75 %.
	Borrowed         stat.Interval `json:"borrowed_instances"`
	ThrottledPeriods stat.Interval `json:"throttled_periods"`
	MeanMsec         stat.Interval `json:"mean_ms"` // over all instances
	P99Msec          stat.Interval `json:"p99_ms"`  // mean over instances
	BurstiestMsec    stat.Interval `json:"burstiest_mean_ms"`
	// Reduction is by how much the mean response time of the burstiest fell, against the
	// kernel's default in the same round: the same requests.
	Reduction  stat.Interval `json:"burstiest_reduction"`
	U          Spread        `json:"u_5s"`
	Moments    Spread        `json:"u_5_periods"`
	Outside    float64       `json:"outside_cpus"`
	Quota      float64       `json:"quota_at_end"`
	BurstK     float64       `json:"burst_over_quota_at_end"`
	Windows    int           `json:"instance_windows"`
	Unfinished int           `json:"unfinished"`
}

// Spread says how a quantity is distributed.
type Spread struct {
	Mean float64 `json:"mean"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// spread summarises values; of none it is zero.
func spread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{Mean: stat.Mean(v), P95: stat.Quantile(0.95, v), P99: stat.Quantile(0.99, v), Max: slices.Max(v)}
}

// Summarise brings the blocks of each column together; burst lists the burstiest instances.
func Summarise(blocks []Block, burst []int) []Summary {
	var list []Summary
	for _, c := range []Column{Default, BucketOnly, BurstOnly, AIMDOnly, BucketPool, All} {
		if s, ok := summarise(c, blocks, burst); ok {
			list = append(list, s)
		}
	}
	return list
}

func summarise(c Column, blocks []Block, burst []int) (Summary, bool) {
	s := Summary{Column: c}
	var throttled, borrowed, ever, periods, means, p99s, bursts, reductions, us, moments, outside, quota, k []float64
	for i := range blocks {
		b := &blocks[i]
		if b.Column != c {
			continue
		}
		f := b.figures(burst)
		throttled, ever, periods = append(throttled, f.throttled), append(ever, f.ever), append(periods, f.periods)
		borrowed = append(borrowed, f.borrowed)
		means, p99s, bursts = append(means, f.mean), append(p99s, f.p99), append(bursts, f.burstiest)
		if base := find(blocks, Default, b.Round); base != nil {
			if was := base.figures(burst).burstiest; was > 0 {
				reductions = append(reductions, 1-f.burstiest/was)
			}
		}
		us, moments = append(us, b.U...), append(moments, b.Moments...)
		outside, quota, k = append(outside, b.Outside), append(quota, b.Quota), append(k, b.BurstK)
		s.Windows += f.windows
		s.Unfinished += f.unfinished
	}
	if len(throttled) == 0 {
		return s, false
	}
	s.Borrowed = stat.IntervalOf(borrowed)
	s.ThrottledInstances, s.EverThrottled, s.ThrottledPeriods = stat.IntervalOf(throttled), stat.IntervalOf(ever), stat.IntervalOf(periods)
	s.MeanMsec, s.P99Msec, s.BurstiestMsec, s.Reduction = stat.IntervalOf(means), stat.IntervalOf(p99s), stat.IntervalOf(bursts), stat.IntervalOf(reductions)
	s.U, s.Moments, s.Outside, s.Quota, s.BurstK = spread(us), spread(moments), stat.Mean(outside), stat.Mean(quota), stat.Mean(k)
	return s, true
}

// figures are those of a block.
type figures struct {
	throttled, borrowed, ever, periods, mean, p99, burstiest float64
	windows, unfinished                                      int
}

func (b *Block) figures(burst []int) figures {
	var f figures
	n := float64(len(b.Instances))
	var all, most struct{ sum, requests float64 }
	var nr, hit uint64
	windowsHit, windowsLent := 0, 0
	for i := range b.Instances {
		in := &b.Instances[i]
		windowsHit += in.WindowsThrottled
		windowsLent += in.WindowsBorrowed
		f.windows += in.Windows
		if in.Throttled > 0 {
			f.ever += 1 / n
		}
		nr, hit = nr+in.Periods, hit+in.Throttled
		f.p99 += in.P99Msec / n
		f.unfinished += in.Unfinished
		all.sum += in.MeanMsec * float64(in.Requests)
		all.requests += float64(in.Requests)
		if slices.Contains(burst, i) {
			most.sum += in.MeanMsec * float64(in.Requests)
			most.requests += float64(in.Requests)
		}
	}
	f.throttled = stat.Ratio(float64(windowsHit), float64(f.windows))
	f.borrowed = stat.Ratio(float64(windowsLent), float64(f.windows))
	f.periods = stat.Ratio(float64(hit), float64(nr))
	f.mean, f.burstiest = stat.Ratio(all.sum, all.requests), stat.Ratio(most.sum, most.requests)
	return f
}

func find(blocks []Block, c Column, round int) *Block {
	for i := range blocks {
		if blocks[i].Column == c && blocks[i].Round == round {
			return &blocks[i]
		}
	}
	return nil
}
