package kernfs_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// All RMIDs that are free rest in limbo, as after another program removed its groups: a class is refused in words, with nothing left of it, and made once the kernel has looked.
func TestClassWhileAllRMIDsAreInLimbo(t *testing.T) {
	c := openClassedOn(t, kernfs.ResctrlOptions{CLOSIDs: 8, RMIDs: 12}, resctrl.MountOptions{})
	var his []string
	for i := range 20 {
		name := "/sys/fs/resctrl/mon_groups/his-" + strconv.Itoa(i)
		if c.k.Mkdir(name, 0o755) == nil {
			his = append(his, name)
		}
	}
	for _, name := range his {
		must(t, c.k.Rmdir(name))
	}
	into := func() []model.Result {
		return c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2)))
	}
	got := into()
	c.all(model.Refused, got, 2)
	for _, r := range got {
		if !strings.Contains(r.Error, "limbo") || !strings.Contains(r.Error, "Out of RMIDs") {
			t.Errorf("%q", r.Error)
		}
	}
	if len(his) != 11 || len(c.groups()) > 0 || len(c.j.Outstanding()) > 0 {
		t.Errorf("his %d; left %v, journal %+v", len(his), c.groups(), c.j.Outstanding())
	}
	c.k.Advance(3e9)
	c.all(model.Applied, into(), 2)
}

// A task forks while it is moved into its class: who is born meanwhile comes along. One that forks without end is in the class as far as it can be, which the answer says; the rest
// follows once it has stopped, and all are given back together.
func TestForksWhileItIsMoved(t *testing.T) {
	for name, births := range map[string]int{"some": 5, "without end": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			c := openClassed(t)
			c.all(model.Applied, c.do(c.change(model.Set, c.task("/b-registers"), inBE)), 1)
			var born []int
			c.fs.beforeMove = func(thread string) { // each who was born last forks once more
				if len(born) < births && (len(born) == 0 || thread == strconv.Itoa(born[len(born)-1])) {
					pid, err := c.k.Spawn(bystander())
					must(t, err)
					must(t, c.k.WriteFile("/sys/fs/cgroup/c-stream/cgroup.procs", []byte(strconv.Itoa(pid)+"\n")))
					born = append(born, pid)
				}
			}
			got := c.do(c.change(model.Set, c.task("/c-stream"), inBE))
			c.fs.beforeMove = nil
			c.all(model.Applied, got, 1)
			if endless := births > 5; len(born) < 5 || strings.Contains(got[0].Error, "kept appearing") != endless || !endless && got[0].Error != "" {
				t.Errorf("%d were born; %+v", len(born), got)
			}
			c.k.Advance(11e9)
			c.look()
			c.do()
			in := func() (n int) {
				for _, pid := range born {
					if at, err := c.resctrl().GroupOf(int32(pid)); err == nil && !at.IsRoot() {
						n++
					}
				}
				return n
			}
			if n := in(); n != len(born) {
				t.Errorf("%d of %d are in the class", n, len(born))
			}
			c.all(model.Applied, c.do(c.change(model.Release, c.task("/c-stream"), model.Ask(model.ServiceClass))), 1)
			if n := in(); n != 0 || len(c.groups()) != 1 {
				t.Errorf("given back: %d of %d are in the class; groups %v", n, len(born), c.groups())
			}
		})
	}
}

// stubborn are calls of a kernel that leaves each third page where it is, as one that a device writes to.
type stubborn struct{ numa.Calls }

func (s stubborn) MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (int, error) {
	if nodes == nil {
		return s.Calls.MovePages(pid, pages, nodes, status, flags)
	}
	left := 0
	for i := range pages {
		if pages[i]/4096%3 == 0 {
			status[i] = -int32(unix.EBUSY)
			left++
		} else if _, err := s.Calls.MovePages(pid, pages[i:i+1], nodes[i:i+1], status[i:i+1], flags); err != nil {
			return left, err
		}
	}
	return left, nil
}

// Pages that will not move: the rest are moved, and the answer says how much is left and that those would not; where nothing of what is left moves the next one is refused, and says that.
func TestPagesThatWillNotMove(t *testing.T) {
	b := newNumaBed(t, cgroup.LayoutV2)
	group, _ := b.Group(t, "c-stream")
	p := b.Spawn(t, "", 3000, 0)
	must(t, b.k.WriteFile(group+"/cgroup.procs", []byte(strconv.Itoa(int(p.PID))+"\n")))
	h := openNode(t, b.k, filepath.Join(t.TempDir(), "journal"), func(o *linux.Options) { o.Pages = stubborn{b.k.PageCalls()} })
	var snap model.Snapshot
	must(t, h.Observe(model.WindowStart, &snap))
	for i, want := range []string{"1000 pages would not move", "held by something"} {
		res := node.Do(h, model.Change{Seq: 1, Target: model.OfTask(snap.Added[0].Num), Kind: model.Run, Value: model.Pages(0, 0)})
		if len(res) != 1 || (res[0].Kind == model.Applied) != (i == 0) || !strings.Contains(res[0].Error, want) || res[0].Now != model.Pages(334, 0) {
			t.Errorf("asked %d times: %+v", i+1, res)
		}
	}
	if there, _ := anonOf(t, b.k, p.PID).Get(0); there != 1000 {
		t.Errorf("%d pages are left", there)
	}
}
