package model

// Spec is the predicted distribution of a signal for a job on a platform (CPI2
// section 3.1, "CPI spec"). It also acts as the prediction of normal behaviour.
type Spec struct {
	Job        string  `json:"job"`
	Platform   string  `json:"platform"` // CPU type
	Source     Source  `json:"source"`
	Definition string  `json:"definition,omitempty"` // of the source, when it was calculated; "": not known
	NumSamples int64   `json:"num_samples"`
	Tasks      int     `json:"tasks"`          // distinct tasks that contributed
	UsageMean  float64 `json:"cpu_usage_mean"` // CPU-sec/sec
	Mean       float64 `json:"mean"`
	StdDev     float64 `json:"stddev"`
	MonoNsec   int64   `json:"mono_nsec"` // when it was calculated
}
