package hub

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
)

// knows checks that what some hubs have learned of all jobs together is of all samples that were sent, each once, by their quantiles.
func (f *drawnFleet) knows(when string, hubs ...*bed) {
	f.t.Helper()
	jobs := map[string]SignalStatus{}
	for _, b := range hubs {
		for _, j := range b.jobs() {
			if _, twice := jobs[j.Job]; twice {
				f.t.Errorf("%s: two hubs know %s", when, j.Job)
			}
			jobs[j.Job] = j.Signals[0]
		}
	}
	if len(jobs) != len(f.said) {
		f.t.Errorf("%s: %d jobs are known, of %d", when, len(jobs), len(f.said))
	}
	for job, all := range f.said {
		sorted, s := slices.Sorted(slices.Values(all)), jobs[job]
		if math.Abs(s.Samples-float64(len(all))) > 0.1 {
			f.t.Errorf("%s: %s is of %.2f samples, of %d that were sent", when, job, s.Samples, len(all))
			continue
		}
		for q, got := range map[float64]float64{0.5: s.P50, 0.9: s.P90, 0.99: s.P99} {
			at := int(math.Ceil(q * float64(len(sorted))))
			// Samples age by a hair meanwhile, so that it may be the one after that, too.
			want, next := sorted[at-1], sorted[min(at, len(sorted)-1)]
			// An outlier counts as the threshold, which lies above the 0.9 quantile.
			if got > next*(1+spec.Accuracy) || q < 0.95 && got < want*(1-1.1*spec.Accuracy) {
				f.t.Errorf("%s: %s: quantile %g is %g, want %g", when, job, q, got, want)
			}
		}
	}
}

// What is learned goes with a partition: when a hub leaves and its share goes to another, when one is killed and its folder comes back with another share, and
// when the folder is lost, in which case the next hub learns from what the stream has, too. Whatever happens when, the quantiles are those of all samples, none counted twice.
func TestWhatIsLearnedChangesHands(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	_, url := newCluster(t, 1)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	f := newDrawnFleet(t, seed, url, func(string) string { return "" })
	only := startHub(t, shardConfig(dirs[0], url, 1, 1))
	for _, n := range f.nodes {
		eventually(t, n.name+" hears of the layout", func() bool { return n.Status().Parts == shardParts })
	}
	f.feed(shardWindows)
	f.settle(url)
	f.knows("one hub", only)
	only.stop()

	first, second := startHub(t, shardConfig(dirs[0], url, 1, 2)), startShard(t, dirs[1], url, 2, 2)
	f.feed(5)
	f.settle(url)
	second.End() // and comes back with another share
	f.feed(3)
	first.stop()
	again := startHub(t, shardConfig(dirs[1], url, 1, 1))
	f.settle(url)
	f.knows("killed, and back", again)
	again.stop()

	first, second = startHub(t, shardConfig(dirs[0], url, 1, 2)), startShard(t, dirs[2], url, 2, 2)
	for range 5 { // killed in the midst
		f.feed(4)
		time.Sleep(50 * time.Millisecond)
	}
	second.End()
	if err := os.Rename(dirs[2], filepath.Join(t.TempDir(), "lost")); err != nil {
		t.Fatal(err)
	}
	cfg := shardConfig(dirs[2], url, 2, 2)
	cfg.TakeOver = true
	heir := startHub(t, cfg)
	eventually(t, "it takes over", func() bool { return heir.troubled() == "" && len(heir.jobs()) > 0 })
	f.feed(3)
	f.settle(url)
	f.knows("killed, and the folder lost", first, heir)
	f.feed(shardWindows)
	f.settle(url)
	f.knows("and on", first, heir)
}

// Who takes over stores what the stream still has of a hub whose folder is lost, and learns only from what that one had not: also from what comes again later, and after
// a restart.
func TestNothingIsLearnedTwice(t *testing.T) {
	_, url := newCluster(t, 1)
	dirs := []string{t.TempDir(), t.TempDir()}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	const job = "web"
	send := func(from, to uint64) {
		t.Helper()
		for seq := from; seq <= to; seq++ {
			x := &wire.Batch{Node: "n", Spool: "0123456789abcdef", Seq: seq, Platform: "cpu", Tasks: []wire.Task{{Path: "/t", Job: job}}}
			x.Samples = wire.Samples{Task: []uint32{0}, WallMsec: []int64{time.Now().UnixMilli()}, CPU: []float32{1}, Flags: []uint32{wire.Usable}, Signals: []wire.Signal{{Values: []float32{float32(seq)}}}}
			data, err := codec.Encode(x)
			if err == nil {
				_, err = js.Publish(t.Context(), wire.Up("n", wire.PartOf(job, shardParts)), data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	f := &drawnFleet{t: t}
	samples := func(b *bed) float64 {
		list := b.jobs()
		if len(list) != 1 {
			return -float64(len(list))
		}
		return list[0].Signals[0].Samples
	}
	child := startShard(t, dirs[0], url, 1, 1)
	send(1, 20)
	f.settle(url) // so that it has left what it learned
	child.End()
	if err := os.Rename(dirs[0], filepath.Join(t.TempDir(), "lost")); err != nil {
		t.Fatal(err)
	}
	send(11, 30) // ten of them the dead hub had learned from, as if it had not come to purging them
	cfg := shardConfig(dirs[1], url, 1, 1)
	cfg.TakeOver = true
	heir := startHub(t, cfg)
	eventually(t, "it takes over", func() bool { return samples(heir) >= 30 })
	f.settle(url)
	if n := samples(heir); math.Abs(n-30) > 0.1 {
		t.Errorf("learned from %g samples of 30", n)
	}
	heir.stop()
	if n := total(inStores(t, dirs[1])); n != 20 {
		t.Errorf("%d samples are stored, of the 20 that the stream had", n)
	}
	heir = startHub(t, cfg)
	send(5, 31) // 5 to 10 were never here
	f.settle(url)
	if n := samples(heir); math.Abs(n-31) > 0.1 {
		t.Errorf("after a restart learned from %g samples of 31", n)
	}
	heir.stop()
	if n := total(inStores(t, dirs[1])); n != 27 && n != 21 { // numbers below the last of a spool are doubles
		t.Errorf("%d samples are stored", n)
	}
}

// What a hub leaves is taken over only if it was the last to have the partition, and only if it can be read; else the specs in force are. A job that has a later sheet than what is
// learned of it follows that, and what an operator pinned since stays pinned.
func TestWhatIsLeftIsJudged(t *testing.T) {
	_, url := newCluster(t, 1)
	dirs := []string{t.TempDir(), t.TempDir()}
	f := newDrawnFleet(t, 5, url, func(string) string { return "" })
	a := startHub(t, shardConfig(dirs[0], url, 1, 1))
	for _, n := range f.nodes {
		eventually(t, n.name+" hears of the layout", func() bool { return n.Status().Parts == shardParts })
	}
	f.feed(shardWindows)
	f.settle(url)
	eventually(t, "all specs are there", func() bool { return len(sheetsIn(t, a)) == shardJobs })
	pinned := spec.Key{Job: "job-3", Platform: "cpu"}
	a.stop()
	// An operator's act of which no object knows: after the hub left.
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), wire.SpecBucket)
	if err != nil {
		t.Fatal(err)
	}
	var sh wire.SpecSheet
	revision, err := lookUp(t.Context(), kv, wire.SpecKey("cpu", pinned.Job), &sh)
	if err != nil || revision == 0 {
		t.Fatal(err)
	}
	sh.Revision, sh.Pinned, sh.Specs[0].Mean = sh.Revision+7, true, 99
	if _, err := kv.Put(t.Context(), wire.SpecKey("cpu", pinned.Job), mustJSON(t, sh)); err != nil {
		t.Fatal(err)
	}
	box, err := js.ObjectStore(t.Context(), wire.MarksBucket)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := wire.PartOf("job-5", shardParts)
	if spoiled == wire.PartOf(pinned.Job, shardParts) {
		t.Fatal("two jobs of one partition")
	}
	if _, err := box.PutBytes(t.Context(), leftName(spoiled), []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	other := wire.PartOf("job-7", shardParts)
	b, err := box.GetBytes(t.Context(), leftName(other))
	if err != nil {
		t.Fatal(err)
	}
	l, state, err := unpack(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	l.Hub = "somebody else"
	var foreign bytes.Buffer
	if err := l.pack(&foreign, state, &sync.Mutex{}); err != nil {
		t.Fatal(err)
	}
	if _, err := box.PutBytes(t.Context(), leftName(other), foreign.Bytes()); err != nil {
		t.Fatal(err)
	}
	heir := startHub(t, shardConfig(dirs[1], url, 1, 1))
	eventually(t, "it takes up", func() bool { return heir.troubled() == "" && len(heir.jobs()) == shardJobs })
	for _, j := range heir.jobs() {
		s, part := j.Signals[0], wire.PartOf(j.Job, shardParts)
		anew := part == spoiled || part == other
		want := float64(shardTasks * shardWindows)
		if anew {
			want = 0
		}
		if math.Abs(s.Samples-want) > 0.1 || !s.Published || j.Pinned != (j.Job == pinned.Job) || (s.Mean == 99) != j.Pinned || j.Revision == 0 {
			t.Errorf("%+v, want %g samples", j, want)
		}
	}
	if bad := strings.Count(fmt.Sprint(heir.troubled()), "damaged"); bad != 0 {
		t.Error(heir.troubled())
	}
}
