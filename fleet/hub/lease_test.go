package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
)

// A node whose acknowledgement was lost sends a batch again, after its partition went to another hub: it is stored in the first one's store only.
func TestBatchesThatComeAgainElsewhere(t *testing.T) {
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
	f := &drawnFleet{t: t}
	const count = 20
	send := func() {
		t.Helper()
		for i := range count {
			job := fmt.Sprintf("job-%d", i)
			x := &wire.Batch{Node: "n", Spool: "0123456789abcdef", Seq: uint64(i + 1), Platform: "cpu", Tasks: []wire.Task{{Path: "/t", Job: job}}}
			x.Samples = wire.Samples{Task: []uint32{0}, WallMsec: []int64{time.Now().UnixMilli()}, CPU: []float32{1}, Flags: []uint32{0}}
			data, err := codec.Encode(x)
			if err == nil {
				_, err = js.Publish(t.Context(), wire.Up("n", wire.PartOf(job, shardParts)), data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	alone := startHub(t, shardConfig(dirs[0], url, 1, 1))
	send()
	f.settle(url)
	alone.stop()
	send()
	first, second := startHub(t, shardConfig(dirs[0], url, 1, 2)), startHub(t, shardConfig(dirs[1], url, 2, 2))
	f.settle(url)
	st, err := second.status(t.Context())
	if err != nil || st.Nodes.Known != 1 || st.Nodes.Doubles == 0 || st.Nodes.Batches != 0 {
		t.Errorf("%+v %v", st, err)
	}
	first.stop()
	second.stop()
	if n := total(inStores(t, dirs...)); n != count {
		t.Errorf("%d samples, of %d", n, count)
	}
}

// A hub whose lease another has ends, and commits nothing of what it had taken in meanwhile. A lease that it wrote itself without hearing of it is its own.
func TestAHubIsDeposed(t *testing.T) {
	_, url := newCluster(t, 1)
	cfg := shardConfig(t.TempDir(), url, 1, 1)
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h.Run(t.Context()) }()
	<-h.Ready()
	f := newDrawnFleet(t, 1, url, func(string) string { return "" })
	eventually(t, "nodes hear of the layout", func() bool { return f.nodes[0].Status().Parts == shardParts })
	f.feed(3)
	f.settle(url)
	kv, err := h.t.js.KeyValue(t.Context(), wire.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), leaseKey(2), mustJSON(t, h.shard.me)); err != nil {
		t.Fatal(err)
	}
	f.feed(3)
	f.settle(url)
	other := h.shard.me
	other.Run, other.Hub, other.Name = "else", "else", "elsewhere"
	if _, err := kv.Put(t.Context(), leaseKey(2), mustJSON(t, other)); err != nil {
		t.Fatal(err)
	}
	fed := f.fed
	f.feed(30) // what was taken in before the next commit
	select {
	case err := <-done:
		if !errors.Is(err, errDeposed) || !strings.Contains(err.Error(), "elsewhere") {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
	if n := total(inStores(t, cfg.Dir)); n < fed || n >= f.fed {
		t.Errorf("%d samples in the store: %d were there before, %d in all", n, fed, f.fed)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A hub takes no gap that other hubs' messages leave for a loss, and each message that the consumer counted and did not bring for one.
func TestPlace(t *testing.T) {
	p := place{next: 10}
	for _, x := range []struct {
		consumer, stream uint64
		fresh, lost      bool
	}{{1, 10, true, false}, {2, 17, true, false}, {3, 18, true, false}, {3, 18, false, false}, {2, 17, false, false}, {5, 20, false, true}, {4, 19, true, false}, {5, 40, true, false}} {
		fresh, err := p.step(jetstream.SequencePair{Consumer: x.consumer, Stream: x.stream})
		if fresh != x.fresh || (err != nil) != x.lost {
			t.Errorf("%+v: %v %v", x, fresh, err)
		}
	}
}

// A share that cannot be is refused by name.
func TestShares(t *testing.T) {
	for want, c := range map[string]Config{
		"65 partitions": {Partitions: 65, NATS: "x"}, "shard 4/3": {Partitions: 8, Shard: 4, Shards: 3, NATS: "x"}, "3 hubs share 2": {Partitions: 2, Shard: 1, Shards: 3, NATS: "x"}, "--nats": {Partitions: 8, Shard: 1, Shards: 3},
	} {
		c.Listen, c.NATSListen = "127.0.0.1:0", "127.0.0.1:0"
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
