package hub

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A hub whose store has no room stops taking batches and says so; the stream keeps them, and once there is room all are in the store, each once.
func TestAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a small file system: needs root")
	}
	dir := t.TempDir()
	small := filepath.Join(dir, "store")
	if err := os.Mkdir(small, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	b := startHub(t, testConfig(dir))
	n := startNode(t, context.Background(), b.NodesURL(), "n", enrol(t, dir, "n"), t.TempDir())
	defer n.Close()
	health := func() int {
		res, err := http.Get(b.URL() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	eventually(t, "it says that its disk is full", func() bool {
		for i := range 5 {
			n.window(1 + 0.001*float64(i))
		}
		return health() == http.StatusServiceUnavailable
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
	eventually(t, "it goes on", func() bool { _, count := b.store.Committed(); return count >= st.Sent && health() == http.StatusOK })
	b.stop()
	got, err := storedIn(b.store)
	if err != nil || uint64(len(got)) != st.Sent {
		t.Errorf("%d batches of %d, %v", len(got), st.Sent, err)
	}
	for name, samples := range got {
		if samples != 2 {
			t.Errorf("%s has %d samples", name, samples)
		}
	}
	if len(got) < 50 {
		t.Errorf("%s: this tests nothing", fmt.Sprint(len(got)))
	}
}
