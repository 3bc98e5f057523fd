package blkio

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// envRead makes the test binary a process that reads a device past the page cache: "group's folder;device;KiB".
const envRead = "COMMENSAL_TEST_READ"

func TestMain(m *testing.M) {
	if job := strings.Split(os.Getenv(envRead), ";"); len(job) == 3 {
		if err := readDevice(job[0], job[1], job[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const chunk = 64 << 10

func readDevice(dir, device, kib string) error {
	if err := os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0o644); err != nil {
		return err
	}
	n, err := strconv.Atoi(kib)
	if err != nil {
		return err
	}
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	buf, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as O_DIRECT asks
	begin := time.Now()
	for at := 0; err == nil && at < n<<10; at += chunk {
		_, err = unix.Pread(fd, buf, int64(at)%(1<<20))
	}
	fmt.Println(time.Since(begin).Nanoseconds())
	return err
}

// live is a group of this machine's controller, and a disk to read from.
func live(t *testing.T) (c *Controller, group string, disk Device, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	fsys := hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = Open(fsys, mounts); errors.Is(err, cgroup.ErrUnsupported) {
		t.Skip("the kernel has no controller of I/O: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("/sys/block/vda/dev")
	if err != nil {
		t.Skip("there is no disk /dev/vda to read from: ", err)
	}
	if disk, _, err = device([]byte(strings.TrimSpace(string(data)))); err != nil {
		t.Fatal(err)
	}
	path = fileOn(t, disk)
	if c.V2() && rigtest.Inside() {
		if err := os.WriteFile(c.mount+"/cgroup.subtree_control", []byte("+io"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	group = fmt.Sprintf("/commensal-blkio-%d", os.Getpid())
	if err := os.Mkdir(c.mount+group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(c.mount + group) })
	if _, err := c.ReadLimits(group); errors.Is(err, cgroup.ErrUnsupported) {
		t.Skip("the root of cgroup v2 does not hand the io controller down: ", err)
	}
	return c, group, disk, path
}

// fileOn returns a file of 2 MiB that lies on the disk, or else the disk itself.
func fileOn(t *testing.T, disk Device) string {
	t.Helper()
	path := rigtest.DiskDir(t) + "/file"
	if err := os.WriteFile(path, make([]byte, 2<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || unix.Major(st.Dev) != disk.Major || unix.Minor(st.Dev) != disk.Minor {
		return "/dev/vda"
	}
	unix.Sync()
	return path
}

// read has a process of the group read so much, and returns how long that took.
func read(t *testing.T, dir, path string, kib int) time.Duration {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s;%s;%d", envRead, dir, path, kib))
	out, err := cmd.CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "operation not permitted") {
			t.Skipf("the disk may not be read here: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		t.Fatalf("the reader said %q: %v", out, err)
	}
	return time.Duration(ns)
}

// What a group's process reads past the page cache is counted on its device, is held by a limit, and is not when the limit is gone.
func TestKernelReadsAndLimits(t *testing.T) {
	c, group, disk, path := live(t)
	r, err := c.OpenStat(group)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, l := range []Limit{{Device: disk, ReadBPS: 1 << 40}, {Device: disk}} { // v1 counts from the first limit on
		if err := c.WriteLimit(group, l); err != nil {
			t.Fatal(err)
		}
	}
	free := read(t, c.mount+group, path, 2048)
	stats, err := r.Read(nil)
	if err != nil || len(stats) == 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
	for _, s := range stats {
		if s.Device == disk && (s.ReadBytes < 2<<20 || s.ReadBytes > 4<<20 || s.Reads < 32 || s.Reads > 4096) {
			t.Errorf("read 2 MiB in 32 operations: %+v", s)
		}
	}
	takes := max(2*time.Second, 4*free) // at the limit; an emulated disk on a busy machine is slow by itself
	want := Limit{Device: disk, ReadBPS: uint64(float64(2<<20) / takes.Seconds()), WriteIOPS: 50}
	if err := c.WriteLimit(group, want); err != nil {
		t.Fatal(err)
	}
	if got, err := c.ReadLimits(group); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("limits read back: %+v, %v", got, err)
	}
	held := read(t, c.mount+group, path, 2048)
	t.Logf("2 MiB took %v, held to %d bytes a second %v", free, want.ReadBPS, held)
	if held < takes*3/4 {
		t.Errorf("2 MiB at %d bytes a second took %v", want.ReadBPS, held)
	}
	if err := c.WriteLimit(group, Limit{Device: disk}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.ReadLimits(group); err != nil || len(got) != 0 {
		t.Errorf("limits that were taken away: %+v, %v", got, err)
	}
	if err := os.Remove(c.mount + group); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(nil); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("of a group that is gone: %v", err)
	}
	if _, err := c.Inode(group); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("its inode: %v", err)
	}
}
