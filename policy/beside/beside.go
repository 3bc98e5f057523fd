// Package beside deals with a victim by a signal that is judged beside the CPU's (model.SignalRow.Beside): who takes from it what it
// lacks is found by CPI²'s correlation, has less of it by a limit on one knob, and has it back step by step. What it is that is lacked, how
// much of it tasks take, and what the limit is, says a Realm: block devices (policy/blockio), memory (policy/memory).
//
// Intuition. Who is picked may have a share of what it took; whether that helps the victim's signal says. If not it is taken back and the
// next suspect tried; if so it may have more step by step, half way to the least at which the victim suffered, as long as that hardly shows
// in the victim's signal. Where what it takes never showed it has all back; where it did it keeps what does not hurt, and all is given back in
// time. A realm may know a milder means; then that is tried first on whoever is picked, and the limit only where it did not help.
//
// Nobody is accused unless others take more in bad windows than in good ones (Rise), and unless the suspect stands out from a steady one and
// from the median (model.SignalRow). In observe mode the pick is recorded as it would be done, and nothing is concluded from what did not happen.
package beside

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Steps are the parameters of search, verification and giving back.
type Steps struct {
	// Share is what a held task may have of what it took.
	Share float64 `json:"share"`
	// MinShare is the least part of what others take in bad windows which a suspect must have, and Rise by how much more they take then
	// than in good ones where anybody is to blame at all.
	MinShare float64 `json:"min_share"`
	Rise     float64 `json:"rise"`
	// Trial is how far a suspect must come from what a steady one scores to what one does that took in bad windows alone, where that is less than
	// the correlation that is asked for; 0: the correlation alone counts.
	Trial float64 `json:"trial,omitempty"`
	// As of the hard cap: windows in a row under the threshold that mean recovered, windows that a hold has for it, analyses before a
	// search gives up, suspects held one after the other, and peace for a victim that could not be helped.
	RecoveredWindows int   `json:"recovered_windows"`
	VerifyWindows    int   `json:"verify_windows"`
	SearchWindows    int   `json:"search_windows"`
	MaxRounds        int   `json:"max_rounds"`
	RetryAfterNsec   int64 `json:"retry_after_nsec"`
	// LoosenAfter and TightenAfter are the windows in a row in which the victim is well, or not, before the limit is raised, or lowered below what
	// was good once. What failed is tried again after four times as many windows, and twice as many each time it fails.
	LoosenAfter     int   `json:"loosen_after"`
	TightenAfter    int   `json:"tighten_after"`
	MaxDurationNsec int64 `json:"max_duration_nsec"`
	// SettleNsec is for how long after less is left to a task windows in which the victim suffers say nothing yet: pages that were taken come back only as they
	// are used.
	SettleNsec int64 `json:"settle_nsec"`
	// HoldNsec is how long a limit stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
}

// Defaults are those of the hard cap where it has the same, else ours, chosen for block devices on development seeds.
func Defaults() Steps {
	return Steps{
		Share: 0.2, MinShare: 0.1, Rise: 0.1, RecoveredWindows: 2, VerifyWindows: 4, SearchWindows: 30, MaxRounds: 3, RetryAfterNsec: 300e9,
		LoosenAfter: 5, TightenAfter: 2, MaxDurationNsec: 1800e9, HoldNsec: 30e9,
	}
}

// Rows describes the parameters that realms have in common, but for Share, MinShare and Rise, whose meaning is the realm's.
func (p *Steps) Rows() []model.Param {
	return []model.Param{
		{Key: "recovered_windows", At: &p.RecoveredWindows, Least: 1, Most: 1000, Soak: [2]float64{1, 3}, Unit: "windows", Why: "windows in a row under the threshold that mean recovered"},
		{Key: "verify_windows", At: &p.VerifyWindows, Least: 1, Most: 1000, Soak: [2]float64{3, 8}, Unit: "windows, not below recovered_windows", Why: "windows judged before a limit that does not help is taken back"},
		{Key: "search_windows", At: &p.SearchWindows, Least: 1, Most: 1000, Soak: [2]float64{2, 10}, Unit: "analyses", Why: "bad windows before a search for the antagonist gives up: who did a tenth as much before takes 25 to stand out, and a search costs nobody anything. So many windows in a row that say nothing of the victim end its incident, and a hold with it"},
		{Key: "max_rounds", At: &p.MaxRounds, Least: 1, Most: 1000, Soak: [2]float64{1, 4}, Unit: "suspects", Why: "suspects held one after the other in one incident"},
		{Key: "retry_after", At: model.Nsec(&p.RetryAfterNsec), Most: model.Unbounded, Soak: [2]float64{5e9, 30e9}, Why: "peace for a victim that could not be helped"},
		{Key: "loosen_after", At: &p.LoosenAfter, Least: 1, Most: 1000, Soak: [2]float64{1, 5}, Unit: "windows", Why: "good windows in a row before a limit is raised, half way to what was too much and at most to double"},
		{Key: "tighten_after", At: &p.TightenAfter, Least: 1, Most: 1000, Soak: [2]float64{1, 5}, Unit: "windows", Why: "bad windows in a row before a limit is lowered that was good once; one that is tried goes back after one"},
		{Key: "max_duration", At: model.Nsec(&p.MaxDurationNsec), Least: 1e9, Most: model.Unbounded, Soak: [2]float64{60e9, 600e9}, Why: "of a hold; then it is given back whatever the victim does"},
	}
}

// Check finds parameters that do not fit each other.
func (p *Steps) Check() (key, why string) {
	if p.VerifyWindows < p.RecoveredWindows {
		return "verify_windows", fmt.Sprintf("is %d; expected at least recovered_windows, %d", p.VerifyWindows, p.RecoveredWindows)
	}
	return "", ""
}

// Words are what is fixed of a realm.
type Words struct {
	Policy string
	Prefix string // of its incidents
	Source model.Source
	Knob   model.KnobKind
	Waits  string // what a victim does: "waits for I/O"
	Share  model.FactKind
}

// Realm is what victims of one kind lack. It looks at what tasks do before Step, and answers within it.
type Realm interface {
	// Taken is what each task took of what the victim lacks. nil: nothing that is counted, and why says so.
	Taken(inc *Incident) (h *antagonist.History, why string)
	// Itself says why nobody is to blame: others take no more while the victim suffers (bad, in the mean) than while it does not (good).
	Itself(inc *Incident, bad, good float64) string
	// Weigh reports whether a suspect can have done it, and judges it where not. most is what all others took in bad windows, in the mean.
	Weigh(inc *Incident, sus *model.Suspect, most float64) bool
	// Take notes in the incident what the chosen one took: a limit is a share of it. text says what it may have from now on, for a
	// decision; ok is false where it takes nothing just now.
	Take(inc *Incident, chosen antagonist.Score) (text string, facts []model.Fact, ok bool)
	// First is the share that is left to who was chosen at first. It is asked for when the limit is about to be claimed.
	First(inc *Incident) float64
	// Returning reports whether the victim is getting back what it lacks. Until it does not a window in which it suffers says nothing.
	Returning(inc *Incident) bool
	// Claim is the limit that stands for an incident.
	Claim(inc *Incident) model.Claim
	// Of says what the share is a share of.
	Of(inc *Incident) string
	// Mild wishes for the milder means on the task that was chosen, once, and returns the decision; ok is false where there is none
	// or it cannot be had.
	Mild(inc *Incident) (d model.Decision, ok bool)
	// Regained reports whether who was asked by it has that back already: what it does for the victim is over then.
	Regained(inc *Incident) bool
}

// Incident is one victim's trouble. Device and Was are of block devices, Bytes, Base, Had and Back are of memory.
type Incident struct {
	model.Incident
	Device     model.Device        `json:"device"`
	Excluded   []model.TaskNum     `json:"excluded,omitempty"` // tried without effect
	SearchLeft int                 `json:"search_left"`
	Sum        float64             `json:"sum"` // of the victim's signals in this round
	GoodRow    int                 `json:"good_row"`
	BadRow     int                 `json:"bad_row"`
	Was        model.IOObservation `json:"was"`             // what the held task did, a second
	Bytes      float64             `json:"bytes,omitempty"` // that the held task had
	Base       float64             `json:"base,omitempty"`  // that it had while the victim was well
	Had        float64             `json:"had,omitempty"`   // that the victim had while it was well
	Back       float64             `json:"back,omitempty"`  // that the victim had when it last had clearly more than before
	BackNsec   int64               `json:"back_nsec,omitempty"`
	Mild       bool                `json:"mild,omitempty"`   // the milder means is tried: nobody is held yet
	Asks       int                 `json:"asks,omitempty"`   // how often
	Share      float64             `json:"share"`            // of what it took, that it may have; 0: nobody is held
	First      float64             `json:"first,omitempty"`  // at first
	Floor      float64             `json:"floor"`            // the share at which it recovered
	Good       float64             `json:"good"`             // the largest share at which it was well
	Bad        float64             `json:"bad"`              // the least one above it at which it was not; at first all that the task took
	Low        float64             `json:"low"`              // the victim's signal at the floor
	GoodSum    float64             `json:"good_sum"`         // of the signals of GoodRow windows
	Enough     float64             `json:"enough,omitempty"` // the signal up to which it is well, where no hold brings it under its threshold
	Fails      int                 `json:"fails"`            // shares that were too much, one after the other
	Blind      int                 `json:"blind"`            // windows in a row that say nothing of the victim
	HeldNsec   int64               `json:"held_nsec,omitempty"`
	MovedNsec  int64               `json:"moved_nsec,omitempty"` // when the share was last other
	Reason     string              `json:"reason,omitempty"`     // of the claim
}

// Peace keeps a task from being looked at again too soon.
type Peace struct {
	Victim    model.TaskNum `json:"victim"`
	UntilNsec int64         `json:"until_nsec"`
}

// State is what is remembered of incidents: one a victim.
type State struct {
	NextID    uint64     `json:"next_id,omitempty"`
	Incidents []Incident `json:"incidents,omitempty"`
	Peace     []Peace    `json:"peace,omitempty"`

	moved    bool                // what is wished for is other than in the step before
	analysis antagonist.Analysis // scratch
}

// Input is what a policy of this kind goes by beside the view.
type Input struct {
	Correlation *antagonist.Params
	IDPrefix    string // keeps the incidents of different starts of the agent apart
}

// step is what one step goes by.
type step struct {
	*State
	p     *Steps
	in    Input
	words *Words
	realm Realm
	v     *policy.View
	w     *policy.Wishes
}

// Step looks at the window that closed, if one did, and wishes for the limits that stand.
func (s *State) Step(p *Steps, in Input, words *Words, realm Realm, v *policy.View, w *policy.Wishes) {
	s.moved = false
	t := step{s, p, in, words, realm, v, w}
	if v.Window.Closed {
		t.open()
	}
	for i := range s.Incidents {
		t.advance(&s.Incidents[i])
	}
	s.Incidents = slices.DeleteFunc(s.Incidents, func(inc Incident) bool { return inc.ClosedNsec != 0 })
	s.Peace = slices.DeleteFunc(s.Peace, func(o Peace) bool { return v.NowNsec >= o.UntilNsec || v.Table.Get(o.Victim) == nil })
	if w.AsBefore = !s.moved && !v.Changed; w.AsBefore || v.Mode != model.ModeEnforce {
		return
	}
	for i := range s.Incidents {
		if inc := &s.Incidents[i]; inc.Share > 0 {
			c := realm.Claim(inc)
			c.HoldNsec = p.HoldNsec
			w.Claims = append(w.Claims, c)
		}
	}
}

// Held counts the tasks that are held.
func (s *State) Held() (n int) {
	for i := range s.Incidents {
		if s.Incidents[i].Share > 0 {
			n++
		}
	}
	return n
}

// OnTrial adds the tasks of which it is not known yet what comes of a limit, of the milder means, or of a step back in the last window.
func (s *State) OnTrial(v *policy.View, me string, list []policy.OnTrial) []policy.OnTrial {
	for i := range s.Incidents {
		inc := &s.Incidents[i]
		r := inc.Round()
		if r == nil || r.Chosen == nil || inc.Share == 0 && !inc.Mild {
			continue
		}
		if inc.State != model.Recovered || v.NowNsec-inc.MovedNsec < v.History.PeriodNsec() {
			list = append(list, policy.OnTrial{Task: *r.Chosen, Policy: me, For: inc.Victim})
		}
	}
	return list
}

// Victim finds a protected task among those that are judged by a signal beside; nil: it is not.
func Victim(v *policy.View, num model.TaskNum, by model.Source) *policy.Victim {
	list := v.Window.Beside
	i, ok := slices.BinarySearchFunc(list, num, func(x policy.Victim, n model.TaskNum) int {
		return cmp.Or(cmp.Compare(x.Num, n), cmp.Compare(x.Source, by))
	})
	if !ok {
		return nil
	}
	return &list[i]
}

// Remember takes in a window: what tasks used of something, and how the victims by a signal were.
func Remember(v *policy.View, h *antagonist.History, by model.Source, used func(at int) float64) {
	for at := 0; at < len(h.Rows); { // who has gone
		if n := h.Rows[at].Num; n != model.NumUnmanaged && n != model.NumSteal && v.Table.Get(n) == nil {
			h.Forget(n)
			continue
		}
		at++
	}
	h.Begin(v.NowNsec)
	for i := range v.Tasks {
		num, signal := v.Tasks[i].Task.Num, float64(antagonist.NoEvidence)
		if x := Victim(v, num, by); x != nil && x.Verdict.Evidence() {
			signal = x.Signal
		}
		h.Ensure(num)
		h.Put(num, used(i), signal)
	}
	h.End()
}

// Means is what the tasks that of is true of took in a victim's bad windows and in its good ones, in the mean; some: there are both.
func Means(h *antagonist.History, victim model.TaskNum, threshold float64, of func(num model.TaskNum) bool) (bad, good float64, some bool) {
	v := h.Row(victim)
	if v == nil {
		return 0, 0, false
	}
	nBad, nGood := 0, 0
	for k, signal := range v.Signal[:h.Filled] {
		if signal == antagonist.NoEvidence {
			continue
		}
		sum := 0.0
		for i := range h.Rows {
			if of(h.Rows[i].Num) {
				sum += h.Rows[i].Usage[k]
			}
		}
		if signal > threshold {
			bad, nBad = bad+sum, nBad+1
		} else {
			good, nGood = good+sum, nGood+1
		}
	}
	return bad / float64(max(1, nBad)), good / float64(max(1, nGood)), nBad > 0 && nGood > 0
}

// open starts an incident for every victim that suffers and has none.
func (s *step) open() {
	for i := range s.v.Window.Beside {
		x := &s.v.Window.Beside[i]
		if x.Source != s.words.Source || !x.Anomalous || !x.Protected || x.Verdict != outlier.Outlier ||
			slices.ContainsFunc(s.Incidents, func(inc Incident) bool { return inc.Victim == x.Num }) ||
			slices.ContainsFunc(s.Peace, func(o Peace) bool { return o.Victim == x.Num }) {
			continue
		}
		s.NextID++
		task := s.v.Table.Get(x.Num)
		s.Incidents = append(s.Incidents, Incident{SearchLeft: s.p.SearchWindows, Incident: model.Incident{
			ID: fmt.Sprintf("%s%s-%d", s.words.Prefix, s.in.IDPrefix, s.NextID), Victim: x.Num, VictimPath: task.Path, VictimJob: task.Job, Source: x.Source,
			Signal: x.Signal, Threshold: x.Threshold, Spec: *x.Spec, Violations: x.Violations, OpenedNsec: s.v.NowNsec, OpenedWall: s.v.WallNsec,
		}})
		inc := &s.Incidents[len(s.Incidents)-1]
		s.say(inc, model.Decision{
			Kind: model.DecideAnomaly, Task: x.Num, Facts: inc.facts(x.Signal),
			Reason: fmt.Sprintf("%s %.3g of the time, above %.3g; %d violations in the window", s.words.Waits, x.Signal, x.Threshold, x.Violations),
		})
	}
}

// advance moves an incident by one tick.
func (s *step) advance(inc *Incident) {
	v, x := s.v, Victim(s.v, inc.Victim, s.words.Source)
	if v.Window.Closed {
		if inc.Blind++; x != nil && x.Verdict.Evidence() {
			inc.Blind = 0
		}
	}
	switch {
	case inc.ClosedNsec != 0:
	case v.Table.Get(inc.Victim) == nil:
		s.close(inc, model.VictimGone, "the victim's cgroup is gone")
	case (inc.Share > 0 || inc.Mild) && v.Mode != model.ModeEnforce:
		s.close(inc, model.Dropped, "the policy is no longer enforced")
	case v.Window.Closed && x != nil && !x.Protected:
		s.close(inc, model.Dropped, "protection was turned off for its job")
	case inc.Blind >= s.p.SearchWindows:
		s.close(inc, model.Dropped, fmt.Sprintf("%d windows in a row say nothing of how long the victim waits", inc.Blind))
	case inc.Share > 0 && v.NowNsec-inc.HeldNsec >= s.p.MaxDurationNsec:
		st := model.Dropped
		if inc.State == model.Recovered {
			st = model.Recovered
		}
		s.close(inc, st, "it was held for as long as may be: given back")
	case inc.State == model.Searching && v.Window.Closed && x != nil:
		if x.Violations == 0 {
			s.close(inc, model.Dropped, "the victim recovered by itself before anybody was held")
		} else if x.Verdict == outlier.Outlier {
			s.search(inc, x)
		}
	case inc.Mild:
		s.tryMild(inc, x)
	case inc.State != model.Searching:
		s.follow(inc, x)
	}
}

// facts are what a decision about the victim rests on.
func (inc *Incident) facts(signal float64) []model.Fact {
	return []model.Fact{model.FactSignal.Is(signal), model.FactThreshold.Is(inc.Threshold)}
}

// Round is the last round; nil: there was none.
func (inc *Incident) Round() *model.Round {
	if len(inc.Rounds) == 0 {
		return nil
	}
	return &inc.Rounds[len(inc.Rounds)-1]
}

// say records a decision of an incident, and the incident as it stands now.
func (s *step) say(inc *Incident, d model.Decision) {
	if d.Incident = inc.ID; d.Path == "" {
		d.Path = s.v.Table.Name(d.Task)
	}
	inc.Cite(&d)
	s.w.Decide(d)
	now := inc.Incident
	now.Rounds, now.Tried = slices.Clone(inc.Rounds), slices.Clone(inc.Tried)
	for _, c := range s.w.Incidents {
		if c.ID == inc.ID {
			*c = now
			return
		}
	}
	s.w.Incidents = append(s.w.Incidents, &now)
}

// close ends an incident, and with it what is held for it.
func (s *step) close(inc *Incident, st model.IncidentState, why string) {
	s.letGo(inc, why)
	if r := inc.Round(); r != nil && r.State == model.RoundOpen {
		r.Conclude(model.RoundEnded, why)
	}
	inc.State, inc.ClosedNsec, inc.Mild = st, s.v.NowNsec, false
	if inc.Evidence == "" {
		inc.Evidence = why
	}
	kind := model.DecideRelease
	switch st {
	case model.VictimGone:
		kind = model.DecideGone
	case model.CannotFix:
		kind = model.DecideCannotFix
	}
	s.say(inc, model.Decision{Kind: kind, Task: inc.Victim, Reason: why})
}

// cannotFix ends an incident for which nothing more can be done, and leaves the victim in peace for a while.
func (s *step) cannotFix(inc *Incident, why string) {
	s.close(inc, model.CannotFix, why)
	s.rest(inc)
}

func (s *step) rest(inc *Incident) {
	s.Peace = append(s.Peace, Peace{inc.Victim, s.v.NowNsec + s.p.RetryAfterNsec})
}

// letGo ends what is held for an incident.
func (s *step) letGo(inc *Incident, why string) {
	if inc.Share > 0 {
		s.w.End(model.Claim{Target: model.OfTask(*inc.Round().Chosen), Value: model.Ask(s.words.Knob), Incident: inc.ID}, why)
		inc.Share, s.moved = 0, true
	}
}
