package model

import (
	"encoding/json"
	"fmt"
	"time"
)

// memoryReclaimSpec is memory.reclaim: bytes of a task's memory that the kernel is asked to
// give up. It is an action: the pages come back when the task touches them, and nothing is to
// be undone. Reclaim may write to a disk and wait for it. Of LC tasks it takes what nobody uses (policy coldpages);
// policy pressure and operators ask it of BE alone.
var memoryReclaimSpec = KnobSpec{
	Name: "memory.reclaim", Action: true, Stops: true,
	Takes: [NumClaimKinds][]Class{ClaimRun: {BE, LC}},
	Show: func(s Setting) string {
		text := fmt.Sprintf("%d bytes", s.Amount)
		if s.Pages != AnyPages {
			text += " of " + s.Pages.String() + " pages"
		}
		if s.OlderNsec > 0 {
			text += " not used for " + time.Duration(s.OlderNsec).String()
		}
		if s.Kept != 0 {
			text += fmt.Sprintf(", of which %d did not come free", s.Kept)
		}
		return text
	},
	Encode: func(s Setting) any {
		if s.Pages == AnyPages && s.OlderNsec == 0 && s.Kept == 0 {
			return s.Amount // as records before coldpages have it
		}
		return reclaimJSON{s.Amount, s.Pages, s.OlderNsec, s.Kept}
	},
	Decode: func(b []byte) (Setting, error) {
		if len(b) > 0 && b[0] != '{' {
			_, decode := oneNumber(MemoryReclaim)
			return decode(b)
		}
		var j reclaimJSON
		err := json.Unmarshal(b, &j)
		return Setting{Knob: MemoryReclaim, Amount: j.Bytes, Pages: j.Pages, OlderNsec: j.OlderNsec, Kept: j.Kept}, err
	},
}

type reclaimJSON struct {
	Bytes     int64    `json:"bytes"`
	Pages     PageKind `json:"pages"`
	OlderNsec int64    `json:"older_nsec"`
	Kept      int64    `json:"kept,omitempty"`
}

// PageKind says which of a task's memory is meant.
type PageKind uint8

// The kinds of pages.
const (
	AnyPages  PageKind = iota // as the kernel chooses
	AnonPages                 // what goes to swap
	FilePages                 // page cache
)

var pageNames = [...]string{"any", "anonymous", "file"}

// String returns the kind's name.
func (p PageKind) String() string { return nameOf(pageNames[:], uint8(p)) }

// MarshalText writes the kind's name.
func (p PageKind) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a kind's name.
func (p *PageKind) UnmarshalText(b []byte) error {
	return parseName(pageNames[:], string(b), "pages", (*uint8)(p))
}

// Reclaim returns the setting that asks for bytes of a task's memory, or says how many came.
func Reclaim(bytes int64) Setting { return Setting{Knob: MemoryReclaim, Amount: bytes} }

// ReclaimCold is Reclaim of pages of a kind that were not used for so long; 0: however young they are.
func ReclaimCold(bytes int64, pages PageKind, olderNsec int64) Setting {
	return Setting{Knob: MemoryReclaim, Amount: bytes, Pages: pages, OlderNsec: olderNsec}
}
