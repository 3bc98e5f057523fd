package top

// key is what a person asked for.
type key uint8

const (
	keyNone key = iota
	keyQuit
	keySuspend
	keyRedraw
	keyCPU
	keySignal
	keyThrottled
	keyName
	keyIdle
	keyAges
	keyUp
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
)

// single are the keys that send one byte in raw mode.
var single = map[byte]key{
	'q': keyQuit, 'Q': keyQuit, 0x03: keyQuit /* Ctrl-C */, 0x1c: keyQuit, /* Ctrl-\ */
	0x1a: keySuspend /* Ctrl-Z */, 0x0c: keyRedraw, /* Ctrl-L */
	'c': keyCPU, 's': keySignal, 't': keyThrottled, 'n': keyName, 'i': keyIdle, 'a': keyAges,
	'k': keyUp, 'j': keyDown, ' ': keyPageDown, 'b': keyPageUp, 'g': keyHome, 'G': keyEnd,
}

// sequences are the keys that send an escape sequence, by what follows "ESC [" or "ESC O".
var sequences = map[string]key{
	"A": keyUp, "B": keyDown, "5~": keyPageUp, "6~": keyPageDown,
	"H": keyHome, "F": keyEnd, "1~": keyHome, "4~": keyEnd, "7~": keyHome, "8~": keyEnd,
}

// maxSequence bounds an escape sequence: what is longer is none.
const maxSequence = 32

// parseKeys takes keys out of what was read, and returns what is left: the beginning of an
// escape sequence whose end is still to come (over a slow line). Unknown keys and sequences
// are passed over.
func parseKeys(data []byte) (keys []key, rest []byte) {
	for len(data) > 0 {
		if data[0] != 0x1b {
			if k := single[data[0]]; k != keyNone {
				keys = append(keys, k)
			}
			data = data[1:]
			continue
		}
		n, k := parseSequence(data)
		if n == 0 {
			return keys, data
		}
		if k != keyNone {
			keys = append(keys, k)
		}
		data = data[n:]
	}
	return keys, nil
}

// parseSequence reads one escape sequence; n is 0 when it is not complete.
func parseSequence(data []byte) (n int, k key) {
	if len(data) == 1 {
		return 0, keyNone
	}
	if data[1] != '[' && data[1] != 'O' {
		return 1, keyNone // the escape key, or Alt with another
	}
	for i := 2; i < len(data); i++ {
		if i > maxSequence {
			return i, keyNone
		}
		// ECMA-48, 5.4: parameters and intermediates, then one final byte.
		if c := data[i]; c >= 0x40 && c <= 0x7e {
			return i + 1, sequences[string(data[2:i+1])]
		} else if c < 0x20 || c > 0x7e {
			return i, keyNone
		}
	}
	return 0, keyNone
}
