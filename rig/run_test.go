package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/rig/wire"
)

// boot is a Boot of the stand-in, which looks at neither kernel nor initramfs.
func boot(t *testing.T) *Boot {
	t.Helper()
	return &Boot{Machine: RDT, Kernel: &Kernel{Series: "6.12", Image: "vmlinux"}, Initramfs: "initramfs", Dir: t.TempDir()}
}

// heard is what a run handed on.
type heard struct {
	console  []string
	messages []wire.Message
}

// play runs a part, and looks that nothing of the emulator is left.
func play(t *testing.T, part string, b *Boot, limit time.Duration) (heard, error) {
	t.Helper()
	dir := standIns(t)
	pids := filepath.Join(t.TempDir(), "pids")
	t.Setenv(partEnv, part)
	t.Setenv(pidEnv, pids)
	var h heard
	err := Run(t.Context(), dir, b, limit,
		func(line string) { h.console = append(h.console, line) },
		func(m wire.Message) { h.messages = append(h.messages, m) })
	allGone(t, pids)
	return h, err
}

func TestRunHandsOnWhatTheGuestSays(t *testing.T) {
	h, err := play(t, "well", boot(t), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := heard{
		console: []string{"Linux version 6.12", "", "guest: ready", "no end of line"},
		messages: []wire.Message{
			{Kind: wire.Start, Step: "a"},
			{Kind: wire.Line, Step: "a", Text: "\x16one \"line\""},
			{Kind: wire.End, Step: "a", Exit: 1, Sec: 0.5},
			{Kind: wire.File, Name: "f", Data: []byte{0, 255}},
			{Kind: wire.Done},
		},
	}
	if diff := cmp.Diff(want, h, cmp.AllowUnexported(heard{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRunTellsHowAGuestFailed(t *testing.T) {
	for _, c := range []struct {
		part  string
		limit time.Duration
		want  error
		says  []string
	}{
		{part: "panic", want: ErrDied, says: []string{"Kernel panic - not syncing: Attempted to kill init!", "Rebooting in 1 seconds.."}},
		{part: "panic after done", want: ErrDied, says: []string{"Attempted to kill init!"}},
		{part: "silent", want: ErrSilent, says: []string{"no sign of life for 200ms"}},
		{part: "never connects", want: ErrSilent, says: []string{"no sign of life for 200ms"}},
		{part: "beats for ever", limit: 500 * time.Millisecond, want: ErrLate, says: []string{"more than 500ms"}},
		{part: "garbage", want: ErrGarbled, says: []string{`what is this`}},
		{part: "an array", want: ErrGarbled, says: []string{"[1]"}},
		{part: "null", want: ErrGarbled, says: []string{`kind ""`}},
		{part: "unknown kind", want: ErrGarbled, says: []string{`kind "greeting"`}},
		{part: "empty line", want: ErrGarbled, says: []string{`in ""`}},
		{part: "long line", want: ErrGarbled, says: []string{"too long"}},
		{part: "fault", want: ErrFault, says: []string{"load virtio_blk: exec format error"}},
		{part: "fault and end", want: ErrFault, says: []string{"load virtio_blk: exec format error"}},
		{part: "half a message", want: ErrDied, says: []string{"the emulator ended by itself", "the last thing it said"}},
		{part: "bad option", want: ErrDied, says: []string{"exit status 1", "-cpu max,rdt: Property not found"}},
		{part: "says nothing", want: ErrDied, says: []string{"the emulator ended by itself"}},
		{part: "killed", want: ErrDied, says: []string{"signal: killed"}},
		{part: "closes both ends", want: ErrDied, says: []string{"signal: killed"}},
	} {
		t.Run(c.part, func(t *testing.T) {
			b := boot(t)
			b.PowerOff = 50 * time.Millisecond
			if errors.Is(c.want, ErrSilent) {
				b.Silence = 200 * time.Millisecond
			}
			limit := c.limit
			if limit == 0 {
				limit = time.Hour
			}
			_, err := play(t, c.part, b, limit)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			for _, other := range []error{ErrSilent, ErrDied, ErrLate, ErrFault, ErrGarbled} {
				if !errors.Is(other, c.want) && errors.Is(err, other) {
					t.Errorf("it is also %q: %v", other, err)
				}
			}
			for _, text := range c.says {
				if strings.Count(err.Error(), text) == 0 {
					t.Errorf("it does not say %q: %v", text, err)
				}
			}
			first, rest, _ := strings.Cut(err.Error(), "\n")
			if !strings.HasPrefix(first, c.want.Error()) || len(first) > 300 {
				t.Errorf("it does not begin with what happened: %s", first)
			}
			if n := strings.Count(rest, "\n"); n >= lastWords {
				t.Errorf("it repeats %d lines of the console", n+1)
			}
		})
	}
}

// What a guest said last counts, however it leaves afterwards.
func TestRunEndsAfterDone(t *testing.T) {
	for _, part := range []string{"done and hangs", "done and beats", "speaks after done"} {
		t.Run(part, func(t *testing.T) {
			b := boot(t)
			b.PowerOff = 50 * time.Millisecond
			h, err := play(t, part, b, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(h.messages, func(m wire.Message) bool { return m.Kind == wire.Done }) {
				t.Errorf("it did not hear the end: %v", h.messages)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	cause := errors.New("the rule broke")
	for _, c := range []struct{ name, part string }{
		{"at once", "silent"},
		{"while it says something", "panic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := standIns(t)
			pids := filepath.Join(t.TempDir(), "pids")
			t.Setenv(partEnv, c.part)
			t.Setenv(pidEnv, pids)
			ctx, cancel := context.WithCancelCause(t.Context())
			if c.name == "at once" {
				cancel(cause)
			}
			err := Run(ctx, dir, boot(t), time.Hour, func(string) {}, func(wire.Message) {
				cancel(cause)
				time.Sleep(100 * time.Millisecond) // the emulator goes on meanwhile
			})
			cancel(nil)
			// One that died by itself meanwhile may be told instead.
			if !errors.Is(err, cause) && (c.name == "at once" || !errors.Is(err, ErrDied)) {
				t.Errorf("got %v, want the cause", err)
			}
			allGone(t, pids)
		})
	}
}

// An emulator behind a script keeps console and port open when the script is killed.
func TestRunEndsWhatTheEmulatorStarted(t *testing.T) {
	dir := standIns(t)
	pids := filepath.Join(t.TempDir(), "pids")
	t.Setenv(partEnv, "beats for ever")
	t.Setenv(pidEnv, pids)
	behind := filepath.Join(dir, "behind", "qemu-rdt")
	linkSelf(t, behind)
	name := filepath.Join(dir, "qemu-rdt")
	script := fmt.Sprintf("#!/bin/sh\necho $$ >>%q\n%q \"$@\" &\nwait\n", pids, behind)
	if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), dir, boot(t), time.Second, func(string) {}, func(wire.Message) {})
	if !errors.Is(err, ErrLate) {
		t.Errorf("got %v, want %v", err, ErrLate)
	}
	allGone(t, pids)
}

func TestRunNeedsWhatItStarts(t *testing.T) {
	silent := func(string) {}
	each := func(wire.Message) {}
	t.Run("no emulator", func(t *testing.T) {
		err := Run(t.Context(), t.TempDir(), boot(t), time.Minute, silent, each)
		if !errors.Is(err, ErrNotPrepared) || !strings.Contains(err.Error(), "make rig") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no stock emulator", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		b := boot(t)
		b.Machine = Stock
		err := Run(t.Context(), t.TempDir(), b, time.Minute, silent, each)
		if !errors.Is(err, ErrNotPrepared) || !strings.Contains(err.Error(), "stock") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("emulator is no program", func(t *testing.T) {
		dir := standIns(t)
		name := filepath.Join(dir, "qemu-rdt")
		if err := errors.Join(os.Remove(name), os.WriteFile(name, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		err := Run(t.Context(), dir, boot(t), time.Minute, silent, each)
		if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "start the emulator") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		b := boot(t)
		b.Dir = filepath.Join(b.Dir, "file", "below")
		if err := os.WriteFile(filepath.Dir(b.Dir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Run(t.Context(), standIns(t), b, time.Minute, silent, each)
		if err == nil || !strings.Contains(err.Error(), "the guest's disks: ") || !strings.Contains(err.Error(), filepath.Join(b.Dir, "disk")) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("mke2fs fails", func(t *testing.T) {
		dir := standIns(t)
		t.Setenv(mke2fsEnv, "No space left on device")
		err := Run(t.Context(), dir, boot(t), time.Minute, silent, each)
		if err == nil || err.Error() != "the guest's disks: mke2fs: exit status 1: mke2fs: No space left on device" {
			t.Errorf("got %v", err)
		}
	})
}

func TestCommand(t *testing.T) {
	b := boot(t)
	b.Dir, b.Table, b.Exact = "/a,b", "/t", true
	cmd := b.command("qemu", "/tmp/p,q")
	line := strings.Join(cmd.Args, " ")
	for _, want := range []string{
		"thread=single", "pmu=on", "-icount shift=1,sleep=on",
		"path=/tmp/p,,q ", "file=/a,,b/disk,if=none", "file=/a,,b/swap,if=none", "file=/a,,b/slow,if=none,id=d2,format=raw,cache.direct=on,cache.no-flush=on,throttling.", // commas are doubled
		"-kernel vmlinux -initrd initramfs", "console=ttyS0", "-no-reboot", "-nic none",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	for _, want := range []string{"QEMU_RDT=" + geometry, "QEMU_RDT_SHM=/t"} {
		if !slices.Contains(cmd.Env, want) {
			t.Errorf("no %s in the environment", want)
		}
	}
	b.Machine, b.Exact = Stock, false
	if line := strings.Join(b.command("qemu", "/p").Args, " "); strings.Contains(line, "pmu=on") || strings.Contains(line, "icount") {
		t.Errorf("the stock machine got %s", line)
	}
}

func TestDisksAreMadeAnew(t *testing.T) {
	standIns(t)
	b := boot(t)
	for range 2 {
		if err := b.prepareDisks(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"disk", "swap", "slow"} {
			f, err := os.OpenFile(filepath.Join(b.Dir, name), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			head := make([]byte, 16)
			if _, err := f.ReadAt(head, 0); err != nil {
				t.Fatal(err)
			}
			if info.Size() != diskMiB<<20 || strings.Trim(string(head), "\x00") != "" {
				t.Errorf("%s has %d bytes and begins with %q", name, info.Size(), head)
			}
			if _, err := f.WriteAt([]byte("an earlier boot."), 0); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
	}
}

// A disk that the caller brings stays what it is: a second boot finds what the first left.
func TestDiskIsKept(t *testing.T) {
	standIns(t)
	t.Setenv(mke2fsEnv, "it was called")
	b := boot(t)
	b.Disk = filepath.Join(t.TempDir(), "of,mine")
	writeFile(t, b.Disk, "an earlier boot.")
	if err := b.prepareDisks(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(b.Disk)
	if err != nil || string(data) != "an earlier boot." {
		t.Errorf("the disk is %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "swap")); err != nil {
		t.Error(err)
	}
	line := strings.Join(b.command("qemu", "/p").Args, " ")
	if !strings.Contains(line, "file="+optionValue(b.Disk)+",if=none,id=d0") || strings.Contains(line, "/disk,") {
		t.Errorf("the guest's disk is another: %s", line)
	}
}

func TestReadLines(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	var got []string
	for line := range readLines(strings.NewReader("a\r\n\x1b[6nb\n" + long + "y\n\nlast")) {
		got = append(got, line)
	}
	if diff := cmp.Diff([]string{"a", "b", long, "y", "", "last"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Every whole line is a message or an error, in order; half of one is neither.
func FuzzScanMessages(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "null\n", `{"Kind":"beat"}` + "\n", `{"Kind":"line","Step":"a","Text":"b"}` + "\n" + `{"Kind":"do`,
		`{"Kind":"file","Name":"x","Data":"AP8="}` + "\n", `{"Kind":7}` + "\n", "\xff\n", `{"Kind":"end","Sec":1e999}` + "\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) >= maxMessage {
			t.Skip("a message may be too long")
		}
		var got []received
		scanMessages(strings.NewReader(text), func(m received) { got = append(got, m) })
		lines := strings.SplitAfter(text, "\n")
		lines = lines[:len(lines)-1]
		if len(got) != len(lines) {
			t.Fatalf("%d messages in %d lines", len(got), len(lines))
		}
		for i, line := range lines {
			var want wire.Message
			err := json.Unmarshal([]byte(line), &want)
			if (err != nil) != (got[i].err != nil) {
				t.Errorf("%q: %v, want %v", line, got[i].err, err)
			}
			if err != nil {
				want = wire.Message{}
			}
			if diff := cmp.Diff(want, got[i].Message); diff != "" {
				t.Errorf("%q: -want +got:\n%s", line, diff)
			}
		}
	})
}
