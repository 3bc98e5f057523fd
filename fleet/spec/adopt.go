package spec

import "github.com/commensal-io/commensal/fleet/wire"

// A job may move from one learner to another, which has nothing of it but the sheet that was published last.

// Adopt begins a job that is not known here with a sheet: count, mean and deviation go on from there, as do its revision and its age, and the
// next sheet waits for tasks and samples enough. What a sheet does not have, the distribution, is learned anew; until that has as many samples
// as were adopted, the sheet's own fitted threshold stands. ok is false where the job is known.
func (s *State) Adopt(sh wire.SpecSheet) (ok bool) {
	k := Key{sh.Job, sh.Platform}
	if s.Jobs[k] != nil {
		return false
	}
	j := s.job(k)
	j.begin(&sh)
	j.Revision, j.Pinned = sh.Revision, sh.Pinned
	for i := range j.Signals {
		sig := &j.Signals[i]
		sig.AtNsec, sig.Nodes, sig.Unseen = sh.WallNsec, whole(int64(sh.Nodes)), sig.History.N
	}
	return true
}

// begin puts a job where a sheet was published.
func (j *Job) begin(sh *wire.SpecSheet) {
	for i := range sh.Specs {
		sp := sh.Specs[i]
		sig := j.signal(sp.Source, sp.Definition)
		n := float64(sp.NumSamples)
		sig.Spec, sig.Held, sig.Since, sig.Grouped = figuresOf(&sp), nil, nil, false
		sig.History = Moments{N: n, Mean: sp.Mean, M2: sp.StdDev * sp.StdDev * n, Usage: sp.UsageMean}
	}
}

// Forget forgets the jobs that f is true of, and returns how many that were.
func (s *State) Forget(f func(k Key) bool) (n int) {
	for k := range s.Jobs {
		if f(k) {
			s.lose(k)
			n++
		}
	}
	return n
}
