package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
)

// Shared is what several hubs that share a fleet's jobs cost: how fast they read a backlog that waits in one server's stream, of which the same
// samples lie there each time. Nobody sends meanwhile; server and hubs are in this process. Goals, written down before the first run: two hubs take no
// more than 1.15 times the CPU of one that has as many partitions, and no more than 1.1 times its time; more speed than that is asked of machines
// with more cores than this measurement has.
type Shared struct {
	Partitions int       `json:"partitions"`
	Hubs       int       `json:"hubs"`
	Messages   int       `json:"messages"`
	Samples    int       `json:"samples"`
	Seconds    []float64 `json:"seconds"` // of each round
	CPU        []float64 `json:"cpu_seconds"`
	Most       float64   `json:"most"` // share of the samples that one hub had
}

// sharedParts is how many partitions the shared fleet has.
const sharedParts = 8

// share measures by turns: in each round every arrangement once, in the order of the one before turned round.
func (c *Cost) share(ctx context.Context, dir string, seed uint64, quick bool, log func(format string, args ...any)) error {
	c.Shared = []Shared{{Partitions: 1, Hubs: 1}, {Partitions: sharedParts, Hubs: 1}, {Partitions: sharedParts, Hubs: 2}}
	rounds, minutes := 3, 8
	if quick {
		rounds, minutes = 1, 2
	}
	order := []int{0, 1, 2}
	for round := range rounds {
		for _, i := range order {
			s := &c.Shared[i]
			log("round %d: %d hubs, %d partitions", round+1, s.Hubs, s.Partitions)
			if err := s.round(ctx, filepath.Join(dir, fmt.Sprintf("shared-%d-%d", round, i)), seed+uint64(round), minutes); err != nil { //nolint:gosec // few
				return err
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// round fills a new server's stream, and has the hubs read it.
func (s *Shared) round(ctx context.Context, dir string, seed uint64, minutes int) (err error) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(dir, "nats"), SyncAlways: true, NoSigs: true, NoLog: true, MaxPayload: 1 << 20})
	if err != nil {
		return err
	}
	go srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown(); err = errors.Join(err, os.RemoveAll(dir)) }()
	if !srv.ReadyForConnections(20 * time.Second) {
		return errors.New("the server does not start")
	}
	if _, err := s.read(ctx, dir, srv.ClientURL(), 0); err != nil { // which makes the stream, and says whose the partitions are
		return err
	}
	if err := s.fill(ctx, srv.ClientURL(), seed, minutes); err != nil {
		return err
	}
	start, cpu := time.Now(), cpuSeconds()
	most, err := s.read(ctx, dir, srv.ClientURL(), uint64(s.Samples)) //nolint:gosec // not negative
	s.Seconds, s.CPU, s.Most = append(s.Seconds, time.Since(start).Seconds()), append(s.CPU, cpuSeconds()-cpu), float64(most)/float64(max(1, s.Samples))
	return err
}

// fill sends nodes' minutes, each divided as agents divide them.
func (s *Shared) fill(ctx context.Context, url string, seed uint64, minutes int) error {
	load := minutesOf{nodes: 100, minutes: minutes}
	var sent atomic.Int64
	err := load.send(ctx, seed, func() (*nats.Conn, error) { return nats.Connect(url) }, func(ctx context.Context, js jetstream.JetStream, b *wire.Batch) error {
		for _, part := range b.Split(s.Partitions) {
			data, err := codec.Encode(part)
			if err == nil {
				_, err = js.Publish(ctx, wire.Up(part.Node, part.Part), data)
			}
			if err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	})
	s.Samples, s.Messages = load.samples(), int(sent.Load())
	return err
}

// read runs the hubs until they have so many samples in their stores, and returns what the one has that has most.
func (s *Shared) read(ctx context.Context, dir, url string, samples uint64) (most uint64, err error) {
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	defer func() { stop(); err = errors.Join(err, g.Wait()) }()
	var ask []*client.Client
	for i := range s.Hubs {
		h, err := hub.New(hub.Config{Dir: filepath.Join(dir, fmt.Sprint(i)), Listen: "127.0.0.1:0", NATS: url, Partitions: s.Partitions, Shard: i + 1, Shards: s.Hubs, Keep: 40 * 24 * time.Hour, CommitEvery: time.Second, Version: "bench"})
		if err != nil {
			return 0, err
		}
		g.Go(func() error { return h.Run(ctx) })
		select {
		case <-h.Ready():
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		ask = append(ask, &client.Client{URL: h.URL(), TokenFile: hub.AdminToken(filepath.Join(dir, fmt.Sprint(i)))})
	}
	for begin := time.Now(); time.Since(begin) < 10*time.Minute; time.Sleep(20 * time.Millisecond) {
		have, well := uint64(0), true
		most = 0
		for _, c := range ask {
			var st hub.Status
			if err := c.Do(ctx, "/v1/fleet", nil, &st); err != nil {
				return 0, err
			}
			have, most = have+st.Nodes.Samples, max(most, st.Nodes.Samples)
			well = well && st.Problem == "" && st.Waiting == 0 && len(st.Mine) > 0
		}
		if well && have == samples {
			return most, nil
		}
	}
	return 0, fmt.Errorf("after ten minutes %d hubs have not %d samples", s.Hubs, samples)
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	if len(list) == 0 {
		return 0
	}
	return (list[len(list)/2] + list[(len(list)-1)/2]) / 2
}

// ratio is the median of what one arrangement takes by what another takes, round by round, with the least and the most.
func ratio(a, b []float64) (middle, least, most float64) {
	list := make([]float64, min(len(a), len(b)))
	for i := range list {
		list[i] = a[i] / b[i]
	}
	if len(list) == 0 {
		return 0, 0, 0
	}
	return median(list), slices.Min(list), slices.Max(list)
}

func (c *Cost) writeShared(w io.Writer) {
	for i := range c.Shared {
		s := &c.Shared[i]
		fmt.Fprintf(w, "samples a second out of a backlog, %d hubs, %d partitions (%d samples in %d messages, median of %d; %.1f CPU-seconds; most of one hub %.0f %%)\t%.0f\t-\n",
			s.Hubs, s.Partitions, s.Samples, s.Messages, len(s.Seconds), median(s.CPU), 100*s.Most, float64(s.Samples)/median(s.Seconds))
	}
	if len(c.Shared) < 3 {
		return
	}
	line := func(what string, a, b []float64, goal string) {
		middle, least, most := ratio(a, b)
		fmt.Fprintf(w, "%s\t%.2f (%.2f to %.2f)\t%s\n", what, middle, least, most, goal)
	}
	one, parts, two := &c.Shared[0], &c.Shared[1], &c.Shared[2]
	line("CPU of two hubs by that of one, as many partitions", two.CPU, parts.CPU, fmt.Sprintf("≤ %g", goalShareCPU))
	line("time of two hubs by that of one, as many partitions", two.Seconds, parts.Seconds, fmt.Sprintf("≤ %g", goalShareTime))
	line(fmt.Sprintf("CPU of one hub with %d partitions by that of one without", sharedParts), parts.CPU, one.CPU, "-")
}
