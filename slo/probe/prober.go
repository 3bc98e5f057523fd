package probe

import (
	"time"

	"github.com/commensal-io/commensal/slo"
)

// prober is the source without its sockets and without a clock: it decides which probes
// are due, matches replies to them and keeps the window. It is pure; times come in from
// outside and must not go back.
//
// The schedule is open loop: a probe is due every interval, whatever became of the ones
// before it, and its latency counts from the moment at which it was due. A server that
// stalls for 500 ms therefore yields 25 bad samples, not one (coordinated omission).
//
// Every due probe ends as exactly one sample: answered, or timed out with a latency of at
// least the timeout. In between it is in queue, first the ones in flight, then those
// that could not be sent (no connection, or maxOutstanding in flight). A connection that
// breaks turns its probes in flight back into unsent ones: they are harmless to repeat,
// and counting the few milliseconds until the break as their latency would flatter.
type prober struct {
	interval       time.Duration
	timeout        time.Duration
	maxOutstanding int

	next     time.Time // when the next probe is due
	queue    []due
	head, n  int    // ring
	made     uint64 // probes that fell due
	inFlight int    // of the n, from the head
	skip     int    // replies to come that belong to probes which timed out

	latency  *slo.Window
	lateness *slo.Window

	asOf time.Time                 // for age
	age  func(i int) time.Duration // of the i-th queued probe; kept, so that a reading does not allocate
	none func(i int) time.Duration // for a window without overdue entries
	late slo.Reading               // scratch
}

// due is one probe: when it was due, and its number.
type due struct {
	at time.Time
	id uint64
}

func newProber(c Config) *prober {
	perWindow := int(c.Window/c.Interval) + 2
	// What is due within a timeout, and one on each edge.
	queued := int(c.Timeout/c.Interval) + 2
	p := &prober{
		interval: c.Interval, timeout: c.Timeout, maxOutstanding: c.MaxOutstanding,
		queue: make([]due, queued),
		// After a stall up to a timeout's worth of answers arrives at once.
		latency:  slo.NewWindow(c.Window, perWindow+queued),
		lateness: slo.NewWindow(c.Window, perWindow+queued),
	}
	p.latency.Ask(c.Quantile)
	p.age = func(i int) time.Duration { return p.asOf.Sub(p.at(i)) }
	p.none = func(int) time.Duration { return 0 }
	return p
}

// begin sets the time at which the first probe is due.
func (p *prober) begin(at time.Time) { p.next = at }

// at returns when the i-th queued probe was due.
func (p *prober) at(i int) time.Time { return p.probe(i).at }

func (p *prober) probe(i int) *due { return &p.queue[(p.head+i)%len(p.queue)] }

// take removes the i-th queued probe and returns when it was due.
func (p *prober) take(i int) time.Time {
	t := p.at(i)
	for ; i > 0; i-- {
		*p.probe(i) = *p.probe(i - 1)
	}
	p.head = (p.head + 1) % len(p.queue)
	p.n--
	return t
}

// advance times out what has waited too long and enters what has become due.
//
// Probes that became due more than a timeout ago were never taken up because this
// process itself did not run. They say nothing about the server and would all count as
// timeouts: they are passed over, and the lateness tells.
func (p *prober) advance(now time.Time) {
	for p.n > 0 && now.Sub(p.at(0)) >= p.timeout {
		wasSent := p.inFlight > 0
		p.latency.Add(now, now.Sub(p.take(0)), true)
		if wasSent {
			p.inFlight--
			p.skip++
		}
	}
	if off := now.Sub(p.next); off >= p.timeout {
		p.lateness.Add(now, off, false)
		p.next = p.next.Add(off / p.interval * p.interval)
	}
	for !p.next.After(now) {
		p.lateness.Add(now, now.Sub(p.next), false)
		*p.probe(p.n) = due{p.next, p.made}
		p.n++
		p.made++
		p.next = p.next.Add(p.interval)
	}
}

// wants returns how many probes may be sent now.
func (p *prober) wants() int {
	return max(0, min(p.n-p.inFlight, p.maxOutstanding-p.inFlight-p.skip))
}

// sent notes that n more probes were handed to the connection.
func (p *prober) sent(n int) { p.inFlight += n }

// answered enters the reply that comes next on a connection that keeps the order; ok is false
// when the server refused. It returns false when no reply was due: the server is out of step.
func (p *prober) answered(now time.Time, ok bool) bool {
	switch {
	case p.skip > 0: // of a probe that already counted as timed out
		p.skip--
	case p.inFlight > 0:
		p.enter(0, now, ok)
	default:
		return false
	}
	return true
}

// finished enters the end of the probe with a number, where replies come in any order.
func (p *prober) finished(id uint64, now time.Time, ok bool) {
	for i := range p.inFlight {
		if p.probe(i).id == id {
			p.enter(i, now, ok)
			return
		}
	}
	p.skip-- // it had timed out
}

// enter makes a sample of the i-th probe. A refusal counts as late as a probe that times out: the
// faster a server refuses, the better it would seem to do.
func (p *prober) enter(i int, now time.Time, ok bool) {
	p.inFlight--
	latency := now.Sub(p.take(i))
	if !ok {
		latency = max(latency, p.timeout)
	}
	p.latency.Add(now, latency, !ok)
}

// disconnected notes that nothing in flight will be answered.
func (p *prober) disconnected() { p.inFlight, p.skip = 0, 0 }

// fill sets r's figures as of now.
func (p *prober) fill(r *slo.Reading, now time.Time) {
	p.asOf = now
	p.latency.Fill(r, now, p.n, p.age)
	p.lateness.Fill(&p.late, now, 0, p.none)
	r.Lateness = p.late.P99
}
