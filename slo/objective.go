package slo

import (
	"fmt"
	"time"
)

// Colour is how a service stands to its objective (BALM §III-A).
type Colour uint8

// The colours. The zero value is Grey: BALM's state between yellow and green, and also that of a
// service of which there is no valid figure. Neither is a reason to hurry, and neither is well.
const (
	Grey   Colour = iota
	Green         // below the target by at least the margin of green
	Yellow        // below it by less than the margin of yellow: likely to be missed soon
	Red           // missed
)

var colourNames = [...]string{"grey", "green", "yellow", "red"}

func (c Colour) String() string {
	if int(c) < len(colourNames) {
		return colourNames[c]
	}
	return fmt.Sprintf("colour(%d)", uint8(c))
}

// MarshalText writes the colour's name.
func (c Colour) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a colour's name.
func (c *Colour) UnmarshalText(b []byte) error {
	for i, name := range colourNames {
		if name == string(b) {
			*c = Colour(i)
			return nil
		}
	}
	return fmt.Errorf("unknown colour %q", b)
}

// The margins below the target, as shares of it. BALM names them thr_yellow and thr_green and gives
// no values; these are its prototype's.
const (
	DefaultYellow = 0.05
	DefaultGreen  = 0.20
)

// Objective is what a service promises: that the quantile of its latencies stays at or under the target.
type Objective struct {
	Target        time.Duration // 0: none
	Quantile      float64       // of the figure that is held against it
	Yellow, Green float64       // margins
}

// Judge holds a reading against the objective. figure is what was held against it, where ok; why
// says in a line why there is none. A figure of which half or more may be the source's own lateness
// says too little about the service to accuse anybody by it.
func (o *Objective) Judge(r *Reading) (c Colour, figure time.Duration, ok bool, why string) {
	switch {
	case o.Target <= 0:
		return Grey, 0, false, ""
	case r.Status.State == StateUnavailable:
		return Grey, 0, false, r.Status.Reason
	case !r.Valid.Has(HasAsked):
		return Grey, 0, false, fmt.Sprintf("%d requests in the window; a quantile of %g takes %d", r.Samples, o.Quantile, MinSamples(o.Quantile))
	case r.Asked > o.Target && r.Lateness >= r.Asked/2:
		return Grey, 0, false, fmt.Sprintf("the probe itself was late: by %v of %v", r.Lateness, r.Asked)
	}
	target, v := float64(o.Target), float64(r.Asked)
	switch {
	case v > target:
		c = Red
	case v > target*(1-o.Yellow):
		c = Yellow
	case v <= target*(1-o.Green):
		c = Green
	}
	return c, r.Asked, true, ""
}
