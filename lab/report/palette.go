package report

// Role says what part a series plays. It settles the colour, the weight and the
// order in which series are drawn and named.
type Role int

// Other is a series that is neither side of the story, such as a machine total.
const (
	Other Role = iota
	Victim
	Antagonist
	Bystander
)

// String returns the word for the role.
func (r Role) String() string { return entry(r, "other", "victim", "antagonist", "bystander") }

// rank is the order of importance: 0 is named first and drawn last, on top.
func (r Role) rank() int { return entry(r, 2, 0, 1, 3) }

// entry returns what one of several has in a list of all, the first one's for a number that none of them has.
func entry[K ~int, T any](which K, list ...T) T {
	if which < 0 || int(which) >= len(list) {
		which = 0
	}
	return list[which]
}

// stroke is how a line is drawn. Text takes a darker shade of the line's colour,
// for contrast on white (4.5:1 and more).
type stroke struct {
	line, text string
	width      float64
	dash       string // empty: solid
}

// The colours are told apart under the common kinds of colour blindness
// (vermillion and blue after Okabe and Ito), and in grey: the victim is the
// darkest and solid, the antagonist is mid-grey and solid, bystanders are light,
// thin and dashed.
const (
	colourInk       = "#1c2530"
	colourMuted     = "#5b6773"
	colourGrid      = "#dfe4e8"
	colourAxis      = "#7d8791"
	colourThreshold = "#3b444d"
)

// dashes part series of one role.
var dashes = [...]string{"", "7 3", "2 3", "9 3 2 3"}

// strokeOf returns the stroke of the nth series (from 0) of a role.
func strokeOf(role Role, n int) stroke {
	dash := dashes[n%len(dashes)]
	switch role {
	case Victim:
		return stroke{line: "#12408a", text: "#12408a", width: 2.2, dash: dash}
	case Antagonist:
		return stroke{line: "#d55e00", text: "#b04a00", width: 2.2, dash: dash}
	case Bystander:
		greys := [...]string{"#9aa6b2", "#b3bcc6", "#8796ac"}
		return stroke{line: greys[n%len(greys)], text: colourMuted, width: 1.3, dash: dashes[(n+1)%len(dashes)]}
	}
	others := [...]string{"#00735c", "#8a4f7d"}
	return stroke{line: others[n%len(others)], text: others[n%len(others)], width: 1.6, dash: dash}
}

// ShadeRole says what held during a shaded time.
type ShadeRole int

// Capped is a hard cap in force; ControlOn and ControlOff tell whether policies
// were enforced; Quiet is a time in which the antagonist did not run.
const (
	Capped ShadeRole = iota
	ControlOn
	ControlOff
	Quiet
)

// String returns the words that stand for the role where a shade has no label.
func (r ShadeRole) String() string { return entry(r, "capped", "policies on", "policies off", "quiet") }

// wash is how a shaded time is drawn: a pale fill in the panels, a stronger tab
// with the label above them. A cap is hatched too, so that it shows in grey and
// on top of another shade.
type wash struct {
	fill, tab, hatch string
}

func washOf(role ShadeRole) wash {
	return entry(role, wash{fill: "#fae3d4", tab: "#f3c4a5", hatch: "#ecbfa2"}, wash{fill: "#edf3f9", tab: "#cfdfee"},
		wash{fill: "#fbf8ee", tab: "#efe7cb"}, wash{fill: "#f6f6f6", tab: "#e6e6e6"})
}
