package cpuset

// Keep says how many cores LC keeps although it does not need them just now.
//
// For each size of LC's side there is an account of time. While LC needs that many cores
// the account fills, Factor times as fast as the clock runs, up to the hold; while it does
// not the account runs out with the clock. The core goes to BE when its account is empty.
// So a core that LC needed for one pulse of 50 ms is kept for a second, one that it needed
// for half a second or more for the whole hold of ten seconds, and one that it needs for
// more than a twentieth of the time, in whatever pattern, for good. Averages were rejected:
// they make the answer to a rise late. A plain maximum over the last seconds was rejected:
// it makes one noisy pulse as dear as a surge.
//
// Accounts of larger sizes never hold more than those of smaller ones, since who needs
// seven cores needs six.
type Keep struct {
	// LeftNsec[n] is for how long LC keeps its core n (from 0) from now on.
	LeftNsec []int64 `json:"left_nsec,omitempty"`
	// Lasting is how many cores LC has for longer than a short rise. Those above came in a
	// rise that did not last, and go back together.
	Lasting int `json:"lasting"`
	// Doubled is how often the hold was doubled, BackoffNsec when that last changed.
	Doubled      int   `json:"doubled,omitempty"`
	BackoffNsec  int64 `json:"backoff_nsec,omitempty"`
	LastGiveNsec int64 `json:"last_give_nsec,omitempty"` // 0: never
	LastTakeNsec int64 `json:"last_take_nsec,omitempty"`
}

// maxDoubled bounds the back-off whatever HoldMaxNsec says: 10 s doubled 16 times is a week.
const maxDoubled = 16

// hold returns the longest time that a core is kept, and how many times as long as it was
// needed.
func (k *Keep) hold(p *Params) (nsec int64, factor float64) {
	nsec = min(p.HoldNsec<<k.Doubled, max(p.HoldMaxNsec, p.HoldNsec))
	return nsec, p.HoldFactor * float64(nsec) / float64(max(p.HoldNsec, 1))
}

// fit gives the accounts the number of cores that there are. A new account is empty.
func (k *Keep) fit(cores int) {
	for len(k.LeftNsec) < cores {
		k.LeftNsec = append(k.LeftNsec, 0)
	}
	k.LeftNsec = k.LeftNsec[:cores]
	k.Lasting = min(k.Lasting, cores)
}

// fill makes every account full: what LC needs is not known, and must be watched anew.
func (k *Keep) fill(p *Params) {
	nsec, _ := k.hold(p)
	for i := range k.LeftNsec {
		k.LeftNsec[i] = nsec
	}
	k.Lasting = len(k.LeftNsec)
}

// need takes in that LC needed so many cores for spanNsec, and returns how many it keeps.
func (k *Keep) need(p *Params, cores int, spanNsec int64) (kept int) {
	most, factor := k.hold(p)
	earned := int64(min(factor*float64(spanNsec), float64(most)))
	left := k.LeftNsec
	kept = min(cores, len(left))
	for i := range kept {
		left[i] = min(left[i]+earned, most)
		if left[i] == most {
			k.Lasting = max(k.Lasting, i+1)
		}
	}
	for i := kept; i < len(left) && left[i] > 0; i++ { // behind an empty account all are empty
		if left[i] = min(max(left[i]-spanNsec, 0), most); left[i] > 0 {
			kept = i + 1
		}
	}
	return kept
}

// kept returns how many cores LC keeps.
func (k *Keep) kept() int {
	n := 0
	for n < len(k.LeftNsec) && k.LeftNsec[n] > 0 {
		n++
	}
	return n
}

// tookBack notes that LC's side grew: soon after a core was given away, that was too early.
func (k *Keep) tookBack(p *Params, nowNsec int64) {
	nsec, _ := k.hold(p)
	k.LastTakeNsec = nowNsec
	if k.LastGiveNsec == 0 || nowNsec-k.LastGiveNsec > max(nsec, p.SoonNsec) {
		return
	}
	k.BackoffNsec = nowNsec
	if nsec < p.HoldMaxNsec && k.Doubled < maxDoubled {
		k.Doubled++
	}
}

// relax halves the hold after a time in which nothing was taken back.
func (k *Keep) relax(p *Params, nowNsec int64) {
	if k.Doubled > 0 && nowNsec-k.BackoffNsec >= p.QuietNsec {
		k.Doubled--
		k.BackoffNsec = nowNsec
	}
}
