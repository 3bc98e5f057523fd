package kernfs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
)

func ofServices(domain int32) model.Target { return model.OfClass(model.ClassLC, domain) }

// apart has BE in two ways of the first cache and the service in so many.
func (c *classed) apart(ways int64) []model.Result {
	c.t.Helper()
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2))), 2)
	return c.do(c.change(model.Set, c.task("/a-web-0"), model.InClass(model.ClassLC)), c.change(model.Hold, ofServices(0), model.Ways(ways)))
}

// masks are the ways of the first cache that the classes of BE and of services have; 0 where there is no such class.
func (c *classed) masks() (be, lc uint64) {
	c.t.Helper()
	for _, g := range c.listed() {
		mask, _ := g.Schemata.Get(resctrl.L3, 0)
		switch {
		case strings.HasPrefix(g.Name.Ctrl, "commensal-be-"):
			be = mask
		case strings.HasPrefix(g.Name.Ctrl, "commensal-lc-"):
			lc = mask
		}
	}
	return be, lc
}

// Services have the ways that BE has not, from the other side; the root group keeps all. What they move is not counted
// as BE's. When nobody asks for it any more the group is gone.
func TestServicesApart(t *testing.T) {
	c := openClassed(t)
	got := c.apart(9)
	c.all(model.Applied, got, 2)
	if be, lc := c.masks(); be != 3 || lc != 0x7fc || got[1].Now != model.Ways(9) {
		t.Errorf("BE has %#x, services %#x; %+v", be, lc, got)
	}
	root, err := c.resctrl().ReadSchemata(resctrl.Name{})
	must(t, err)
	if mask, _ := root.Get(resctrl.L3, 0); mask != 0x7ff {
		t.Errorf("the root group has %#x", mask)
	}
	c.windows()
	seen, _ := c.windows()
	if be, all := seen[0].BE.V+seen[1].BE.V, seen[0].Total.V+seen[1].Total.V; seen[0].BE.Outcome != model.OK || be > 0.98*all {
		t.Errorf("BE moves %.4g of %.4g bytes a second", be, all)
	}
	c.all(model.Applied, c.do(c.change(model.Release, c.task("/a-web-0"), model.Ask(model.ServiceClass)), c.change(model.Release, ofServices(0), model.Ask(model.CacheWays))), 2)
	if be, lc := c.masks(); be != 3 || lc != 0 || len(c.groups()) != 1 || len(c.j.Outstanding()) != 1 {
		t.Errorf("BE has %#x, services %#x; groups %v, journal %+v", be, lc, c.groups(), c.j.Outstanding())
	}
}

// Where another program holds ways for itself services get a row of those that are left, and none of less than half.
func TestServicesApartBesideOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		root, his string
		kind      model.ResultKind
		lc        uint64
	}{
		"six are left in a row":   {"ff", "100", model.Applied, 0xfc},
		"four are left, and four": {"3f", "40", model.Refused, 0x3f},
	} {
		t.Run(name, func(t *testing.T) {
			c := openClassed(t)
			write := func(file, text string) {
				t.Helper()
				must(t, c.k.WriteFile("/sys/fs/resctrl/"+file, []byte(text+"\n")))
			}
			write("schemata", "L3:0="+tt.root+";1="+tt.root)
			must(t, c.k.Mkdir("/sys/fs/resctrl/COS1", 0o755))
			write("COS1/schemata", "L3:0="+tt.his+";1="+tt.his)
			write("COS1/mode", "exclusive")
			got := c.apart(9)
			if got[1].Kind != tt.kind {
				t.Fatalf("%+v", got)
			}
			if be, lc := c.masks(); be != 3 || lc&^0x600 != tt.lc {
				t.Errorf("BE has %#x, services %#x", be, lc)
			}
			rep, err := c.h.Restore()
			if err != nil || !rep.Complete() || !slices.Equal(c.groups(), []string{"COS1"}) {
				t.Errorf("%+v, %v; groups %v", rep, err, c.groups())
			}
		})
	}
}

// Whoever comes after a crash removes both groups, and no other.
func TestServicesApartAfterACrash(t *testing.T) {
	c := openClassed(t)
	other, err := c.resctrl().CreateGroup("lc-12345678", 0) // of another agent
	must(t, err)
	c.all(model.Applied, c.apart(9), 2)
	boot, err := procstat.ReadBootID(c.k)
	must(t, err)
	rep, err := linux.Restoring{FS: c.k, Journal: c.journal, Boot: boot, Clock: c.k}.Run()
	if err != nil || !rep.Complete() || len(rep.Items) != 2 {
		t.Errorf("%+v, %v", rep, err)
	}
	if left := c.groups(); !slices.Equal(left, []string{other.Name.Ctrl}) {
		t.Errorf("left: %v", left)
	}
}
