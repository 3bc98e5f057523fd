package agent_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/cgroup"
)

// A journal that cannot be written any more keeps nobody from undoing what is held: not the
// loop, not an operator, not the agent's end, and not those who come after it.
func TestFullRunDirectory(t *testing.T) {
	t.Parallel()
	b := newBed(t, "full", settings{})
	run, filler := b.dir+"/run", b.dir+"/run/filler"
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", run, "tmpfs", 0, "size=64k"); errors.Is(err, unix.EPERM) {
		t.Skip("not allowed to mount a tmpfs")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(run, unix.MNT_DETACH) }) // the last agent is killed after this
	task, other := b.group("be-0", unlimited), b.group("be-1", cgroup.CPUMax{QuotaUsec: 90_000, PeriodUsec: 100_000, BurstUsec: 9_000})
	found := b.knobs()
	stuck := func() bool {
		return slices.ContainsFunc(b.status().Warnings, func(w string) bool { return strings.Contains(w, "the journal cannot be written") })
	}
	// fill holds the tasks and then takes the room away, to the last byte of the journal's page.
	fill := func(d string) *proc {
		t.Helper()
		p := b.agent()
		b.hold(task, "0.04", d)
		b.hold(other, "0.03", "10m")
		f, err := os.Create(filler)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if f.Close(); !errors.Is(err, unix.ENOSPC) { //nolint:errcheck // it is full
			t.Fatal(err)
		}
		caps := []string{"0.05", "0.06"}
		for i := 0; !stuck(); i++ {
			if i > 100 {
				t.Fatal("the journal can still be written: the test proves nothing")
			}
			b.run("cap", other, "--cpus", caps[i%2], "--for", "10m", "--config", b.config)
			time.Sleep(100 * time.Millisecond)
		}
		if b.read(task) == found[task] || b.read(other) == found[other] {
			t.Fatal("nothing is held: the test proves nothing")
		}
		return p
	}
	brief := "5s"
	if rigtest.Inside() {
		brief = "30s" // to fill the directory takes an emulated CPU longer than five
	}
	for _, c := range []struct {
		name string
		d    string // of the cap
		undo func(p *proc)
		all  bool // the other task is put back too
	}{
		{"an operator", "10m", func(*proc) { b.must(0, "uncap", task) }, false},
		{"its expiry", brief, func(*proc) {}, false},
		{"the kill switch", "10m", func(*proc) {
			if err := os.WriteFile(b.dir+"/off", nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"the agent's end", "10m", func(p *proc) {
			if p.stop(unix.SIGTERM); p.cmd.ProcessState.ExitCode() != 0 {
				t.Errorf("exit %d", p.cmd.ProcessState.ExitCode())
			}
		}, true},
		{"the guardian", "10m", func(p *proc) { p.kill() }, true},
		{"commensal restore", "10m", func(p *proc) {
			p.killBoth()
			b.must(0, "restore")
		}, true},
		{"the next start", "10m", func(p *proc) {
			p.killBoth()
			b.agent()
		}, true},
	} {
		p := fill(c.d)
		c.undo(p)
		eventually(t, c.name+" undoes it", func() bool {
			return b.read(task) == found[task] && (!c.all || b.read(other) == found[other])
		})
		if !c.all {
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the journal can be written again", func() bool { return !stuck() })
			p.stop(unix.SIGTERM)
		}
		b.killAgents()
		b.same(c.name, found)
		for _, name := range []string{filler, b.dir + "/off"} {
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
}

// TestReadOnlyRunDirectory: on a run directory that became read-only, as a file system with
// errors=remount-ro does, whoever puts limits back after the agent takes the lock and reads the journal all
// the same. A new agent cannot work there, but what it finds is put back before it says so.
func TestReadOnlyRunDirectory(t *testing.T) {
	t.Parallel()
	b := newBed(t, "readonly", settings{})
	run := b.dir + "/run"
	task := b.group("be-0", unlimited)
	found := b.knobs()
	for _, c := range []struct {
		name string
		undo func(p *proc)
	}{
		{"the guardian", func(p *proc) { p.kill() }},
		{"commensal restore", func(p *proc) {
			p.killBoth()
			b.must(0, "restore")
		}},
		{"the next start", func(p *proc) {
			p.killBoth()
			b.launch()
		}},
	} {
		p := b.agent()
		b.hold(task, "0.04", "10m")
		// A mount on top of it: the one that is there has files that are open for writing.
		err := unix.Mount(run, run, "", unix.MS_BIND, "")
		if errors.Is(err, unix.EPERM) {
			t.Skip("not allowed to mount")
		}
		if err == nil {
			t.Cleanup(func() { _ = unix.Unmount(run, unix.MNT_DETACH) })
			err = unix.Mount("", run, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		if f, err := os.Create(run + "/x"); !errors.Is(err, unix.EROFS) {
			f.Close() //nolint:errcheck // it should not be there
			t.Fatalf("the run directory can be written: %v", err)
		}
		c.undo(p)
		eventually(t, c.name+" undoes it", func() bool { return b.read(task) == found[task] })
		b.killAgents()
		eventually(t, "nobody has a file open there", func() bool { return unix.Unmount(run, 0) == nil }) // of who was just killed
		b.same(c.name, found)
	}
}
