package scenario

import "math"

// PlayText plays the first run of a scenario that a lab has worded, on the fast seam; name is that of its file in errors.
func PlayText(name, text string, o Options) (*Run, error) {
	f, err := Parse(name, []byte(text), o)
	if err != nil {
		return nil, err
	}
	return f.Plans[0].Play(Typed)
}

// PlayAll plays every run of a file; with baseline each one also with policies off.
func (f *File) PlayAll(bed NewBed, baseline bool) (*Result, error) {
	first := f.Plans[0]
	s := first.Scenario
	res := &Result{
		Version: Version, Scenario: s.Name, About: s.About, Seed: s.Seed, Profile: first.config.Profile, Mode: first.config.Policies.Mode.String(),
		Platform: s.Machine.Platform, CPUs: first.machine.CPUs(), Sockets: first.machine.Sockets, DurationSec: s.Duration.Seconds(),
	}
	for _, p := range f.Plans {
		run, err := p.Play(bed)
		if err != nil {
			return nil, err
		}
		run.Settings = p.Settings
		if baseline {
			off, err := p.PlayOff(bed)
			if err != nil {
				return nil, err
			}
			run.compare(off)
		}
		res.Seam = run.seam
		res.Runs = append(res.Runs, *run)
	}
	if first.judged {
		res.Checks = first.checkTrends(res.Runs)
	}
	res.judge()
	return res, nil
}

// compare notes how much work each task got done compared with policies off.
func (run *Run) compare(off *Run) {
	run.Baseline = off.Windows
	for w := range run.Windows {
		for i := range run.Windows[w].Tasks {
			t := &run.Windows[w].Tasks[i]
			was := float64(off.Windows[w].Tasks[i].Work)
			part := Number(math.NaN())
			if was > 0 {
				part = Number(float64(t.Work) / was)
			}
			t.RelativeWork = &part
		}
	}
}

// judge says whether every expectation of every run was met; nothing without any.
func (res *Result) judge() {
	for _, c := range res.AllChecks() {
		passed := c.Passed && (res.Passed == nil || *res.Passed)
		res.Passed = &passed
	}
}
