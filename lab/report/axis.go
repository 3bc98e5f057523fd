package report

import (
	"math"
	"strconv"
	"strings"
)

const (
	// largest and smallest bound what an axis can show. Within them the sums and
	// differences below neither overflow nor vanish. A larger value is not drawn
	// (and the chart says so), a smaller one is drawn as zero.
	largest  = 1e300
	smallest = 1e-290
	// finestSpan is the least span of an axis relative to its largest value: nine
	// digits are kept apart, less is rounding noise.
	finestSpan = 1e-9
	// keepZeroBelow: an axis of values ≥ 0 starts at zero unless the values span
	// less than this part of their maximum. Zero is the honest base; a signal
	// between 0.98 and 1.04 would be a flat line on it.
	keepZeroBelow = 0.25
	maxTicks      = 24
)

// drawable reports whether an axis can place v.
func drawable(v float64, log bool) bool {
	return math.Abs(v) <= largest && (!log || v >= smallest) // false for NaN
}

// extent collects the range of the values that an axis has to show.
type extent struct {
	low, high float64
	any       bool
}

func (e *extent) add(v float64) {
	if math.Abs(v) < smallest {
		v = 0
	}
	if !e.any {
		e.low, e.high, e.any = v, v, true
		return
	}
	e.low, e.high = math.Min(e.low, v), math.Max(e.high, v)
}

// tick is a value on an axis with its text.
type tick struct {
	value float64
	text  string
}

// axis maps values to 0…1. On a log axis low and high are exponents of ten.
type axis struct {
	low, high float64
	log       bool
	ticks     []tick
}

// at returns where v lies: 0 at the low end, 1 at the high end, held to these.
func (a axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(v)
	}
	return math.Min(1, math.Max(0, (v-a.low)/(a.high-a.low)))
}

// valueAxis is the axis of a panel's values: rounded outwards to whole steps.
func valueAxis(e extent, log bool, want int) axis {
	if log {
		return logAxis(e, want)
	}
	low, high := spread(e)
	if low > 0 && high-low > keepZeroBelow*high {
		low = 0
	}
	step := roundStep((high - low) / float64(max(want, 1)))
	low, high = math.Floor(low/step)*step, math.Ceil(high/step)*step
	return axis{low: low, high: high, ticks: stepTicks(low, high, step, decimalText)}
}

// spread returns the ends of e, moved apart where they are (nearly) equal.
func spread(e extent) (low, high float64) {
	switch {
	case !e.any:
		return 0, 1
	case e.low == 0 && e.high == 0:
		return 0, 1
	}
	low, high = e.low, e.high
	size := math.Max(math.Abs(low), math.Abs(high))
	if high-low >= finestSpan*size {
		return low, high
	}
	if low >= 0 {
		return 0, high * 1.25 // one level: show it against zero
	}
	return low * 1.25, math.Max(0, high)
}

// roundStep returns the least of 1, 2, 2.5, 5 × 10ⁿ that is not less than step.
func roundStep(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, factor := range [...]float64{1, 2, 2.5, 5} {
		if step <= factor*power*(1+1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// stepTicks returns the multiples of step within low…high.
func stepTicks(low, high, step float64, text func(v, step float64) string) []tick {
	var ticks []tick
	const slack = 1e-6 // of a step: low and high are sums and quotients themselves
	first := math.Ceil(low/step - slack)
	for i := range maxTicks {
		v := (first + float64(i)) * step
		if v > high+slack*step {
			break
		}
		ticks = append(ticks, tick{value: v, text: text(v, step)})
	}
	return ticks
}

// decimalText writes v with as many digits as keep multiples of step apart.
func decimalText(v, step float64) string {
	size := math.Abs(v)
	if size < step/2 {
		return "0"
	}
	if size >= 1e6 || step < 1e-4 {
		digits := 2 + int(math.Max(0, math.Ceil(math.Log10(size/step))))
		return powerText(strconv.FormatFloat(v, 'e', min(digits, 12), 64))
	}
	decimals := 0
	for scaled := step; decimals < 5 && math.Abs(scaled-math.Round(scaled)) > 1e-6*scaled; decimals++ {
		scaled *= 10
	}
	return minus(groupThousands(strconv.FormatFloat(v, 'f', decimals, 64)))
}

// powerText turns 1.50e+06 into 1.5e6.
func powerText(s string) string {
	mantissa, exponent, _ := strings.Cut(s, "e")
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	n, err := strconv.Atoi(exponent)
	if err != nil { // FormatFloat 'e' always writes a whole exponent
		return s
	}
	return minus(mantissa + "e" + strconv.Itoa(n))
}

func minus(s string) string { return strings.ReplaceAll(s, "-", "−") }

// groupThousands parts digits by threes as the tables do.
func groupThousands(s string) string {
	whole, fraction, hasFraction := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	if len(whole) > 3 {
		for i := len(whole) - 3; i > 0; i -= 3 {
			whole = whole[:i] + "," + whole[i:]
		}
	}
	if hasFraction {
		whole += "." + fraction
	}
	return sign + whole
}

// logAxis spans whole steps of 1, 2, 5 × 10ⁿ for up to two decades, else whole
// decades.
func logAxis(e extent, want int) axis {
	low, high := 0.0, 1.0
	if e.any {
		low, high = math.Log10(math.Max(e.low, smallest)), math.Log10(math.Max(e.high, smallest))
	}
	if high-low < 0.05 { // one level
		low, high = low-0.3, high+0.3
	}
	var exponents []float64
	if high-low > 2 {
		stride := math.Max(1, math.Ceil((high-low)/float64(max(want, 2))))
		for n := math.Floor(low + logSlack); n < high-logSlack+stride; n += stride {
			exponents = append(exponents, n)
		}
	} else {
		exponents = smallLogSteps(low, high)
	}
	a := axis{low: exponents[0], high: exponents[len(exponents)-1], log: true}
	for _, n := range exponents {
		a.ticks = append(a.ticks, tick{math.Pow(10, n), logText(n)})
	}
	return a
}

// logSlack is the exponents' rounding error: log10 of a power of ten may miss it.
const logSlack = 1e-9

// smallLogSteps returns the exponents of the 1-2-5 steps from the last one at or
// below low to the first one at or above high.
func smallLogSteps(low, high float64) []float64 {
	var steps []float64
	for n := math.Floor(low) - 1; n <= high+1; n++ {
		for _, factor := range [...]float64{1, 2, 5} {
			step := n + math.Log10(factor)
			if step <= low+logSlack {
				steps = steps[:0]
			}
			steps = append(steps, step)
			if step >= high-logSlack {
				return steps
			}
		}
	}
	return steps // not reached: the step at or above high lies within a decade of it
}

// logText writes 10ⁿ, which is 1, 2 or 5 times a power of ten.
func logText(n float64) string {
	v := math.Pow(10, n-math.Floor(n)) // 1, 2 or 5, about
	decade := int(math.Floor(n))
	digit := int(math.Round(v))
	if digit == 10 { // n was a hair below a whole number
		digit, decade = 1, decade+1
	}
	switch {
	case decade < -3 || decade > 5:
		return minus(strconv.Itoa(digit) + "e" + strconv.Itoa(decade))
	case decade < 0:
		return "0." + strings.Repeat("0", -decade-1) + strconv.Itoa(digit)
	}
	return groupThousands(strconv.Itoa(digit) + strings.Repeat("0", decade))
}

// timeSteps are the distances of ticks that read well on a clock, in seconds.
var timeSteps = [...]float64{1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400}

// timeAxis is the shared axis of seconds. It ends where the values end. The unit
// is what its texts are written in.
func timeAxis(e extent, want int) (a axis, unit string) {
	low, high := spreadTime(e)
	a = axis{low: low, high: high}
	step := roundStep((high - low) / float64(max(want, 1)))
	if step >= 1 && step <= timeSteps[len(timeSteps)-1] {
		for _, s := range timeSteps {
			if s >= (high-low)/float64(max(want, 1)) {
				step = s
				break
			}
		}
	}
	size := math.Max(math.Abs(low), math.Abs(high))
	text, unit := decimalText, "s"
	switch {
	case size > 30*86400 || step < 1:
	case size >= 3*3600 && math.Mod(step, 60) == 0:
		text, unit = func(v, _ float64) string { return clockText(v, 3600) }, "h:min"
	case size > 600 && step >= 1:
		text, unit = func(v, _ float64) string { return clockText(v, 60) }, "min:s"
	}
	a.ticks = stepTicks(low, high, step, text)
	return a, unit
}

// plainAxis is the shared axis of a chart whose x is no time.
func plainAxis(e extent, want int) axis {
	low, high := spreadTime(e)
	step := roundStep((high - low) / float64(max(want, 1)))
	return axis{low: low, high: high, ticks: stepTicks(low, high, step, decimalText)}
}

// spreadTime is spread for an axis that need not show zero: a single moment
// stands in the middle.
func spreadTime(e extent) (low, high float64) {
	if !e.any {
		return 0, 1
	}
	size := math.Max(math.Abs(e.low), math.Abs(e.high))
	if e.high-e.low >= math.Max(finestSpan*size, smallest) {
		return e.low, e.high
	}
	half := math.Max(0.5, finestSpan*size)
	return e.low - half, e.high + half
}

// clockText writes seconds as large:small, where large is a number of seconds
// (3600: h:min, 60: min:s).
func clockText(v, large float64) string {
	sign := ""
	if v < 0 {
		sign, v = "−", -v
	}
	small := large / 60
	units := math.Round(v / small)
	whole, rest := math.Floor(units/60), math.Mod(units, 60)
	text := strconv.FormatFloat(rest, 'f', 0, 64)
	if len(text) < 2 {
		text = "0" + text
	}
	return sign + strconv.FormatFloat(whole, 'f', 0, 64) + ":" + text
}
