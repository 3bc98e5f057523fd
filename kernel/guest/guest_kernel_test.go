package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestMain(m *testing.M) {
	testchild.Main(m, map[string]testchild.Role{"reads": func(p *testchild.Parent, _ []string) error {
		p.Say("ready")
		f, err := os.Open(p.Line())
		if err == nil {
			_, err = io.Copy(io.Discard, f)
		}
		if err != nil {
			return err
		}
		p.Say("read")
		return p.Stay()
	}})
}

// On the kernel of a guest: what a program read lies idle, and is given back when it is asked for; the kernel says less is cached.
func TestInsideOnTheKernel(t *testing.T) {
	rigtest.Only(t, "it switches the multi-generational LRU on, and takes memory of every group")
	const group, size = "/sys/fs/cgroup/inside", 48 << 20
	rigtest.Set(t, "/sys/kernel/mm/lru_gen/enabled", "y")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if os.Remove(group) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Error("the group cannot be removed")
	})
	file := filepath.Join(rigtest.DiskDir(t), "file")
	rigtest.Unread(t, file, size)
	child := testchild.Start(t, "reads").Await("ready")
	child.Move(group)
	child.Say("%s", file)
	child.Await("read")

	in := NewInside(hostfs.NewRoot("/"))
	ask := func(r Request) Answer {
		t.Helper()
		r.V, r.WithinMsec = Version, 60_000
		var a Answer
		if err := errors.Join(r.check(), in.do(t.Context(), &r, &a)); err != nil {
			t.Fatal(r.Do, err)
		}
		return a
	}
	var a Answer
	for deadline := time.Now().Add(60 * time.Second); len(a.File) == 0 || a.File[0] < size*3/4; time.Sleep(2 * time.Second) {
		if a = ask(Request{Do: DoAges, EdgesNsec: []int64{1e9, 3600e9}}); time.Now().After(deadline) {
			t.Fatalf("what was read does not lie idle: %+v", a)
		}
	}
	if a.File[1] != 0 || a.Source != "mglru" {
		t.Errorf("of an hour ago: %+v", a)
	}
	got := ask(Request{Do: DoReclaim, Bytes: size, OlderNsec: 1e9, Pages: FilePages})
	left := ask(Request{Do: DoAges, EdgesNsec: []int64{1e9}})
	if got.FreedBytes < size/2 || left.File[0] > size/2 {
		t.Errorf("freed %d of %d, %d still lie idle", got.FreedBytes, size, left.File[0])
	}
}

// Over vsock of one kernel with itself: who listens is found, who does not is not, and what is said arrives.
func TestVsockOnTheKernel(t *testing.T) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skip("this kernel has no vsock")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := connectVsock(ctx, unix.VMADDR_CID_LOCAL, 9312); !slices.ContainsFunc([]error{unix.ECONNRESET, unix.ECONNREFUSED}, func(e error) bool { return errors.Is(err, e) }) {
		t.Skip("this kernel has no vsock with itself:", err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: 9312}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	go func() {
		peer, _, err := unix.Accept(fd)
		if err != nil {
			return
		}
		f := os.NewFile(uintptr(peer), "peer")
		defer f.Close() //nolint:errcheck // the end of a test
		_ = NewInside(hostfs.NewRoot("/")).Serve(t.Context(), f)
	}()
	conn, err := connectVsock(ctx, unix.VMADDR_CID_LOCAL, 9312)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the end of a test
	if a, err := Ask(ctx, conn, Request{Do: DoStat}); err != nil || a.V != Version {
		t.Errorf("%+v, %v", a, err)
	}
}
