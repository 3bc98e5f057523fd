package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/model"
)

// What CPI² leaves to choose and is built in one way only.
const (
	collection  = "task"
	aggregation = "job x CPU type"
)

// hardCap is the section that took in what stood at the top of older files: its keys are
// read there too, and a file says each in one of the two places.
const hardCap = "hard_cap."

// Rows lists every key of the file in its order. The rows point into c.
func (c *Config) Rows() []model.Param { return c.rowsWith(c.Policies.Sections()) }

// rowsWith is Rows with the policies' sections, as they list them.
func (c *Config) rowsWith(sections []engine.Section) []model.Param {
	rows := append(make([]model.Param, 0, manyRows), []model.Param{
		{Key: "version", At: &c.Version, Least: Version, Most: Version},
		{Key: "profile", At: &c.Profile, Words: Profiles(), Why: "cpi2: the papers' own values; relief: more victims are helped; single-node: few tasks, short windows"},
		{Key: "signals", At: &c.Signals, Why: explained()},
	}...)
	for _, s := range sections {
		rows = append(rows, model.Param{Key: s.Name + ".mode", At: s.Mode, Why: s.Does + "; off, observe (record what would be done) or enforce"})
		if s.Name+"." == hardCap {
			rows = append(rows, model.Below(hardCap+"cpi2", c.Sampling.rows())...)
		}
		rows = append(rows, model.Below(s.Name, s.Rows)...)
	}
	rows = append(rows, model.Below("limits", c.Policies.Limits.Rows())...)
	rows = append(rows, model.Param{Key: "tasks", At: &c.Tasks}, model.Param{Key: "slo", At: &c.SLO})
	rows = append(rows, model.Below("agent", c.Agent.rows())...)
	rows = append(rows, model.Param{Key: "resctrl.monitor", At: &c.Resctrl.Monitor, Words: []string{MonitorOff, MonitorOn, MonitorAuto}, Why: "count for each task what it has of the last-level caches and moves to and from memory, in monitoring groups of resctrl; auto: where a policy that is not off goes by it"})
	rows = append(rows, model.Below("record", c.Record.rows())...)
	return append(rows, model.Below("fleet", c.Fleet.rows())...)
}

// manyRows is room for all keys there are.
const manyRows = 192

// explained says of each signal what it is and needs.
func explained() string {
	var texts []string
	for src := range model.NumSources {
		texts = append(texts, src.Row().Explained)
	}
	return strings.Join(texts, "; ")
}

func (s *Sampling) rows() []model.Param {
	return []model.Param{
		{Key: "collection_granularity", At: &s.Collection, Words: []string{collection}, Why: "CPI² table 2"},
		{Key: "sampling_duration", At: &s.Duration, Least: 100e6, Most: model.Unbounded, Why: "CPI² table 2: 10 seconds"},
		{Key: "sampling_frequency", At: &s.Frequency, Least: 100e6, Most: model.Unbounded, Unit: "not below sampling_duration", Why: "CPI² table 2: every 1 minute"},
		{Key: "aggregation_granularity", At: &s.Aggregation, Words: []string{aggregation}, Why: "CPI² table 2: job x CPU type"},
		{Key: "correlation_window", At: &s.Correlation, Least: 100e6, Most: model.Unbounded, Unit: "1 to 3600 windows", Why: "CPI² §4.2: 10 minutes"},
	}
}

func (a *Agent) rows() []model.Param {
	return []model.Param{
		{Key: "state_dir", At: &a.StateDir, Why: "the record, and what was learned"},
		{Key: "run_dir", At: &a.RunDir, Why: "journal and locks; on a tmpfs, for what undoes the agent must not wait for a disk"},
		{Key: "socket", At: &a.Socket, Why: "where operators speak"},
		{Key: "socket_group", At: &a.SocketGroup, Why: "members may operate the agent; root may always"},
		{Key: "kill_switch", At: &a.KillSwitch, Why: "while this file exists everything is released and nothing is held"},
		{Key: "metrics_listen", At: &a.MetricsListen, Why: "Prometheus, host:port or unix:path; empty: none"},
		{Key: "headroom_file", At: &a.HeadroomFile, Why: "what best-effort work may use, for schedulers (docs/policies/headroom.md); below state_dir, unless it begins with /; empty: none"},
		{Key: "gpu_every", At: &a.GPUEvery, Most: 600e9, Why: "how often GPUs are read for headroom; without the driver's persistence mode each time initialises them; 0: never"},
		{Key: "nvidia_smi", At: &a.NvidiaSMI, Why: "the command of NVIDIA's driver, which is run for that, where a device file of it is"},
		{Key: "hook_program", At: &a.HookProgram, Why: "is run for each `cannot-fix`, which it gets as JSON on standard input; empty: none"},
		{Key: "hook_url", At: &a.HookURL, Why: "gets the same as a POST; empty: none"},
		{Key: "discover_every", At: &a.DiscoverEvery, Least: 100e6, Most: model.Unbounded, Soak: [2]float64{1e9, 5e9}, Why: "how often new cgroups are looked for"},
		{Key: "pulse", At: &a.Pulse, Least: 10e6, Most: 1e9, Soak: [2]float64{60e6, 200e6}, Why: "the fast reading, where cpuset or burst enforce"},
		{Key: "waits", At: &a.Waits, Why: "measure who makes LC tasks wait for a CPU (BPF, docs/WAITS.md)"},
	}
}

func (r *Record) rows() []model.Param {
	return []model.Param{
		{Key: "enabled", At: &r.Enabled, Why: "samples and decisions are kept for explain and replay"},
		{Key: "max_bytes", At: &r.MaxBytes, Least: 1 << 20, Most: model.Unbounded, Soak: [2]float64{1 << 20, 64 << 20}, Unit: "bytes; enabled: false records nothing", Why: "samples and decisions, oldest dropped first"},
	}
}

func (f *Fleet) rows() []model.Param {
	return []model.Param{
		{Key: "hub", At: &f.Hub, Why: "where the fleet's hub takes batches, tls://host:port, or nats://host:port on this machine, several with commas between; empty: this node is of no fleet"},
		{Key: "node", At: &f.Node, Why: "this node's name there, as it was enrolled (docs/OPERATIONS.md)"},
		{Key: "seed_file", At: &f.SeedFile, Why: "the node's key, which `commensal-hub node add` makes"},
		{Key: "creds_file", At: &f.CredsFile, Why: "in its place, a credentials file of an existing NATS cluster"},
		{Key: "ca_file", At: &f.CAFile, Why: "certificates that the hub's is signed by; empty: the system's"},
		{Key: "unguarded", At: &f.Unguarded, Why: "the hub may be another machine in plain text (nats:// without ca_file), or without seed_file and creds_file: something else guards the way, as a tunnel"},
		{Key: "batch_every", At: &f.Every, Least: 1e9, Most: 3600e9, Soak: [2]float64{1e9, 60e9}, Why: "samples go up so often; events within two seconds"},
		{Key: "spool_bytes", At: &f.SpoolBytes, Least: 2 << 20, Most: model.Unbounded, Soak: [2]float64{2 << 20, 64 << 20}, Unit: "bytes", Why: "what waits on disk while the hub is away, oldest dropped first"},
	}
}

// DecodeAt stores what a document says at a key; what it does not mention stays as it is.
func (c *Config) DecodeAt(doc *strictyaml.Doc, key string) error {
	var fields, old []strictyaml.Field
	for _, row := range c.Rows() {
		fields = append(fields, strictyaml.Field{Key: row.Key, At: row.At})
		if rest, ok := strings.CutPrefix(row.Key, hardCap); ok {
			old = append(old, strictyaml.Field{Key: rest, At: row.At})
		}
	}
	return doc.DecodeFields(key, append(fields, old...))
}

// overlay stores what a text says.
func (c *Config) overlay(text string) error {
	doc, err := strictyaml.Parse("", []byte(text))
	if err != nil {
		return err
	}
	return c.DecodeAt(doc, "")
}

// CheckAt returns an error for the first impossible value of a configuration that a
// document gave at a key.
func (c *Config) CheckAt(doc *strictyaml.Doc, at string) error {
	key, why := c.Validate()
	if why == "" {
		return nil
	}
	if at != "" {
		at += "."
	}
	return doc.Errorf(at+asWritten(doc, at, key), "%s", why)
}

// asWritten returns the name that a document has for a key: where it lies in hard_cap, the
// older one when the document has that, or the section that it would be in.
func asWritten(doc *strictyaml.Doc, at, key string) string {
	old, moved := strings.CutPrefix(key, hardCap)
	for part := old; moved; {
		switch {
		case doc.Has(at + hardCap + part):
			return key
		case doc.Has(at + part):
			return old
		}
		i := strings.LastIndexByte(part, '.')
		if i < 0 {
			break
		}
		part = part[:i]
	}
	return key
}

// tree returns a configuration as a YAML document with the source of each value beside it.
func (c *Config) tree() (*yaml.Node, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, row := range c.Rows() {
		n := root
		ways := strings.Split(row.Key, ".")
		for i, name := range ways {
			next := strictyaml.Find(n, name)
			if next == nil {
				key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
				next = &yaml.Node{Kind: yaml.MappingNode}
				n.Content = append(n.Content, key, next)
				if i == len(ways)-1 {
					if err := next.Encode(row.At); err != nil {
						return nil, fmt.Errorf("config: %s: %w", row.Key, err)
					}
					explain(key, next, row.Why)
				}
			}
			n = next
		}
	}
	return root, nil
}

// explain puts a text behind a plain value, or behind the key of a list.
func explain(key, value *yaml.Node, text string) {
	if value.Kind == yaml.ScalarNode {
		value.LineComment = text
		return
	}
	key.LineComment = text
}

// Print returns a configuration as YAML with the source of each default beside it.
func (c *Config) Print() ([]byte, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(tree); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return b.Bytes(), nil
}

// MarshalJSON writes a configuration under the keys of the file.
func (c *Config) MarshalJSON() ([]byte, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := tree.Decode(&m); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return json.Marshal(m)
}
