package spec

import "github.com/commensal-io/commensal/fleet/wire"

// A job may move from one learner to another: with all that the one before knew of it (Take), or, where that is lost or was left by a program that does not
// leave it, with nothing but the sheet that was published last (Adopt).

// Adopt begins a job that is not known here with a sheet: count, mean and deviation go on from there, as do its revision and its age, and the
// next sheet waits for tasks and samples enough. What a sheet does not have, the distribution, is learned anew; until that has as many samples
// as were adopted, the sheet's own fitted threshold stands. ok is false where the job is known; one whose sheet is later than
// what is known of it follows that in what an operator or a learner decided since.
func (s *State) Adopt(sh wire.SpecSheet) (ok bool) {
	k := KeyOf(&sh)
	if j := s.Jobs[k]; j != nil {
		j.follow(&sh)
		return false
	}
	j := s.job(k)
	j.begin(&sh)
	j.Revision, j.Pinned = sh.Revision, sh.Pinned
	for i := range j.Signals {
		sig := &j.Signals[i]
		sig.AtNsec, sig.Nodes, sig.Sketch.Unseen = sh.WallNsec, whole(int64(sh.Nodes)), float32(sig.History.N)
	}
	return true
}

// follow takes over what was published after what is known.
func (j *Job) follow(sh *wire.SpecSheet) {
	if sh.Revision <= j.Revision {
		return
	}
	if sh.Pinned && !j.Pinned {
		j.begin(sh)
	}
	for i := range sh.Specs {
		sp := sh.Specs[i]
		sig := j.signal(sp.Source, sp.Definition)
		sig.Spec, sig.Held = figuresOf(&sp), nil
	}
	j.Revision, j.Pinned = sh.Revision, sh.Pinned
}

// begin puts a job where a sheet was published.
func (j *Job) begin(sh *wire.SpecSheet) {
	j.since(nil, false)
	for i := range sh.Specs {
		sp := sh.Specs[i]
		sig := j.signal(sp.Source, sp.Definition)
		n := float64(sp.NumSamples)
		sig.Spec, sig.Held = figuresOf(&sp), nil
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
