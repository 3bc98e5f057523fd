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
	// Wait is the share of LC's requests that may find all of LC's CPUs busy: LC gets the CPUs
	// with which it is not greater under the mean load, by Erlang's formula.
	Wait float64 `json:"wait"`
	// TargetSiblings is the mean utilisation of LC's logical CPUs up to which its set is large
	// enough, where a physical core has several of them: seed 001, section 4.1, found no
	// interference between siblings below 45 %.
	TargetSiblings float64 `json:"target_siblings"`
	// FullUtilisation of LC's set in one pulse hides what LC would use if it could: LC gets
	// everything down to BE's floor at once.
	FullUtilisation float64 `json:"full_utilisation"`
	// RiseNsec and FallNsec are the time constants of the two means of the load; the greater
	// of the means counts. So the size follows a rise in the first and a fall in the second.
	RiseNsec int64 `json:"rise_nsec"`
	FallNsec int64 `json:"fall_nsec"`
	// GiveEveryNsec: BE is given what LC does not need, this long after the border last moved.
	GiveEveryNsec int64 `json:"give_every_nsec"`
	// ReturnsPerMin is how often a minute LC may take back what was given a short while before;
	// while it does so more often nothing is given.
	ReturnsPerMin int `json:"returns_per_min"`
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
		FloorCores: 1, FloorShare: 0.05, ParkCap: 0.01,
		Wait: 0.015, TargetSiblings: 0.45, FullUtilisation: 0.95,
		RiseNsec: 200e6, FallNsec: 3e9, GiveEveryNsec: 1e9, ReturnsPerMin: 6,
		BlindNsec: 1e9, LeastPulseNsec: 10e6,
		Sockets: Spread, ClaimNsec: 60e9,
	}
}
