package player_test

import (
	"context"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
	"github.com/commensal-io/commensal/twin/program"
)

const gib = 1 << 30

// node is a machine of 8 GiB with a service that has 4.2 GiB and page cache beside, and a hog that grows to as much in a time: before it has it, all there is is taken, and the service is larger.
type node struct {
	p       player.Player
	service int // on the machine
	record  string
	core    *agent.Core

	froze   []string // what a hook is told of freezing: the decision, and what came of it
	looks   []int64  // when memory was looked at between windows, ns
	windows int
}

func newNode(t *testing.T, windows string, startNsec, overNsec int64, looks bool) *node {
	t.Helper()
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.MemBytes, c.SwapBytes = 1, 4, 1, 8*gib, 0
	m, err := machine.New(c, 3)
	must(t, err)
	host := twin.NewHost(m, true)
	n := &node{record: t.TempDir()}
	start := func(class model.Class, name string, heats ...machine.Heat) int {
		p, _ := program.Find("compute")
		cfg := machine.TaskConfig{Name: name, Threads: 1, Memory: heats, Work: &machine.Work{}}
		p.Apply(&cfg)
		num, err := host.Start(model.Task{Path: "/" + name, Job: name, Class: class, Production: class == model.LC}, cfg)
		must(t, err)
		phys, err := host.Physical(num)
		must(t, err)
		return phys
	}
	n.service = start(model.LC, "service", machine.Heat{Bytes: 4.2 * gib, EveryNsec: 1e9}, machine.Heat{Bytes: 0.8 * gib, EveryNsec: 2e9, File: true})
	conf, _ := config.Defaults(windows)
	conf.Policies.SetModes(model.ModeOff)
	conf.Policies.CPU.PressureMode, conf.Policies.CPU.Pressure.Hook = model.ModeEnforce, true
	if !looks {
		conf.Policies.CPU.Pressure.LookNsec = 0
	}
	n.core, err = agent.Assemble(&conf, agent.Deps{Host: host, Clock: host, Platform: "twin", Told: func(d *model.Decision) {
		if d.Kind == model.DecideFreeze && n.core.Engine.Params.Tells(d.Policy) {
			n.froze = append(n.froze, d.Path)
		}
	}, Became: func(r *model.Result) {
		if r.Now.Knob == model.DecideFreeze.Hooked() {
			n.froze = append(n.froze, r.Kind.String()+" "+r.Now.String())
		}
	}, Record: func(h record.Header) agent.Recorder {
		return record.NewWriter(n.record, 64<<20, h)
	}})
	must(t, err)
	n.p = player.Player{Machine: m, Agents: []*agent.Loop{agent.NewLoop(n.core)}}
	n.p.Told = func(_ int, out *engine.Output) {
		in, _ := n.core.Last()
		if in.Look != nil {
			n.looks = append(n.looks, in.MonoNsec)
		}
		n.windows += bit(out.Observed)
	}
	n.p.World = func(now int64) (int64, error) {
		if now >= startNsec && overNsec > 0 {
			start(model.BE, "hog", machine.Heat{Bytes: 4.2 * gib, EveryNsec: 1e9, OverNsec: overNsec})
			overNsec = 0
		}
		return max(startNsec, now+1e9), nil
	}
	return n
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lost reports whether the service was killed.
func (n *node) lost(t *testing.T) bool {
	t.Helper()
	u, err := n.p.Machine.MemoryUse(n.service)
	must(t, err)
	return u.Killed
}

// Through the whole loop: nothing is looked at more often while there is plenty; as a hog takes it all within two seconds it is, each
// quarter of a second, and the service lives; and the record replays to the same decisions.
func TestLooksThroughTheLoop(t *testing.T) {
	n := newNode(t, config.ProfileSingleNode, 30e9, 2e9, true)
	must(t, n.p.Until(context.Background(), 30e9))
	if len(n.looks) > 0 || n.windows < 28 {
		t.Fatalf("%d looks with plenty of memory, %d windows", len(n.looks), n.windows)
	}
	must(t, n.p.Until(context.Background(), 60e9))
	if n.lost(t) || len(n.looks) < 20 || len(n.looks) > 4*30 {
		t.Errorf("lost: %v, %d looks", n.lost(t), len(n.looks))
	}
	if want := []string{"/hog", "applied " + model.Freeze(true).String()}; !slices.Equal(n.froze, want) {
		t.Errorf("a hook is told %q, want %q", n.froze, want)
	}
	must(t, n.core.Close())
	res, err := record.Run(n.record)
	must(t, err)
	if res.First != nil || res.Decisions == 0 || res.Ticks < 80 {
		t.Errorf("replayed: %+v", res)
	}
}

// With windows a minute apart only programs that wait can wake it: the trigger does, long before the next window, and looks follow.
// Without them the service is lost.
func TestStallsWake(t *testing.T) {
	for _, looks := range []bool{false, true} {
		n := newNode(t, config.ProfileCPI2, 9.5e9, 45e9, looks) // the reading at second 10 knows it
		must(t, n.p.Until(context.Background(), 59e9))
		if n.lost(t) == looks || looks != (len(n.looks) > 0) {
			t.Fatalf("looks: %v, lost: %v, %d looks", looks, n.lost(t), len(n.looks))
		}
		if looks && n.looks[0] < 38e9 {
			t.Errorf("first looked at %.1f s, when nobody waits yet", float64(n.looks[0])/1e9)
		}
		must(t, n.p.Until(context.Background(), 75e9)) // over edges of windows at which nothing closes
		if len(n.looks) > 4*40 {
			t.Errorf("%d looks", len(n.looks))
		}
	}
}
