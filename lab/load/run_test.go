package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/slo/memcached"
)

// fakeServer answers gets and sets properly, except while it is held.
type fakeServer struct {
	address string
	hold    sync.RWMutex // write-locked: the server stalls and reads nothing
	mu      sync.Mutex
	conns   []net.Conn
}

func startFake(t *testing.T) *fakeServer {
	t.Helper()
	s := &fakeServer{address: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		s.cut()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			go s.serve(c)
		}
	}()
	return s
}

// cut closes all connections.
func (s *fakeServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

func (s *fakeServer) serve(c net.Conn) {
	in := bufio.NewReaderSize(c, 4096)
	for {
		s.hold.RLock()
		s.hold.RUnlock() //nolint:staticcheck // passing through is the point
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		fields := strings.Fields(line)
		reply := ""
		switch fields[0] {
		case "get":
			reply = fmt.Sprintf("VALUE %s 0 3\r\nabc\r\nEND\r\n", fields[1])
		case "set":
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			reply = "STORED\r\n"
		}
		if _, err := c.Write([]byte(reply)); err != nil {
			return
		}
	}
}

func (s *fakeServer) config() Config {
	return Config{
		Network: "unix", Address: s.address, RatePerSec: 1000, Connections: 2, KeyCount: 100,
		Duration: time.Second, Seed: 7, Window: 100 * time.Millisecond,
	}
}

// checkWhole checks what holds for every result.
func checkWhole(t *testing.T, c Config, r *Result) {
	t.Helper()
	var err error
	if c, _, err = c.withDefaults(); err != nil {
		t.Fatal(err)
	}
	check := func(name string, s *Summary, latency, lateness *dist) {
		if s.Sent != s.Done+s.Errors+s.Timeouts || s.Pending != 0 || s.Misses > s.Done {
			t.Errorf("%s: requests are lost: %+v", name, s)
		}
		if s.P50.Duration > s.P99.Duration || s.P99.Duration > s.P999.Duration || s.P999.Duration > s.Max.Duration || s.Mean.Duration > s.Max.Duration {
			t.Errorf("%s: figures out of order: %+v", name, s)
		}
		if latency != nil && (latency.count != s.Sent || lateness.count != s.Sent) {
			t.Errorf("%s: %d latencies, %d latenesses of %d requests", name, latency.count, lateness.count, s.Sent)
		}
	}
	check("all", &r.Summary, nil, nil)
	want := make([]int64, len(r.Windows))
	for _, a := range arrivals(c) {
		if i := int(a.at / c.Window); i < len(want) {
			want[i]++
		}
	}
	for i := range r.Windows {
		w := &r.Windows[i]
		check(w.Start.String(), &w.Summary, &w.Latencies, &w.Latenesses)
		if w.Sent != want[i] && w.Length.Duration == c.Window {
			t.Errorf("window %d: sent %d of %d intended", i, w.Sent, want[i])
		}
	}
}

// A server that stalls for 500 ms is charged for every request that was due meanwhile.
func TestNoCoordinatedOmission(t *testing.T) {
	s := startFake(t)
	c := s.config()
	c.Duration = 1500 * time.Millisecond
	const stall = 500 * time.Millisecond
	var from, to time.Time
	go func() {
		time.Sleep(500 * time.Millisecond)
		s.hold.Lock()
		from = time.Now()
		time.Sleep(stall)
		to = time.Now()
		s.hold.Unlock()
	}()
	r, err := Run(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, c, r)
	if r.Done != r.Sent {
		t.Fatalf("%+v", r.Summary)
	}
	// Requests were due evenly over the stall, so about 400 of 1,500 waited 100 ms and
	// more; a closed loop would have seen one on each connection. The first bound is on
	// what must wait, and the server can only have stalled longer.
	waited := int64(0)
	for i := range r.Windows {
		waited += countAbove(&r.Windows[i].Latencies, 100*time.Millisecond)
	}
	if waited < 300 {
		t.Errorf("%d requests waited 100 ms and more in a stall of %v", waited, to.Sub(from))
	}
	if r.Max.Duration < 400*time.Millisecond {
		t.Errorf("max %v in a stall of %v", r.Max, to.Sub(from))
	}
	if r.P99.Duration < 300*time.Millisecond {
		t.Errorf("p99 %v in a stall of %v", r.P99, to.Sub(from))
	}
}

func countAbove(d *dist, v time.Duration) (n int64) {
	if d.hist == nil {
		return 0
	}
	d.hist.ForEachBucket(func(value, count int64) bool {
		if value >= int64(v) {
			n += count
		}
		return true
	})
	return n
}

// When the client itself is delayed, lateness says so, and the latency contains it.
func TestOwnLatenessIsReported(t *testing.T) {
	s := startFake(t)
	c := s.config()
	c.Connections = 1
	c, endpoint, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGenerator(t.Context(), c, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	go func() {
		time.Sleep(300 * time.Millisecond)
		g.conns[0].mu.Lock() // the sender gets stuck in the client
		time.Sleep(300 * time.Millisecond)
		g.conns[0].mu.Unlock()
	}()
	r, err := g.run(t.Context(), func(Window) {})
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, c, r)
	if r.Lateness.Max.Duration < 200*time.Millisecond || r.Lateness.P99.Duration < 150*time.Millisecond {
		t.Errorf("lateness %+v after 300 ms off", r.Lateness)
	}
	if r.Max.Duration < r.Lateness.Max.Duration {
		t.Errorf("max %v does not contain the lateness %v", r.Max, r.Lateness.Max)
	}
	if quiet := r.Between(0, 200*time.Millisecond); quiet.Lateness.P50.Duration > 100*time.Millisecond {
		t.Errorf("lateness before the delay %+v", quiet.Lateness)
	}
}

// A server that stalls with large requests on their way fills the socket: the sender must
// stay on time, and everything must arrive in the end.
func TestFullSocketDoesNotBlock(t *testing.T) {
	s := startFake(t)
	c := s.config()
	c.SetFraction, c.ValueBytes = 1, 20_000 // 20 MB/s into a buffer of some hundred KiB
	s.hold.Lock()
	go func() {
		time.Sleep(700 * time.Millisecond)
		s.hold.Unlock()
	}()
	var pending int64
	r, err := Run(t.Context(), c, func(w Window) { pending = max(pending, w.Pending) })
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, c, r)
	if r.Done != r.Sent || r.Max.Duration < 600*time.Millisecond {
		t.Errorf("%+v", r.Summary)
	}
	if pending == 0 {
		t.Error("no window was reported while its requests waited")
	}
	if r.Lateness.P50.Duration > 100*time.Millisecond {
		t.Errorf("the sender was held up: %+v", r.Lateness)
	}
}

func TestUnansweredAreTimeouts(t *testing.T) {
	s := startFake(t)
	s.hold.Lock()
	defer s.hold.Unlock()
	c := s.config()
	c.Duration, c.Grace = 300*time.Millisecond, 200*time.Millisecond
	r, err := Run(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, c, r)
	// On each connection the server may have been inside its first read already.
	if r.Done > 2 || r.Timeouts < r.Sent-2 {
		t.Errorf("%+v", r.Summary)
	}
	if r.P50.Duration < 200*time.Millisecond || r.Max.Duration < 400*time.Millisecond {
		t.Errorf("timeouts do not count with their age: %+v", r.Summary)
	}
}

func TestBrokenConnections(t *testing.T) {
	s := startFake(t)
	c := s.config()
	go func() {
		time.Sleep(400 * time.Millisecond)
		s.hold.Lock() // so that something is in flight
		time.Sleep(50 * time.Millisecond)
		s.cut()
		s.hold.Unlock()
	}()
	r, err := Run(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, c, r)
	if r.Errors == 0 || r.Timeouts != 0 || r.Reconnects < 2 || r.FirstError == "" {
		t.Errorf("errors %d timeouts %d reconnects %d first %q", r.Errors, r.Timeouts, r.Reconnects, r.FirstError)
	}
	if last := r.Between(900*time.Millisecond, time.Second); last.Done == 0 || last.Errors != 0 {
		t.Errorf("not well again: %+v", last)
	}
}

func TestCancel(t *testing.T) {
	s := startFake(t)
	c := s.config()
	c.Duration = time.Minute
	c.Window = 0
	c.RatePerSec = 500
	ctx, cancel := context.WithTimeout(t.Context(), 350*time.Millisecond)
	defer cancel()
	r, err := Run(ctx, c, nil)
	if !errors.Is(err, context.DeadlineExceeded) || r == nil {
		t.Fatal(r, err)
	}
	checkWhole(t, c, r)
	if r.Sent == 0 || len(r.Windows) == 0 || r.Length.Duration >= time.Minute || r.Timeouts != 0 {
		t.Errorf("%+v", r.Summary)
	}
	// A pause must not keep a cancelled sender asleep.
	c.Rates = []RateStep{{At: time.Nanosecond, RatePerSec: 0.01}}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, c, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestNobodyThere(t *testing.T) {
	c := Config{Network: "unix", Address: filepath.Join(t.TempDir(), "none"), RatePerSec: 1, Duration: time.Second}
	if _, err := Run(t.Context(), c, nil); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	if err := Populate(t.Context(), c); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}

// One request there and back must not allocate: garbage collection would be lateness.
func TestHotPathDoesNotAllocate(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(pair[1]) }()
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{ValueBytes: 100, Window: time.Second, Connections: 1}
	g := &generator{
		config: c, epoll: epoll, wake: -1,
		sent: sentStats{windows: make([]sentWindow, 1)},
		done: doneStats{windows: make([]doneWindow, 1)},
	}
	defer g.close()
	if g.clock, err = newClock(); err != nil {
		t.Fatal(err)
	}
	one := newConn(0, &c)
	g.conns = []*conn{one}
	one.open(pair[0], epoll)
	buf := make([]byte, 4096)
	reply := []byte("VALUE commensal-load-00000042 0 3\r\nabc\r\nEND\r\n")
	// Latencies differ from call to call: let the histogram have all its buckets.
	for i := range 100_000 {
		g.done.windows[0].latency.record(time.Duration(i) * 512)
	}
	if n := testing.AllocsPerRun(2000, func() {
		g.sent.record(0, 1000)
		one.enqueue(request{at: g.clock.now(), key: 42}, epoll)
		if n, err := unix.Read(pair[1], buf); err != nil || string(buf[:n]) != "get commensal-load-00000042\r\n" {
			t.Fatalf("%q %v", buf[:n], err)
		}
		if _, err := unix.Write(pair[1], reply); err != nil {
			t.Fatal(err)
		}
		g.takeReplies(one)
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
	if d := g.done.windows[0]; d.done != 2001 || d.errors != 0 {
		t.Errorf("done %d errors %d", d.done, d.errors)
	}
	// Out of step: a reply that nobody asked for ends the connection.
	if _, err := unix.Write(pair[1], reply); err != nil {
		t.Fatal(err)
	}
	g.takeReplies(one)
	if one.fd.Load() != -1 || !strings.Contains(g.done.firstError, "nobody asked") {
		t.Errorf("fd %d, first error %q", one.fd.Load(), g.done.firstError)
	}
}

// FuzzReplies feeds a connection what a server might say, cut into pieces anywhere.
// Whatever it is, no request may be answered twice and none by another's value.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("VALUE commensal-load-00000000 0 3\r\nabc\r\nEND\r\nSTORED\r\nEND\r\n"), uint8(5))
	f.Add([]byte("END\r\nSERVER_ERROR out of memory\r\nVALUE commensal-load-00000002 0 0\r\n\r\nEND\r\n"), uint8(1))
	f.Add([]byte("VALUE commensal-load-00000009 0 3\r\nabc\r\nEND\r\n"), uint8(200))
	f.Add([]byte("ERROR\r\n"), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		c := newConn(0, &Config{ValueBytes: 1})
		const n = 8
		for i := range n {
			c.queue.push(request{at: time.Duration(i), key: uint32(i), set: i%3 == 1})
			c.queue.write()
		}
		next := time.Duration(0)
		for len(b) > 0 && c.fill < len(c.in) {
			k := min(int(piece)+1, len(b), len(c.in)-c.fill)
			c.fill += copy(c.in[c.fill:], b[:k])
			b = b[k:]
			err := c.parse(func(r request, o memcached.Outcome) {
				if r.at != next {
					t.Fatalf("answered %d, want %d", r.at, next)
				}
				if r.set != (o == memcached.Stored || o == memcached.NotStored) && o != memcached.ServerError {
					t.Fatalf("outcome %d of a request with set %v", o, r.set)
				}
				next++
			})
			if err != nil {
				if !errors.Is(err, memcached.ErrProtocol) {
					t.Fatal(err)
				}
				return
			}
		}
		if next > n || c.queue.waiting() != int64(n)-int64(next) {
			t.Fatalf("%d answered, %d wait", next, c.queue.waiting())
		}
	})
}
