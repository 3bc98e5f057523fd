package linux

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/guest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// fakeGuest is a monitor whose guest has 64 MiB of memory, and answers on a socket in its way. The parent says where and how.
func fakeGuest(p *testchild.Parent, _ []string) error {
	p.Say("ready")
	socket, way, _ := strings.Cut(p.Line(), " ")
	held, err := unix.Mmap(-1, 0, guestBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	// Of a huge page that is given in part nothing comes free before the kernel splits it: up to 2 MiB less than was said. A kernel without them refuses this.
	if err := unix.Madvise(held, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	p.Say("listening")
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if err := serveFake(bufio.NewScanner(conn), conn, way, held); err != nil {
			return err
		}
		_ = conn.Close()
	}
}

const guestBytes = 64 << 20

// jumps are the counters of a guest that says anything, one after the other.
var jumps = []uint64{7, 1<<64 - 1, 0, 1 << 60, 5}

func serveFake(in *bufio.Scanner, conn net.Conn, way string, held []byte) error {
	for in.Scan() {
		var r guest.Request
		if len(in.Bytes()) == 0 {
			continue
		}
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return err
		}
		a := guest.Answer{V: guest.Version, ID: r.ID, Refaults: 7, StallUsec: 9, RoomBytes: 1 << 45}
		if way == "jumps" {
			a.Refaults = jumps[int(r.ID)%len(jumps)]
			a.StallUsec = a.Refaults
		}
		switch {
		case way == "hangs":
			continue
		case way == "floods":
			for {
				if _, err := conn.Write(make([]byte, 4096)); err != nil {
					return nil //nolint:nilerr // the host has had enough
				}
			}
		case r.Do == guest.DoAges:
			a.Source, a.Anon, a.File = "mglru", make([]uint64, len(r.EdgesNsec)), make([]uint64, len(r.EdgesNsec))
			for i := range a.File {
				a.Anon[i], a.File[i] = 8<<20, 1<<40
			}
		case r.Do == guest.DoReclaim:
			a.FreedBytes, a.TakenBytes = r.Bytes, r.Bytes
			if way == "compresses" {
				a.FreedBytes /= 2
			}
			if way != "lies" {
				if err := unix.Madvise(held[:a.FreedBytes], unix.MADV_DONTNEED); err != nil {
					return err
				}
			}
		}
		data, err := json.Marshal(&a)
		if err != nil {
			return err
		}
		if _, err := conn.Write(append(data, '\n')); err != nil {
			return nil //nolint:nilerr // the host went away
		}
	}
	return nil
}

// guestBed is a task that is a virtual machine, whose guest answers in a way.
func guestBed(t *testing.T, name, way string) (b *bed, path string) {
	b = newBed(t, name)
	if b.mounts.V1[cgroup.Memory] == "" && !slices.Contains(b.mounts.UnifiedControllers, cgroup.Memory) {
		t.Skip("this kernel has no memory controller")
	}
	path = b.mkdir("vm")
	dir, err := os.MkdirTemp("", "commensal-guest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b.inUse, b.ages = true, model.AskedAges{ShortestNsec: 1e9, LongestNsec: 2e9}
	b.openRules(false, []match.Rule{{Glob: b.root + "/vm", Job: "vm", Class: model.BE, Guest: "unix:" + dir + "/*.sock"}})
	other := testchild.Start(t, "guest").Await("ready") // the socket of somebody else's goes first in the list
	other.Say("%s/a.sock lies", dir)
	other.Await("listening")
	child := testchild.Start(t, "guest").Await("ready")
	if err := b.cg.MovePID(path, child.PID()); err != nil {
		t.Fatal(err)
	}
	child.Say("%s/b.sock %s", dir, way)
	child.Await("listening")
	b.h.guests.pause = func(context.Context, time.Duration) { time.Sleep(5 * time.Millisecond) }
	b.observe(model.WindowStart)
	return b, path
}

// give asks a task for memory.
func (b *bed) give(path string, bytes int64) model.Result {
	b.t.Helper()
	b.h.Apply([]model.Change{{Seq: 9, Target: model.OfTask(b.tasks[path].Num), Kind: model.Run, Value: model.ReclaimCold(bytes, model.FilePages, 1e9)}})
	var res []model.Result
	b.until("an answer", func() bool { res = b.h.Results(res); return len(res) > 0 })
	return res[0]
}

// warned returns what the status says of guests.
func (b *bed) warned() string {
	b.observe(model.WindowStart | model.WindowEnd)
	i := slices.IndexFunc(b.h.Warnings(nil), func(w string) bool { return strings.HasPrefix(w, guestsOutage) })
	if i < 0 {
		return ""
	}
	return b.h.Warnings(nil)[i]
}

// A guest's ages are told, at most what the host charges to the task; what it gives the host measures; what came back to it counts.
func TestGuestOnTheKernel(t *testing.T) {
	b, path := guestBed(t, "guest", "honest")
	var ages model.PageAges
	b.until("ages are told", func() bool {
		b.observe(model.WindowStart | model.WindowEnd)
		for _, a := range b.snap.Ages {
			ages = a
		}
		return ages.Num != 0
	})
	charged := b.sample(path).C[model.CountMemory].Value
	if ages.Num != b.tasks[path].Num || !ages.Guest || ages.Source != "mglru of the guest" || ages.Anon[0] != 8<<20 {
		t.Errorf("ages: %+v", ages)
	}
	if all := ages.Anon[0] + ages.File[0]; all > charged+charged/4 || all < guestBytes || ages.AnonRoom > charged+charged/4 {
		t.Errorf("a guest that says a TiB: %d bytes idle, room for %d, and the host charges %d", all, ages.AnonRoom, charged)
	}
	b.until("what came back to it is told", func() bool {
		b.observe(model.WindowStart | model.WindowEnd)
		c := b.sample(path).C
		return c[model.CountRefaults].Value >= 7 && c[model.CountMemoryStall].Value >= 9000
	})
	r := b.give(path, 32<<20)
	after := b.sample(path).C[model.CountMemory].Value
	b.observe(model.WindowStart | model.WindowEnd)
	after = min(after, b.sample(path).C[model.CountMemory].Value)
	if r.Kind != model.Applied || r.Now.Amount < 30<<20 || r.Now.Amount > 32<<20 || after > charged-24<<20 {
		t.Errorf("%+v; the host charges %d, and charged %d", r, after, charged)
	}
	if w := b.warned(); w != "" {
		t.Error("an honest guest:", w)
	}
}

// A guest whose own swap keeps compressed copies took all that was asked for, and the host has less: both are told, and it is no lie.
func TestCompressingGuestOnTheKernel(t *testing.T) {
	b, path := guestBed(t, "zram", "compresses")
	r := b.give(path, 32<<20)
	if r.Kind != model.Applied || r.Now.Amount != 32<<20 || r.Now.Kept < 15<<20 || r.Now.Kept > 18<<20 {
		t.Errorf("%+v", r)
	}
	if w := b.warned(); w != "" {
		t.Error(w)
	}
}

// A guest that says it gave what the host does not have is not believed, and the second time it is put aside.
func TestLyingGuestOnTheKernel(t *testing.T) {
	b, path := guestBed(t, "liar", "lies")
	for i := range 2 {
		if r := b.give(path, 32<<20); r.Kind != model.Refused || r.Now.Amount != 0 || !strings.Contains(r.Error, "says that it gave 32 MiB, and the host has 0 MiB") {
			t.Errorf("lie %d: %+v", i, r)
		}
	}
	if r := b.give(path, 32<<20); r.Kind != model.Refused || !strings.Contains(r.Error, errAside.Error()) {
		t.Errorf("after two lies: %+v", r)
	}
	if w := b.warned(); !strings.Contains(w, "put aside") || !strings.Contains(w, path) {
		t.Errorf("the status says %q", w)
	}
}

// A guest whose counters jump has no rates meanwhile, rather than ones that cannot be, and the status says so; what it gives is measured as ever.
func TestJumpingGuestOnTheKernel(t *testing.T) {
	b, path := guestBed(t, "jumps", "jumps")
	var prev model.Snapshot
	told := false
	for n := 0; n < 100; n++ {
		prev = b.snap
		prev.Tasks = slices.Clone(b.snap.Tasks)
		time.Sleep(10 * time.Millisecond)
		b.observe(model.WindowStart | model.WindowEnd)
		var o model.Observation
		model.Observe(&prev, &b.snap, &o)
		i := slices.IndexFunc(o.Tasks, func(o model.TaskObservation) bool { return o.Num == b.tasks[path].Num })
		if i < 0 {
			continue
		}
		for what, v := range map[string]model.Value{"refaults": o.Tasks[i].Refaults, "stall": o.Tasks[i].Stalled} {
			if v.Outcome == model.OK && !(v.V >= 0 && v.V < 2e9) || what == "stall" && v.V > 1 {
				t.Fatalf("%s: %+v", what, v)
			}
		}
		told = told || strings.Contains(b.warned(), "which cannot be")
	}
	if !told {
		t.Error("nobody is told")
	}
	if r := b.give(path, 32<<20); r.Kind != model.Applied || r.Now.Amount > 32<<20 {
		t.Errorf("what it gives is measured as ever: %+v", r)
	}
}

// Guests that do not answer, that do not end, and that are not there cost a turn of their own and are put aside.
func TestGuestsThatDoNotAnswerOnTheKernel(t *testing.T) {
	for way, want := range map[string]string{"hangs": "timeout", "floods": guest.ErrFlood.Error()} {
		t.Run(way, func(t *testing.T) {
			b, path := guestBed(t, way, way)
			b.h.ages.gaps = nil // only the short question
			began := time.Now()
			b.until("it is put aside", func() bool {
				at := time.Now()
				w := b.warned()
				if took := time.Since(at); took > 5*statWithin/6 {
					t.Errorf("the loop waited %s for it", took)
				}
				return strings.Contains(w, "put aside") && strings.Contains(w, want)
			})
			if _, err := b.h.guests.ages(t.Context(), ptr(b.tasks[path])); err == nil || !strings.Contains(err.Error(), errAside.Error()) {
				t.Errorf("it is asked: %v", err)
			}
			t.Logf("put aside after %.1f s: %s", time.Since(began).Seconds(), b.warned())
		})
	}
	b, path := guestBed(t, "none", "honest")
	task := b.tasks[path]
	task.Guest = "unix:" + filepath.Join(t.TempDir(), "none*")
	for range mostMute {
		_, err := b.h.guests.ages(t.Context(), &task)
		if err == nil || !strings.Contains(err.Error(), guest.ErrNotFound.Error()) {
			t.Errorf("without a socket: %v", err)
		}
	}
}

func ptr[T any](v T) *T { return &v }
