package hub

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/internal/testchild"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of the kill test; 0: a new one, which is printed")
	killFor  = flag.Duration("kill-for", 8*time.Second, "how long the kill test kills")
)

// hubChild is a hub as a process of its own: hub DIR ADDRESS.
func hubChild(p *testchild.Parent, args []string) error {
	cfg := testConfig(args[0])
	cfg.NATSListen = args[1]
	h, err := New(cfg)
	if err != nil {
		return err
	}
	go func() {
		<-h.Ready()
		p.Say("ready")
	}()
	return h.Run(context.Background())
}

// nodeChild is an agent's end of the fleet as a process of its own: node URL NAME SEED DIR TALLY. Before a batch is handed on
// for sending it notes in the tally what it will be called; what the spool has, it will send.
func nodeChild(p *testchild.Parent, args []string) error {
	n := startNode(failing{}, context.Background(), args[0], args[1], args[2], args[3])
	p.Say("ready")
	for {
		n.window(2)
		time.Sleep(time.Duration(1+n.mono%7) * time.Millisecond)
		if n.mono%(200*1e9) == 0 {
			st := n.Status()
			line := fmt.Sprintf("%d %d %d\n", st.Sent, st.Waiting, st.Lost)
			if err := os.WriteFile(args[4], []byte(line), 0o600); err != nil {
				return err
			}
		}
	}
}

// failing is a testing.TB of a child.
type failing struct{ testing.TB }

func (failing) Helper()           {}
func (failing) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// TestKills ends hub and nodes by SIGKILL at random moments under load. In the end every batch of every spool must be in the store, from
// the first to the last that was seen, each with all its samples and none twice.
func TestKills(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) //nolint:gosec // any seed will do
	}
	t.Logf("go test ./fleet/hub -run TestKills -args -seed %d -kill-for %s", seed, *killFor)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	address := freeAddress(t)
	url := "nats://" + address
	const count = 4
	var seeds, spools, tallies []string
	for i := range count {
		seeds = append(seeds, enrol(t, dir, fmt.Sprintf("n%d", i)))
		spools = append(spools, t.TempDir())
		tallies = append(tallies, filepath.Join(t.TempDir(), "tally"))
	}
	startHubChild := func() *testchild.Child {
		c := testchild.Start(t, "hub "+dir+" "+address)
		return c
	}
	startNodeChild := func(i int) *testchild.Child {
		return testchild.Start(t, strings.Join([]string{"node", url, fmt.Sprintf("n%d", i), seeds[i], spools[i], tallies[i]}, " "))
	}
	hub := startHubChild()
	nodes := make([]*testchild.Child, count)
	for i := range nodes {
		nodes[i] = startNodeChild(i)
	}
	hubs, agents := 0, 0
	for end := time.Now().Add(*killFor); time.Now().Before(end); {
		time.Sleep(time.Duration(100+rng.IntN(1200)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			hub.End()
			hubs++
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			hub = startHubChild()
		} else {
			i := rng.IntN(count)
			nodes[i].End()
			agents++
			nodes[i] = startNodeChild(i)
		}
	}
	for _, n := range nodes {
		n.End()
	}
	waiting := spooled(t, spools)
	// What the spools still hold is sent by nodes that have nothing new.
	for i := range count {
		n := startNode(t, t.Context(), url, fmt.Sprintf("n%d", i), seeds[i], spools[i])
		eventually(t, "the spools are empty", func() bool {
			st := n.Status()
			return st.Connected && st.Waiting == 0
		})
		n.Close()
	}
	time.Sleep(2 * time.Second) // a commit
	hub.End()
	s, err := store.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := storedIn(s)
	if err != nil {
		t.Fatal(err)
	}
	last, total := map[string]int{}, 0
	for name, samples := range got {
		at := strings.LastIndexByte(name, ' ')
		seq, err := strconv.Atoi(name[at+1:])
		if err != nil {
			t.Fatal(err)
		}
		last[name[:at]] = max(last[name[:at]], seq)
		total++
		if samples != 2 {
			t.Errorf("%s has %d samples", name, samples)
		}
	}
	for spool, n := range last {
		for seq := 1; seq <= n; seq++ {
			if got[fmt.Sprintf("%s %d", spool, seq)] == 0 {
				t.Errorf("batch %d of %s is lost; the last is %d", seq, spool, n)
			}
		}
	}
	for _, name := range waiting {
		if got[name] == 0 {
			t.Errorf("%s waited in a spool and is not in the store", name)
		}
	}
	t.Logf("%d hubs and %d nodes killed; %d batches of %d spools", hubs, agents, total, len(last))
	if hubs+agents < 5 || total < 100 {
		t.Errorf("%d kills and %d batches: this tests nothing", hubs+agents, total)
	}
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
