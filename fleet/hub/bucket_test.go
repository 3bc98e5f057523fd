package hub

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/bucket"
	"github.com/commensal-io/commensal/fleet/bucket/buckettest"
	"github.com/commensal-io/commensal/fleet/store"
)

// A hub whose bucket refuses goes on, and says so; once the bucket takes files they leave the folder, and all can be fetched.
func TestBucket(t *testing.T) {
	mem := buckettest.NewMemory()
	var away atomic.Bool
	away.Store(true)
	mem.Fault = func(string, string) buckettest.Fault {
		if away.Load() {
			return buckettest.Refuse
		}
		return buckettest.None
	}
	cfg := testConfig(t.TempDir())
	cfg.Keep, cfg.KeepLocal, cfg.Bucket, cfg.BucketEvery = 90*24*time.Hour, 24*time.Hour, mem, 50*time.Millisecond
	b := startHub(t, cfg)
	token := b.token("eve", Viewer)
	n := startNode(t, t.Context(), b.NodesURL(), "n", enrol(t, b.dir, "n"), t.TempDir())
	n.wall = time.Now().Add(-5 * 24 * time.Hour)
	eventually(t, "batches are sent", func() bool { n.window(2); return n.Status().Sent >= 20 })
	n.Close()
	eventually(t, "the store has them", func() bool { _, count := b.store.Committed(); return count >= n.Status().Sent })
	_, count := b.store.Committed()
	b.tidy(time.Now(), count)
	status := func() map[string]any {
		code, m := b.call(token, "GET", "/v1/fleet", "")
		if st, ok := m["bucket"].(map[string]any); ok && code == http.StatusOK {
			return st
		}
		t.Fatalf("%d, %v", code, m)
		return nil
	}
	eventually(t, "it says what waits, and why", func() bool {
		st := status()
		return st["waiting_files"].(float64) > 0 && strings.Contains(st["problem"].(string), buckettest.ErrFault.Error()) && strings.Contains(b.metricsText(), "commensal_hub_bucket_failing 1")
	})
	if code, _ := b.call("", "GET", "/healthz", ""); code != http.StatusOK {
		t.Errorf("/healthz is %d: the hub takes batches", code)
	}
	before, err := storedIn(b.store)
	if err != nil || len(before) < 20 {
		t.Fatalf("%d batches, %v", len(before), err)
	}
	away.Store(false)
	eventually(t, "the folder is empty", func() bool {
		left, err := b.store.Settled(time.Now())
		return err == nil && len(left) == 0 && status()["problem"] == nil && strings.Contains(b.metricsText(), "commensal_hub_bucket_failing 0")
	})
	into := t.TempDir()
	day := n.wall.UTC().Truncate(24 * time.Hour)
	if _, err := bucket.Fetch(t.Context(), mem, into, day.Add(-24*time.Hour), day); err != nil {
		t.Fatal(err)
	}
	back, err := storedInFolder(into)
	if err != nil || len(back) != len(before) {
		t.Fatalf("%d batches, %v; the bucket has %q, the folder %v", len(back), err, mem.Names(), fmt.Sprint(b.store.Usage()))
	}
	for name, samples := range before {
		if back[name] != samples {
			t.Errorf("%s has %d samples; expected %d", name, back[name], samples)
		}
	}
	if !slices.Contains(mem.Names(), "_store.json") {
		t.Error("nothing says whose the bucket is")
	}
}

func storedInFolder(dir string) (map[string]int, error) {
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	return storedIn(s)
}

// metricsText is what Prometheus gets.
func (b *bed) metricsText() string {
	res, err := http.Get(b.URL() + "/metrics")
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}
