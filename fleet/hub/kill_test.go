package hub

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/testchild"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of the kill test; 0: a new one, which is printed")
	killFor  = flag.Duration("kill-for", 8*time.Second, "how long the kill test kills")
)

// hubChild is a hub as a process of its own: hub DIR ADDRESS, where an address with a scheme is of a cluster. It says where its pages are.
func hubChild(p *testchild.Parent, args []string) error {
	cfg := killConfig(args[0], args[1])
	if len(args) > 2 {
		cfg.CommitEvery = time.Hour
	}
	h, err := New(cfg)
	if err != nil {
		return err
	}
	go func() {
		<-h.Ready()
		p.Say("%s", h.URL())
	}()
	return h.Run(context.Background())
}

func killConfig(dir, address string) Config {
	cfg := testConfig(dir)
	if cfg.NATSListen = address; strings.Contains(address, "://") {
		cfg.NATS, cfg.Replicas = address, 3
	}
	return cfg
}

// nodeChild is an agent's end of the fleet as a process of its own: node URL NAME SEED DIR TALLY, of which SEED may be "none". The tally gets a line
// with the run and how many of its batches came to the disk, which are then the hub's or wait in the spool, each time that this is seen.
func nodeChild(p *testchild.Parent, args []string) error {
	tally, err := os.OpenFile(args[4], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n := startNode(failing{}, context.Background(), args[0], args[1], strings.TrimPrefix(args[2], "none"), args[3])
	n.run = strconv.FormatInt(time.Now().UnixNano(), 36)
	before := kept(n.Status())
	p.Say("ready")
	for {
		n.window(2)
		time.Sleep(time.Duration(1+n.mono/1e9%7) * time.Millisecond)
		if _, err := fmt.Fprintln(tally, n.run, kept(n.Status())-before); err != nil {
			return err
		}
	}
}

// failing is a testing.TB of a child.
type failing struct{ testing.TB }

func (failing) Helper()           {}
func (failing) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// killBed is a fleet of processes that are killed.
type killBed struct {
	dir, address, url      string
	members                []*member // of the cluster; nil: the hub has a server
	hub                    *testchild.Child
	nodes                  []*testchild.Child
	seeds, spools, tallies []string
	next                   []int // who is killed next, of servers, hub and nodes
	hubs, agents, servers  int   // that were killed
}

func newKillBed(t *testing.T, clustered bool) *killBed {
	const count = 4
	b := &killBed{dir: t.TempDir(), nodes: make([]*testchild.Child, count)}
	if clustered {
		b.members, b.url = newCluster(t, 3)
		b.address = b.url
	} else {
		b.address = freeAddress(t)
		b.url = "nats://" + b.address
	}
	for i := range count {
		seed := "none"
		if !clustered {
			seed = enrol(t, b.dir, fmt.Sprintf("n%d", i))
		}
		b.seeds, b.spools, b.tallies = append(b.seeds, seed), append(b.spools, t.TempDir()), append(b.tallies, filepath.Join(t.TempDir(), "tally"))
	}
	b.startHub(t)
	for i := range b.nodes {
		b.startNode(t, i)
	}
	return b
}

func (b *killBed) startHub(t *testing.T) { b.hub = testchild.Start(t, "hub "+b.dir+" "+b.address) }

func (b *killBed) startNode(t *testing.T, i int) {
	b.nodes[i] = testchild.Start(t, strings.Join([]string{"node", b.url, fmt.Sprintf("n%d", i), b.seeds[i], b.spools[i], b.tallies[i]}, " "))
}

// kill ends somebody at random, each kind in turn, and starts it again. A server is killed while all of them are well: two of three are the cluster.
func (b *killBed) kill(t *testing.T, rng *rand.Rand) {
	if len(b.next) == 0 {
		b.next = rng.Perm(3)
	}
	who, i, pause := b.next[0], rng.IntN(len(b.nodes)), time.Duration(rng.IntN(300))*time.Millisecond
	b.next = b.next[1:]
	switch {
	case who == 0 && b.members != nil && !slices.ContainsFunc(b.members, func(m *member) bool { return !m.well() }):
		m := b.members[i%len(b.members)]
		m.End()
		time.Sleep(pause)
		m.start(t)
		b.servers++
	case who == 1:
		b.hub.End()
		time.Sleep(pause)
		b.startHub(t)
		b.hubs++
	default:
		b.nodes[i].End()
		b.startNode(t, i)
		b.agents++
	}
}

// TestKills ends hub, nodes and, of a cluster, servers by SIGKILL at random moments under load. In the end every batch that a run of a node had on its
// disk, and all before it, must be in the store, each with all its samples and none twice.
func TestKills(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) //nolint:gosec // any seed will do
	}
	t.Logf("go test ./fleet/hub -run TestKills -args -seed %d -kill-for %s", seed, *killFor)
	for name, clustered := range map[string]bool{"a hub with its server": false, "a hub and a cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newKillBed(t, clustered)
			rng := rand.New(rand.NewPCG(seed, 0))
			for end := time.Now().Add(*killFor); time.Now().Before(end); {
				time.Sleep(time.Duration(100+rng.IntN(1200)) * time.Millisecond)
				b.kill(t, rng)
			}
			for _, n := range b.nodes {
				n.End()
			}
			b.hub.End()
			waiting := spooled(t, b.spools)
			b.drain(t)
			b.check(t, waiting)
		})
	}
}

// drain has nodes that have nothing new send what the spools still hold, and a hub store it.
func (b *killBed) drain(t *testing.T) {
	t.Helper()
	for _, m := range b.members {
		eventually(t, "all servers are back", m.well)
	}
	h := startHub(t, killConfig(b.dir, b.address))
	for i := range b.nodes {
		n := startNode(t, t.Context(), b.url, fmt.Sprintf("n%d", i), strings.TrimPrefix(b.seeds[i], "none"), b.spools[i])
		eventually(t, "the spools are empty", func() bool {
			st := n.Status()
			return st.Connected && st.Waiting == 0
		})
		n.Close()
	}
	eventually(t, "the stream is in the store", func() bool {
		stream, err := h.Hub.t.js.Stream(t.Context(), wire.Stream)
		through, _ := h.store.Committed()
		return err == nil && through >= stream.CachedInfo().State.LastSeq
	})
	h.stop()
}

// check compares the store with what the runs of the nodes had on disk, and with the batches that waited at the end.
func (b *killBed) check(t *testing.T, waiting []string) {
	t.Helper()
	s, err := store.Open(filepath.Join(b.dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := storedIn(s)
	if err != nil {
		t.Fatal(err)
	}
	for name, samples := range got {
		if samples != 2 {
			t.Errorf("%s has %d samples", name, samples)
		}
	}
	last, spool := map[string]uint64{}, map[string]string{} // by the path of a run's task
	if err := s.Replay(0, func(of *wire.Batch) {
		for _, task := range of.Tasks {
			if task.Job == "batch" {
				last[task.Path], spool[task.Path] = max(last[task.Path], of.Seq), of.Node+" "+of.Spool
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	had := tallied(t, b.tallies)
	for run, name := range spool {
		for seq := uint64(1); seq <= max(last[run], had[run]); seq++ {
			if got[fmt.Sprintf("%s %d", name, seq)] == 0 {
				t.Errorf("batch %d of %s is lost; the last is %d, and %d were on disk", seq, name, last[run], had[run])
			}
		}
	}
	for run, count := range had {
		if count > 0 && spool[run] == "" {
			t.Errorf("%d batches of run %s were on disk and none is in the store", count, run)
		}
	}
	for _, name := range waiting {
		if got[name] == 0 {
			t.Errorf("%s waited in a spool and is not in the store", name)
		}
	}
	t.Logf("%d hubs, %d nodes and %d servers killed; %d batches of %d spools, %d of them known to have been on disk", b.hubs, b.agents, b.servers, len(got), len(last), len(had))
	if min(b.hubs, b.agents) == 0 || b.members != nil && b.servers == 0 || b.hubs+b.agents+b.servers < 5 || len(got) < 100 || len(had) < len(b.nodes) {
		t.Error("this tests nothing")
	}
}

// tallied is how many batches each run had on disk at least, by the path of its task.
func tallied(t *testing.T, paths []string) map[string]uint64 {
	t.Helper()
	had := map[string]uint64{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var run string
			var count uint64
			if n, _ := fmt.Sscanln(line, &run, &count); n == 2 {
				had["/be <b>x</b>"+run] = count // which only grows
			}
		}
	}
	return had
}

// spooled names the batches that wait in spools, as storedIn does.
func spooled(t *testing.T, dirs []string) (names []string) {
	t.Helper()
	for i, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.batch"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			parts := strings.Split(strings.TrimSuffix(filepath.Base(f), ".batch"), "-")
			seq, err := strconv.Atoi(parts[2])
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, fmt.Sprintf("n%d %s %d", i, parts[1], seq))
		}
	}
	return names
}
