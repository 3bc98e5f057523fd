package model

import "fmt"

// Spec is the predicted distribution of a signal for a job on a platform (CPI2
// section 3.1, "CPI spec"). It also acts as the prediction of normal behaviour.
type Spec struct {
	Job        string  `json:"job"`
	Platform   string  `json:"platform"` // CPU type
	Source     Source  `json:"source"`
	Size       string  `json:"size,omitempty"`       // of the job's tasks that it is of (Task.Size); "": of all of them
	Definition string  `json:"definition,omitempty"` // of the source, when it was calculated; "": not known
	NumSamples int64   `json:"num_samples"`
	Tasks      int     `json:"tasks"`          // distinct tasks that contributed
	UsageMean  float64 `json:"cpu_usage_mean"` // CPU-sec/sec
	Mean       float64 `json:"mean"`
	StdDev     float64 `json:"stddev"`
	MonoNsec   int64   `json:"mono_nsec"` // when it was calculated; of a fleet's, when the fleet said so last
	// RunMean is how long the job runs between two waits for a CPU, in ms; of the signal wait alone.
	RunMean float64 `json:"run_mean_ms,omitempty"`
	// LeftOut is how many windows were left out as noise, and Refuted the mean of the spec
	// before, which was learned in noise; 0: it was not.
	LeftOut int64   `json:"left_out,omitempty"`
	Stolen  int64   `json:"stolen,omitempty"` // windows that were passed over before the first spec, since the hypervisor took much in them
	Refuted float64 `json:"refuted,omitempty"`
	// Sheet is the revision of the fleet's sheet that it came with; 0: it was learned here.
	Sheet uint64 `json:"sheet,omitempty"`
	// Tail is where the outlier threshold lies by a distribution that the fleet's hub fitted, in place of deviations; 0: there is none.
	Tail float64 `json:"tail,omitempty"`
	// P50, P90 and P99 are quantiles of what a fleet saw, whatever its distribution, as of when the sheet was published; 0: not told. A window above the
	// threshold of its time counts as that, so that P99 is no higher. Nothing is decided by them.
	P50 float64 `json:"p50,omitempty"`
	P90 float64 `json:"p90,omitempty"`
	P99 float64 `json:"p99,omitempty"`
	// Without is the best-effort task whose part of the waiting was taken out; "": none was.
	Without string `json:"without,omitempty"`
}

// mostSignal is above any value that a signal has.
const mostSignal = 1e15

// CheckMoments says what is wrong with the distribution; nil: nothing.
func (s *Spec) CheckMoments() error {
	for _, v := range [...]float64{s.Mean, s.StdDev, s.UsageMean, s.RunMean, s.Tail} {
		if !(s.NumSamples > 0 && v >= 0 && v < mostSignal) {
			return fmt.Errorf("mean %v and standard deviation %v of %d samples, with usage %v, runs of %v ms and tail %v, are no distribution", s.Mean, s.StdDev, s.NumSamples, s.UsageMean, s.RunMean, s.Tail)
		}
	}
	return nil
}

// CheckQuantiles says what is wrong with the quantiles; nil: nothing, also where there are none.
func (s *Spec) CheckQuantiles() error {
	if !(s.P50 >= 0 && s.P90 >= s.P50 && s.P99 >= s.P90 && s.P99 < mostSignal) {
		return fmt.Errorf("quantiles %v, %v and %v; expected rising numbers from 0", s.P50, s.P90, s.P99)
	}
	return nil
}

// Origin says from what it was calculated, for people.
func (s *Spec) Origin() string {
	if s.Source.Row().Targeted {
		return "as its job promises"
	}
	text := fmt.Sprintf("over %d samples of %d tasks", s.NumSamples, s.Tasks)
	if s.Sheet != 0 {
		text += fmt.Sprintf(" of the fleet, revision %d", s.Sheet)
	}
	if s.Size != "" {
		text += ", size " + s.Size
	}
	if s.Stolen > 0 {
		text += fmt.Sprintf("; %d windows were passed over, in which the hypervisor took much", s.Stolen)
	}
	if s.LeftOut > 0 {
		text += fmt.Sprintf("; %d more were noise", s.LeftOut)
	}
	if s.Without != "" {
		text += fmt.Sprintf(", without what %s had of the waiting: most of it, all the while", s.Without)
	}
	if s.Refuted != 0 {
		text += fmt.Sprintf("; learned anew, because these lie far below the spec before (%.4g), which was learned in noise", s.Refuted)
	}
	return text
}
