// Package redis measures the latency of a server that speaks RESP, with any command.
//
// Protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/, versions 2 and 3. A
// request is an array of bulk strings; a reply is one value:
//
//	+OK\r\n   :1\r\n   $3\r\nabc\r\n   $-1\r\n   *2\r\n<value><value>   _\r\n  #t\r\n  ,1.5\r\n  (123\r\n
//	=7\r\ntxt:abc\r\n   %1\r\n<key><value>   ~2\r\n<value><value>
//	-ERR unknown command\r\n   !5\r\nERR x\r\n                              refused; the stream goes on
package redis

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/slo/probe"
)

// ErrProtocol marks bytes that are no proper reply.
var ErrProtocol = fmt.Errorf("redis: %w", probe.ErrProtocol)

// Limits on what a reply may claim. More than these measures the network, or harms whoever reads it.
const (
	maxLine   = 64 << 10
	maxBulk   = 8 << 20
	maxValues = 100_000 // of one reply, with all that is nested
)

// New returns a source that sends a command to one server (probe.ParseEndpoint says which); none: PING.
func New(c probe.Config, network, address string, command ...string) (*probe.Source, error) {
	if len(command) == 0 {
		command = []string{"PING"}
	}
	request := fmt.Appendf(nil, "*%d\r\n", len(command))
	for _, word := range command {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(word), word)
	}
	return probe.NewLink(c, network, address, protocol(request))
}

// protocol is a probe.Protocol: the request.
type protocol []byte

func (p protocol) Request(dst []byte) []byte { return append(dst, p...) }

func (protocol) Reset() {}

// Reply takes one value.
func (protocol) Reply(b []byte) (n int, refusal string, err error) {
	left := 1 // values that are still to come
	for seen := 0; left > 0; seen++ {
		if seen > maxValues {
			return 0, "", fmt.Errorf("%w: more than %d values", ErrProtocol, maxValues)
		}
		line, err := cutLine(b[n:])
		if err != nil || line == nil {
			return 0, "", err
		}
		n += len(line) + 2
		left--
		switch kind, rest := line[0], line[1:]; kind {
		case '+', ':', '_', '#', ',', '(':
		case '-':
			if seen == 0 {
				refusal = string(rest)
			}
		case '$', '=', '!':
			size, err := length(rest, maxBulk)
			if err != nil {
				return 0, "", err
			}
			if size < 0 { // null
				continue
			}
			if len(b)-n < size+2 {
				return 0, "", nil
			}
			if string(b[n+size:n+size+2]) != "\r\n" {
				return 0, "", fmt.Errorf("%w: a string of %d bytes does not end in CR LF", ErrProtocol, size)
			}
			if kind == '!' && seen == 0 {
				refusal = string(b[n : n+min(size, maxLine)])
			}
			n += size + 2
		case '*', '~', '%':
			size, err := length(rest, maxValues)
			if err != nil {
				return 0, "", err
			}
			if kind == '%' {
				size *= 2
			}
			left += max(0, size)
		default:
			return 0, "", fmt.Errorf("%w: %.64q", ErrProtocol, line)
		}
	}
	if n > 0 && refusal == "" && (b[0] == '-' || b[0] == '!') {
		refusal = "an error without words"
	}
	return n, refusal, nil
}

// cutLine returns the first line of b without its end; nil where it is not whole.
func cutLine(b []byte) ([]byte, error) {
	i := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	switch {
	case i < 0 && len(b) >= maxLine:
		return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, maxLine)
	case i < 0:
		return nil, nil
	case i < 2 || b[i-1] != '\r':
		return nil, fmt.Errorf("%w: %.64q", ErrProtocol, b[:i+1])
	}
	return b[:i-1], nil
}

// length parses a length; -1 is null.
func length(b []byte, most int) (int, error) {
	n, err := strconv.Atoi(string(b))
	if err != nil || n < -1 || n > most {
		return 0, fmt.Errorf("%w: a length of %.32q; expected at most %d", ErrProtocol, b, most)
	}
	return n, nil
}
