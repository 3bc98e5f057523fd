package cpuset

// Pace bounds how often the border moves. What BE was given may be taken back in the next
// pulse: that is how the border finds its place, and costs LC a pulse of waiting each time. A
// load that makes it do so again and again keeps the cores: each return of cores within
// returnSoonNsec of a gift costs one of a few tokens, which come back evenly with time, and
// nothing is given while there is none. A pause that doubles with each return was rejected: it
// made one return a minute as dear as ten.
type Pace struct {
	// Tokens are the returns that may still come, as of TokensNsec (0: not filled yet).
	Tokens     float64 `json:"tokens"`
	TokensNsec int64   `json:"tokens_nsec,omitempty"`
	MoveNsec   int64   `json:"move_nsec,omitempty"` // when the border last moved
	GiveNsec   int64   `json:"give_nsec,omitempty"` // 0: never
}

// returnSoonNsec: cores that are taken later than this after a gift are not held against it.
const returnSoonNsec = 10e9

// refill gives tokens back for the time that passed. The bucket holds a minute's.
func (c *Pace) refill(p *Params, nowNsec int64) {
	most := float64(p.ReturnsPerMin)
	if c.TokensNsec == 0 {
		c.Tokens = most
	} else {
		c.Tokens = min(c.Tokens+most*float64(max(nowNsec-c.TokensNsec, 0))/60e9, most)
	}
	c.TokensNsec = nowNsec
}

// mayGive says whether BE may be given cores now.
func (c *Pace) mayGive(p *Params, nowNsec int64) bool {
	return nowNsec-c.MoveNsec >= p.GiveEveryNsec && c.Tokens >= 1
}

func (c *Pace) gave(nowNsec int64) { c.MoveNsec, c.GiveNsec = nowNsec, nowNsec }

// took notes that LC's side grew.
func (c *Pace) took(nowNsec int64) {
	c.MoveNsec = nowNsec
	if c.GiveNsec != 0 && nowNsec-c.GiveNsec < returnSoonNsec {
		c.Tokens = max(c.Tokens-1, 0)
	}
}
