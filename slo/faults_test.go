package slo_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/commensal-io/commensal/slo"
	"github.com/commensal-io/commensal/slo/histogram"
	"github.com/commensal-io/commensal/slo/memcached"
	"github.com/commensal-io/commensal/slo/probe"
	"github.com/commensal-io/commensal/slo/redis"
	"github.com/commensal-io/commensal/slo/web"
)

// fault is what a server does in the place of an answer.
type fault int32

const (
	none    fault = iota
	refuse        // answers at once, with an error
	garbage       // answers at once, with something else
	endless       // a line that never ends
	stall         // reads on and says nothing
	drip          // a byte of the answer each 50 ms
	closing       // closes the connection at once
	reset         // resets it
	dead          // nobody listens any more
	numFaults
)

var faultNames = [...]string{"none", "refuse", "garbage", "endless", "stall", "drip", "closing", "reset", "dead"}

// kind is how one kind of server reads a request and what it answers.
type kind struct {
	name   string
	lines  func(r *bufio.Reader) error // reads one request
	good   func() string
	refuse string
	source func(address string) (slo.Source, error)
}

var config = probe.Config{Interval: 2 * time.Millisecond, Window: 500 * time.Millisecond, Timeout: 200 * time.Millisecond, Quantile: 0.99}

func lines(n int) func(*bufio.Reader) error {
	return func(r *bufio.Reader) error {
		for range n {
			if _, err := r.ReadString('\n'); err != nil {
				return err
			}
		}
		return nil
	}
}

func head(r *bufio.Reader) error {
	for {
		if line, err := r.ReadString('\n'); err != nil || line == "\r\n" {
			return err
		}
	}
}

func kinds() []kind {
	served := 0
	page := func() string {
		served += 500
		body := fmt.Sprintf("# TYPE rpc histogram\nrpc_bucket{le=\"0.001\"} %d\nrpc_bucket{le=\"1\"} %d\nrpc_bucket{le=\"+Inf\"} %d\nrpc_sum 1\nrpc_count %d\n", served, served, served, served)
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	always := func(s string) func() string { return func() string { return s } }
	return []kind{
		{"memcached version", lines(1), always("VERSION 1.6\r\n"), "SERVER_ERROR out of memory\r\n", func(a string) (slo.Source, error) { return memcached.New(config, "tcp", a) }},
		{"memcached get", lines(1), always("VALUE k 0 3\r\nabc\r\nEND\r\n"), "SERVER_ERROR out of memory\r\n", func(a string) (slo.Source, error) { return memcached.New(config, "tcp", a, "k") }},
		{"redis", lines(5), always("*2\r\n$3\r\nabc\r\n:1\r\n"), "-LOADING dataset\r\n", func(a string) (slo.Source, error) { return redis.New(config, "tcp", a, "GET", "k") }},
		{"http", head, always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", func(a string) (slo.Source, error) {
			return web.New(config, web.Request{Address: a, Path: "/health"})
		}},
		{"prometheus", head, page, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", func(a string) (slo.Source, error) {
			return histogram.New(histogram.Config{Address: a, Metric: "rpc", Interval: 50 * time.Millisecond, Window: 500 * time.Millisecond, Quantile: 0.99})
		}},
	}
}

// server does what it is told to, on one address.
type server struct {
	kind    *kind
	fault   atomic.Int32
	address string
	mu      sync.Mutex
	l       net.Listener
	conns   map[net.Conn]bool
}

func (s *server) listen(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.l, s.address, s.conns = l, l.Addr().String(), map[net.Conn]bool{}
	s.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			go s.serve(c)
		}
	}()
}

// stop closes everything.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.l.Close()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *server) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for s.kind.lines(r) == nil {
		s.mu.Lock() // of good
		answer := s.kind.good()
		s.mu.Unlock()
		switch fault(s.fault.Load()) {
		case none:
		case refuse:
			answer = s.kind.refuse
		case garbage:
			answer = "\x00\xff%s rubbish\r\n\r\n"
		case endless:
			for answer = strings.Repeat("x", 32<<10); ; {
				if _, err := c.Write([]byte(answer)); err != nil {
					return
				}
			}
		case stall:
			for fault(s.fault.Load()) == stall {
				time.Sleep(5 * time.Millisecond)
			}
		case drip:
			for i := 0; i < len(answer) && fault(s.fault.Load()) == drip; i++ {
				_, _ = c.Write([]byte{answer[i]})
				time.Sleep(50 * time.Millisecond)
			}
			if fault(s.fault.Load()) != drip {
				return // the rest of the answer is lost
			}
			continue
		case closing:
			return
		case reset:
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// Whatever a server does in the place of answers, it soon is not green, and stays so until it answers again.
func TestNoFaultIsGreen(t *testing.T) {
	objective := slo.Objective{Target: 100 * time.Millisecond, Quantile: 0.99, Yellow: slo.DefaultYellow, Green: slo.DefaultGreen}
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := &server{kind: &k, address: "127.0.0.1:0"}
			s.listen(t)
			defer func() { s.stop() }()
			src, err := k.source(s.address)
			if err != nil {
				t.Fatal(err)
			}
			if err := src.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := src.Close(); err != nil {
					t.Error(err)
				}
			}()
			colour := func() (slo.Colour, string) {
				r := src.Read(time.Now())
				c, v, _, why := objective.Judge(&r)
				return c, fmt.Sprintf("%s %v %s; %d of %d failed", c, v, why, r.Errors, r.Samples)
			}
			await := func(want bool, what string) string {
				for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
					c, text := colour()
					if (c == slo.Green) == want {
						return text
					}
					if time.Since(began) > 20*time.Second {
						t.Fatalf("never %s: %s", what, text)
					}
				}
			}
			for f := refuse; f < numFaults; f++ {
				await(true, "green")
				began := time.Now()
				if s.fault.Store(int32(f)); f == dead {
					s.stop()
				}
				await(false, "other than green with fault "+faultNames[f])
				took, text := time.Since(began), ""
				for began := time.Now(); time.Since(began) < time.Second; time.Sleep(time.Millisecond) {
					var c slo.Colour
					if c, text = colour(); c == slo.Green {
						t.Fatalf("%s: green again: %s", faultNames[f], text)
					}
				}
				t.Logf("%s: after %v, then %s", faultNames[f], took.Round(time.Millisecond), text)
				if s.fault.Store(int32(none)); f == dead {
					s.listen(t)
				}
			}
			await(true, "green")
		})
	}
}
