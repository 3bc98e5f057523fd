// Package config reads the agent's one YAML file: defaults by profile, unknown keys
// refused, values checked, every error one line that names file, line and key.
//
// What a policy's parameters are called, what they may be and where their defaults are from
// stands with the policy (its Rows); this package adds what is the agent's own.
package config

import (
	"time"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// Version of the file format.
const Version = 1

// Config is the whole file.
type Config struct {
	Version  int
	Profile  string
	Signals  []string
	Sampling Sampling
	// Policies is what the sections of the policies say. What follows from several sections
	// is missing in it: Params fills that in.
	Policies engine.Params
	Tasks    []Task
	SLO      []SLO
	Agent    Agent
	Resctrl  Resctrl
	Record   Record
	Fleet    Fleet
}

// Fleet says where the hub is, and who this node is there.
type Fleet struct {
	Hub        string // "": this node is of no fleet
	Node       string
	SeedFile   string
	CredsFile  string
	CAFile     string
	Unguarded  bool // the hub may be another machine all the same
	Every      time.Duration
	SpoolBytes int64
}

// Sampling says how tasks are measured (CPI² §3.1).
type Sampling struct {
	Collection  string        // of samples: by task
	Duration    time.Duration // of a window
	Frequency   time.Duration // one window in each
	Aggregation string        // of specs: by job and CPU type
	Correlation time.Duration // how far back antagonists are looked for
}

// Agent says where the agent lives.
type Agent struct {
	StateDir      string
	RunDir        string
	Socket        string
	SocketGroup   string
	KillSwitch    string
	MetricsListen string
	HeadroomFile  string
	GPUEvery      time.Duration // 0: never
	NvidiaSMI     string
	HookProgram   string
	HookURL       string
	DiscoverEvery time.Duration
	Pulse         time.Duration
	Waits         bool
}

// Resctrl says what resctrl is used for beside what policies ask of it.
type Resctrl struct {
	Monitor string // whether each task is counted in a monitoring group of its own: MonitorOff, MonitorOn, MonitorAuto
}

// Whether tasks are counted in monitoring groups.
const (
	MonitorOff  = "off"
	MonitorOn   = "on"
	MonitorAuto = "auto" // where a policy that is not off goes by it
)

// Record bounds the record of samples and decisions.
type Record struct {
	Enabled  bool
	MaxBytes int64
}

// The profiles.
const (
	ProfileCPI2       = "cpi2"
	ProfileSingleNode = "single-node"
	ProfileRelief     = "relief"

	// DefaultProfile is in force where a file names none: of those that measure as CPI² does the one that is proved best (docs/EVALUATION.md).
	DefaultProfile = ProfileRelief
)

// Profiles lists the names that Defaults takes.
func Profiles() []string { return []string{ProfileCPI2, ProfileRelief, ProfileSingleNode} }

// singleNode is what the profile single-node says otherwise. It is for one machine with few
// tasks and people who wait for a result: windows of a second instead of 10 in each minute,
// and everything that is counted in windows or that assumes thousands of tasks shortened in
// proportion.
const singleNode = `
profile: single-node
signals: [cpi, wait, slowdown]
hard_cap:
  cpi2:
    sampling_duration: 1s
    sampling_frequency: 1s
    predicted_cpi_recalculated: 1h
    required_cpu_usage: 0.02
    outlier_threshold_2: {window: 10s}
    correlation_window: 2m
    hard_capping_duration: 1m
    min_tasks: 1
    min_samples_per_task: 20
    recalculate_on_doubling: true
    robust_first_spec: true # of 20 windows, two noisy ones would be the spec
    first_spec_alone: true # it may begin beside the antagonist
    first_spec_stolen: 0.1 # or while the hypervisor runs other guests
    verify_windows: 6
    margin_over_steady: 0.05 # windows of a second: a steady bystander passes a bare 0.35 in a long distress
    search_windows: 8
    retry_after: 30s
  groups: {probe_windows: 6}
  confirm: {windows: 2}
  feedback: {max_duration: 10m}
  demote: {enabled: true, duration: 10m}
  blame: {enabled: true} # where the kernel can tell who ran while a service waited
`

// relief is what the profile relief says otherwise than cpi2: the same measurements, and what helped most
// victims on simulated machines that were not used to choose it (docs/EVALUATION.md, "Relief").
const relief = `
profile: relief
hard_cap:
  cpi2: {margin_over_steady: 0.05}
  groups: {enabled: true, by_job: true, witnesses: true, max_members: 8} # a job is held whole or its victim suffers on
  feedback: {enabled: true, through_pauses: true, witnesses: true, tighten_after: 1} # under a loosened cap the last step is the likeliest cause
  confirm: {enabled: true, share: 0.5, witnesses: true, max_per_incident: 4}
  repeat: {enabled: true}
limits: {max_held_tasks: 8} # max_be_cpu_taken bounds what that may cost
`

// defaultSignals are those that nobody has to ask for.
func defaultSignals() (names []string) {
	for src := range model.NumSources {
		if !src.Row().Optional {
			names = append(names, src.String())
		}
	}
	return names
}

// Defaults returns a profile's configuration; ok is false for an unknown name. Profile
// cpi2 has the papers' own values, relief and single-node what their overlays say.
func Defaults(profile string) (Config, bool) {
	c := Config{
		Version: Version, Profile: ProfileCPI2, Signals: defaultSignals(),
		Sampling: Sampling{
			Collection: collection, Duration: 10 * time.Second, Frequency: time.Minute, Aggregation: aggregation, Correlation: 10 * time.Minute,
		},
		Policies: engine.Defaults(),
		Agent: Agent{
			StateDir: "/var/lib/commensal", RunDir: "/run/commensal", Socket: "/run/commensal/agent.sock", SocketGroup: "commensal",
			KillSwitch: "/run/commensal/off", MetricsListen: "127.0.0.1:9469", HeadroomFile: "headroom.json", GPUEvery: time.Minute, NvidiaSMI: "/usr/bin/nvidia-smi", DiscoverEvery: 5 * time.Second, Pulse: 50 * time.Millisecond, Waits: true,
		},
		Resctrl: Resctrl{Monitor: MonitorAuto},
		Record:  Record{Enabled: true, MaxBytes: 256 << 20},
		Fleet:   Fleet{Every: time.Minute, SpoolBytes: 64 << 20},
	}
	switch profile {
	case ProfileCPI2:
		return c, true
	case ProfileRelief:
		return c, c.overlay(relief) == nil
	case ProfileSingleNode:
		return c, c.overlay(singleNode) == nil
	}
	return Config{}, false
}
