package kernfs_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// A domain whose CPUs are all offline is none of the machine's from the next look on, and is one again when they are back, also if they were offline at the start.
func TestClassesOfDomainsThatComeAndGo(t *testing.T) {
	c := openClassed(t)
	plug := func(online bool) {
		t.Helper()
		for cpu := 2; cpu < 4; cpu++ { // of the second socket
			must(t, c.k.SetOnline(cpu, online))
		}
	}
	expect := func(when string, want ...int32) {
		t.Helper()
		var have *model.Classes
		for range 3 { // what works beside the loop tells with the look after it
			c.k.Advance(11e9)
			if c.look(); c.snap.Topology != nil {
				have = c.snap.Topology.Classes
			}
			if when == "at once" {
				break
			}
			c.do()
		}
		if have == nil || !slices.Equal(have.Memory, want) || !slices.Equal(have.Caches, want) || len(have.Domains) != len(want) {
			t.Errorf("%s: %+v", when, have)
		}
	}
	plug(false)
	expect("at once", 0)
	plug(true)
	expect("at once", 0, 1)
	plug(false)
	c.h.Close()
	must(t, c.j.Close())
	c.open()
	plug(true)
	expect("back", 0, 1)
	for range 2 { // and in the list of those that were there at the start
		plug(false)
		expect("gone", 0)
		plug(true)
		expect("back", 0, 1)
	}
}

// What is limited in a domain that was offline when the class was made has what it had before once it is given back.
func TestClassesOfADomainThatComesLater(t *testing.T) {
	c := openClassed(t)
	plug := func(online bool) {
		t.Helper()
		for cpu := 2; cpu < 4; cpu++ { // of the second socket
			must(t, c.k.SetOnline(cpu, online))
		}
		c.k.Advance(11e9)
		c.look()
		c.do()
	}
	plug(false)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE)), 1)
	plug(true)
	got := c.do(c.change(model.Hold, ofClass(1), model.Ways(2)), c.change(model.Hold, ofClass(1), model.Level(20)))
	if c.all(model.Applied, got, 2); got[0].Found != model.Ways(11) || got[1].Found != model.Level(100) {
		t.Errorf("found %+v", got)
	}
	got = c.do(c.change(model.Release, ofClass(1), model.Ask(model.MemoryBandwidth)), c.change(model.Release, ofClass(1), model.Ask(model.CacheWays)))
	c.all(model.Applied, got, 2)
	level, _ := c.listed()[1].Schemata.Get(resctrl.MB, 1)
	mask, _ := c.listed()[1].Schemata.Get(resctrl.L3, 1)
	if level != 100 || mask != 0x7ff {
		t.Errorf("given back: level %d, mask %#x; %+v", level, mask, got)
	}
}

// The look after a domain came back finds resctrl locked, or cannot read one group's schemata, twice over: what the kernel forgot there is no stranger's doing at any later
// look, and is written again at the first that can. A stranger's own value is told as his.
func TestDomainBackWhileSchemataCannotBeRead(t *testing.T) {
	for name, stranger := range map[string]bool{"locked": false, "one group cannot be read": false, "one group cannot be read, and a stranger writes": true} {
		t.Run(name, func(t *testing.T) {
			c := openClassed(t)
			alone := model.OfClass(model.ClassOf(c.nums["/c-stream"]), 1)
			c.all(model.Applied, c.do(
				c.change(model.Set, c.task("/b-registers"), inBE), c.change(model.Hold, ofClass(1), model.Ways(2)), c.change(model.Hold, ofClass(1), model.Level(20)),
				c.change(model.Set, c.task("/c-stream"), model.InClass(model.ClassOf(c.nums["/c-stream"]))), c.change(model.Hold, alone, model.Level(10))), 5)
			for _, online := range []bool{false, true} {
				for cpu := 2; cpu < 4; cpu++ { // of the second socket
					must(t, c.k.SetOnline(cpu, online))
				}
			}
			look := func() []model.KnobReading {
				c.k.Advance(11e9)
				c.look()
				c.do()
				return c.h.Knobs(nil)
			}
			free := func() error { c.fs.beforeRead = nil; return nil }
			if name == "locked" {
				dir, err := c.k.OpenFolder("/sys/fs/resctrl")
				must(t, err)
				must(t, dir.Flock(unix.LOCK_EX))
				free = dir.Close
			} else {
				c.fs.beforeRead = func(file string) error {
					if strings.HasSuffix(file, "/schemata") && strings.HasPrefix(path.Base(path.Dir(file)), "commensal-task") {
						return unix.EINTR
					}
					return nil
				}
			}
			told := slices.Concat(look(), look())
			must(t, free())
			if stranger {
				i := slices.IndexFunc(c.groups(), func(n string) bool { return strings.HasPrefix(n, "commensal-task") })
				must(t, c.k.WriteFile("/sys/fs/resctrl/"+c.groups()[i]+"/schemata", []byte("MB:1=50\n")))
			}
			told = slices.Concat(told, look(), look())
			his := func(r model.KnobReading) bool { return r.Target == alone && r.Value == model.Level(50) }
			if slices.ContainsFunc(told, his) != stranger || slices.ContainsFunc(told, func(r model.KnobReading) bool { return !his(r) }) {
				t.Errorf("told as a stranger's: %+v", told)
			}
			for _, g := range c.listed()[1:] {
				level, _ := g.Schemata.Get(resctrl.MB, 1)
				mask, _ := g.Schemata.Get(resctrl.L3, 1)
				one := strings.HasPrefix(g.Name.Ctrl, "commensal-task")
				if want := map[bool]uint64{true: 10, false: 20}[one]; level != want && (!one || !stranger || level != 50) || !one && mask != 3 {
					t.Errorf("%s has level %d, mask %#x", g.Name, level, mask)
				}
			}
		})
	}
}
