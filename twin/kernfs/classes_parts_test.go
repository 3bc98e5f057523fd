package kernfs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
)

// rows are the ways of the first cache that the classes of services have, from lc on: "lc 3c, lc1 700".
func (c *classed) rows() string {
	c.t.Helper()
	var list []string
	for _, g := range c.listed() {
		if class, _, ok := strings.Cut(strings.TrimPrefix(g.Name.Ctrl, resctrl.DefaultPrefix), "-"); ok && strings.HasPrefix(class, "lc") {
			mask, _ := g.Schemata.Get(resctrl.L3, 0)
			list = append(list, fmt.Sprintf("%s %x", class, mask))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// ways asks for so many ways of the first cache for classes of services, in the order of the engine; 0: they are given back.
func (c *classed) ways(n ...int64) []model.Result {
	c.t.Helper()
	var list []model.Change
	for i, n := range n {
		of := model.OfClass(model.ClassLC+model.TaskNum(i), 0)
		switch {
		case n > 0:
			list = append(list, c.change(model.Hold, of, model.Ways(n)))
		case n == 0:
			list = append(list, c.change(model.Release, of, model.Ask(model.CacheWays)))
		}
	}
	return c.do(list...)
}

// Parts lie in rows next to each other from the high side, the rest next to BE, whoever comes and goes; what moves is told as nobody's doing.
func TestPartsOfServices(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2)),
		c.change(model.Set, c.task("/a-web-0"), model.InClass(model.ClassOfPart(0)))), 3)
	for _, step := range []struct {
		ways []int64 // of lc, lc1 and so on; -1: not asked about
		want string
	}{
		{[]int64{9}, "lc 7fc, lc1 7ff"},
		{[]int64{4, 3, 2}, "lc 3c, lc1 700, lc2 c0"},
		{[]int64{7, 0}, "lc 1fc, lc1 7ff, lc2 600"}, // a task is in lc1 yet
		{[]int64{5, 2}, "lc 7c, lc1 600, lc2 180"},
		{[]int64{4, 3}, "lc 3c, lc1 700, lc2 c0"},
		{[]int64{6, -1, 0}, "lc 0fc, lc1 700"},
		{[]int64{4, -1, -1, 2}, "lc 3c, lc1 700, lc3 c0"},
		{[]int64{0}, "lc1 700, lc3 c0"},
		{[]int64{4}, "lc 3c, lc1 700, lc3 c0"},
	} {
		got := c.ways(step.ways...)
		if rows := strings.ReplaceAll(step.want, " 0", " "); slices.ContainsFunc(got, func(r model.Result) bool { return r.Kind != model.Applied }) || c.rows() != rows {
			t.Fatalf("%v: %s, not %s; %+v", step.ways, c.rows(), rows, got)
		}
		c.k.Advance(11e9)
		c.look()
		c.do()
		if told := c.h.Knobs(nil); len(told) > 0 {
			t.Fatalf("%v: told %+v", step.ways, told)
		}
	}
	c.windows()
	seen, _ := c.windows()
	if be, all := seen[0].BE.V+seen[1].BE.V, seen[0].Total.V+seen[1].Total.V; seen[0].BE.Outcome != model.OK || be > 0.98*all {
		t.Errorf("BE moves %.4g of %.4g bytes a second", be, all)
	}
	got := c.ways(9) // beside parts that are not given back
	if c.all(model.Refused, got, 1); c.rows() != "lc 3c, lc1 700, lc3 c0" || !strings.Contains(got[0].Error, "beside 5 of other services") {
		t.Errorf("%s: %+v", c.rows(), got)
	}
}

// A mask of a part that another program wrote is left, also while others make room for each other.
func TestPartsAndStrangers(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(c.change(model.Hold, ofClass(0), model.Ways(2))), 1)
	c.all(model.Applied, c.ways(4, 3, 2), 3)
	for _, name := range c.groups() {
		if strings.HasPrefix(name, "commensal-lc2-") {
			must(t, c.k.WriteFile("/sys/fs/resctrl/"+name+"/schemata", []byte("L3:0=1\n")))
		}
	}
	c.all(model.Applied, c.ways(5, 2), 2)
	if rows := c.rows(); rows != "lc 7c, lc1 600, lc2 1" {
		t.Error(rows)
	}
	c.k.Advance(11e9)
	c.look()
	c.do()
	if told := c.h.Knobs(nil); len(told) != 1 || told[0].Target != model.OfClass(model.ClassOfPart(1), 0) || told[0].Value != model.Ways(1) {
		t.Errorf("%+v", told)
	}
}

// Whoever comes after a crash at any stage of it finds the parts' groups by the journal, removes them, and no other.
func TestPartsAfterACrash(t *testing.T) {
	for stage := 1; ; stage++ {
		c := openClassed(t)
		left, died := stage, false
		die := func() error {
			if left--; left <= 0 {
				died = true
				return unix.EIO
			}
			return nil
		}
		c.fs.beforeMkdir, c.fs.beforeWrite = die, die
		other, err := c.resctrl().CreateGroup("lc1-12345678", 0) // of another agent
		must(t, err)
		c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2)), c.change(model.Set, c.task("/a-web-0"), model.InClass(model.ClassOfPart(0))))
		c.ways(6, 3)
		c.ways(4, 2, 3)
		boot, err := procstat.ReadBootID(c.k)
		must(t, err)
		rep, err := linux.Restoring{FS: c.k, Journal: c.journal, Boot: boot, Clock: c.k}.Run()
		if groups := c.groups(); err != nil || !rep.Complete() || !slices.Equal(groups, []string{other.Name.Ctrl}) {
			t.Fatalf("stage %d: %+v, %v; left %v", stage, rep, err, groups)
		}
		if !died {
			if stage < 8 {
				t.Errorf("only %d stages", stage)
			}
			return
		}
	}
}
