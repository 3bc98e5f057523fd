package resctrl

// info/<cache>/bit_usage: how each way of each domain is used at present, the highest way
// first.
//
// https://docs.kernel.org/filesystems/resctrl.html ("bit_usage")
//
//	0=XXSSSSSSSS00;1=XXSSSSSSSSEE
//
//	0  unused
//	H  used by devices, free to software
//	X  used by devices and software
//	S  used by software, shareable
//	E  held by one group in exclusive mode
//	P  pseudo-locked

import (
	"fmt"
	"strings"
)

// DomainUsage is the use of one domain's ways.
type DomainUsage struct {
	Domain       int
	Unused       Mask // 0 and H: no group uses them
	Hardware     Mask // H and X
	Shareable    Mask // S and X: a group uses them that shares
	Exclusive    Mask // E
	PseudoLocked Mask // P
}

// parseBitUsage reads the whole file.
func parseBitUsage(text string) ([]DomainUsage, error) {
	var list []DomainUsage
	err := eachDomain(strings.TrimSpace(text), func(id int, value string) error {
		u := DomainUsage{Domain: id}
		if len(value) > maxWays {
			return fmt.Errorf("%w: %d ways", ErrMalformed, len(value))
		}
		for i, letter := range []byte(value) {
			bit := Mask(1) << (len(value) - 1 - i)
			switch letter {
			case '0':
				u.Unused |= bit
			case 'H':
				u.Unused |= bit
				u.Hardware |= bit
			case 'X':
				u.Hardware |= bit
				u.Shareable |= bit
			case 'S':
				u.Shareable |= bit
			case 'E':
				u.Exclusive |= bit
			case 'P':
				u.PseudoLocked |= bit
			default:
				return fmt.Errorf("%w: bit_usage %q", ErrMalformed, clip(value))
			}
		}
		list = append(list, u)
		return nil
	})
	return list, err
}
