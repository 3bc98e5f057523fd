// Package wire is what the rig's host and its guest say to each other: the plan that the
// guest finds in its initramfs, and the messages that it sends back, one JSON document a
// line, over the second serial port. The first is the console.
package wire

// PlanPath is where the guest finds its Plan.
const PlanPath = "/rig/plan.json"

// Port is the guest's end of the messages.
const Port = "/dev/ttyS1"

// BeatEvery is how often, in seconds of the guest's clock, a guest that lives says so.
const BeatEvery = 2

// Plan is what one boot does.
type Plan struct {
	Modules []string // kernel modules, in the order to load them
	Disk    string   // ext4 device, mounted at /mnt; "" for none
	// Root is an ext4 device with a system of its own, whose init becomes the guest's and
	// runs the steps as a unit; "" for none. What the steps leave is not looked for then,
	// and the machine is switched off at the end without writing out what its disk caches.
	Root  string
	Env   []string // of every step
	Steps []Step
}

// Step is one program, run to its end before the next one starts.
type Step struct {
	Name       string // of messages, unique within the plan
	Dir        string
	Argv       []string
	TimeoutSec int  // then it is killed
	Console    bool // it talks to the console, and not to the host
}

// Kind says what a Message is.
type Kind string

// The kinds of messages, with the fields that they use.
const (
	Beat  Kind = "beat"  // the guest lives
	Start Kind = "start" // Step
	Line  Kind = "line"  // Step, Text: a line of its output, without the newline
	End   Kind = "end"   // Step, Exit, TimedOut, Text (what it left behind), Sec
	File  Kind = "file"  // Name, Data: the next piece of a file that a step wrote
	Fault Kind = "fault" // Text: the guest could not do its own part
	Done  Kind = "done"  // the plan was carried out; Text: the kernel's complaints
)

// Message is one line from the guest.
type Message struct {
	Kind     Kind
	Step     string  `json:",omitempty"`
	Text     string  `json:",omitempty"`
	Exit     int     `json:",omitempty"`
	TimedOut bool    `json:",omitempty"`
	Sec      float64 `json:",omitempty"`
	Name     string  `json:",omitempty"`
	Data     []byte  `json:",omitempty"`
}
