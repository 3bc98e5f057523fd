package cpuset

import "github.com/commensal-io/commensal/model"

// Parking is for machines with few cores. There a whole core for BE may be half of what
// there is, and an operator may say that BE's floor is none (FloorCores 0, FloorShare 0).
// A cpuset cannot be empty, so BE tasks without a core of their own are put on the core
// that BE takes first, which LC then has too, and are held to ParkCap each: they stay alive
// (sockets answered, heartbeats sent) and take next to nothing. To freeze them was rejected:
// a frozen task keeps what locks it has, and those who wait for it wait with it.

// parked says whether BE has no core of its own.
func (s *State) parked() bool {
	return s.Status == Divided && s.BE == 0 && s.plan != nil && len(s.plan.cores) > 0
}

// park holds the tasks of BE while they are parked, and lets go of them after that.
func (s *State) park(p *Params, v *model.CPUView, w *model.Wishes, look bool) {
	parked := s.parked()
	for i := range s.Placed {
		e := &s.Placed[i]
		if !parked || e.Side != sideBE {
			if e.CapNsec != 0 {
				e.CapNsec = 0
				w.Drops = append(w.Drops, model.Drop{Task: e.Task, Kind: model.ClaimCap, Reason: "BE has a core of its own again"})
			}
			continue
		}
		k := &v.Tasks[i].Knobs[model.CPUBandwidth]
		lost := look && !k.Ours && !k.Pending && !k.Refused && v.NowNsec > e.CapNsec
		if e.CapNsec != 0 && v.NowNsec-e.CapNsec < p.ClaimNsec/4 && !lost {
			continue
		}
		e.CapNsec = v.NowNsec
		w.Claims = append(w.Claims, model.Claim{
			Task: e.Task, Kind: model.ClaimCap, Cap: p.ParkCap, Reason: "LC needs every core, and BE is parked", ExpiresNsec: v.NowNsec + p.ClaimNsec,
		})
	}
}
