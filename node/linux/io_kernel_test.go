package linux

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/blkio"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

const readBytes = 1 << 20

// readFile reads a file past the page cache each time it is told to.
func readFile(p *testchild.Parent, args []string) error {
	buf, err := unix.Mmap(-1, 0, readBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for p.Say("ready"); p.Line() != ""; p.Say("read") {
		fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if _, err = unix.Pread(fd, buf, 0); err != nil {
			return err
		}
		if err = unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// disk is a file to read from and the device on which it lies; it skips where there is none that the kernel counts.
func disk(t *testing.T) (path string, of model.Device) {
	t.Helper()
	path = rigtest.DiskDir(t) + "/file"
	if err := os.WriteFile(path, make([]byte, readBytes), 0o644); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if of = model.DeviceOf(unix.Major(st.Dev), unix.Minor(st.Dev)); unix.Major(st.Dev) == 0 { // a file system in memory
		path = "/dev/vda"
		if err := unix.Stat(path, &st); err != nil {
			t.Skip("temporary files lie on no disk, and there is no /dev/vda: ", err)
		}
		of = model.DeviceOf(unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	if _, err := os.Stat("/sys/dev/block/" + of.String() + "/queue"); err != nil {
		t.Skip("temporary files lie on a partition or on no disk of its own: ", err)
	}
	return path, of
}

// What a task reads is counted by device; it is held by a limit, within what was found, which a crash or a release puts back; and a number
// that another program wrote meanwhile stays.
func TestIOOnTheKernel(t *testing.T) {
	b := newBed(t, "io")
	io, err := blkio.Open(b.fs, b.mounts)
	if err != nil {
		t.Skip("this kernel has no controller of I/O: ", err)
	}
	task := b.mkdir("be-1")
	if d, ok := b.cg.(*cgroup.V2); ok {
		if rigtest.Inside() { // the driver never writes the root
			if err := os.WriteFile(b.mounts.Unified+"/cgroup.subtree_control", []byte("+io"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Enable(b.root, cgroup.IO); err != nil {
			t.Skip("the root of cgroup v2 does not hand the io controller down: ", err)
		}
	}
	path, device := disk(t)
	b.io = true
	b.open(false)
	if missing := strings.Join(b.h.Missing(), "; "); strings.Contains(missing, "I/O of each task") {
		t.Fatal(missing)
	}
	hold := func(rbps, wbps uint64) model.Setting {
		return model.LimitIO(model.IOMaxOf([]model.IOLimit{{Device: device, ReadBPS: rbps, WriteBPS: wbps}}))
	}
	child := testchild.Start(t, "read "+path).Await("ready")
	if err := b.cg.MovePID(task, child.PID()); err != nil {
		t.Fatal(err)
	}
	b.observe(model.WindowStart)
	b.apply(model.Hold, task, hold(1<<40, 0), model.Applied) // v1 counts from the first limit on
	b.apply(model.Release, task, model.Ask(model.IOMaxKnob), model.Applied)
	child.Say("now")
	child.Await("read")
	b.observe(model.WindowEnd)
	if s := b.sample(task).C[model.CountIOBytes]; s.Value < readBytes {
		t.Errorf("read 1 MiB: %+v", s)
	}
	if len(b.snap.IO) != 1 || b.snap.IO[0].Device != device || b.snap.IO[0].Read < readBytes || b.snap.IO[0].Reads == 0 {
		t.Errorf("by device: %+v", b.snap.IO)
	}

	major, minor := device.Numbers()
	found := blkio.Limit{Device: blkio.Device{Major: major, Minor: minor}, ReadBPS: 5 << 20, WriteBPS: 1 << 20}
	if err := io.WriteLimit(task, found); err != nil {
		t.Fatal(err)
	}
	b.apply(model.Hold, task, hold(2<<20, 0), model.Applied)
	stranger := found
	stranger.ReadBPS, stranger.WriteBPS = 2<<20, 7<<20
	if err := io.WriteLimit(task, stranger); err != nil {
		t.Fatal(err)
	}
	b.apply(model.Hold, task, hold(1<<20, 0), model.Foreign)
	if got, err := io.ReadLimits(task); err != nil || len(got) != 1 || got[0].WriteBPS != 7<<20 || got[0].ReadBPS == 1<<20 {
		t.Errorf("beside a stranger's number: %+v, %v", got, err)
	}
	if err := io.WriteLimit(task, found); err != nil {
		t.Fatal(err)
	}
	if r := b.apply(model.Hold, task, hold(2<<20, 8<<20), model.Applied); r.Found != hold(5<<20, 1<<20) || r.Now != hold(2<<20, 1<<20) {
		t.Errorf("%+v", r)
	}
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Outcome != model.OK || k[0].Value != hold(2<<20, 1<<20) {
		t.Errorf("knobs read %+v", k)
	}
	rep := b.restart()
	if got, err := io.ReadLimits(task); err != nil || len(rep.Items) != 1 || len(got) != 1 || got[0] != found {
		t.Errorf("restored %+v, %v; limits %+v", rep, err, got)
	}
}
