package openloop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/node/linux"
)

// TestMain lets this binary be the services that a test starts.
func TestMain(m *testing.M) {
	Play(os.Args[1:])
	os.Exit(m.Run())
}

// order is one with so many requests of 2 ms, 5 ms apart.
func order(n int, patience time.Duration) *Order {
	o := &Order{Threads: 2, StartNsec: linux.MonotonicNsec() + 2e7}
	for i := range n {
		o.Requests = append(o.Requests, Request{At: time.Duration(i) * 5 * time.Millisecond, CPU: 2 * time.Millisecond})
	}
	o.EndNsec = o.StartNsec + int64(n)*5e6 + patience.Nanoseconds()
	return o
}

// Every request is answered, none before it came, none in less than its CPU time, by the
// thread's clock as by calibrated work.
func TestServe(t *testing.T) {
	for _, rounds := range []float64{0, Calibrate()} {
		o := order(40, time.Minute)
		o.RoundsPerUsec, o.Moves = rounds, true
		log := serve(o)
		if len(log.Answers) != 40 || len(log.Moves) == 0 {
			t.Fatalf("%d answers, %d moves", len(log.Answers), len(log.Moves))
		}
		for i, a := range log.Answers {
			took := time.Duration(a.DoneNsec - a.BeganNsec)
			// Calibrated work is held to half: the calibration may have had a slower moment.
			if a.GaveUp || a.AtNsec != o.StartNsec+int64(i)*5e6 || a.BeganNsec < a.AtNsec || took < o.Requests[i].CPU/2 || rounds == 0 && took < o.Requests[i].CPU {
				t.Errorf("%g rounds, request %d: %+v", rounds, i, a)
			}
		}
		if !slices.IsSortedFunc(log.Moves, func(a, b Move) int { return int(a.Nsec - b.Nsec) }) {
			t.Error("moves are not in order")
		}
	}
}

// What is not done at the end is given up, begun or not, and counts with the time until then.
func TestGiveUp(t *testing.T) {
	o := order(3, time.Second) // in which the first is done on any machine
	o.Threads = 1
	o.Requests[1].CPU = time.Hour
	log := serve(o)
	if a := log.Answers[0]; a.GaveUp {
		t.Errorf("the first: %+v", a)
	}
	for i, a := range log.Answers[1:] {
		if !a.GaveUp || a.DoneNsec < o.EndNsec || a.DoneNsec > linux.MonotonicNsec() {
			t.Errorf("request %d, until %d: %+v", i+1, o.EndNsec, a)
		}
	}
}

func TestServeFileRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "order")
	if err := serveFile(path); err == nil {
		t.Error("no order is taken")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := serveFile(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a document: %v", err)
	}
	if err := burn("none"); err == nil {
		t.Error("no number of threads")
	}
}

// On the real kernel: a service and batch work in groups of their own.
func TestOnStage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups can be made by root only")
	}
	st, err := stage.Open(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	var groups []string
	for _, name := range []string{"service", "batch"} {
		g, err := st.Group(name)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
	}
	batch, err := Burn(st, groups[1], "batch", 1)
	if err != nil {
		t.Fatal(err)
	}
	o := order(50, time.Minute)
	o.StartNsec += 1e9
	o.EndNsec += 1e9
	s, err := Start(st, groups[0], "service", o)
	if err != nil {
		t.Fatal(err)
	}
	log, err := s.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(log); err != nil || len(log.Answers) != 50 {
		t.Errorf("%s, %v", b, err)
	}
	// A group keeps what its processes used.
	if used, err := st.UsageNsec(groups[0]); err != nil || used < 100e6 {
		t.Errorf("the service used %d ns, %v", used, err)
	}
	if used, err := st.UsageNsec(groups[1]); err != nil || used < 10e6 || batch.Ended() {
		t.Errorf("batch work used %d ns, %v", used, err)
	}
}
