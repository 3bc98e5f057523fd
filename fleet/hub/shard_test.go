package hub

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/model"
)

const (
	shardWindows = 40 // of each task until a spec forms
	shardTasks   = 3  // of each job
	shardJobs    = 12
	shardNodes   = 6
	shardParts   = 8
)

// shardConfig is that of a hub among several. A spec forms once all samples of the first so many windows are there, and so of the same samples
// whatever came when.
func shardConfig(dir, url string, shard, shards int) Config {
	cfg := testConfig(dir)
	cfg.NATS, cfg.Partitions, cfg.Shard, cfg.Shards, cfg.LeaseSilence = url, shardParts, shard, shards, 2*time.Second
	cfg.Spec.MinTasks, cfg.Spec.MinSamplesPerTask = shardTasks, shardWindows
	return cfg
}

// shardChild is one of several hubs as a process of its own: shard DIR URL NUMBER SHARDS. It ends when it is told anything.
func shardChild(p *testchild.Parent, args []string) error {
	var number, shards int
	if _, err := fmt.Sscan(args[2]+" "+args[3], &number, &shards); err != nil {
		return err
	}
	h, err := New(shardConfig(args[0], args[1], number, shards))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-h.Ready()
		p.Say("%s", h.URL())
		p.Line()
		cancel()
	}()
	return h.Run(ctx)
}

// remote is a hub as a process of its own.
type remote struct {
	*testchild.Child
	dir, url string
}

func startShard(t *testing.T, dir, url string, number, shards int) *remote {
	t.Helper()
	c := testchild.Start(t, fmt.Sprintf("shard %s %s %d %d", dir, url, number, shards))
	return &remote{c, dir, c.Line()}
}

// ask asks it as its administrator.
func (r *remote) ask(t *testing.T, path string) map[string]any {
	t.Helper()
	token, err := os.ReadFile(AdminToken(r.dir))
	if err != nil {
		t.Fatal(err)
	}
	code, m := callAt(t, r.url, strings.TrimSpace(string(token)), "GET", path, "")
	if code != http.StatusOK {
		t.Fatalf("%s: %d %v", path, code, m)
	}
	return m
}

// drawnFleet is a fleet whose jobs run on drawn nodes, each on shardTasks of them.
type drawnFleet struct {
	t     *testing.T
	rng   *rand.Rand
	nodes []*testNode
	jobs  [][]int              // of each node
	fed   int                  // samples of all nodes
	said  map[string][]float64 // CPI, by job
}

func newDrawnFleet(t *testing.T, seed uint64, url string, seedOf func(node string) string) *drawnFleet {
	t.Helper()
	f := &drawnFleet{t: t, rng: rand.New(rand.NewPCG(seed, 7)), jobs: make([][]int, shardNodes), said: map[string][]float64{}}
	for job := range shardJobs {
		for _, i := range f.rng.Perm(shardNodes)[:shardTasks] {
			f.jobs[i] = append(f.jobs[i], job)
		}
	}
	for i := range shardNodes {
		name := fmt.Sprintf("n%d", i)
		n := startNode(t, t.Context(), url, name, seedOf(name), t.TempDir())
		t.Cleanup(n.Close)
		f.nodes = append(f.nodes, n)
	}
	return f
}

// feed hands in some windows of all nodes, each once the one before is on disk.
func (f *drawnFleet) feed(windows int) {
	f.t.Helper()
	for range windows {
		for i, n := range f.nodes {
			n.mono += 1e9
			n.wall = n.wall.Add(time.Second)
			w := uplink.Window{MonoNsec: n.mono, WallNsec: n.wall.UnixNano()}
			for k, job := range f.jobs[i] {
				num := model.TaskNum(k + 1)
				w.Tasks = append(w.Tasks, model.Task{Num: num, Path: fmt.Sprintf("/t%d", k), Job: fmt.Sprintf("job-%d", job), Class: model.LC})
				o := model.TaskObservation{Num: num, CPU: model.Known(0.5 + f.rng.Float64())}
				for src := range model.NumSources {
					o.Signals[src] = model.Missing(model.Absent)
				}
				cpi := 1 + float64(job) + 0.1*f.rng.NormFloat64()
				f.said[w.Tasks[k].Job] = append(f.said[w.Tasks[k].Job], cpi)
				o.Signals[model.SourceCPI] = model.Known(cpi)
				w.Observed, w.Flags = append(w.Observed, o), append(w.Flags, wire.Usable)
			}
			if len(w.Tasks) == 0 {
				continue
			}
			f.fed += len(w.Tasks)
			if !n.onDisk(func() { n.Gather.Add(&w); n.Turn(n.mono + 1) }) {
				f.t.Fatal("a batch does not get to disk")
			}
		}
	}
}

// settle waits until all is sent, and until the hubs have taken all off the stream.
func (f *drawnFleet) settle(url string) {
	f.t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		f.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, n := range f.nodes {
		eventually(f.t, n.name+" gets rid of all", func() bool { st := n.Status(); return st.Waiting == 0 && st.Connected })
		if st := n.Status(); st.Lost > 0 {
			f.t.Fatalf("%s lost %d batches", n.name, st.Lost)
		}
	}
	eventually(f.t, "the stream is empty", func() bool {
		stream, err := js.Stream(f.t.Context(), wire.Stream)
		return err == nil && stream.CachedInfo().State.Msgs == 0
	})
}

// sheetsIn returns the sheets that were published of each job.
func sheetsIn(t *testing.T, b *bed) map[string][]wire.SpecSheet {
	t.Helper()
	out := map[string][]wire.SpecSheet{}
	for job := range shardJobs {
		name := fmt.Sprintf("job-%d", job)
		list, err := b.sheetsOf(t.Context(), spec.Key{Job: name, Platform: "cpu"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			out[name] = list
		}
	}
	return out
}

// inStores counts the samples of each batch of some folders; one that is in two is an error.
func inStores(t *testing.T, dirs ...string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, dir := range dirs {
		s, err := store.Open(filepath.Join(dir, "store"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := storedIn(s)
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range got {
			if all[name] > 0 {
				t.Errorf("%s is in two stores, or twice", name)
			}
			all[name] += n
		}
	}
	return all
}

func total(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func (b *bed) troubled() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.problem
}

func (b *bed) jobs() (list []JobStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.learner.Jobs {
		list = append(list, b.job(k))
	}
	return list
}

func testSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) //nolint:gosec // any seed will do
	}
	t.Logf("go test ./fleet/hub -run %s -args -seed %d", t.Name(), seed)
	return seed
}

// Three hubs share what one hub has in another fleet, which gets the same samples: each sample is in one store, each spec is published once, by the hub that
// has the job, and is that of the only hub. One is killed and goes on in its folder; of another the folder is lost, and who takes its place must be
// told so, goes on from what that hub had learned, and publishes none that is of less. A second hub for partitions that are taken reads nothing.
func TestHubsShareAFleet(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	alone := testConfig(t.TempDir())
	alone.Spec.MinTasks, alone.Spec.MinSamplesPerTask = shardTasks, shardWindows
	only := startHub(t, alone)
	_, url := newCluster(t, 1)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	first := startHub(t, shardConfig(dirs[0], url, 1, 3))
	second, third := startShard(t, dirs[1], url, 2, 3), startShard(t, dirs[2], url, 3, 3)
	one := newDrawnFleet(t, seed, only.NodesURL(), func(node string) string { return enrol(t, only.dir, node) })
	three := newDrawnFleet(t, seed, url, func(string) string { return "" })
	for _, n := range three.nodes {
		eventually(t, n.name+" hears of the layout", func() bool { return n.Status().Parts == shardParts })
	}
	one.feed(shardWindows)
	three.feed(shardWindows / 2)
	second.End()
	three.feed(shardWindows / 4)
	again := startHub(t, shardConfig(dirs[1], url, 2, 3))
	three.feed(shardWindows - shardWindows/2 - shardWindows/4)
	want, got := map[string][]wire.SpecSheet{}, map[string][]wire.SpecSheet{}
	eventually(t, "all specs are there", func() bool {
		want, got = sheetsIn(t, only), sheetsIn(t, first)
		return len(want) == shardJobs && len(got) == shardJobs
	})
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(a) }
	for job, sheets := range want {
		a, b := &sheets[0].Specs[0], &got[job][0].Specs[0]
		if len(sheets) != 1 || len(got[job]) != 1 || got[job][0].Revision != 1 || a.NumSamples != shardTasks*shardWindows || b.NumSamples != a.NumSamples ||
			!near(a.Mean, b.Mean) || !near(a.StdDev, b.StdDev) || !near(a.UsageMean, b.UsageMean) {
			t.Errorf("%s: %+v\nof the only hub: %+v", job, got[job], sheets)
		}
	}
	three.settle(url)
	third.End()
	lost := filepath.Join(t.TempDir(), "lost")
	if err := os.Rename(dirs[2], lost); err != nil {
		t.Fatal(err)
	}
	cfg := shardConfig(dirs[2], url, 3, 3)
	refused := startHub(t, cfg)
	three.feed(2)
	eventually(t, "a hub without the folder is refused", func() bool { return strings.Contains(refused.troubled(), "--take-over") })
	refused.stop()
	cfg.TakeOver = true
	third2 := startHub(t, cfg)
	eventually(t, "it takes over", func() bool { return third2.troubled() == "" && len(third2.jobs()) > 0 })
	twin := startHub(t, shardConfig(t.TempDir(), url, 1, 3))
	eventually(t, "a second one of the first shard is refused", func() bool { return strings.Contains(twin.troubled(), "held by the hub at "+first.shard.me.Name) })
	if res, err := http.Get(twin.URL() + "/healthz"); err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%v %v", res, err)
	} else {
		res.Body.Close()
	}
	three.feed(shardWindows)
	own := func(job string) bool { return third2.owns(job) }
	eventually(t, "it publishes", func() bool {
		done := true
		for job, sheets := range sheetsIn(t, first) {
			done = done && (!own(job) || len(sheets) > 1)
		}
		return done
	})
	three.settle(url)
	for job, sheets := range sheetsIn(t, first) {
		if own(job) && sheets[1].Specs[0].NumSamples <= shardTasks*shardWindows {
			t.Errorf("%s: what was learned before is not in the first sheet of the new hub: %+v", job, sheets[1])
		}
		for i := range sheets[1:] {
			if sheets[i+1].Revision != sheets[i].Revision+1 || sheets[i+1].Specs[0].NumSamples < sheets[i].Specs[0].NumSamples-1 {
				t.Errorf("%s: %+v after %+v", job, sheets[i+1], sheets[i])
			}
		}
	}
	for _, b := range []*bed{first, again, third2} {
		for _, j := range b.jobs() {
			if !b.owns(j.Job) {
				t.Errorf("shard %d has learned of %s", b.cfg.Shard, j.Job)
			}
		}
	}
	if n := len(first.jobs()) + len(again.jobs()) + len(third2.jobs()); n != shardJobs {
		t.Errorf("%d jobs are known, of %d", n, shardJobs)
	}
	for _, b := range []*bed{twin, first, again, third2} {
		b.stop()
	}
	if n := total(inStores(t, twin.dir)); n != 0 {
		t.Errorf("the hub that was refused has %d samples", n)
	}
	all := inStores(t, dirs...)
	gone := inStores(t, lost)
	for name, n := range gone { // that the stream had still
		if all[name] == 0 {
			all[name] = n
		}
	}
	if total(all) != three.fed || len(gone) == 0 {
		t.Errorf("%d samples in the stores, %d of them lost with a folder, of %d", total(all), total(gone), three.fed)
	}
}

// Hubs become more and fewer, one after the other, while nodes go on, and are killed now and then: what a hub gives back another goes on with, what one
// that was killed had comes back once it runs again, whatever its share is then, and each sample is in one store.
func TestHubsBecomeMoreAndFewer(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 8))
	_, url := newCluster(t, 1)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()}
	f := newDrawnFleet(t, seed, url, func(string) string { return "" })
	var hubs [4]*remote // nil: there is none now
	stop := func(i int, kill bool) {
		switch {
		case hubs[i] == nil:
		case kill:
			hubs[i].End()
		default:
			hubs[i].Say("stop")
			if _, err := hubs[i].Wait(); err != nil {
				t.Errorf("shard %d: %v", i+1, err)
			}
		}
		hubs[i] = nil
	}
	for _, shards := range []int{1, 3, 4, 2, 4, 3} {
		for _, i := range rng.Perm(len(hubs)) { // rolling, in any order
			stop(i, i < shards && rng.IntN(2) == 0)
			if i < shards {
				hubs[i] = startShard(t, dirs[i], url, i+1, shards)
				if rng.IntN(3) == 0 { // it hardly begins
					time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
					stop(i, rng.IntN(2) == 0)
					hubs[i] = startShard(t, dirs[i], url, i+1, shards)
				}
			}
			if hubs[0] != nil { // else there may be no stream yet
				f.feed(rng.IntN(3))
			}
		}
		for _, n := range f.nodes {
			eventually(t, n.name+" hears of the layout", func() bool { return n.Status().Parts == shardParts })
		}
		f.feed(5)
		f.settle(url)
		jobs := 0
		for i, r := range hubs[:shards] {
			var st map[string]any
			eventually(t, fmt.Sprintf("shard %d of %d reads", i+1, shards), func() bool { st = r.ask(t, "/v1/fleet"); return st["problem"] == nil })
			if st["shard"] != fmt.Sprintf("%d/%d", i+1, shards) || len(st["own_partitions"].([]any)) != (shardParts-i+shards-1)/shards {
				t.Errorf("%v", st)
			}
			jobs += len(r.ask(t, "/v1/jobs")["jobs"].([]any))
		}
		if jobs != shardJobs {
			t.Errorf("%d hubs know %d jobs of %d", shards, jobs, shardJobs)
		}
	}
	for i := range hubs {
		stop(i, false)
	}
	if all := inStores(t, dirs...); total(all) != f.fed || f.fed < 500 {
		t.Errorf("%d samples in the stores, of %d", total(all), f.fed)
	}
	cfg := shardConfig(dirs[0], url, 1, 1)
	cfg.Partitions = shardParts / 2
	fewer := startHub(t, cfg)
	eventually(t, "fewer partitions are refused", func() bool { return strings.Contains(fewer.troubled(), "fewer (4) are not possible") })
}
