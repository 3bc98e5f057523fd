package cpuset

// How BE's cores are laid out over the sockets.
const (
	Spread = "spread" // as many cores of each socket
	Gather = "gather" // one socket first, the one with the fewest exclusive cores
)

// Params are the policy's parameters.
type Params struct {
	// FloorCores and FloorShare are what BE keeps whatever LC needs: the greater of a number of
	// physical cores and a share of those online, 0..1. It is never less than one core, since
	// a cpuset cannot be empty, unless both are 0: then BE may be parked (park.go).
	FloorCores int     `json:"floor_cores"`
	FloorShare float64 `json:"floor_share"`
	// ParkCap is what each BE task may use while BE is parked, CPU-sec/sec: the least of seed
	// 003's hard caps.
	ParkCap float64 `json:"park_cap"`
	// ReserveCores are the physical cores that LC gets beyond what its load needs. A load that
	// wanders by no more than they hold moves nothing.
	ReserveCores int `json:"reserve_cores"`
	// TargetSiblings is the utilisation of LC's logical CPUs up to which its set is large
	// enough, where a physical core has several of them: seed 001, section 4.1, found no
	// interference between siblings below 45 %. TargetAlone is the same for a core with one
	// logical CPU, where nothing is shared and only queueing counts.
	TargetSiblings float64 `json:"target_siblings"`
	TargetAlone    float64 `json:"target_alone"`
	// FullUtilisation of LC's set in one pulse hides what LC would use if it could: LC gets
	// everything down to BE's floor at once.
	FullUtilisation float64 `json:"full_utilisation"`
	// HoldNsec is for how long a core that LC needed is kept for it, at most: the window whose
	// peak must fit before BE gets a core. HoldFactor is how many times as long as it was
	// needed a core is kept, up to HoldNsec, so that one noisy pulse does not cost BE dearly.
	HoldNsec   int64   `json:"hold_nsec"`
	HoldFactor float64 `json:"hold_factor"`
	// Hysteresis is by how much more the load may grow, as a share, before a core that BE is
	// given would be needed again.
	Hysteresis float64 `json:"hysteresis"`
	// GiveEveryNsec: BE is given one core at a time, this far apart.
	GiveEveryNsec int64 `json:"give_every_nsec"`
	// HoldNsec and HoldFactor are doubled when a core is taken back within the hold, or within
	// SoonNsec, after it was given, until the hold is HoldMaxNsec, and halved again after each
	// QuietNsec in which that did not happen.
	SoonNsec    int64 `json:"soon_nsec"`
	HoldMaxNsec int64 `json:"hold_max_nsec"`
	QuietNsec   int64 `json:"quiet_nsec"`
	// BlindNsec is how long the load of LC may stay unreadable before BE is put on its floor.
	BlindNsec int64 `json:"blind_nsec"`
	// LeastPulseNsec is the shortest time over which a rate is worth something: the kernel
	// accounts a running thread's time at its ticks, 1 to 10 ms apart.
	LeastPulseNsec int64 `json:"least_pulse_nsec"`
	// Sockets is Spread or Gather.
	Sockets string `json:"sockets"`
	// ClaimNsec is how long a claim lasts; it is renewed when half of that has passed.
	ClaimNsec int64 `json:"claim_nsec"`
}

// Defaults returns the parameters argued for in docs/policies/cpuset.md.
func Defaults() Params {
	return Params{
		FloorCores: 1, FloorShare: 0.05, ParkCap: 0.01, ReserveCores: 1,
		TargetSiblings: 0.45, TargetAlone: 0.7, FullUtilisation: 0.85,
		HoldNsec: 10e9, HoldFactor: 20, Hysteresis: 0.1, GiveEveryNsec: 1e9,
		SoonNsec: 30e9, HoldMaxNsec: 320e9, QuietNsec: 300e9, BlindNsec: 1e9, LeastPulseNsec: 10e6,
		Sockets: Spread, ClaimNsec: 60e9,
	}
}
