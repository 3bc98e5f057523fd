package reclaim

// What the tests against the running kernel share: groups of their own and worker
// processes, which are this test binary executed again.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	mib = 1 << 20
	// patience bounds waits for what the kernel does in its own time.
	patience = 20 * time.Second
)

func TestMain(m *testing.M) { testchild.Main(m, map[string]testchild.Role{"worker": work}) }

// work obeys the lines that it is told, and says "done" after each:
//
//	anon NAME MIB       map private memory and write it (half of it compresses away)
//	spread NAME MIB     anon, on all NUMA nodes by turns
//	reserve NAME MIB N  map private memory, and write N MiB in its middle
//	write PATH MIB      write a file and sync it
//	map NAME PATH       map a file and read it
//	read PATH           read a file with read(2)
//	touch NAME [MIB]    write to each page, or read it where it is a file
//	hot NAME            touch it from now on, without end
func work(p *testchild.Parent, _ []string) error {
	maps := make(map[string][]byte)
	writable := make(map[string]bool)
	for {
		f := strings.Fields(p.Line())
		var err error
		switch f[0] {
		case "anon":
			maps[f[1]], err = mapAnon(f[2], false)
			writable[f[1]] = true
		case "spread":
			maps[f[1]], err = mapAnon(f[2], true)
			writable[f[1]] = true
		case "reserve":
			maps[f[1]], err = reserve(f[2], f[3])
		case "write":
			err = writeFile(f[1], f[2])
		case "map":
			maps[f[1]], err = mapFile(f[2])
		case "read":
			err = readFile(f[1])
		case "touch":
			err = flush()
			mem := maps[f[1]]
			if len(f) > 2 {
				mem = mem[:size(f[2])]
			}
			touch(mem, writable[f[1]])
		case "hot":
			go hot(maps[f[1]], writable[f[1]])
		default:
			err = fmt.Errorf("unknown order %q", f[0])
		}
		if err != nil {
			return err
		}
		p.Say("done")
	}
}

func size(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n * mib
}

func reserve(text, written string) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	middle := mem[len(mem)/2:]
	touch(middle[:size(written)], true)
	return mem, nil
}

func mapAnon(text string, spread bool) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	// Small pages, so that figures are what was asked for.
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	if spread {
		const interleave = 3
		nodes := uint64(3)
		if _, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), interleave,
			uintptr(unsafe.Pointer(&nodes)), 64, 0); errno != 0 {
			return nil, fmt.Errorf("mbind: %w", errno)
		}
	}
	x := uint64(88172645463325252)
	for i := range mem {
		if i%4096 < 2048 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			mem[i] = byte(x)
		}
	}
	return mem, nil
}

// flush empties what CPUs have cached of the page tables, by a change of more than 33
// pages. Aging clears accessed bits and leaves that cache alone, as a busy machine replaces
// it soon; the rig's emulated CPUs keep it for ever, and would never set the bits again.
func flush() error {
	dummy, err := unix.Mmap(-1, 0, 64*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	return errors.Join(unix.Mprotect(dummy, unix.PROT_READ), unix.Munmap(dummy))
}

func hot(mem []byte, write bool) {
	for ; ; time.Sleep(20 * time.Millisecond) {
		if err := flush(); err != nil {
			panic(err)
		}
		touch(mem, write)
	}
}

func touch(mem []byte, write bool) {
	sum := byte(0)
	for i := 0; i < len(mem); i += os.Getpagesize() {
		if write {
			mem[i]++
		} else {
			sum += mem[i]
		}
	}
	sink = sum
}

var sink byte // keeps reads from being optimised away

func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	block := make([]byte, mib)
	for range size(text) / mib {
		if _, err := f.Write(block); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	touch(mem, false)
	return mem, errors.Join(err, f.Close())
}

func readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, struct{ io.Reader }{f})
	return errors.Join(err, f.Close())
}

// host is the running kernel.
type host struct {
	fs hostfs.FS
	m  *Memory
}

// live skips where groups cannot be made.
func live(t *testing.T) host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	fsys := hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(fsys)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(fsys, mounts)
	if errors.Is(err, cgroup.ErrUnsupported) {
		t.Skip("the kernel has no memory controller: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if m.V2() {
		data, err := os.ReadFile(m.mount + "/cgroup.subtree_control")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), "memory") {
			t.Skip("the root of cgroup v2 does not hand the memory controller down")
		}
	}
	return host{fs: fsys, m: m}
}

// needReclaim skips where the kernel truly has no memory.reclaim.
func needReclaim(t *testing.T) host {
	t.Helper()
	h := live(t)
	if !h.m.V2() {
		t.Skip("cgroup v1 has no memory.reclaim")
	}
	if _, err := os.Stat(h.m.mount + "/memory.reclaim"); err != nil {
		t.Skip("this kernel has no memory.reclaim: ", err)
	}
	return h
}

// group makes a group that is removed when the test ends, after what it was given.
func (h host) group(t *testing.T, name string) string {
	t.Helper()
	path := fmt.Sprintf("/commensal-test-%d-%s", os.Getpid(), name)
	h.mkdir(t, path)
	return path
}

func (h host) mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(h.m.mount+path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.rmdir(path); err != nil {
			t.Error(err)
		}
	})
}

// rmdir removes a group; the kernel needs a moment after its last process has ended. One
// that is gone already is no error.
func (h host) rmdir(path string) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(h.m.mount + path)
		if err == nil || errors.Is(err, os.ErrNotExist) || time.Now().After(end) {
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return err
		}
	}
}

// put writes a file of a group.
func (h host) put(t *testing.T, path, name, value string) {
	t.Helper()
	if err := h.fs.WriteFile(h.m.mount+path+"/"+name, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// worker is a process in a group.
type worker struct{ *testchild.Child }

// worker starts a process in a group; it ends with the test.
func (h host) worker(t *testing.T, group string) worker {
	t.Helper()
	// The Go runtime's own memory is noise here.
	w := worker{testchild.StartWith(t, "worker", testchild.Options{Env: []string{"GOGC=off"}})}
	h.put(t, group, "cgroup.procs", strconv.Itoa(w.PID()))
	return w
}

func (w worker) pid() int32 { return int32(w.PID()) }

// do gives an order and waits until it is carried out.
func (w worker) do(format string, args ...any) {
	w.Say(format, args...)
	w.Await("done")
}

// file returns the path of a new file on a disk.
func file(t *testing.T) string {
	t.Helper()
	return filepath.Join(rigtest.DiskDir(t), "file")
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// meter opens a meter that is closed with the test.
func (h host) meter(t *testing.T, group string) *Meter {
	t.Helper()
	mt, err := h.m.OpenMeter(group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mt.Close() })
	return mt
}

func (h host) reclaimer(t *testing.T, group string) *Reclaimer {
	t.Helper()
	r, err := h.m.OpenReclaimer(group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func current(t *testing.T, mt *Meter) uint64 {
	t.Helper()
	n, err := mt.Current()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func stat(t *testing.T, mt *Meter) Stat {
	t.Helper()
	var s Stat
	if err := mt.Stat(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// keep hands a kernel file to the rig, which brings it out of the guest: so the fixtures
// of the unit tests were taken, and can be taken again.
func keep(t *testing.T, paths ...string) {
	t.Helper()
	if !rigtest.Inside() {
		return
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("keep %s: %v", path, err)
			continue
		}
		keepAs(t, path, data)
	}
}

func keepAs(t *testing.T, path string, data []byte) {
	t.Helper()
	if !rigtest.Inside() {
		return
	}
	name := strings.Replace(path, fmt.Sprintf("commensal-test-%d-", os.Getpid()), "", 1)
	if err := os.WriteFile(rigtest.Out(t, "reclaim"+name), data, 0o644); err != nil {
		t.Error(err)
	}
}

func background(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
