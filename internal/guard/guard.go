// Package guard says whether what is sent to an address stays on this machine or is guarded on its way: nodes, hubs and who asks them are refused else.
package guard

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Here reports whether a host, a name or an address without a port, is this machine.
func Here(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NATS refuses addresses of NATS servers, several with commas between, that are of another machine and are reached without TLS, or without anything
// that proves who comes. ca: the client has certificates of its own to trust, and then connects by TLS only, whatever an address says.
// creds: it has a key or a credentials file. Errors have no password in them.
func NATS(urls string, ca, creds bool) error {
	for _, text := range strings.Split(urls, ",") {
		text = strings.TrimSpace(text)
		if !strings.Contains(text, "://") {
			text = "nats://" + text // as the client reads it
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" {
			return errors.New("one of the addresses is no scheme://host:port")
		}
		if Here(u.Hostname()) {
			continue
		}
		switch {
		case u.Scheme != "tls" && u.Scheme != "wss" && !ca:
			return fmt.Errorf("%s is another machine, reached in plain text; expected tls://%s", u.Host, u.Host)
		case !creds && u.User == nil:
			return fmt.Errorf("%s is another machine, and nothing proves to it who comes; expected a key or a credentials file", u.Host)
		}
	}
	return nil
}
