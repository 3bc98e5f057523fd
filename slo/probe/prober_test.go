package probe

import (
	"math/rand/v2"
	"testing"
	"testing/quick"
	"time"

	"github.com/commensal-io/commensal/slo"
)

var epoch = time.Unix(1_700_000_000, 0)

func at(ms float64) time.Time { return epoch.Add(time.Duration(ms * float64(time.Millisecond))) }

func testProber(t *testing.T, c Config) *prober {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	p := newProber(c)
	p.begin(epoch)
	return p
}

func reading(p *prober, now time.Time) slo.Reading {
	var r slo.Reading
	p.fill(&r, now)
	return r
}

// A server that stalls for 500 ms must show in 25 samples that count from the moments at
// which their probes were due, not in one.
func TestNoCoordinatedOmission(t *testing.T) {
	p := testProber(t, Config{})
	for ms := 0.0; ms < 2500; ms += 20 {
		p.advance(at(ms))
		p.sent(p.wants())
		if ms >= 1000 && ms < 1500 {
			continue // stalled: it reads nothing
		}
		for p.inFlight > 0 {
			if !p.answered(at(ms+0.1), true) {
				t.Fatal("answer refused")
			}
		}
	}
	r := reading(p, at(2500))
	if r.Samples != 125 || r.Errors != 0 {
		t.Fatalf("%d samples, %d errors", r.Samples, r.Errors)
	}
	// Of 125 samples 25 waited for 20, 40 ... 500 ms (and 0.1): p99 is the 124th.
	if want := 480*time.Millisecond + 100*time.Microsecond; r.P99 != want {
		t.Errorf("p99 %v, want %v", r.P99, want)
	}
	if r.P50 != 100*time.Microsecond {
		t.Errorf("p50 %v", r.P50)
	}
}

// While the stall lasts the reading must already say so.
func TestStallShowsBeforeTimeout(t *testing.T) {
	p := testProber(t, Config{})
	for ms := 0.0; ms < 2000; ms += 20 {
		p.advance(at(ms))
		p.sent(p.wants())
		for p.inFlight > 0 {
			p.answered(at(ms+0.1), true)
		}
	}
	for ms := 2000.0; ms <= 2100; ms += 20 {
		p.advance(at(ms))
		p.sent(p.wants())
	}
	r := reading(p, at(2110))
	if r.Overdue != 6 || r.P99 != 90*time.Millisecond {
		t.Errorf("overdue %d, p99 %v, want 6 and 90ms (the second oldest of 106)", r.Overdue, r.P99)
	}
}

// A hung server: every probe ends as a timeout, at most maxOutstanding are in flight, and
// the late replies are matched to nothing else.
func TestTimeoutsAndLimit(t *testing.T) {
	p := testProber(t, Config{Timeout: 200 * time.Millisecond, MaxOutstanding: 5})
	asked := 0
	for ms := 0.0; ms < 3000; ms += 20 {
		p.advance(at(ms))
		n := p.wants()
		asked += n
		p.sent(n)
		if p.inFlight+p.skip > 5 {
			t.Fatalf("%d in flight", p.inFlight+p.skip)
		}
	}
	r := reading(p, at(2980))
	if asked != 5 || r.Errors != 140 || r.P50 < 200*time.Millisecond {
		t.Fatalf("asked %d times; %+v", asked, r)
	}
	for range 5 { // it wakes and answers what it was asked
		if !p.answered(at(2985), true) {
			t.Fatal("answer refused")
		}
	}
	if r := reading(p, at(2985)); r.Errors != 140 {
		t.Errorf("an answer to a timed out probe was entered again: %+v", r)
	}
	if p.wants() != 5 {
		t.Errorf("wants %d after the server woke", p.wants())
	}
	p.sent(5)
	if !p.answered(at(2990), true) {
		t.Fatal("answer refused")
	}
	for range 4 {
		p.answered(at(2990), true)
	}
	if p.answered(at(2990), true) {
		t.Error("took a reply that nobody asked for")
	}
}

// Own lateness is reported, and a process that was off for long blames nobody.
func TestOwnLateness(t *testing.T) {
	p := testProber(t, Config{})
	for ms := 0.0; ms < 3000; ms += 20 {
		p.advance(at(ms + 5)) // every wake-up is 5 ms late
		p.sent(p.wants())
		for p.inFlight > 0 {
			p.answered(at(ms+5.1), true)
		}
	}
	if r := reading(p, at(2990)); r.Lateness != 5*time.Millisecond || r.P50 != 5100*time.Microsecond {
		t.Errorf("lateness %v, p50 %v", r.Lateness, r.P50)
	}
	p.advance(at(13_000)) // off for ten seconds
	if r := reading(p, at(13_000)); r.Errors != 0 || p.n != 1 {
		t.Errorf("%d errors, %d queued after the process itself was off", r.Errors, p.n)
	}
}

func TestBrokenConnectionRepeats(t *testing.T) {
	p := testProber(t, Config{Timeout: 100 * time.Millisecond})
	p.advance(at(40)) // three are due
	p.sent(p.wants())
	p.disconnected()
	if p.wants() != 3 {
		t.Fatalf("wants %d", p.wants())
	}
	p.sent(3)
	for range 3 {
		p.answered(at(50), true)
	}
	if r := reading(p, at(50)); r.Samples != 3 || r.P50 != 30*time.Millisecond {
		t.Errorf("%+v", r)
	}
}

// Whatever a server does, every due probe is exactly one of answered, timed out, queued.
func TestProberLosesNothing(t *testing.T) {
	check := func(seed uint64) bool {
		rng := rand.New(rand.NewPCG(seed, 2))
		c := Config{
			Interval: time.Duration(1+rng.IntN(30)) * time.Millisecond,
			Window:   10 * time.Minute, MaxOutstanding: 1 + rng.IntN(20),
		}
		c.Timeout = c.Interval * time.Duration(1+rng.IntN(50))
		p := newProber(c)
		p.begin(epoch)
		now, answered := epoch, 0
		for range 300 {
			now = now.Add(time.Duration(rng.Int64N(int64(c.Timeout))))
			p.advance(now)
			p.sent(p.wants())
			switch rng.IntN(4) {
			case 0:
				p.disconnected()
			case 1, 2:
				for range rng.IntN(c.MaxOutstanding + 1) {
					fresh := p.skip == 0
					if p.answered(now, true) && fresh {
						answered++
					}
				}
			}
			r := reading(p, now)
			due := int(now.Sub(epoch)/c.Interval) + 1
			if got := answered + r.Errors + p.n; got != due {
				t.Logf("seed %d: %d answered + %d timed out + %d queued, %d due", seed, answered, r.Errors, p.n, due)
				return false
			}
			if p.inFlight < 0 || p.inFlight+p.skip > c.MaxOutstanding || p.inFlight > p.n {
				return false
			}
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 20}); err != nil {
		t.Error(err)
	}
}

func TestProberDoesNotAllocate(t *testing.T) {
	p := testProber(t, Config{})
	now := epoch
	var r slo.Reading
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(20 * time.Millisecond)
		p.advance(now)
		p.sent(p.wants())
		p.answered(now, true)
		p.fill(&r, now)
	}); n != 0 {
		t.Errorf("%v allocations a tick", n)
	}
}
