package kernfs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// openL2 is a node whose cores' L2s have 16 ways that can be divided, of two sockets of two cores.
func openL2(t *testing.T, o resctrl.MountOptions) *classed {
	t.Helper()
	return openClassedOn(t, kernfs.ResctrlOptions{CLOSIDs: 8, RMIDs: 64, L2Ways: 16}, o)
}

// l2 is what the class of BE has of the L2s in a line of schemata, "" without a class.
func (c *classed) l2(line resctrl.Resource) string {
	c.t.Helper()
	var b strings.Builder
	for _, g := range c.listed() {
		if !strings.HasPrefix(g.Name.Ctrl, "commensal-be-") {
			continue
		}
		for _, d := range g.Schemata.Domains(line) {
			mask, _ := g.Schemata.Get(line, d)
			fmt.Fprintf(&b, "%d=%x ", d, mask)
		}
	}
	return strings.TrimSpace(b.String())
}

var everyL2 = model.OfClass(model.ClassBE, model.EveryDomain)

func l2Ways(n int64) model.Setting { return model.Setting{Knob: model.L2Ways, Amount: n} }

// The L2s are divided by one knob and one write, whatever they are called, for code and for data where they are apart; the root group keeps
// all ways, and so has the class once it is given back.
func TestL2Ways(t *testing.T) {
	for name, tt := range map[string]struct {
		o     resctrl.MountOptions
		lines []resctrl.Resource
	}{
		"one line":      {resctrl.MountOptions{}, []resctrl.Resource{resctrl.L2}},
		"code and data": {resctrl.MountOptions{CDPL2: true}, []resctrl.Resource{resctrl.L2Code, resctrl.L2Data}},
	} {
		t.Run(name, func(t *testing.T) {
			c := openL2(t, tt.o)
			if have := c.snap.Topology.Classes; have.L2Ways != 16 || have.L2Least != 1 || have.Ways != 11 {
				t.Fatalf("%+v", have)
			}
			c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE)), 1)
			writes := 0
			c.fs.beforeWrite = func() error { writes++; return nil }
			got := c.do(c.change(model.Hold, everyL2, l2Ways(3)))
			if c.all(model.Applied, got, 1); got[0].Found != l2Ways(16) || got[0].Now != l2Ways(3) || writes != 1 {
				t.Errorf("%+v, %d writes", got, writes)
			}
			for _, line := range tt.lines {
				if text := c.l2(line); text != "0=7 2=7 64=7 66=7" {
					t.Errorf("%s: %s", line, text)
				}
			}
			c.all(model.Applied, c.do(c.change(model.Release, everyL2, model.Ask(model.L2Ways))), 1)
			for _, line := range tt.lines {
				if text := c.l2(line); text != "0=ffff 2=ffff 64=ffff 66=ffff" {
					t.Errorf("given back, %s: %s", line, text)
				}
			}
		})
	}
}

// A core that goes offline and comes back is divided anew, also one that was offline when the class was made.
func TestL2OfCoresThatComeAndGo(t *testing.T) {
	c := openL2(t, resctrl.MountOptions{})
	plug := func(online bool, cpus ...int) {
		t.Helper()
		for _, cpu := range cpus {
			must(t, c.k.SetOnline(cpu, online))
		}
		for range 2 {
			c.k.Advance(11e9)
			c.look()
			c.do()
		}
	}
	plug(false, 2, 3)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, everyL2, l2Ways(2))), 2)
	if text := c.l2(resctrl.L2); text != "0=3 2=3" {
		t.Errorf("one socket: %s", text)
	}
	for _, tt := range []struct {
		online bool
		cpu    int
		want   string
	}{{true, 2, "0=3 2=3 64=3"}, {false, 1, "0=3 64=3"}, {true, 3, "0=3 64=3 66=3"}, {true, 1, "0=3 2=3 64=3 66=3"}} {
		plug(tt.online, tt.cpu)
		if text := c.l2(resctrl.L2); text != tt.want {
			t.Errorf("CPU %d %v: %s, not %s", tt.cpu, tt.online, text, tt.want)
		}
	}
	if told := c.h.Knobs(nil); len(told) > 0 {
		t.Errorf("it passes for another program's doing: %+v", told)
	}
}

// Another program that sets one L2 is told once, of the knob of all; ways that it holds for itself are left to it.
func TestL2OfStrangers(t *testing.T) {
	c := openL2(t, resctrl.MountOptions{})
	write := func(file, text string) { must(t, c.k.WriteFile("/sys/fs/resctrl/"+file, []byte(text+"\n"))) }
	write("schemata", "L3:0=ff;1=ff")
	write("schemata", "L2:64=fffc")
	must(t, c.k.Mkdir("/sys/fs/resctrl/COS1", 0o755))
	write("COS1/schemata", "L3:0=100;1=100")
	write("COS1/schemata", "L2:0=10;2=10;64=3;66=10")
	write("schemata", "L2:0=ffe0;2=ffe0;66=ffe0")
	write("COS1/mode", "exclusive")
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, everyL2, l2Ways(3))), 2)
	if text := c.l2(resctrl.L2); text != "0=7 2=7 64=1c 66=7" {
		t.Errorf("beside another's: %s", text)
	}
	write(c.groups()[1]+"/schemata", "L2:2=1")
	c.look()
	c.k.Advance(11e9)
	c.look()
	c.rest()
	if got := c.h.Knobs(nil); len(got) != 1 || got[0].Target != everyL2 || got[0].Value != l2Ways(1) {
		t.Errorf("%+v", got)
	}
}

// After a crash nothing is left; where there is no such cache the knob is refused.
func TestL2AfterACrashAndWithout(t *testing.T) {
	c := openL2(t, resctrl.MountOptions{})
	c.all(model.Applied, c.do(c.change(model.Hold, everyL2, l2Ways(3))), 1)
	boot, err := procstat.ReadBootID(c.k)
	must(t, err)
	rep, err := linux.Restoring{FS: c.k, Journal: c.journal, Boot: boot, Clock: c.k}.Run()
	if err != nil || !rep.Complete() || len(c.groups()) > 0 {
		t.Errorf("%+v, %v; left %v", rep, err, c.groups())
	}
	c = openClassed(t)
	c.all(model.Refused, c.do(c.change(model.Hold, everyL2, l2Ways(3))), 1)
	if len(c.groups()) > 0 || c.snap.Topology.Classes.L2Ways != 0 {
		t.Errorf("groups %v, %+v", c.groups(), c.snap.Topology.Classes)
	}
}
