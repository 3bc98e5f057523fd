package machine

import (
	"fmt"
	"math"

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
}

func (r *Requests) check(name string) error {
	if !(r.PerSecond >= 0 && r.PerSecond <= 1e6) || !(r.Instructions >= 1 && r.Instructions <= 1e12) || !(r.Variation >= 0 && r.Variation <= 10) {
		return fmt.Errorf("machine: task %s: requests are impossible: %+v", name, *r)
	}
	return nil
}

const (
	// maxQueue bounds the requests that wait. A service that is so far behind has
	// clients that gave up: the oldest are counted as lost.
	maxQueue = 20_000
	// The range of latencies that are told apart, to two digits.
	minLatencyNsec, maxLatencyNsec = 1_000, 600_000_000_000
)

// request is one that waits.
type request struct {
	came         int64
	instructions float64
}

// queue is a task's requests and the threads that serve them.
type queue struct {
	rate    float64
	next    float64 // when the next one comes, ns
	waiting []request
	head    int
	free    []float64 // when each thread is done, ns; the threads that are ever needed
	lost    uint64
	mu, dev float64 // of the log of a request's instructions
	taken   *hdrhistogram.Histogram
	ask     float64 // CPU time that the step's work would take, ns
}

func (q *queue) init(c *TaskConfig) {
	if c.Requests == nil {
		return
	}
	q.rate = c.Requests.PerSecond
	q.free = make([]float64, c.Threads)
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
	h, lost := t.queue.taken, t.queue.lost
	t.queue.taken, t.queue.lost = hdrhistogram.New(minLatencyNsec, maxLatencyNsec, 2), 0
	return h, lost, nil
}

// wanted lets the step's requests come and returns the CPUs that serving all that wait
// would keep busy.
func (q *queue) wanted(t *Task, now, dt int64) float64 {
	q.come(t, now, now+dt)
	begin, end := float64(now), float64(now+dt)
	q.ask = 0
	for _, f := range q.free {
		q.ask += max(0, min(f, end)-begin)
	}
	// One that waits can use one thread, from when it came on: no more can be given to it.
	for i := q.head; i < len(q.waiting) && q.ask < float64(len(q.free))*float64(dt); i++ {
		r := &q.waiting[i]
		q.ask += min(r.instructions/t.ips*1e9, end-max(float64(r.came), begin))
	}
	return q.ask / float64(dt)
}

// come draws the requests of a step.
func (q *queue) come(t *Task, from, to int64) {
	if q.rate <= 0 {
		return
	}
	gap := 1e9 / q.rate
	if q.next < float64(from) {
		q.next = float64(from) + gap*t.rng.ExpFloat64()
	}
	for ; q.next < float64(to); q.next += gap * t.rng.ExpFloat64() {
		if len(q.waiting)-q.head >= maxQueue {
			q.head++
			q.lost++
		}
		r := request{came: int64(q.next), instructions: math.Exp(q.mu + q.dev*t.rng.NormFloat64())}
		q.waiting = append(q.waiting, r)
	}
}

// run serves requests for a step and returns the CPU time used. A task that got less than
// it asked for works that much slower.
func (q *queue) run(t *Task, now, dt int64) float64 {
	begin, end := float64(now), float64(now+dt)
	pace := 1.0
	if t.want > 0 {
		pace = min(1, t.given/t.want)
	}
	used := 0.0
	for i := range q.free {
		// How far a thread is beyond the step's begin is CPU time that its request needs.
		if f := q.free[i]; f > begin {
			got := min(f-begin, pace*float64(dt))
			used += got
			q.free[i] = paced(begin, end, f-begin, pace)
		}
	}
	if pace < 1e-6 {
		return used
	}
	for q.head < len(q.waiting) {
		r := q.waiting[q.head]
		thread := q.first()
		start := max(max(float64(r.came), q.free[thread]), begin)
		if start >= end {
			break
		}
		q.head++
		service := r.instructions / t.ips * 1e9 // of CPU time
		done := start + service/pace*(1+t.late+t.mem.blocked/(1-t.mem.blocked))
		used += min(service, pace*(end-start))
		q.free[thread] = paced(start, end, service, pace)
		t.count.requests++
		// The histogram's bounds are those of its constructor, and so are these.
		_ = q.taken.RecordValue(int64(max(minLatencyNsec, min(maxLatencyNsec, done-float64(r.came)))))
	}
	if q.head > 1024 && q.head*2 > len(q.waiting) || q.head == len(q.waiting) {
		q.waiting = q.waiting[:copy(q.waiting, q.waiting[q.head:])]
		q.head = 0
	}
	return used
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

// first returns the thread that is free first.
func (q *queue) first() int {
	best := 0
	for i, f := range q.free {
		if f < q.free[best] {
			best = i
		}
	}
	return best
}
