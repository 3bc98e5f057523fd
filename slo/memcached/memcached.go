package memcached

import (
	"fmt"

	"github.com/commensal-io/commensal/slo/probe"
)

// New returns a source that probes one server (probe.ParseEndpoint says which).
//
// With keys a probe is a `get` of one after the other. By default a probe is `version`. Both are
// parsed and answered by the worker thread that owns the connection, and so wait for a CPU
// and in that thread's event loop as clients' requests do, which is where interference shows.
// `version` costs least: it takes no lock, touches no item, and above all moves none of the
// server's hit and miss counters, by which people run their caches; `mn` would do as well
// but is unknown before 1.6. What `version` does not see is memory: hash and item lookups, a
// proxy's back end. Keys see those, at the price of 50 gets/s in the counters. A miss is an answer.
func New(c probe.Config, network, address string, keys ...string) (*probe.Source, error) {
	for _, key := range keys {
		if !ValidKey(key) {
			return nil, fmt.Errorf("key %q: expected 1 to %d bytes without blanks", key, maxKeyBytes)
		}
	}
	return probe.NewLink(c, network, address, &protocol{keys: keys})
}

// protocol is a probe.Protocol.
type protocol struct {
	keys            []string // none: version
	asked, answered int
}

func (p *protocol) Request(dst []byte) []byte {
	if len(p.keys) == 0 {
		return append(dst, "version\r\n"...)
	}
	dst = append(dst, "get "...)
	dst = append(dst, p.keys[p.asked%len(p.keys)]...)
	p.asked++
	return append(dst, "\r\n"...)
}

func (p *protocol) Reply(b []byte) (int, string, error) {
	c := CommandGet
	if len(p.keys) == 0 {
		c = CommandVersion
	}
	r, n, err := ParseReply(b, c)
	if err != nil || n == 0 {
		return 0, "", err
	}
	if r.Outcome == ServerError {
		p.answered++
		return n, "SERVER_ERROR " + string(r.Text), nil
	}
	if c == CommandGet {
		if key := p.keys[p.answered%len(p.keys)]; r.Outcome == Hit && string(r.Key) != key {
			return 0, "", fmt.Errorf("%w: value of key %q, asked for %q", ErrProtocol, r.Key, key)
		}
		p.answered++
	}
	return n, "", nil
}

func (p *protocol) Reset() { p.asked, p.answered = 0, 0 }
