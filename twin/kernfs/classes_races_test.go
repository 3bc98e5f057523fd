package kernfs_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// What others do between two of our steps at resctrl.

// A stranger takes the last CLOSIDs after they were counted and before our group is made: refused in words, with nothing left of ours and his
// groups as they are; once he lets go of one the same is done.
func TestLastClassTakenBetweenCountAndMkdir(t *testing.T) {
	c := openClassed(t)
	took, n := []string{}, 0
	c.fs.beforeMkdir = func() error {
		n++
		for i := 1; ; i++ {
			name := "COS" + strconv.Itoa(i)
			if slices.Contains(took, name) {
				continue
			}
			if c.k.Mkdir("/sys/fs/resctrl/"+name, 0o755) != nil {
				return nil
			}
			took = append(took, name)
		}
	}
	got := c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2)))
	c.all(model.Refused, got, 2)
	groups := c.groups()
	slices.Sort(groups)
	if n == 0 || len(took) == 0 || !slices.Equal(groups, took) {
		t.Fatalf("asked %d times for a group; groups %v, his %v", n, groups, took)
	}
	for _, r := range got {
		if !strings.Contains(r.Error, "none left") {
			t.Errorf("it is not said what is used up: %q", r.Error)
		}
	}
	if len(c.j.Outstanding()) > 0 || !slices.Contains(c.threads(""), c.thread("/c-stream")) {
		t.Errorf("journal %+v; the root group does not have the task", c.j.Outstanding())
	}
	c.fs.beforeMkdir = nil
	for _, name := range took[:2] {
		must(t, c.k.Rmdir("/sys/fs/resctrl/"+name))
	}
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2))), 2)
}

// threads are those of a group, "" being the root group.
func (c *classed) threads(group string) (list []string) {
	c.t.Helper()
	text, err := c.k.ReadFile("/sys/fs/resctrl/"+group+"/tasks", nil)
	must(c.t, err)
	return strings.Fields(string(text))
}

// thread is the first thread of a task.
func (c *classed) thread(path string) string {
	c.t.Helper()
	g, err := c.d.OpenAlone(path)
	must(c.t, err)
	defer g.Close() //nolint:errcheck // it was only read
	pids, err := g.Procs(nil)
	must(c.t, err)
	return strconv.Itoa(int(pids[0]))
}

// A group is deleted under us between two writes of one batch: what was written is told as gone, what could not be is refused, and a group that another program
// makes under the name is not ours. Asked for again it is made anew, with all that is asked for.
func TestGroupDeletedBetweenTwoWrites(t *testing.T) {
	c := openClassed(t)
	writes := 0
	c.fs.beforeWrite = func() error {
		if writes++; writes == 2 { // by one who does not ask for the lock, which we hold
			dirs, err := c.k.ReadDir("/sys/fs/resctrl")
			must(t, err)
			for _, d := range dirs {
				if strings.HasPrefix(d.Name, resctrl.DefaultPrefix) {
					must(t, c.k.Rmdir("/sys/fs/resctrl/"+d.Name))
				}
			}
		}
		return nil
	}
	put, ways, level := c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2)), c.change(model.Hold, ofClass(0), model.Level(20))
	got := c.do(put, ways, level)
	if len(got) != 3 || writes != 2 || got[2].Kind == model.Applied || got[2].Error == "" {
		t.Fatalf("%d writes; %+v", writes, got)
	}
	if len(c.groups()) > 0 || !slices.Contains(c.threads(""), c.thread("/c-stream")) {
		t.Errorf("groups %v", c.groups())
	}
	c.fs.beforeWrite = nil
	c.k.Advance(11e9)
	c.look()
	c.do()
	told := c.h.Knobs(nil)
	if len(told) != 2 || told[0].Target != c.task("/c-stream") || told[0].Value != model.InClass(model.ClassFound) || told[1].Target != ofClass(0) || told[1].Value != model.Ways(11) {
		t.Errorf("told as gone: %+v", told)
	}
	again := c.do(c.change(model.Disown, c.task("/c-stream"), model.Ask(model.ServiceClass)), c.change(model.Disown, ofClass(0), model.Ask(model.CacheWays)),
		c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2)), c.change(model.Hold, ofClass(0), model.Level(20)))
	c.all(model.Applied, again, 3)
	mask, _ := c.listed()[1].Schemata.Get(resctrl.L3, 0)
	percent, _ := c.listed()[1].Schemata.Get(resctrl.MB, 0)
	if mask != 3 || percent != 20 || !slices.Contains(c.threads(c.groups()[0]), c.thread("/c-stream")) {
		t.Errorf("mask %#x, level %d", mask, percent)
	}
	rep, err := c.h.Restore()
	if err != nil || !rep.Complete() || len(c.groups()) > 0 {
		t.Errorf("%+v, %v; groups %v", rep, err, c.groups())
	}
}

// What the kernel forgot is written again, which fails, and fails again: nobody takes that for a stranger's doing, and it stands once a write goes through.
// A write that fails at first is refused, with the value as it was, and is not repeated by itself.
func TestSchemataThatCannotBeWritten(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(1), model.Ways(2)), c.change(model.Hold, ofClass(1), model.Level(20))), 3)
	failed := 0
	fails := func() error { failed++; return unix.EIO }
	c.fs.beforeWrite = fails
	refused := c.do(c.change(model.Hold, ofClass(0), model.Ways(2)))
	c.all(model.Refused, refused, 1)
	if mask, _ := c.listed()[1].Schemata.Get(resctrl.L3, 0); mask != 0x7ff || failed != 1 {
		t.Errorf("after %d writes that failed the mask is %#x", failed, mask)
	}
	c.fs.beforeWrite = nil
	look := func(online ...bool) []model.KnobReading {
		t.Helper()
		for _, on := range online {
			for cpu := 2; cpu < 4; cpu++ { // of the second socket
				must(t, c.k.SetOnline(cpu, on))
			}
		}
		c.k.Advance(11e9)
		c.look()
		c.do()
		return c.h.Knobs(nil)
	}
	look(false)
	c.fs.beforeWrite, failed = fails, 0
	for i := range 2 {
		told := look(true)
		if mask, _ := c.listed()[1].Schemata.Get(resctrl.L3, 1); len(told) > 0 || mask == 3 || failed == 0 {
			t.Errorf("look %d, %d writes failed: told %+v, mask %#x", i, failed, told, mask)
		}
	}
	c.fs.beforeWrite = nil
	told := look()
	mask, _ := c.listed()[1].Schemata.Get(resctrl.L3, 1)
	level, _ := c.listed()[1].Schemata.Get(resctrl.MB, 1)
	if len(told) > 0 || mask != 3 || level != 20 {
		t.Errorf("once it can be written: mask %#x, level %d, told %+v", mask, level, told)
	}
}
