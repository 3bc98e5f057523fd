package hub

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/uplink"
)

// smallDisk makes a folder a file system of its own.
func smallDisk(t *testing.T, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts a small file system: needs root")
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// health is what /healthz answers, and why where that is not 200.
func (b *bed) health() (code int, why string) {
	b.t.Helper()
	code, said := b.call("", "GET", "/healthz", "")
	why, _ = said["error"].(string)
	return code, why
}

// allStored: after the hub's end every batch that was acknowledged is in the store, each once and whole.
func (b *bed) allStored(sent uint64) {
	b.t.Helper()
	b.stop()
	got, err := storedIn(b.store)
	if err != nil || uint64(len(got)) != sent {
		b.t.Errorf("%d batches of %d, %v", len(got), sent, err)
	}
	for name, samples := range got {
		if samples != 2 {
			b.t.Errorf("%s has %d samples", name, samples)
		}
	}
	if len(got) < 50 {
		b.t.Errorf("%d batches: this tests nothing", len(got))
	}
}

// A hub whose store has no room stops taking batches and says so; the stream keeps them, and once there is room all are in the store, each once.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small := filepath.Join(dir, "store")
	smallDisk(t, small, "64k")
	b := startHub(t, testConfig(dir))
	n := startNode(t, context.Background(), b.NodesURL(), "n", enrol(t, dir, "n"), t.TempDir())
	defer n.Close()
	eventually(t, "it says that its disk is full", func() bool {
		for i := range 5 {
			n.window(1 + 0.001*float64(i))
		}
		code, _ := b.health()
		return code == http.StatusServiceUnavailable
	})
	last := uint64(0)
	eventually(t, "the stream takes what is left", func() bool {
		time.Sleep(100 * time.Millisecond) // some batches are between the loop and the disk, where nobody counts them
		st, before := n.Status(), last
		last = st.Sent
		return st.Waiting == 0 && st.Sent == before
	})
	if err := unix.Mount("", small, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	st := n.Status()
	eventually(t, "it goes on", func() bool {
		_, count := b.store.Committed()
		code, _ := b.health()
		return count >= st.Sent && code == http.StatusOK
	})
	b.allStored(st.Sent)
}

// ballast is somebody else's file, which leaves so many bytes of a disk.
func ballast(t *testing.T, dir string, leave int64) (path string) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "ballast")
	if err := os.WriteFile(path, make([]byte, max(0, int64(fs.Bavail)*fs.Bsize-leave)), 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return path
}

// Store and transport have one disk, as a hub's folder has. Batches stop while there is room for what is the hub's own, the kill switch among it; where
// somebody else takes that as well, a stream's write fails, for good as the transport has it. Either way the hub says so, nodes keep their batches, and
// once there is room all is taken without anybody's doing, each batch once.
func TestTheWholeDiskIsFull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		reserve, leave int64
		why            string
	}{
		{"a reserve is left", 2 << 20, 2<<20 + 80<<10, "the disk is full"},
		{"nothing is left", 1, 80 << 10, "write error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			smallDisk(t, dir, "32m")
			cfg := testConfig(dir)
			cfg.Reserve = c.reserve
			b := startHub(t, cfg)
			n := startNode(t, context.Background(), b.NodesURL(), "n", enrol(t, dir, "n"), t.TempDir())
			defer n.Close()
			for range 20 {
				n.onDisk(func() { n.window(2) })
			}
			heavy := ballast(t, dir, c.leave)
			eventually(t, "it says that its disk is full", func() bool {
				n.window(2)
				code, why := b.health()
				return code == http.StatusServiceUnavailable && strings.Contains(why, c.why)
			})
			if c.reserve > 1 {
				if code, said := b.call(b.token("a", Admin), "POST", "/v1/off", `{"off": true, "why": "a test"}`); code != http.StatusOK {
					t.Errorf("the kill switch: %d %v", code, said)
				}
				eventually(t, "the node is off", n.Off)
			}
			var kept uplink.Status
			eventually(t, "the node keeps its batches", func() bool {
				n.window(2)
				kept = *n.Status()
				return kept.Waiting >= 5 && kept.Why != ""
			})
			t.Logf("after %d batches the node says %q", kept.Sent, kept.Why)
			time.Sleep(2 * diskLook)
			if code, why := b.health(); code != http.StatusServiceUnavailable || n.Status().Sent > kept.Sent {
				t.Errorf("it is well without room: %d %q, %d batches more", code, why, n.Status().Sent-kept.Sent)
			}
			if err := os.Remove(heavy); err != nil {
				t.Fatal(err)
			}
			eventually(t, "all is taken by itself", func() bool {
				code, why := b.health()
				st := n.Status()
				_, count := b.store.Committed()
				return code == http.StatusOK && why == "" && st.Waiting == 0 && count >= st.Sent
			})
			st := n.Status()
			if st.Sent < kept.Sent+uint64(kept.Waiting) { //nolint:gosec // not negative
				t.Errorf("%d batches were sent of %d and %d that waited", st.Sent, kept.Sent, kept.Waiting)
			}
			n.Close()
			b.allStored(n.Status().Sent)
		})
	}
}

// A node whose spool's disk is full says how many batches that costs, keeps those that it had, and goes on once there is room; the hub hears of the loss.
func TestASpoolsDiskIsFull(t *testing.T) {
	t.Parallel()
	dir, spool, address := t.TempDir(), t.TempDir(), freeAddress(t)
	smallDisk(t, spool, "256k")
	n := startNode(t, context.Background(), "nats://"+address, "n", enrol(t, dir, "n"), spool)
	defer n.Close()
	next := func() *uplink.Status {
		before := n.Status()
		n.window(2)
		eventually(t, "a batch is on disk or lost", func() bool { st := n.Status(); return kept(st)+st.Lost > kept(before)+before.Lost })
		return n.Status()
	}
	eventually(t, "it says that batches are lost", func() bool { return next().Lost > 0 })
	full := next()
	for range 10 {
		if st := next(); st.Waiting != full.Waiting || st.Lost <= full.Lost {
			t.Fatalf("%d wait and %d are lost, after %d and %d", st.Waiting, st.Lost, full.Waiting, full.Lost)
		}
	}
	if err := unix.Mount("", spool, "tmpfs", unix.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		next()
	}
	st := n.Status()
	if st.Waiting != full.Waiting+10 || st.Lost != full.Lost+10 {
		t.Errorf("with room %d wait and %d are lost, after %d and %d", st.Waiting, st.Lost, full.Waiting, full.Lost)
	}
	cfg := testConfig(dir)
	cfg.NATSListen = address
	b := startHub(t, cfg)
	eventually(t, "the hub has all that was kept, and knows of the rest", func() bool {
		_, count := b.store.Committed()
		all := b.totals()
		return n.Status().Waiting == 0 && count >= kept(st) && all.Batches == kept(st) && all.Lost == st.Lost
	})
	b.allStored(kept(st))
}
