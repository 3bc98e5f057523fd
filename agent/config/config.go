// Package config reads the agent's one YAML file: defaults by profile, unknown keys
// refused, values checked, every error one line that names file, line and key.
package config

import (
	"time"

	"github.com/commensal-io/commensal/model"
)

// Version of the file format.
const Version = 1

// Config is the whole file.
type Config struct {
	Version  int      `yaml:"version"`
	Profile  string   `yaml:"profile"`
	Mode     string   `yaml:"mode"`
	Signals  []string `yaml:"signals"`
	CPI2     CPI2     `yaml:"cpi2"`
	Slowdown Slowdown `yaml:"slowdown"`
	Groups   Groups   `yaml:"groups"`
	Feedback Feedback `yaml:"feedback"`
	Confirm  Confirm  `yaml:"confirm"`
	CPUSet   CPUSet   `yaml:"cpuset"`
	CPUPool  CPUPool  `yaml:"cpu_pool"`
	Burst    Burst    `yaml:"burst"`
	Limits   Limits   `yaml:"limits"`
	Tasks    []Task   `yaml:"tasks"`
	SLO      []SLO    `yaml:"slo"`
	Agent    Agent    `yaml:"agent"`
	Record   Record   `yaml:"record"`
}

// CPI2 holds table 2 of the seed under the table's own names, and the parameters that
// its text gives beside the table.
type CPI2 struct {
	CollectionGranularity          string        `yaml:"collection_granularity"`
	SamplingDuration               time.Duration `yaml:"sampling_duration"`
	SamplingFrequency              time.Duration `yaml:"sampling_frequency"`
	AggregationGranularity         string        `yaml:"aggregation_granularity"`
	PredictedCPIRecalculated       time.Duration `yaml:"predicted_cpi_recalculated"`
	RequiredCPUUsage               float64       `yaml:"required_cpu_usage"`
	OutlierThreshold1              float64       `yaml:"outlier_threshold_1"`
	OutlierThreshold2              Violations    `yaml:"outlier_threshold_2"`
	AntagonistCorrelationThreshold float64       `yaml:"antagonist_correlation_threshold"`
	HardCappingQuota               float64       `yaml:"hard_capping_quota"`
	HardCappingDuration            time.Duration `yaml:"hard_capping_duration"`

	HardCappingQuotaBestEffort float64       `yaml:"hard_capping_quota_best_effort"`
	HardCappingPeriod          time.Duration `yaml:"hard_capping_period"`
	CorrelationWindow          time.Duration `yaml:"correlation_window"`
	AnalysisEvery              time.Duration `yaml:"analysis_every"`
	AgeWeight                  float64       `yaml:"age_weight"`
	MinTasks                   int           `yaml:"min_tasks"`
	MinSamplesPerTask          int           `yaml:"min_samples_per_task"`
	RecalculateOnDoubling      bool          `yaml:"recalculate_on_doubling"`

	RecoveredWindows int           `yaml:"recovered_windows"`
	VerifyWindows    int           `yaml:"verify_windows"`
	SearchWindows    int           `yaml:"search_windows"`
	MaxRounds        int           `yaml:"max_rounds"`
	RetryAfter       time.Duration `yaml:"retry_after"`

	MarginOverMedian float64 `yaml:"margin_over_median"`
	MarginOverSteady float64 `yaml:"margin_over_steady"`
}

// Violations is the second outlier threshold: so many violations in such a window.
type Violations struct {
	Violations int           `yaml:"violations"`
	Window     time.Duration `yaml:"window"`
}

// Slowdown holds what the run-delay signal has of its own.
type Slowdown struct {
	MinRise                        float64 `yaml:"min_rise"`
	AntagonistCorrelationThreshold float64 `yaml:"antagonist_correlation_threshold"`
	RatioBound                     float64 `yaml:"ratio_bound"`
	MinSuspectCPU                  float64 `yaml:"min_suspect_cpu"`
	MarginOverMedian               float64 `yaml:"margin_over_median"`
	MarginOverSteady               float64 `yaml:"margin_over_steady"`
}

// Groups finds several tasks that hurt a victim together.
type Groups struct {
	Enabled              bool    `yaml:"enabled"`
	MaxMembers           int     `yaml:"max_members"`
	Explained            float64 `yaml:"explained"`
	Gain                 float64 `yaml:"gain"`
	Chance               float64 `yaml:"chance"`
	CorrelationThreshold float64 `yaml:"correlation_threshold"`
	HelpShare            float64 `yaml:"help_share"`
	ProbeWindows         int     `yaml:"probe_windows"`
}

// Feedback makes a cap no tighter than the victim needs.
type Feedback struct {
	Enabled       bool          `yaml:"enabled"`
	AllowedSigmas float64       `yaml:"allowed_sigmas"`
	Step          float64       `yaml:"step"`
	LoosenAfter   int           `yaml:"loosen_after"`
	TightenAfter  int           `yaml:"tighten_after"`
	RetryWindows  int           `yaml:"retry_windows"`
	MildExcess    float64       `yaml:"mild_excess"`
	MaxDuration   time.Duration `yaml:"max_duration"`
}

// Confirm nudges a suspect for a moment where the evidence is split.
type Confirm struct {
	Enabled        bool    `yaml:"enabled"`
	Margin         float64 `yaml:"margin"`
	Windows        int     `yaml:"windows"`
	UsageShare     float64 `yaml:"usage_share"`
	Drop           float64 `yaml:"drop"`
	Sigmas         float64 `yaml:"sigmas"`
	MaxPerIncident int     `yaml:"max_per_incident"`
	MaxPerHour     int     `yaml:"max_per_hour"`
}

// Limits bound how much may be held at once.
type Limits struct {
	MaxHeldTasks  int     `yaml:"max_held_tasks"`
	MaxBECPUTaken float64 `yaml:"max_be_cpu_taken"`
}

// SLO is a latency source of an LC job.
type SLO struct {
	Job     string        `yaml:"job"`
	Kind    string        `yaml:"kind"`    // memcached
	Address string        `yaml:"address"` // host:port, or unix:/path
	Poll    time.Duration `yaml:"poll"`
	Window  time.Duration `yaml:"window"`
}

// Agent says where the agent lives.
type Agent struct {
	StateDir      string        `yaml:"state_dir"`
	Socket        string        `yaml:"socket"`
	SocketGroup   string        `yaml:"socket_group"`
	KillSwitch    string        `yaml:"kill_switch"`
	MetricsListen string        `yaml:"metrics_listen"`
	DiscoverEvery time.Duration `yaml:"discover_every"`
	Pulse         time.Duration `yaml:"pulse"`
}

// Record bounds the record of samples and decisions.
type Record struct {
	Enabled  bool  `yaml:"enabled"`
	MaxBytes int64 `yaml:"max_bytes"`
}

// The profiles.
const (
	ProfileCPI2       = "cpi2"
	ProfileSingleNode = "single-node"
)

// Profiles lists the names that Defaults takes.
func Profiles() []string { return []string{ProfileCPI2, ProfileSingleNode} }

// Defaults returns a profile's configuration; ok is false for an unknown name.
//
// `cpi2` has the seed's own values. `single-node` is for one machine with few tasks and
// people who wait for a result: windows of a second instead of 10 in each minute, and
// everything that is counted in windows or that assumes thousands of tasks shortened in
// proportion.
func Defaults(profile string) (Config, bool) {
	c := Config{
		Version: Version, Profile: ProfileCPI2, Mode: model.ModeObserve.String(), Signals: []string{"cpi", "slowdown"},
		CPI2: CPI2{
			CollectionGranularity: "task", SamplingDuration: 10 * time.Second, SamplingFrequency: time.Minute,
			AggregationGranularity: "job x CPU type", PredictedCPIRecalculated: 24 * time.Hour,
			RequiredCPUUsage: 0.25, OutlierThreshold1: 2,
			OutlierThreshold2: Violations{Violations: 3, Window: 5 * time.Minute}, AntagonistCorrelationThreshold: 0.35,
			HardCappingQuota: 0.1, HardCappingDuration: 5 * time.Minute, HardCappingQuotaBestEffort: 0.01,
			HardCappingPeriod: 250 * time.Millisecond, CorrelationWindow: 10 * time.Minute, AnalysisEvery: time.Second,
			AgeWeight: 0.9, MinTasks: 5, MinSamplesPerTask: 100,
			RecoveredWindows: 2, VerifyWindows: 4, SearchWindows: 5, MaxRounds: 3, RetryAfter: 5 * time.Minute,
		},
		Slowdown: Slowdown{MinRise: 0.5, AntagonistCorrelationThreshold: 0.25, RatioBound: 2, MinSuspectCPU: 0.1, MarginOverMedian: 0.15},
		Groups: Groups{
			MaxMembers: 4, Explained: 0.5, Gain: 0.05, Chance: 0.02, CorrelationThreshold: 0.2, HelpShare: 0.3, ProbeWindows: 2,
		},
		Feedback: Feedback{
			Step: 0.125, LoosenAfter: 2, TightenAfter: 2, RetryWindows: 10, MildExcess: 0.2, MaxDuration: 30 * time.Minute,
		},
		Confirm: Confirm{Margin: 0.1, Windows: 1, Drop: 0.5, Sigmas: 2, MaxPerIncident: 3, MaxPerHour: 12},
		Limits:  Limits{MaxHeldTasks: 4, MaxBECPUTaken: 0.8},
		Agent: Agent{
			StateDir: "/var/lib/commensal", Socket: "/run/commensal/agent.sock", SocketGroup: "commensal",
			KillSwitch: "/run/commensal/off", MetricsListen: "127.0.0.1:9469", DiscoverEvery: 5 * time.Second, Pulse: 50 * time.Millisecond,
		},
		Record: Record{Enabled: true, MaxBytes: 256 << 20},
	}
	c.defaultsOfCPU()
	switch profile {
	case ProfileCPI2:
	case ProfileSingleNode:
		c.Profile = ProfileSingleNode
		p := &c.CPI2
		p.SamplingDuration, p.SamplingFrequency = time.Second, time.Second
		p.PredictedCPIRecalculated = time.Hour
		p.RequiredCPUUsage = 0.02
		p.OutlierThreshold2.Window = 10 * time.Second
		p.CorrelationWindow = 2 * time.Minute
		p.HardCappingDuration = time.Minute
		p.MinTasks, p.MinSamplesPerTask, p.RecalculateOnDoubling = 1, 20, true
		p.VerifyWindows = 6
		p.MarginOverSteady = 0.05 // windows of a second: a steady bystander passes a bare 0.35 in a long distress
		p.SearchWindows, p.RetryAfter = 8, 30*time.Second
		c.Groups.ProbeWindows = 6
		c.Confirm.Windows = 2
		c.Feedback.MaxDuration = 10 * time.Minute
	default:
		return Config{}, false
	}
	return c, true
}
