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
	"github.com/commensal-io/commensal/policy/beside"
)

// maxDisks bounds the devices that are followed; of more those that came later are not.
const maxDisks = 16

// Disk is what tasks did on one device over the last windows, with the victims' signals beside.
type Disk struct {
	Device model.Device        `json:"device"`
	Uses   *antagonist.History `json:"uses"` // bytes a second, with operations
	Idle   int                 `json:"idle"` // windows in a row in which nobody used it
}

// State is what the policy remembers. It is bounded: one incident a victim, and maxDisks.
type State struct {
	beside.State
	Disks []Disk `json:"disks,omitempty"` // by device

	p *Params // of the step that is taken
	v *policy.View
}

var words = beside.Words{Policy: model.PolicyIO, Prefix: "d", Source: model.SourceIO, Knob: model.IOMaxKnob, Waits: "waits for I/O", Share: model.FactIOShare}

// Step looks at the window that closed, if one did, and wishes for the limits that stand.
func (s *State) Step(p *Params, in beside.Input, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	if s.p, s.v = p, v; v.Window.Closed {
		s.remember(p, v)
	}
	s.State.Step(&p.Steps, in, &words, s, v, w)
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
		beside.Remember(v, d.Uses, model.SourceIO, func(at int) float64 {
			o := did(v, v.Tasks[at].Task.Num, d.Device)
			if o == nil || p.use(o) <= 0 {
				return 0
			}
			d.Idle = 0
			return p.use(o)
		})
	}
	s.Disks = slices.DeleteFunc(s.Disks, func(d Disk) bool { return d.Idle >= d.Uses.Cap })
}

// Taken implements beside.Realm: what all do on the device that the victim used most.
func (s *State) Taken(inc *beside.Incident) (h *antagonist.History, why string) {
	d := s.diskOf(inc.Victim)
	if d == nil {
		return nil, "it waits for I/O, and uses no device that is counted"
	}
	inc.Device = d.Device
	return d.Uses, ""
}

// diskOf is the device that a task used most in the windows that are remembered; nil: none.
func (s *State) diskOf(num model.TaskNum) (most *Disk) {
	best := 0.0
	for i := range s.Disks {
		if used := s.Disks[i].Uses.RecentUsage(num, s.Disks[i].Uses.Cap); used > best {
			best, most = used, &s.Disks[i]
		}
	}
	return most
}

// Itself implements beside.Realm.
func (s *State) Itself(inc *beside.Incident, bad, good float64) string {
	return fmt.Sprintf("others do no more on device %s than while it was well (%.3g MB/s, %.3g then, operations included): the device itself is slow, and nobody is held", inc.Device, bad/1e6, good/1e6)
}

// Weigh implements beside.Realm.
func (s *State) Weigh(_ *beside.Incident, sus *model.Suspect, most float64) bool {
	if sus.Usage < s.p.MinShare*most {
		sus.Judge(model.SuspectIdle, "")
		return false
	}
	return true
}

// Take implements beside.Realm. What the task did in this window is taken as what it does while the victim suffers, but at the mean of all
// bad windows.
func (s *State) Take(inc *beside.Incident, chosen antagonist.Score) (text string, facts []model.Fact, ok bool) {
	o := did(s.v, chosen.Num, inc.Device)
	if o == nil || s.p.use(o) <= 0 {
		return "", nil, false
	}
	scale := chosen.Usage / s.p.use(o)
	inc.Was = model.IOObservation{Num: chosen.Num, Device: inc.Device, Read: scale * o.Read, Wrote: scale * o.Wrote, Reads: scale * o.Reads, Writes: scale * o.Writes}
	text = fmt.Sprintf("it may do %.0f %% of its %.3g MB and %.3g operations a second on device %s",
		100*s.p.Share, (inc.Was.Read+inc.Was.Wrote)/1e6, inc.Was.Reads+inc.Was.Writes, inc.Device)
	return text, []model.Fact{model.FactIOBytes.Is(inc.Was.Read + inc.Was.Wrote), model.FactIOOps.Is(inc.Was.Reads + inc.Was.Writes)}, true
}

// First implements beside.Realm.
func (s *State) First(*beside.Incident) float64 { return s.p.Share }

// Returning implements beside.Realm: a disk that is free again serves at once.
func (*State) Returning(*beside.Incident) bool { return false }

// minor is the part of what a task does on a device up to which a direction is not what it is held for: there it may do minorTimes as
// much, or its share of what it does in both, so that who reads now and writes next is held as before.
const minor, minorTimes = 0.05, 2

// Claim implements beside.Realm.
func (s *State) Claim(inc *beside.Incident) model.Claim {
	p := s.p
	l, all := model.IOLimit{Device: inc.Device}, p.use(&inc.Was)
	limit := func(bps, iops *uint64, bytes, ops float64) {
		mayBytes, mayOps := inc.Share*bytes, inc.Share*ops
		if bytes+float64(p.OpBytes)*ops < minor*all {
			mayBytes, mayOps = max(inc.Share*(inc.Was.Read+inc.Was.Wrote), minorTimes*bytes), max(inc.Share*(inc.Was.Reads+inc.Was.Writes), minorTimes*ops)
		}
		*bps, *iops = uint64(max(mayBytes, float64(p.LeastBytes))), uint64(max(mayOps, float64(p.LeastOps)))
	}
	limit(&l.ReadBPS, &l.ReadIOPS, inc.Was.Read, inc.Was.Reads)
	limit(&l.WriteBPS, &l.WriteIOPS, inc.Was.Wrote, inc.Was.Writes)
	return model.Claim{
		Target: model.OfTask(inc.Was.Num), Kind: model.ClaimCap, Value: model.LimitIO(model.IOMaxOf([]model.IOLimit{l})), Cap: inc.Share,
		Reason: inc.Reason, Incident: inc.ID,
	}
}

// Of implements beside.Realm.
func (s *State) Of(inc *beside.Incident) string {
	return "what it did on device " + inc.Device.String()
}

// Mild implements beside.Realm: there is nothing milder.
func (s *State) Mild(*beside.Incident) (d model.Decision, ok bool) { return d, false }

// Regained implements beside.Realm.
func (*State) Regained(*beside.Incident) bool { return false }

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	if len(s.Disks) == 0 {
		return "no task was seen to use a block device yet"
	}
	held, text := s.Held(), fmt.Sprintf("%d devices followed", len(s.Disks))
	if held == 0 || now != model.ModeEnforce {
		return text
	}
	return fmt.Sprintf("%s; %d BE tasks held", text, held)
}
