// Package guest asks a virtual machine's own kernel how long its memory has lain idle, and to give idle memory back. The host's
// kernel sees of a guest (Kata Containers and the like) one process whose pages it cannot tell apart; the guest's kernel knows.
//
// Inside answers, in the guest (cmd/commensal-guest). Address and Ask are the host's side. Between them go lines of JSON, one question and one
// answer each, over what the virtual machine monitor offers: a virtio-serial port, or vsock.
//
// What the guest frees its kernel tells the host of by free page reporting (virtio-balloon), and the monitor lets go of it. A balloon that
// somebody inflates would do as well, and needs the monitor's own interface on the host, which Kata keeps for itself, and somebody to deflate it in time.
//
// # Trust
//
// Whoever runs in a guest may answer in place of the agent. So an answer is bounded in size and in time, its parts are checked, its
// text is printable, and no number in it is taken for a measurement: who asks compares them with what the host measured.
package guest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// Version is of what is asked and answered. Another one is refused.
	Version = 1
	// PortName is the virtio-serial port, /dev/virtio-ports/NAME in the guest.
	PortName = "io.commensal.guest.0"
	// VsockPort is where the guest's agent listens on vsock.
	VsockPort = 9311

	maxLine  = 16 << 10
	maxFlood = 64 << 10 // all that is read for one answer
	maxText  = 200
	maxEdges = 32
)

// The questions.
const (
	DoStat    = "stat"    // nothing but what every answer has
	DoAges    = "ages"    // walk the page tables, and say how long pages lay idle
	DoReclaim = "reclaim" // take idle pages back
)

// Kinds of pages.
const (
	AnyPages  = ""
	AnonPages = "anon"
	FilePages = "file"
)

// What is wrong with an answer.
var (
	// ErrMalformed: it is no answer, or contradicts itself.
	ErrMalformed = errors.New("the guest's answer is malformed")
	// ErrFlood: there is no end to it.
	ErrFlood = errors.New("the guest says more than an answer is")
	// ErrRefused: the guest's agent could not do it; the error has its words.
	ErrRefused = errors.New("the guest refused")
	// ErrNotFound: there is no guest at the task's address.
	ErrNotFound = errors.New("no guest found")
)

// Request is a question.
type Request struct {
	V  int    `json:"v"`
	ID uint32 `json:"id"` // repeated in the answer
	Do string `json:"do"`
	// WithinMsec is how long the guest may take.
	WithinMsec int64 `json:"within_msec"`
	// EdgesNsec are the ages that DoAges tells of, the shortest first.
	EdgesNsec []int64 `json:"edges_nsec,omitempty"`
	// Bytes is how much DoReclaim takes at most, of Pages that were not used for OlderNsec; 0: of the coldest.
	Bytes     uint64 `json:"bytes,omitempty"`
	OlderNsec int64  `json:"older_nsec,omitempty"`
	Pages     string `json:"pages,omitempty"`
}

// Answer is what the guest says. None of it is a measurement.
type Answer struct {
	V     int    `json:"v"`
	ID    uint32 `json:"id"`
	Error string `json:"error,omitempty"`
	// Refaults are pages that came back after they were reclaimed, since the guest's boot; StallUsec is for how long some of its programs waited for memory.
	Refaults  uint64 `json:"refaults"`
	StallUsec uint64 `json:"stall_usec"`
	// Source, Anon and File answer DoAges: bytes that were not used for as long as each edge, or longer. RoomBytes of anonymous memory fit into the guest's swap.
	Source    string   `json:"source,omitempty"`
	Anon      []uint64 `json:"anon,omitempty"`
	File      []uint64 `json:"file,omitempty"`
	RoomBytes uint64   `json:"room_bytes,omitempty"`
	// FreedBytes answers DoReclaim. TakenBytes is what the pages had: more where the guest's own swap keeps compressed copies. An older guest says 0.
	FreedBytes uint64 `json:"freed_bytes,omitempty"`
	TakenBytes uint64 `json:"taken_bytes,omitempty"`
}

// check refuses a question out of its bounds.
func (r *Request) check() error {
	switch {
	case r.V != Version:
		return fmt.Errorf("version %d; this agent speaks %d", r.V, Version)
	case r.WithinMsec < 1 || r.WithinMsec > time.Hour.Milliseconds():
		return fmt.Errorf("within_msec is %d; expected 1 to %d", r.WithinMsec, time.Hour.Milliseconds())
	case r.Do == DoStat:
		return nil
	case r.Do == DoAges:
		if len(r.EdgesNsec) == 0 || len(r.EdgesNsec) > maxEdges {
			return fmt.Errorf("%d edges_nsec; expected 1 to %d", len(r.EdgesNsec), maxEdges)
		}
		last := int64(0)
		for _, e := range r.EdgesNsec {
			if e <= last {
				return errors.New("edges_nsec have to rise")
			}
			last = e
		}
		return nil
	case r.Do == DoReclaim:
		return r.checkReclaim()
	}
	return fmt.Errorf("do is %.20q; expected %s, %s or %s", r.Do, DoStat, DoAges, DoReclaim)
}

func (r *Request) checkReclaim() error {
	switch {
	case r.Bytes == 0 || r.Bytes > MaxAskBytes:
		return fmt.Errorf("bytes is %d; expected 1 to %d", r.Bytes, uint64(MaxAskBytes))
	case r.OlderNsec < 0:
		return fmt.Errorf("older_nsec is %d", r.OlderNsec)
	case r.Pages != AnyPages && r.Pages != AnonPages && r.Pages != FilePages:
		return fmt.Errorf("pages is %.20q; expected %s or %s", r.Pages, AnonPages, FilePages)
	case r.OlderNsec > 0 && r.Pages == AnyPages:
		return errors.New("older_nsec goes with pages of one kind")
	}
	return nil
}

// check refuses an answer that is none to the question.
func (a *Answer) check(r *Request) error {
	a.Error, a.Source = printable(a.Error), printable(a.Source)
	switch {
	case a.V != Version:
		return fmt.Errorf("%w: version %d; this agent speaks %d", ErrMalformed, a.V, Version)
	case a.Error != "":
		return fmt.Errorf("%w: %s", ErrRefused, a.Error)
	case r.Do == DoReclaim && max(a.FreedBytes, a.TakenBytes) > 1<<50, a.RoomBytes > 1<<50:
		return fmt.Errorf("%w: more bytes than a machine has", ErrMalformed)
	case r.Do != DoAges:
		return nil
	}
	for _, list := range [][]uint64{a.Anon, a.File} {
		if len(list) != len(r.EdgesNsec) {
			return fmt.Errorf("%w: %d figures for %d ages", ErrMalformed, len(list), len(r.EdgesNsec))
		}
		for i := 1; i < len(list); i++ {
			if list[i] > list[i-1] {
				return fmt.Errorf("%w: more is idle for longer", ErrMalformed)
			}
		}
	}
	return nil
}

// printable makes a stranger's text fit for a log and a terminal.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s[:min(len(s), maxText)])
	return s
}

// errLong: a line is longer than any of ours.
var errLong = errors.New("line too long")

// readLine returns the next line that is not empty. One that is too long is read to its end, and is errLong; at most budget bytes are read: then ErrFlood.
func readLine(r *bufio.Reader, budget *int) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if *budget -= len(part); *budget < 0 {
			return nil, ErrFlood
		}
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		case long:
			return nil, errLong
		case len(line) > 1:
			return line[:len(line)-1], nil
		default:
			line = line[:0]
		}
	}
}

// writeLine sends a value in one write. The newline before it ends what somebody else may have left unfinished.
func writeLine(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(append([]byte{'\n'}, data...), '\n'))
	return err
}
