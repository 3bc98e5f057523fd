package coldpages

import "github.com/commensal-io/commensal/model"

// Params are the policy's parameters. Ages of 0 mean: never.
type Params struct {
	By string `json:"by"`
	// Pages that were not used for so long are cold, by class and by kind.
	LCAnonNsec int64 `json:"lc_anon_nsec"`
	LCFileNsec int64 `json:"lc_file_nsec"`
	BEAnonNsec int64 `json:"be_anon_nsec"`
	BEFileNsec int64 `json:"be_file_nsec"`
	// MachineBytes and TaskBytes are taken back in a second at most, in the mean.
	MachineBytes int64 `json:"machine_bytes"`
	TaskBytes    int64 `json:"task_bytes"`
	// Refaults is the share of a task's memory that may come back in a minute beyond the usual, Stall the share of the time in which
	// a task may wait for memory, and MachineStall that of the machine.
	Refaults     float64 `json:"refaults"`
	Stall        float64 `json:"stall"`
	MachineStall float64 `json:"machine_stall"`
	RestNsec     int64   `json:"rest_nsec"`
	WatchNsec    int64   `json:"watch_nsec"`
	// Ratio and Target are of ByPressure: the share of a task's memory that is asked for each six seconds, and the stall at which that is none.
	Ratio  float64 `json:"ratio"`
	Target float64 `json:"target"`
}

// What a task is asked for.
const (
	ByAge      = "age"
	ByPressure = "pressure"
)

const hour = 3600e9

// Defaults are those of Alibaba §3.2 (ages), Google's far memory (refaults) and Meta's TMO (ratio, target) where these name any.
func Defaults() Params {
	return Params{
		By: ByAge, LCAnonNsec: 6 * hour, LCFileNsec: 1.5 * hour, BEAnonNsec: 6 * hour, BEFileNsec: 1.5 * hour,
		MachineBytes: 64 << 20, TaskBytes: 4 << 20, Refaults: 0.002, Stall: 0.01, MachineStall: 0.05, RestNsec: 0.5 * hour, WatchNsec: 120e9,
		Ratio: 0.0005, Target: 0.001,
	}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	const most = 48 * hour
	age := func(key string, at *int64, why string) model.Param {
		return model.Param{Key: key, At: model.Nsec(at), Most: most, Soak: [2]float64{0, 20e9}, Unit: "0: never", Why: why}
	}
	return []model.Param{
		{Key: "by", At: &p.By, Words: []string{ByAge, ByPressure}, Why: "age: pages that lay idle for so long are taken back (Alibaba §3.2); pressure: a little of what a task has, as long as it hardly waits for memory (TMO, ASPLOS 2022 §3.3)"},
		age("lc_anon", &p.LCAnonNsec, "anonymous pages of LC tasks that were not used for so long, where there is swap (Alibaba §3.2: 6 h)"),
		age("lc_file", &p.LCFileNsec, "clean file pages of LC tasks (Alibaba §3.2: 1.5 h)"),
		age("be_anon", &p.BEAnonNsec, "anonymous pages of BE tasks (Alibaba §3.2: 6 h)"),
		age("be_file", &p.BEFileNsec, "clean file pages of BE tasks (Alibaba §3.2: 1.5 h)"),
		{Key: "machine_bytes", At: &p.MachineBytes, Most: 1 << 40, Soak: [2]float64{1 << 20, 1 << 30}, Unit: "bytes/s", Why: "taken back of all tasks together at most, in the mean; ours"},
		{Key: "task_bytes", At: &p.TaskBytes, Most: 1 << 40, Soak: [2]float64{1 << 20, 1 << 28}, Unit: "bytes/s", Why: "taken back of one task at most, in the mean; ours"},
		{Key: "refaults", At: &p.Refaults, Most: 1, Soak: [2]float64{0, 0.01}, Unit: "share of its memory a minute", Why: "by age: with more than that coming back beyond the usual a task rests (Google's far memory, ASPLOS 2019 §4: 0.2 %)"},
		{Key: "stall", At: &p.Stall, Most: 1, Soak: [2]float64{0, 0.1}, Unit: "share of the time", Why: "a task that waits for memory (PSI of its group, some) for more rests; ours"},
		{Key: "machine_stall", At: &p.MachineStall, Most: 1, Soak: [2]float64{0, 0.2}, Unit: "share of the time", Why: "while the machine's tasks wait for memory for more all rest; ours"},
		{Key: "rest", At: model.Nsec(&p.RestNsec), Least: 1e9, Most: most, Soak: [2]float64{1e9, 20e9}, Why: "for so long, doubled each time, up to 64 times; ours"},
		{Key: "watch", At: model.Nsec(&p.WatchNsec), Least: 1e9, Most: hour, Soak: [2]float64{1e9, 10e9}, Why: "for so long it is watched what a reclaim cost, before the task is asked again; two windows at least; ours"},
		{Key: "ratio", At: &p.Ratio, Most: 0.01, Soak: [2]float64{0, 0.01}, Unit: "share of its memory each 6 s", Why: "by pressure: what a task is asked for that does not wait for memory (TMO §3.3: 0.0005)"},
		{Key: "target", At: &p.Target, Least: 1e-6, Most: 1, Soak: [2]float64{0.001, 0.2}, Unit: "share of the time", Why: "by pressure: with so much waiting nothing is asked (TMO §3.3: 0.1 %)"},
	}
}

// age returns from which age on pages of a kind are cold in tasks of a class; 0: never.
func (p *Params) age(c model.Class, k model.PageKind) int64 {
	switch {
	case c == model.LC && k == model.FilePages:
		return p.LCFileNsec
	case c == model.LC:
		return p.LCAnonNsec
	case c == model.BE && k == model.FilePages:
		return p.BEFileNsec
	case c == model.BE:
		return p.BEAnonNsec
	}
	return 0
}

// Ages are those of pages that it asks for.
func (p *Params) Ages() (asked model.AskedAges) {
	for _, a := range [...]int64{p.LCAnonNsec, p.LCFileNsec, p.BEAnonNsec, p.BEFileNsec} {
		if a > 0 && (asked.ShortestNsec == 0 || a < asked.ShortestNsec) {
			asked.ShortestNsec = a
		}
		asked.LongestNsec = max(asked.LongestNsec, a)
	}
	return asked
}
