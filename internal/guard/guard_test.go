package guard

import (
	"strings"
	"testing"
)

// This machine may be reached in any way, others by TLS and with something that proves who comes.
func TestNATS(t *testing.T) {
	for _, x := range []struct {
		urls      string
		ca, creds bool
		want      string // in the error; "": there is none
	}{
		{"nats://127.0.0.1:4222", false, false, ""},
		{"nats://localhost:4222, nats://[::1]:4222,127.0.0.1:1", false, false, ""},
		{"tls://hub:4222", false, true, ""},
		{"wss://hub", false, true, ""},
		{"tls://ann:secret@hub:4222", false, false, ""},
		{"nats://hub:4222", true, true, ""},
		{"nats://hub:4222", false, true, "hub:4222 is another machine, reached in plain text"},
		{"hub:4222", false, true, "plain text"},
		{"10.0.0.1", false, true, "plain text"},
		{"nats://0.0.0.0:4222", false, true, "plain text"},
		{"nats://127.0.0.1.example.com:1", false, true, "plain text"},
		{"ws://hub", false, true, "plain text"},
		{"tls://a:4222,b:4222", false, true, "b:4222 is another machine, reached in plain text"},
		{"tls://hub:4222", false, false, "nothing proves"},
		{"nats://127.0.0.1:1,tls://hub:4222", true, false, "nothing proves"},
		{"tls://ann:secret@hub:4222,nats://ann:secret@b:1", false, false, "b:1 is another machine, reached in plain text"},
		{"tls://ann:secret@hub:port", false, true, "no scheme://host:port"},
		{"", false, true, "no scheme://host:port"},
	} {
		err := NATS(x.urls, x.ca, x.creds)
		if (err == nil) != (x.want == "") || err != nil && (!strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}
