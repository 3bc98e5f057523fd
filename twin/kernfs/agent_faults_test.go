package kernfs_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/policy/bandwidth"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// driven is an agent over a kernel, whose turns a test takes, with what it decided.
type driven struct {
	*agent.Loop
	t       *testing.T
	k       *forgetful
	decided []model.Decision
}

// drive assembles an agent of one service and a stream of best-effort work, on a machine with resctrl.
func drive(t *testing.T, more func(c *config.Config, k *kernfs.Kernel)) *driven {
	t.Helper()
	k := &forgetful{Kernel: newResctrlBed(t, 1).k}
	must(t, k.MountResctrl(resctrl.MountOptions{}))
	started(t, k.Kernel, "/a-web-0", service())
	started(t, k.Kernel, "/c-stream", antagonist())
	cfg, _ := config.Defaults(config.ProfileSingleNode)
	cfg.Sampling.Duration, cfg.Sampling.Frequency = 1e9, 1e9
	cfg.Tasks = []config.Task{{Match: "/a-*", Job: "web", Class: "LC"}, {Match: "/c-*", Job: "c", Class: "BE", Importance: "batch"}}
	more(&cfg, k.Kernel)
	core, err := agent.Assemble(&cfg, agent.Deps{
		FS: k, Journal: t.TempDir() + "/journal", Disk: journal.RealDisk(), Clock: k.Kernel, Platform: "twin",
		Delay: k.Taskstats(), Opener: k.Counters(), Latency: k.MemoryLatency, Beside: func(work func()) { work() },
	})
	must(t, err)
	d := &driven{Loop: agent.NewLoop(core), t: t, k: k}
	t.Cleanup(func() { d.Close() })
	return d
}

// lives takes all turns of some seconds, and looks after each.
func (d *driven) lives(seconds int64, look func()) {
	d.t.Helper()
	for end := d.k.MonoNsec() + seconds*1e9; d.Due() < end; {
		if wait := d.Due() - d.k.MonoNsec(); wait > 0 {
			d.k.Advance(wait)
		}
		if out := d.Next(); out != nil {
			d.decided = append(d.decided, slices.Clone(out.Decisions)...)
		}
		look()
	}
}

// says are the reasons of what was decided, by kind.
func (d *driven) says(kind model.DecisionKind) (list []string) {
	for i := range d.decided {
		if d.decided[i].Kind == kind {
			list = append(list, d.decided[i].Reason)
		}
	}
	return list
}

// be is the group of best-effort work, "" where there is none.
func (d *driven) be() string {
	d.t.Helper()
	dirs, err := d.k.ReadDir("/sys/fs/resctrl")
	must(d.t, err)
	for _, e := range dirs {
		if strings.HasPrefix(e.Name, "commensal-be-") {
			return e.Name
		}
	}
	return ""
}

// A program makes the low ways its own in the moment before the agent writes them. The kernel refuses the write, and says why in info/last_cmd_status: so do the decision, which
// explain and the log show, and the knob, which status shows. The next try goes round his ways.
func TestRefusedWriteInTheKernelsWords(t *testing.T) {
	d := drive(t, func(c *config.Config, _ *kernfs.Kernel) {
		c.Policies.CPU.CacheMode, c.Policies.CPU.Cache.PatienceNsec = model.ModeEnforce, 0
	})
	const cos = "/sys/fs/resctrl/COS1"
	n := 0
	d.k.beforeWrite = func() error {
		if n++; n == 1 {
			must(t, d.k.Mkdir(cos, 0o755))
			for _, group := range []string{"", "/" + d.be()} {
				must(t, d.k.Kernel.WriteFile("/sys/fs/resctrl"+group+"/schemata", []byte("L3:0=7fc;1=7fc\n")))
			}
			must(t, d.k.Kernel.WriteFile(cos+"/schemata", []byte("L3:0=3;1=3\n")))
			must(t, d.k.Kernel.WriteFile(cos+"/mode", []byte("exclusive\n")))
		}
		return nil
	}
	const words = `kernel says "Overlaps with exclusive group"`
	told := false
	d.lives(30, func() {
		for i := range d.Engine.State.Ledger.Knobs {
			told = told || strings.Contains(d.Engine.State.Ledger.Knobs[i].Why, words)
		}
	})
	refused := d.says(model.DecideRefused)
	if n == 0 || len(refused) == 0 || !strings.Contains(refused[0], words) || !told {
		t.Errorf("%d writes; the knob says it: %v; decided %q", n, told, refused)
	}
	group, err := d.k.ReadFile("/sys/fs/resctrl/"+d.be()+"/schemata", nil)
	must(t, err)
	his, err := d.k.ReadFile(cos+"/schemata", nil)
	must(t, err)
	if !strings.Contains(string(group), "L3:0=00c;1=00c") && !strings.Contains(string(group), "L3:0=c;1=c") || !strings.Contains(string(his), "=3;") && !strings.Contains(string(his), "=003;") {
		t.Errorf("beside his ways: %s; his are %s", group, his)
	}
}

// The hardware loses what best-effort work counts for ten minutes, and has it again; then what the root group itself counted, beside what another program has a number of in it.
// Policy bandwidth goes by what memory delivers: the most that was ever seen stays what it was, levels stand while nobody knows, and go on when it is known.
func TestUnavailableForMinutesUnderBandwidth(t *testing.T) {
	d := drive(t, func(c *config.Config, k *kernfs.Kernel) {
		c.Policies.CPU.BandwidthMode = model.ModeEnforce
		c.Policies.CPU.Bandwidth.LearnNsec, c.Policies.CPU.Bandwidth.LatencyNsec, c.Policies.CPU.Bandwidth.Gain = 60e9, 1, 0
		k.Advance(300e9)
		must(t, k.Mkdir("/sys/fs/resctrl/mon_groups/pqos-1-0", 0o755))
		must(t, k.WriteFile("/sys/fs/resctrl/mon_groups/pqos-1-0/tasks", []byte(strconv.Itoa(k.PIDs("/a-web-0")[0])+"\n")))
	})
	domains := func() []bandwidth.Domain { return d.Engine.State.CPU.Bandwidth.Domains }
	d.lives(720, func() {}) // what is said of the beginning may be said again
	usual := domains()[0].SeenBytes
	if usual < 1e9 || domains()[0].Utilisation.Outcome != model.OK || d.be() == "" {
		t.Fatalf("%+v", domains())
	}
	for _, rmid := range []int{numberOf(t, d.k.Kernel, "/"+d.be()), 0} {
		said := len(d.says(model.DecideLeftAlone))
		d.k.SetMonitorAnswer(rmid, "Unavailable")
		d.lives(10, func() {})
		level := domains()[0].Level
		d.lives(600, func() {
			if rmid > 0 && (domains()[0].Utilisation.Outcome == model.OK || domains()[0].Level != level) {
				t.Fatalf("nobody knows: level %d, was %d; %s", domains()[0].Level, level, domains()[0].String())
			}
		})
		if more := d.says(model.DecideLeftAlone)[said:]; rmid > 0 && (len(more) != 1 || !strings.Contains(more[0], "is not known")) {
			t.Errorf("said in ten minutes: %q", more)
		}
		d.k.SetMonitorAnswer(rmid, "")
		d.lives(60, func() {})
		if x := domains()[0]; x.Utilisation.Outcome != model.OK || x.SeenBytes > 1.2*usual || x.PeakBytes > 1.2*usual {
			t.Errorf("RMID %d is back: the most that was seen is %.4g bytes a second, was %.4g; %s", rmid, x.SeenBytes, usual, x.String())
		}
	}
}
