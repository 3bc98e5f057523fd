// Package memcached measures a memcached server's latency over its text protocol.
//
// Protocol: memcached's doc/protocol.txt. What is spoken here, and what comes back:
//
//	version\r\n                           VERSION 1.6.18\r\n
//	get <key>\r\n                         VALUE <key> <flags> <bytes>\r\n<data>\r\nEND\r\n
//	                                      END\r\n                       (no such key)
//	set <key> <flags> <exp> <bytes>\r\n<data>\r\n
//	                                      STORED\r\n   NOT_STORED\r\n
//	any                                   SERVER_ERROR <why>\r\n        (the stream goes on)
//	                                      ERROR\r\n  CLIENT_ERROR <why>\r\n
//
// Data lengths are in bytes. Replies come in the order of the requests.
package memcached

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/slo/probe"
)

// Command is what was asked, and so decides which replies are proper.
type Command uint8

// The commands.
const (
	CommandVersion Command = iota
	CommandGet
	CommandSet
)

// Outcome is what a proper reply says.
type Outcome uint8

// The outcomes.
const (
	Version     Outcome = iota // VERSION
	Hit                        // VALUE for the key
	Miss                       // END alone
	Stored                     // STORED
	NotStored                  // NOT_STORED
	ServerError                // SERVER_ERROR: refused, but the stream is in step
)

// Reply is one parsed reply. Key and Text point into the buffer that was parsed.
type Reply struct {
	Outcome Outcome
	Key     []byte // of a Hit
	Bytes   int    // of a Hit: the length of the data
	Text    []byte // of Version: the version; of ServerError: the reason
}

// ErrProtocol marks bytes that are no proper reply to the command. Nothing that follows
// them can be matched to a request, so the connection must be given up.
var ErrProtocol = fmt.Errorf("memcached: %w", probe.ErrProtocol)

// Limits on what a reply may claim: a key is at most 250 bytes by the protocol; a line
// holds a key, two numbers and little else, or a reason in words; memcached's largest
// possible item (option -I) is 1 GiB, but a source that probes with items above a few
// MiB measures the network, so more is refused rather than buffered.
const (
	maxKeyBytes  = 250
	maxLineBytes = 2048
	MaxDataBytes = 8 << 20
)

var crlf = []byte("\r\n")

// ParseReply parses the first reply to command c in b and returns how many bytes it
// takes. Zero bytes and no error mean that b holds only its beginning. The error wraps
// ErrProtocol and quotes the line.
func ParseReply(b []byte, c Command) (Reply, int, error) {
	line, n, err := cutLine(b)
	if err != nil || n == 0 {
		return Reply{}, 0, err
	}
	if reason, ok := bytes.CutPrefix(line, []byte("SERVER_ERROR ")); ok {
		return Reply{Outcome: ServerError, Text: reason}, n, nil
	}
	switch c {
	case CommandVersion:
		if v, ok := bytes.CutPrefix(line, []byte("VERSION ")); ok && len(v) > 0 {
			return Reply{Outcome: Version, Text: v}, n, nil
		}
	case CommandGet:
		if string(line) == "END" {
			return Reply{Outcome: Miss}, n, nil
		}
		if bytes.HasPrefix(line, []byte("VALUE ")) {
			return parseValue(b, line, n)
		}
	case CommandSet:
		switch string(line) {
		case "STORED":
			return Reply{Outcome: Stored}, n, nil
		case "NOT_STORED":
			return Reply{Outcome: NotStored}, n, nil
		}
	}
	return Reply{}, 0, fmt.Errorf("%w: %q", ErrProtocol, line)
}

// cutLine returns the first line of b without its end, and its length with it; 0 when
// the line is incomplete.
func cutLine(b []byte) ([]byte, int, error) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		if len(b) > maxLineBytes {
			return nil, 0, fmt.Errorf("%w: line of more than %d bytes", ErrProtocol, maxLineBytes)
		}
		return nil, 0, nil
	}
	if i == 0 || b[i-1] != '\r' || i > maxLineBytes {
		return nil, 0, fmt.Errorf("%w: line %q does not end in CR LF or is too long", ErrProtocol, b[:min(i, 64)])
	}
	return b[:i-1], i + 1, nil
}

// parseValue parses a hit whose first line (n bytes with its end) is "VALUE <key> <flags> <bytes>".
func parseValue(b, line []byte, n int) (Reply, int, error) {
	bad := func() (Reply, int, error) { return Reply{}, 0, fmt.Errorf("%w: %q", ErrProtocol, line) }
	key, rest, ok := bytes.Cut(line[len("VALUE "):], []byte(" "))
	if !ok || len(key) == 0 || len(key) > maxKeyBytes {
		return bad()
	}
	flags, length, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return bad()
	}
	if _, ok := parseDecimal(flags, 1<<32-1); !ok {
		return bad()
	}
	size, ok := parseDecimal(length, MaxDataBytes)
	if !ok {
		return bad()
	}
	tail := b[n:]
	if len(tail) < size {
		return Reply{}, 0, nil
	}
	// Compare what is there of the end, so that a wrong length is noticed at once and
	// does not leave both sides waiting.
	const end = "\r\nEND\r\n"
	tail = tail[size:]
	if got := tail[:min(len(tail), len(end))]; string(got) != end[:len(got)] {
		return Reply{}, 0, fmt.Errorf("%w: data of %d bytes is followed by %q", ErrProtocol, size, got)
	} else if len(got) < len(end) {
		return Reply{}, 0, nil
	}
	return Reply{Outcome: Hit, Key: key, Bytes: size}, n + size + len(end), nil
}

// parseDecimal parses an unsigned decimal number of at most limit. It takes bytes, so
// that a reply costs no allocation.
func parseDecimal(b []byte, limit int) (int, bool) {
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	v := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int(c-'0')
	}
	return v, v <= limit
}

// ValidKey reports whether key may stand in a command: 1 to 250 bytes without blanks
// and control characters.
func ValidKey(key string) bool {
	if len(key) == 0 || len(key) > maxKeyBytes {
		return false
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] == 0x7f {
			return false
		}
	}
	return true
}

// NeedBytes returns how many bytes b must at least hold before ParseReply can get on
// with the reply that begins b: a caller with a fixed buffer makes it that large.
func NeedBytes(b []byte, c Command) int {
	line, n, err := cutLine(b)
	if err != nil || n == 0 || c != CommandGet || !bytes.HasPrefix(line, []byte("VALUE ")) {
		return maxLineBytes + len(crlf)
	}
	size, ok := parseDecimal(line[bytes.LastIndexByte(line, ' ')+1:], MaxDataBytes)
	if !ok {
		return maxLineBytes + len(crlf)
	}
	return n + size + len("\r\nEND\r\n")
}
