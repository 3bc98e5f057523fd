// Package blockio deals with who makes a service wait for its disk: CPI² section 9 leaves it open whether "the idea of
// correlation-based antagonist identification could be applied to this I/O realm as well".
//
// Intuition. The signal is the share of time in which a service waits for block devices, with a spec as every other signal has
// one, judged beside that of the CPU. What a suspect uses is what it does on the device that the victim uses most: bytes, and
// operations counted as bytes, since both take the device's time. The correlation is CPI²'s. Who is picked may do on that device a
// share of what it did (io.max, blkio.throttle); whether that helps the victim's signal says. If not it is taken back and the next suspect
// tried; if so it may do more step by step, half way to the least at which the victim suffered, as long as that hardly shows in how long the victim
// waits. Where what it does never showed it has all back; where it did it keeps what does not hurt, and all is given back in time.
//
// Hard cases, and what is done about them:
//
//   - The disk is slow by itself: a rebuild below it, a neighbour on the same array, a dying disk. All wait, and whoever uses it
//     steadily would correlate. So nobody is accused unless more is done on the device in bad windows than in good ones (Rise), and
//     unless the suspect stands out from a steady one and from the median (model.SignalRow).
//   - The victim makes itself wait: more load, a vacuum. Its own use does not count in what is done; without another's rise nobody is held.
//   - The first limit helps, and not enough. Where half of the excess is gone the limit is halved, twice at most, before it is given up.
//   - A task that is stopped altogether keeps others from locks and from the file system's journal. A held task may always do a
//     little (LeastBytes, LeastOps).
//   - Devices that lie on others (LVM, RAID) are not counted: what is done on them is done below, and is held there.
//   - On cgroup v1 what the page cache writes back is counted and held of nobody: a suspect that writes so is not found, or not held
//     by its limit, which the victim's signal then shows.
//
// In observe mode the pick is recorded as it would be done, and nothing is concluded from what did not happen.
package blockio

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// maxDisks bounds the devices that are followed; of more those that came later are not.
const maxDisks = 16

// Disk is what tasks did on one device over the last windows, with the victims' signals beside.
type Disk struct {
	Device model.Device        `json:"device"`
	Uses   *antagonist.History `json:"uses"` // bytes a second, with operations
	Idle   int                 `json:"idle"` // windows in a row in which nobody used it
}

// Incident is one victim's trouble.
type Incident struct {
	model.Incident
	Device     model.Device        `json:"device"`
	Excluded   []model.TaskNum     `json:"excluded,omitempty"` // tried without effect
	SearchLeft int                 `json:"search_left"`
	Sum        float64             `json:"sum"` // of the victim's signals in this round
	GoodRow    int                 `json:"good_row"`
	BadRow     int                 `json:"bad_row"`
	Was        model.IOObservation `json:"was"`              // what the held task did, a second
	Share      float64             `json:"share"`            // of it, that it may do; 0: nobody is held
	Floor      float64             `json:"floor"`            // the share at which it recovered
	Good       float64             `json:"good"`             // the largest share at which it was well
	Bad        float64             `json:"bad"`              // the least one above it at which it was not; at first all that the task did
	Low        float64             `json:"low"`              // the victim's signal at the floor
	GoodSum    float64             `json:"good_sum"`         // of the signals of GoodRow windows
	Enough     float64             `json:"enough,omitempty"` // the signal up to which it is well, where no hold brings it under its threshold
	Fails      int                 `json:"fails"`            // shares that were too much, one after the other
	Blind      int                 `json:"blind"`            // windows in a row that say nothing of the victim
	HeldNsec   int64               `json:"held_nsec,omitempty"`
	MovedNsec  int64               `json:"moved_nsec,omitempty"` // when the share was last other
	Reason     string              `json:"reason,omitempty"`     // of the claim
}

// Peace keeps a victim from being analysed again too soon.
type Peace struct {
	Victim    model.TaskNum `json:"victim"`
	UntilNsec int64         `json:"until_nsec"`
}

// State is what the policy remembers. It is bounded: one incident a victim, and maxDisks.
type State struct {
	NextID    uint64     `json:"next_id,omitempty"`
	Disks     []Disk     `json:"disks,omitempty"` // by device
	Incidents []Incident `json:"incidents,omitempty"`
	Peace     []Peace    `json:"peace,omitempty"`

	moved    bool                // what is wished for is other than in the step before
	analysis antagonist.Analysis // scratch
}

// Input is what the policy goes by beside the view.
type Input struct {
	Correlation *antagonist.Params
	IDPrefix    string // keeps the incidents of different starts of the agent apart
}

// Step looks at the window that closed, if one did, and wishes for the limits that stand.
func (s *State) Step(p *Params, in Input, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	s.moved = false
	if v.Window.Closed {
		s.remember(p, v)
		s.open(p, in, v, w)
	}
	for i := range s.Incidents {
		s.advance(p, in, v, w, &s.Incidents[i])
	}
	s.Incidents = slices.DeleteFunc(s.Incidents, func(inc Incident) bool { return inc.ClosedNsec != 0 })
	s.Peace = slices.DeleteFunc(s.Peace, func(o Peace) bool { return v.NowNsec >= o.UntilNsec || v.Table.Get(o.Victim) == nil })
	if w.AsBefore = !s.moved && !v.Changed; w.AsBefore || v.Mode != model.ModeEnforce {
		return
	}
	for i := range s.Incidents {
		if inc := &s.Incidents[i]; inc.Share > 0 {
			w.Claims = append(w.Claims, inc.claim(p))
		}
	}
}

// use is what something done on a device counts as, in bytes a second.
func (p *Params) use(o *model.IOObservation) float64 {
	return o.Read + o.Wrote + float64(p.OpBytes)*(o.Reads+o.Writes)
}

// did finds what a task did on a device in the window.
func did(v *policy.View, num model.TaskNum, on model.Device) *model.IOObservation {
	io := v.Window.Observation.IO
	i, ok := slices.BinarySearchFunc(io, num, func(a model.IOObservation, n model.TaskNum) int {
		return cmp.Or(cmp.Compare(a.Num, n), cmp.Compare(a.Device, on))
	})
	if !ok {
		return nil
	}
	return &io[i]
}

// remember takes in what all did on each device, and how the victims were.
func (s *State) remember(p *Params, v *policy.View) {
	for i := range v.Window.Observation.IO {
		dev := v.Window.Observation.IO[i].Device
		at, ok := slices.BinarySearchFunc(s.Disks, dev, func(d Disk, dev model.Device) int { return cmp.Compare(d.Device, dev) })
		if !ok && len(s.Disks) < maxDisks {
			s.Disks = slices.Insert(s.Disks, at, Disk{Device: dev, Uses: antagonist.NewHistory(v.History.Cap)})
		}
	}
	for i := range s.Disks {
		d := &s.Disks[i]
		d.Idle++
		for at := 0; at < len(d.Uses.Rows); { // who has gone
			if n := d.Uses.Rows[at].Num; n != model.NumUnmanaged && n != model.NumSteal && v.Table.Get(n) == nil {
				d.Uses.Forget(n)
				continue
			}
			at++
		}
		d.Uses.Begin(v.NowNsec)
		for k := range v.Tasks {
			num, used, signal := v.Tasks[k].Task.Num, 0.0, float64(antagonist.NoEvidence)
			if o := did(v, num, d.Device); o != nil {
				if used = p.use(o); used > 0 {
					d.Idle = 0
				}
			}
			if x := victim(v, num); x != nil && x.Verdict.Evidence() {
				signal = x.Signal
			}
			d.Uses.Ensure(num)
			d.Uses.Put(num, used, signal)
		}
		d.Uses.End()
	}
	s.Disks = slices.DeleteFunc(s.Disks, func(d Disk) bool { return d.Idle >= d.Uses.Cap })
}

// victim finds a protected task among those that are judged by their I/O.
func victim(v *policy.View, num model.TaskNum) *policy.Victim {
	list := v.Window.Beside
	i, ok := slices.BinarySearchFunc(list, num, func(x policy.Victim, n model.TaskNum) int { return cmp.Compare(x.Num, n) })
	if !ok {
		return nil
	}
	return &list[i]
}

// open starts an incident for every victim that suffers and has none.
func (s *State) open(p *Params, in Input, v *policy.View, w *policy.Wishes) {
	for i := range v.Window.Beside {
		x := &v.Window.Beside[i]
		busy := slices.ContainsFunc(s.Incidents, func(inc Incident) bool { return inc.Victim == x.Num }) ||
			slices.ContainsFunc(s.Peace, func(o Peace) bool { return o.Victim == x.Num })
		if !x.Anomalous || !x.Protected || x.Verdict != outlier.Outlier || busy {
			continue
		}
		s.NextID++
		task := v.Table.Get(x.Num)
		s.Incidents = append(s.Incidents, Incident{SearchLeft: p.SearchWindows, Incident: model.Incident{
			ID: fmt.Sprintf("d%s-%d", in.IDPrefix, s.NextID), Victim: x.Num, VictimPath: task.Path, VictimJob: task.Job, Source: x.Source,
			Signal: x.Signal, Threshold: x.Threshold, Spec: *x.Spec, Violations: x.Violations, OpenedNsec: v.NowNsec, OpenedWall: v.WallNsec,
		}})
		inc := &s.Incidents[len(s.Incidents)-1]
		say(v, w, inc, model.Decision{
			Kind: model.DecideAnomaly, Task: x.Num, Facts: inc.facts(x.Signal),
			Reason: fmt.Sprintf("waits for I/O %.3g of the time, above %.3g; %d violations in the window", x.Signal, x.Threshold, x.Violations),
		})
	}
}

// advance moves an incident by one tick.
func (s *State) advance(p *Params, in Input, v *policy.View, w *policy.Wishes, inc *Incident) {
	x := victim(v, inc.Victim)
	if v.Window.Closed {
		if inc.Blind++; x != nil && x.Verdict.Evidence() {
			inc.Blind = 0
		}
	}
	switch {
	case inc.ClosedNsec != 0:
	case v.Table.Get(inc.Victim) == nil:
		s.close(v, w, inc, model.VictimGone, "the victim's cgroup is gone")
	case inc.Share > 0 && v.Mode != model.ModeEnforce:
		s.close(v, w, inc, model.Dropped, "the policy is no longer enforced")
	case v.Window.Closed && x != nil && !x.Protected:
		s.close(v, w, inc, model.Dropped, "protection was turned off for its job")
	case inc.Blind >= p.SearchWindows:
		s.close(v, w, inc, model.Dropped, fmt.Sprintf("%d windows in a row say nothing of how long the victim waits", inc.Blind))
	case inc.Share > 0 && v.NowNsec-inc.HeldNsec >= p.MaxDurationNsec:
		st := model.Dropped
		if inc.State == model.Recovered {
			st = model.Recovered
		}
		s.close(v, w, inc, st, "it was held for as long as may be: given back")
	case inc.State == model.Searching && v.Window.Closed && x != nil:
		if x.Violations == 0 {
			s.close(v, w, inc, model.Dropped, "the victim recovered by itself before anybody was held")
		} else if x.Verdict == outlier.Outlier {
			s.search(p, in, v, w, inc, x)
		}
	case inc.State != model.Searching:
		s.follow(p, v, w, inc, x)
	}
}

// facts are what a decision about the victim rests on.
func (inc *Incident) facts(signal float64) []model.Fact {
	return []model.Fact{model.FactSignal.Is(signal), model.FactThreshold.Is(inc.Threshold)}
}

func (inc *Incident) round() *model.Round {
	if len(inc.Rounds) == 0 {
		return nil
	}
	return &inc.Rounds[len(inc.Rounds)-1]
}

// say records a decision of an incident, and the incident as it stands now.
func say(v *policy.View, w *policy.Wishes, inc *Incident, d model.Decision) {
	if d.Incident = inc.ID; d.Path == "" {
		d.Path = v.Table.Name(d.Task)
	}
	w.Decide(d)
	now := inc.Incident
	now.Rounds, now.Tried = slices.Clone(inc.Rounds), slices.Clone(inc.Tried)
	for _, c := range w.Incidents {
		if c.ID == inc.ID {
			*c = now
			return
		}
	}
	w.Incidents = append(w.Incidents, &now)
}

// close ends an incident, and with it what is held for it.
func (s *State) close(v *policy.View, w *policy.Wishes, inc *Incident, st model.IncidentState, why string) {
	s.letGo(w, inc, why)
	if r := inc.round(); r != nil && r.State == model.RoundOpen {
		r.Conclude(model.RoundEnded, why)
	}
	inc.State, inc.ClosedNsec = st, v.NowNsec
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
	say(v, w, inc, model.Decision{Kind: kind, Task: inc.Victim, Reason: why})
}

// cannotFix ends an incident for which nothing more can be done, and leaves the victim in peace for a while.
func (s *State) cannotFix(p *Params, v *policy.View, w *policy.Wishes, inc *Incident, why string) {
	s.close(v, w, inc, model.CannotFix, why)
	s.rest(p, v, inc)
}

func (s *State) rest(p *Params, v *policy.View, inc *Incident) {
	s.Peace = append(s.Peace, Peace{inc.Victim, v.NowNsec + p.RetryAfterNsec})
}

// letGo ends what is held for an incident.
func (s *State) letGo(w *policy.Wishes, inc *Incident, why string) {
	if inc.Share > 0 {
		w.End(model.Claim{Target: model.OfTask(*inc.round().Chosen), Value: model.Ask(model.IOMaxKnob), Incident: inc.ID}, why)
		inc.Share, s.moved = 0, true
	}
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	if len(s.Disks) == 0 {
		return "no task was seen to use a block device yet"
	}
	held := 0
	for i := range s.Incidents {
		if s.Incidents[i].Share > 0 {
			held++
		}
	}
	if text := fmt.Sprintf("%d devices followed", len(s.Disks)); held == 0 || now != model.ModeEnforce {
		return text
	}
	return fmt.Sprintf("%d devices followed; %d BE tasks held", len(s.Disks), held)
}
