package config

import (
	"testing"
	"time"

	"github.com/commensal-io/commensal/slo"
)

// sloFile is a file with one latency source.
func sloFile(text string) string { return good + "slo:\n  - {job: web, " + text + "}\n" }

// Each kind with all that it may say makes a source; what is left out has its default.
func TestLatencySources(t *testing.T) {
	for _, text := range []string{
		"kind: memcached, address: '127.0.0.1:11211'",
		"kind: memcached, address: 'unix:/run/m', keys: [a, b], poll: 10ms, window: 5s, timeout: 2s, target: 500us, quantile: 0.95, yellow: 0.1, green: 0.3",
		"kind: redis, address: '[::1]:6379', command: [GET, k], target: 1ms",
		"kind: http, address: 'https://shop.example:443', path: '/health?x=1', method: HEAD, host: shop, status: 204, poll: 50ms, window: 10s",
		"kind: prometheus, address: 'localhost:9090', path: /m, metric: rpc_seconds, labels: {code: '200'}, unit: 1ms, poll: 500ms, target: 20ms",
		"kind: program, command: [/usr/bin/probe, --fast], window: 10s, target: 30s",
	} {
		c, err := Parse("f.yaml", []byte(sloFile(text)))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if src, err := c.SLO[0].Source(); err != nil || src.Read(time.Now()).Status.String() != "unavailable: not started" {
			t.Errorf("%s: %v", text, err)
		}
	}
	plain := SLO{Target: 20 * time.Millisecond}
	if o := plain.Objective(); o != (slo.Objective{Target: 20 * time.Millisecond, Quantile: 0.99, Yellow: 0.05, Green: 0.2}) {
		t.Errorf("%+v", o)
	}
	if poll, window, timeout := plain.window(); poll != 20*time.Millisecond || window != 3*time.Second || timeout != time.Second {
		t.Error(poll, window, timeout)
	}
}
