package kernfs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// TestOOMKill: who has most ends when the machine has no memory left, and who has most in a group above its memory.max; its
// group stays, counts it (v2), and so do those above. What is locked is never taken, and what can be reclaimed goes first.
func TestOOMKill(t *testing.T) {
	const gib = 1 << 30
	each(t, func(t *testing.T, _ *kernfs.Kernel, d cgroup.Driver) {
		c := machine.Skylake()
		c.Sockets, c.MemBytes, c.StepNsec = 1, 8*gib, 20e6
		m, err := machine.New(c, 1)
		must(t, err)
		k := newKernel(t, m, d.Layout())
		has := func(path string, heats ...machine.Heat) int {
			t.Helper()
			cfg := bystander()
			cfg.Memory = heats
			return started(t, k, path, cfg)
		}
		gone := func(when string, want ...int) {
			t.Helper()
			var list []int
			for _, o := range k.TakeOOMKills() {
				list = append(list, o.PID)
			}
			if fmt.Sprint(list) != fmt.Sprint(want) {
				t.Errorf("%s: %v were killed, want %v", when, list, want)
			}
		}
		limit, unlimited := "memory.limit_in_bytes", "-1"
		dir := "/sys/fs/cgroup/memory"
		if d.Layout() == cgroup.LayoutV2 {
			limit, unlimited, dir = "memory.max", "max", "/sys/fs/cgroup"
		}
		counted := func(path, want string) {
			t.Helper()
			if d.Layout() != cgroup.LayoutV2 {
				return
			}
			text, err := k.ReadFile(dir+path+"/memory.events", nil)
			must(t, err)
			if !strings.Contains(string(text), "oom_kill "+want+"\n") {
				t.Errorf("%s: %s", path, text)
			}
		}
		small := has("/pod/a", machine.Heat{Bytes: gib, Locked: true})
		large := has("/pod/b", machine.Heat{Bytes: 2 * gib}, machine.Heat{Bytes: gib, File: true, EveryNsec: 3600e9})
		k.Advance(1e9)
		must(t, k.WriteFile(dir+"/pod/"+limit, []byte("3221225472")))
		k.Advance(2e9)
		gone("with a limit for which page cache has to go")
		must(t, k.WriteFile(dir+"/pod/"+limit, []byte("2147483648")))
		k.Advance(2e9)
		gone("above a limit of 2 GiB", large)
		counted("/pod", "1")
		counted("/pod/b", "1")
		counted("/pod/a", "0")
		must(t, k.WriteFile(dir+"/pod/"+limit, []byte(unlimited)))
		hog := has("/hog", machine.Heat{Bytes: 7.5 * gib, OverNsec: 10e9})
		k.Advance(5e9)
		gone("with room")
		k.Advance(10e9)
		gone("beyond what the machine has", hog)
		counted("/hog", "1")
		if pids := k.PIDs("/pod"); len(pids) != 1 || pids[0] != small {
			t.Errorf("processes %v are left", pids)
		}
	})
}

// TestReclaimOfTheLocked: of a group that has locked its pages nothing is reclaimed, and that is said.
func TestReclaimOfTheLocked(t *testing.T) {
	const mib = 1 << 20
	each(t, func(t *testing.T, k *kernfs.Kernel, _ cgroup.Driver) {
		cfg := bystander()
		cfg.Memory = []machine.Heat{{Bytes: 64 * mib, EveryNsec: 3600e9, File: true, Locked: true}}
		started(t, k, "/locked", cfg)
		k.Advance(10e9)
		mounts, err := cgroup.Discover(k)
		must(t, err)
		mem, err := reclaim.Open(k, mounts)
		must(t, err)
		if !mem.V2() {
			t.Skip("no memory.reclaim")
		}
		r, err := mem.OpenReclaimer("/locked")
		must(t, err)
		defer r.Close()
		if out, err := r.Reclaim(t.Context(), reclaim.Ask{Bytes: 32 * mib}); !errors.Is(err, reclaim.ErrShort) || out.FellBytes != 0 || out.Steps != 1 {
			t.Errorf("%+v, %v", out, err)
		}
	})
}
