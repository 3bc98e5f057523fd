package spec

import (
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

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
	j.AtNsec = sh.WallNsec
	for i := range j.Signals {
		sig := &j.Signals[i]
		sig.Nodes, sig.Sketch.Unseen = whole16(sh.Nodes), float32(sig.History.N)
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
		j.publish(&sp)
	}
	j.together()
	j.Revision, j.Pinned = sh.Revision, sh.Pinned
}

// publish puts a spec in force.
func (j *Job) publish(sp *model.Spec) {
	k := j.signal(sp.Source, sp.Definition)
	j.setSpec(k, figuresOf(sp))
	j.setHeld(k, nil)
}

// begin puts a job where a sheet was published.
func (j *Job) begin(sh *wire.SpecSheet) {
	j.since(nil, false)
	for i := range sh.Specs {
		sp := sh.Specs[i]
		n := float64(sp.NumSamples)
		j.Signals[j.signal(sp.Source, sp.Definition)].History = Moments{N: n, Mean: sp.Mean, M2: sp.StdDev * sp.StdDev * n, Usage: sp.UsageMean}
		j.publish(&sp)
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
