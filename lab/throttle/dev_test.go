package throttle

import (
	"context"
	"os"
	"testing"
	"time"
)

func TestDev(t *testing.T) {
	o := Options{Seed: 1, Host: true, Agent: "/tmp/h5/commensal", Log: os.Stderr, host: hostTimes{rounds: 1, lead: 12 * time.Second, measure: 10 * time.Second, step: 2 * time.Second}}
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	r.WriteText(os.Stdout)
}
