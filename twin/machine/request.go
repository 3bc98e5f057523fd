package machine

import (
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Requests is open-loop: requests come whether or not the earlier ones are done, and each
// is served by one of the task's threads, in the order of their coming.
type Requests struct {
	PerSecond    float64 // Poisson; SetRate changes it
	Instructions float64 // of one, in the mean
	// Variation is the coefficient of variation of a request's instructions: 0 all
	// alike, 1 exponential-like; log-normal in between and beyond.
	Variation float64
	Bursts    *Bursts // nil: they come evenly
	// FanOut is of how many parts a request is (0: one), each with Instructions and a thread of its
	// own. All come at once, and it is answered when the last one is.
	FanOut int
}

func (r *Requests) check(name string) error {
	if !(r.PerSecond >= 0 && r.PerSecond <= 1e6) || !(r.Instructions >= 1 && r.Instructions <= 1e12) || !(r.Variation >= 0 && r.Variation <= 10) || r.FanOut < 0 || r.FanOut > 1000 {
		return fmt.Errorf("machine: task %s: requests are impossible: %+v", name, *r)
	}
	if r.Bursts != nil {
		return r.Bursts.check(name)
	}
	return nil
}

const (
	// maxQueue bounds the requests that wait. A service that is so far behind has
	// clients that gave up: the oldest are counted as lost.
	maxQueue = 20_000
	// leastRoom is for how many requests a queue keeps its room.
	leastRoom = 1024
	// The range of latencies that are told apart, to two digits.
	minLatencyNsec, maxLatencyNsec = 1_000, 600_000_000_000
	// freshLatencies are taken into a histogram at a time: by themselves they would find
	// its 24 KiB cold each time.
	freshLatencies = 128
)

// request is one that waits.
type request struct {
	came         int64
	instructions float64
	whole        int // in queue.wholes, of what it is a part; -1: it is all
}

// whole is a request of several parts, not all of which are done.
type whole struct {
	left int
	at   float64 // when the last one so far was done, ns
	lost bool
}

// queue is a task's requests and the threads that serve them.
type queue struct {
	arrivals
	waiting []request
	head    int
	free    []float64 // when each thread is done, ns; the threads that are ever needed
	serving []serving // by thread
	wholes  []whole
	unused  []int // of these
	lost    uint64
	mu, dev float64 // of the log of a request's instructions
	taken   *hdrhistogram.Histogram
	fresh   []int64 // latencies that taken has not taken in
	ask     float64 // CPU time that the step's work would take, ns
	own     float64 // how long threads waited for each other in the step, ns
	part    float64 // of what requests waited for a thread, how much threads did
}

// serving is what a thread works on beyond the present step.
type serving struct {
	open  bool
	whole int
	came  int64
	more  float64 // that the request takes beside its CPU time, ns
	busy  float64 // what it takes in all but for waiting for a CPU, ns
}

func (q *queue) init(c *TaskConfig) {
	if c.Requests == nil {
		return
	}
	q.rate = c.Requests.PerSecond
	q.free, q.serving = make([]float64, c.Threads), make([]serving, c.Threads)
	v := c.Requests.Variation
	q.dev = math.Sqrt(math.Log1p(v * v))
	q.mu = math.Log(c.Requests.Instructions) - q.dev*q.dev/2
	q.taken = hdrhistogram.New(minLatencyNsec, maxLatencyNsec, 2)
	q.next = -1
}

// SetRate changes how many requests come per second.
func (m *Machine) SetRate(num int, perSecond float64) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if t.cfg.Requests == nil || !(perSecond >= 0 && perSecond <= 1e6) {
		return fmt.Errorf("machine: no rate of %v for task %s", perSecond, t.cfg.Name)
	}
	t.queue.rate = perSecond
	t.queue.next = -1
	return nil
}

// Latencies returns the latencies in nanoseconds of the requests completed since the last
// call, and how many were lost; nil for a task without requests.
func (m *Machine) Latencies(num int) (*hdrhistogram.Histogram, uint64, error) {
	t, err := m.task(num)
	if err != nil || t.cfg.Requests == nil {
		return nil, 0, err
	}
	h, lost := t.queue.tally(), t.queue.lost
	t.queue.taken, t.queue.lost = hdrhistogram.New(minLatencyNsec, maxLatencyNsec, 2), 0
	return h, lost, nil
}

// wanted lets the step's requests come and returns the CPUs that serving all that wait
// would keep busy, of those that the task may use.
func (q *queue) wanted(t *Task, now, dt int64) float64 {
	q.come(t, now, now+dt)
	begin, end := float64(now), float64(now+dt)
	q.ask = 0
	for _, f := range q.free {
		if f > begin { // without min and max, which cost: this is asked of each thread in each step
			if f > end {
				f = end
			}
			q.ask += f - begin
		}
	}
	// One that waits can use one thread, from when it came on: no more can be given to it.
	begun, most := q.ask, float64(min(t.may, len(q.free)))*float64(dt)
	for i := q.head; i < len(q.waiting) && q.ask < most; i++ {
		r := &q.waiting[i]
		if r.came >= now+dt {
			break // of the next part of the step
		}
		q.ask += min(r.instructions/t.ips*1e9, end-max(float64(r.came), begin))
	}
	q.ask = max(begun, min(q.ask, most))
	return q.ask / float64(dt)
}

// run serves requests for a step and returns the CPU time used. A task that got less than
// it asked for works that much slower. Of a task with more threads than CPUs only as many
// work at a time: requests wait for a thread where threads would wait for a CPU.
func (q *queue) run(t *Task, now, dt int64) float64 {
	begin, end := float64(now), float64(now+dt)
	pace := 1.0
	if t.want > 0 {
		pace = min(1, t.given/t.want)
	}
	used := 0.0
	q.own = 0
	for i := range q.free {
		// How far a thread is beyond the step's begin is CPU time that its request needs.
		if f := q.free[i]; f > begin {
			got := min(f-begin, pace*float64(dt))
			used += got
			q.free[i] = paced(begin, end, f-begin, pace)
			if s := &q.serving[i]; s.open && q.free[i] <= end {
				s.open = false
				q.done(t, s.came, s.whole, q.free[i]+s.more, s.busy)
			}
		}
	}
	faults := t.mem.blocked / (1 - t.mem.blocked)
	slower := t.late + faults
	for pace > 1e-6 && q.head < len(q.waiting) {
		r := q.waiting[q.head]
		thread := q.first(t.may)
		since := max(float64(r.came), begin)
		start := max(since, q.free[thread])
		if start >= end {
			break
		}
		q.head++
		q.own += start - since
		service := r.instructions / t.ips * 1e9 // of CPU time
		busy := (1 - q.part) * (start - float64(r.came))
		used += min(service, pace*(end-start))
		q.free[thread] = paced(start, end, service, pace)
		if q.free[thread] > end {
			q.serving[thread] = serving{open: true, whole: r.whole, came: r.came, more: service * slower, busy: busy + service*(t.stretch+faults)}
			continue
		}
		q.done(t, r.came, r.whole, q.free[thread]+service/pace*slower, busy+service*t.stretch+service/pace*faults)
	}
	q.behind(t.may, begin, end)
	if q.head > 1024 && q.head*2 > len(q.waiting) || q.head == len(q.waiting) {
		if rest := q.waiting[q.head:]; cap(q.waiting) > 4*len(rest)+leastRoom {
			q.waiting = slices.Clone(rest) // the room of an overload that is over
		} else {
			q.waiting = q.waiting[:copy(q.waiting, rest)]
		}
		q.head = 0
	}
	return used
}

// behind ends the counting of what threads wait for each other: those beyond the CPUs there
// are. What waits when all threads have something to do waits for a thread.
func (q *queue) behind(cpus int, begin, end float64) {
	most := float64(max(0, len(q.free)-cpus)) * (end - begin)
	for i := q.head; i < len(q.waiting) && q.own < most; i++ {
		q.own += max(0, end-max(float64(q.waiting[i].came), begin))
	}
	q.part = 1
	if q.own > most {
		q.part = most / q.own
	} else if most <= 0 {
		q.part = 0
	}
	q.own = min(q.own, most)
}

// done counts a request that is answered. All but busy of its time its thread waited for a CPU.
func (q *queue) done(t *Task, came int64, whole int, at, busy float64) {
	if t.waits != nil {
		t.waits.woken(at - float64(came) - busy)
	}
	if whole >= 0 {
		w := &q.wholes[whole]
		if w.at = max(w.at, at); !q.end(whole) || w.lost {
			return
		}
		at = w.at
	}
	t.count.requests++
	q.fresh = append(q.fresh, int64(max(minLatencyNsec, min(maxLatencyNsec, at-float64(came)))))
	if len(q.fresh) >= freshLatencies {
		q.tally()
	}
}

// split begins a request of several parts.
func (q *queue) split(parts int) int {
	n := len(q.unused)
	if n == 0 {
		q.wholes, q.unused = append(q.wholes, whole{}), append(q.unused, len(q.wholes))
		n = 1
	}
	at := q.unused[n-1]
	q.unused = q.unused[:n-1]
	q.wholes[at] = whole{left: parts}
	return at
}

// end ends a part of a request, and reports whether it was the last one.
func (q *queue) end(whole int) bool {
	w := &q.wholes[whole]
	if w.left--; w.left > 0 {
		return false
	}
	q.unused = append(q.unused, whole)
	return true
}

// lose gives the oldest request up that waits, or the part of one, which is lost as a whole then.
func (q *queue) lose() {
	r := q.waiting[q.head]
	q.head++
	if r.whole < 0 {
		q.lost++
		return
	}
	if w := &q.wholes[r.whole]; !w.lost {
		w.lost = true
		q.lost++
	}
	q.end(r.whole)
}

// tally takes the fresh latencies into the histogram, and returns it.
func (q *queue) tally() *hdrhistogram.Histogram {
	for _, v := range q.fresh {
		_ = q.taken.RecordValue(v) // its bounds are those of its constructor, and so are v's
	}
	q.fresh = q.fresh[:0]
	return q.taken
}

// paced returns when a thread is free that needs so much CPU time from start on and gets
// it at a pace until the step's end: what it does not get in this step it gets later, at
// the pace of then.
func paced(start, end, need, pace float64) float64 {
	got := pace * (end - start)
	if need <= got {
		return start + need/pace
	}
	return end + need - got
}

// first returns the thread that is free first, of as many as can run at a time.
func (q *queue) first(cpus int) int {
	best, least := 0, math.Inf(1)
	for i, f := range q.free[:max(1, min(cpus, len(q.free)))] {
		if f < least {
			best, least = i, f
		}
	}
	return best
}
