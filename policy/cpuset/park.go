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

// park is the claim that holds a parked task of BE. An operator said with the floors that BE
// may be held so, and the limits do not count it.
func (s *State) park(p *Params, e *Placed) model.Claim {
	return model.Claim{
		Target: model.OfTask(e.Task), Kind: model.ClaimCap, Value: model.Ask(model.CPUBandwidth), Cap: p.ParkCap, Uncounted: true,
		Reason: "LC needs every core, and BE is parked", HoldNsec: p.ClaimNsec,
	}
}
