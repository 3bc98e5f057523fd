package config

import (
	"fmt"
	"time"

	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/burst"
	"github.com/commensal-io/commensal/policy/cpupool"
	"github.com/commensal-io/commensal/policy/cpuset"
)

// CPUSet parts the CPUs between LC and BE (seed 000).
type CPUSet struct {
	Mode            string        `yaml:"mode"`
	FloorCores      int           `yaml:"floor_cores"`
	FloorShare      float64       `yaml:"floor_share"`
	ParkCap         float64       `yaml:"park_cap"`
	Wait            float64       `yaml:"wait"`
	TargetSiblings  float64       `yaml:"target_siblings"`
	FullUtilisation float64       `yaml:"full_utilisation"`
	Rise            time.Duration `yaml:"rise"`
	Fall            time.Duration `yaml:"fall"`
	GiveEvery       time.Duration `yaml:"give_every"`
	ReturnsPerMin   int           `yaml:"returns_per_min"`
	Blind           time.Duration `yaml:"blind"`
	Sockets         string        `yaml:"sockets"` // spread or gather
}

// CPUPool raises and lowers the quotas of shared LC tasks (seed 001, section 4.1).
type CPUPool struct {
	Mode             string        `yaml:"mode"`
	Interval         time.Duration `yaml:"interval"`
	UtilisationHigh  float64       `yaml:"utilisation_high"`
	Increase         float64       `yaml:"increase"`
	Decrease         float64       `yaml:"decrease"`
	MaxFactor        float64       `yaml:"max_factor"`
	BurstyBelow      float64       `yaml:"bursty_below"`
	BelowOriginal    bool          `yaml:"below_original"`
	FloorFactor      float64       `yaml:"floor_factor"`
	GiveBack         time.Duration `yaml:"give_back"`
	EarlyUtilisation float64       `yaml:"early_utilisation"`
	Early            time.Duration `yaml:"early"`
}

// Burst lets LC tasks save up what they do not use of their quota (seed 001, section 4.1).
type Burst struct {
	Mode            string        `yaml:"mode"`
	Bucket          float64       `yaml:"bucket"`
	UserSpace       bool          `yaml:"user_space"`
	MaxRaise        float64       `yaml:"max_raise"`
	MinRaise        float64       `yaml:"min_raise"`
	MaxOverspend    float64       `yaml:"max_overspend"`
	NearShare       float64       `yaml:"near_share"`
	Quiet           time.Duration `yaml:"quiet"`
	Rest            time.Duration `yaml:"rest"`
	MaxWritesPerSec float64       `yaml:"max_writes_per_sec"`
}

// defaultsOfCPU fills in the sections with what their policies argue for.
func (c *Config) defaultsOfCPU() {
	s, p, b := cpuset.Defaults(), cpupool.Defaults(), burst.Defaults()
	mode := model.ModeObserve.String()
	c.CPUSet = CPUSet{
		Mode: mode, FloorCores: s.FloorCores, FloorShare: s.FloorShare, ParkCap: s.ParkCap,
		Wait: s.Wait, TargetSiblings: s.TargetSiblings, FullUtilisation: s.FullUtilisation,
		Rise: time.Duration(s.RiseNsec), Fall: time.Duration(s.FallNsec), GiveEvery: time.Duration(s.GiveEveryNsec), ReturnsPerMin: s.ReturnsPerMin,
		Blind: time.Duration(s.BlindNsec), Sockets: s.Sockets,
	}
	c.CPUPool = CPUPool{
		Mode: mode, Interval: time.Duration(p.IntervalNsec), UtilisationHigh: p.UtilisationHigh, Increase: p.Increase, Decrease: p.Decrease,
		MaxFactor: p.MaxFactor, BurstyBelow: p.BurstyBelow, BelowOriginal: p.BelowOriginal, FloorFactor: p.FloorFactor,
		GiveBack: time.Duration(p.GiveBackNsec), EarlyUtilisation: p.EarlyUtilisation, Early: time.Duration(p.EarlyNsec),
	}
	c.Burst = Burst{
		Mode: mode, Bucket: b.Bucket, UserSpace: b.UserSpace, MaxRaise: b.MaxRaise, MinRaise: b.MinRaise, MaxOverspend: b.MaxOverspend,
		NearShare: b.NearShare, Quiet: time.Duration(b.QuietNsec), Rest: time.Duration(b.RestNsec), MaxWritesPerSec: b.MaxWritesPerSec,
	}
}

// cpuParams returns what the sections say to the engine.
func (c *Config) cpuParams() engine.CPUParams {
	s, p, b := &c.CPUSet, &c.CPUPool, &c.Burst
	out := engine.CPUParams{CPUSet: cpuset.Defaults(), CPUPool: cpupool.Defaults(), Burst: burst.Defaults()}
	for _, m := range []struct {
		dst  *model.Mode
		text string
	}{{&out.CPUSetMode, s.Mode}, {&out.CPUPoolMode, p.Mode}, {&out.BurstMode, b.Mode}} {
		_ = m.dst.UnmarshalText([]byte(m.text)) // checked by Validate
	}
	d := &out.CPUSet
	d.FloorCores, d.FloorShare, d.ParkCap = s.FloorCores, s.FloorShare, s.ParkCap
	d.Wait, d.TargetSiblings, d.FullUtilisation = s.Wait, s.TargetSiblings, s.FullUtilisation
	d.RiseNsec, d.FallNsec, d.GiveEveryNsec, d.ReturnsPerMin = s.Rise.Nanoseconds(), s.Fall.Nanoseconds(), s.GiveEvery.Nanoseconds(), s.ReturnsPerMin
	d.BlindNsec, d.Sockets = s.Blind.Nanoseconds(), s.Sockets
	q := &out.CPUPool
	q.IntervalNsec, q.UtilisationHigh, q.Increase, q.Decrease = p.Interval.Nanoseconds(), p.UtilisationHigh, p.Increase, p.Decrease
	q.MaxFactor, q.BurstyBelow, q.BelowOriginal, q.FloorFactor = p.MaxFactor, p.BurstyBelow, p.BelowOriginal, p.FloorFactor
	q.GiveBackNsec, q.EarlyUtilisation, q.EarlyNsec = p.GiveBack.Nanoseconds(), p.EarlyUtilisation, p.Early.Nanoseconds()
	r := &out.Burst
	r.Bucket, r.UserSpace, r.MaxRaise, r.MinRaise, r.MaxOverspend = b.Bucket, b.UserSpace, b.MaxRaise, b.MinRaise, b.MaxOverspend
	r.LateNsec = 2 * c.Agent.Pulse.Nanoseconds()
	r.NearShare, r.QuietNsec, r.RestNsec, r.MaxWritesPerSec = b.NearShare, b.Quiet.Nanoseconds(), b.Rest.Nanoseconds(), b.MaxWritesPerSec
	return out
}

// Pace returns how often the agent takes a turn, and of which kind. Only what acts within
// a tenth of a second needs fast readings: the border between LC and BE cores, and buckets in
// user space. Policies that observe look once a second, as does the pool, whose period is
// seconds; with all of them off there are no pulses.
func (c *Config) Pace() cadence.Pace {
	p := cadence.Pace{Duration: c.CPI2.SamplingDuration, Frequency: c.CPI2.SamplingFrequency}
	off, enforce := model.ModeOff.String(), model.ModeEnforce.String()
	buckets := c.Burst.Mode == enforce && c.Burst.UserSpace
	if c.CPUSet.Mode != off || c.CPUPool.Mode != off || c.Burst.Mode != off {
		p.Pulse = cadence.TickEvery
	}
	if c.CPUSet.Mode == enforce || buckets {
		p.Pulse = c.Agent.Pulse
	}
	return p
}

// maxReturns is more than there are pulses in a minute.
const maxReturns = 6000

func (c *Config) checkCPU() []check {
	mode := func(key, text string) check {
		var m model.Mode
		return check{key, m.UnmarshalText([]byte(text)) == nil, fmt.Sprintf("is %q; expected off, observe or enforce", text)}
	}
	s, p, b := &c.CPUSet, &c.CPUPool, &c.Burst
	within := func(key string, v, lo, hi time.Duration) check {
		return check{key, v >= lo && v <= hi, fmt.Sprintf("is %s; expected %s to %s", v, lo, hi)}
	}
	return []check{
		mode("cpuset.mode", s.Mode),
		{"cpuset.floor_cores", s.FloorCores >= 0 && s.FloorCores <= maxCores, fmt.Sprintf("is %d; expected 0 to %d", s.FloorCores, maxCores)},
		between("cpuset.floor_share", s.FloorShare, 0, 0.9, "of the cores"),
		between("cpuset.park_cap", s.ParkCap, 0.001, 1024, "CPU-sec/sec; the kernel's least is 1 ms in 1 s"),
		between("cpuset.wait", s.Wait, 1e-6, 0.5, "a share of LC's requests"),
		between("cpuset.target_siblings", s.TargetSiblings, 0.05, 1, "a utilisation"),
		between("cpuset.full_utilisation", s.FullUtilisation, s.TargetSiblings, 1, "a utilisation, not below target_siblings"),
		within("cpuset.rise", s.Rise, 0, time.Minute),
		within("cpuset.fall", s.Fall, s.Rise, time.Hour),
		within("cpuset.give_every", s.GiveEvery, 10*time.Millisecond, time.Hour),
		{"cpuset.returns_per_min", s.ReturnsPerMin >= 1 && s.ReturnsPerMin <= maxReturns, fmt.Sprintf("is %d; expected 1 to %d", s.ReturnsPerMin, maxReturns)},
		within("cpuset.blind", s.Blind, 100*time.Millisecond, time.Hour),
		{"cpuset.sockets", s.Sockets == cpuset.Spread || s.Sockets == cpuset.Gather, fmt.Sprintf("is %q; expected spread or gather", s.Sockets)},

		mode("cpu_pool.mode", p.Mode),
		within("cpu_pool.interval", p.Interval, time.Second, time.Hour),
		between("cpu_pool.utilisation_high", p.UtilisationHigh, 0.05, 1, "a utilisation"),
		between("cpu_pool.increase", p.Increase, 0.01, 10, "of the original quota"),
		between("cpu_pool.decrease", p.Decrease, 0.01, 0.99, "of the quota is left"),
		between("cpu_pool.max_factor", p.MaxFactor, 1, 1000, "times the original quota"),
		between("cpu_pool.bursty_below", p.BurstyBelow, 0.01, 1, "of the original quota"),
		between("cpu_pool.floor_factor", p.FloorFactor, 0.01, 1, "of the original quota"),
		within("cpu_pool.give_back", p.GiveBack, 0, 24*time.Hour),
		between("cpu_pool.early_utilisation", p.EarlyUtilisation, 0, 1, "a utilisation; 0: never"),
		within("cpu_pool.early", p.Early, 50*time.Millisecond, time.Minute),

		mode("burst.mode", b.Mode),
		between("burst.bucket", b.Bucket, 0.01, 1000, "times the quota"),
		between("burst.max_raise", b.MaxRaise, 1, 1000, "times the original quota"),
		between("burst.min_raise", b.MinRaise, 1, b.MaxRaise, "times the original quota, not above max_raise"),
		between("burst.max_overspend", b.MaxOverspend, 0, 1000, "times the original quota"),
		between("burst.near_share", b.NearShare, 0.01, 1, "of what the kernel could give"),
		within("burst.quiet", b.Quiet, 10*time.Millisecond, time.Hour),
		within("burst.rest", b.Rest, 0, time.Hour),
		between("burst.max_writes_per_sec", b.MaxWritesPerSec, 0.1, 1e6, "writes"),
	}
}
