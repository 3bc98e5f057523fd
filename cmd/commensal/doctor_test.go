package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/probe"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens anew")

// captured has the trees that the probes' own tests stand on; kernel/probe holds in the rig that they are like its guests,
// and that doctor there says so.
const captured = "../../kernel/probe/testdata"

// doctor runs the command and returns what it prints, and its exit code.
func doctor(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	p := &cli.Printer{}
	root := &cobra.Command{Use: "commensal"}
	root.AddCommand(doctorCommand(p))
	var b bytes.Buffer
	root.SetOut(&b)
	root.SetArgs(append([]string{"doctor"}, args...))
	code = cli.Execute(root, p)
	return b.String(), code
}

func trees(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(captured + "/*/proc")
	if err != nil || len(list) == 0 {
		t.Fatalf("no captured trees: %v", err)
	}
	for i := range list {
		list[i] = filepath.Dir(list[i])
	}
	return list
}

func TestDoctorGoldens(t *testing.T) {
	for _, dir := range trees(t) {
		for kind, args := range map[string][]string{"txt": {"--root", dir, "--all"}, "json": {"--root", dir, "--json"}} {
			name := filepath.Base(dir) + "." + kind
			t.Run(name, func(t *testing.T) {
				got, code := doctor(t, args...)
				if code != cli.CodeDone {
					t.Fatalf("exit code %d", code)
				}
				golden := filepath.Join("testdata", "doctor", name)
				if *rewrite {
					if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestDoctorInShort: on one screen each signal and remedy that a policy uses is named once, with
// the same answer as the details, and all others as not built.
func TestDoctorInShort(t *testing.T) {
	for _, dir := range trees(t) {
		text, _ := doctor(t, "--root", dir)
		if n := strings.Count(text, "\n"); n > 15 {
			t.Errorf("%s: %d lines:\n%s", dir, n, text)
		}
		findings := probe.Run(probe.Options{FS: hostfs.NewRoot(dir)})
		for _, a := range abilities(append(probe.Signals(findings), probe.Remedies(findings)...)) {
			var at []string
			for line := range strings.Lines(text) {
				names, _, _ := strings.Cut(strings.TrimSuffix(line[min(2, len(line)):], "\n"), ": wants ")
				for n := range strings.SplitSeq(names, ", ") {
					if strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(n, "yes "), "no ")) == a.Name {
						at = append(at, line)
					}
				}
			}
			want := "  " + yesNo(a.Available) + " "
			if a.UsedBy == "" {
				want = "  "
			}
			if len(at) != 1 || !strings.HasPrefix(at[0], want) || a.UsedBy != "" && !a.Available && !strings.Contains(at[0], a.Wants) {
				t.Errorf("%s: %q for %+v", dir, at, a)
			}
		}
	}
}

// TestUsedBy: each policy that holds anybody uses a remedy that the probe knows, and each signal is measured by something that it knows.
func TestUsedBy(t *testing.T) {
	findings := probe.Run(probe.Options{FS: hostfs.NewRoot(trees(t)[0])})
	used, known := map[string]bool{}, map[string]bool{}
	for _, a := range abilities(probe.Remedies(findings)) {
		for _, name := range strings.Split(a.UsedBy, ", ") {
			used[name] = true
		}
	}
	for _, a := range abilities(probe.Signals(findings)) {
		known[a.Name] = a.UsedBy == model.ByDetection
	}
	p := engine.Defaults()
	for _, s := range p.Sections() {
		if holds := s.Name != model.PolicyHeadroom; used[s.Name] != holds {
			t.Errorf("policy %s: uses a remedy: %t", s.Name, used[s.Name])
		}
	}
	for _, src := range model.Sources() {
		if !known[src.Row().Probe] {
			t.Errorf("signal %s is measured by %q, which the probe does not know", src, src.Row().Probe)
		}
	}
}

// TestDoctorLive: this machine, as it is, and a captured tree of it, from which the same follows.
func TestDoctorLive(t *testing.T) {
	answers := func(args ...string) []string {
		t.Helper()
		out, code := doctor(t, append(args, "--json")...)
		var d diagnosis
		if err := json.Unmarshal([]byte(out), &d); err != nil || code != cli.CodeDone {
			t.Fatalf("%v: exit code %d, %v", args, code, err)
		}
		var list []string
		for _, f := range d.Findings {
			list = append(list, f.Name+": "+string(f.Answer))
		}
		for _, a := range append(d.Signals, d.Remedies...) {
			list = append(list, a.Name+": "+yesNo(a.Available))
		}
		return list
	}
	live := answers()
	if os.Geteuid() != 0 {
		t.Skip("files that only root may read would be missing in the captured tree")
	}
	dir := filepath.Join(t.TempDir(), "tree")
	if diff := cmp.Diff(live, answers("--capture", dir)); diff != "" {
		t.Errorf("plain and capturing:\n%s", diff)
	}
	if diff := cmp.Diff(live, answers("--root", dir)); diff != "" {
		t.Errorf("live and captured:\n%s", diff)
	}
	if out, code := doctor(t, "--capture", dir); code != cli.CodeBadInput || out != "" {
		t.Errorf("into a folder that is not empty: exit code %d, %q", code, out)
	}
}

// TestOnDisk: a run directory on a tmpfs, there or not yet, is as it should be; one elsewhere is not.
func TestOnDisk(t *testing.T) {
	if why := onDisk("/proc/self/none/run"); !strings.Contains(why, "/proc/self/none/run is not on a tmpfs") {
		t.Errorf("on proc: %q", why)
	}
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("no tmpfs in /dev/shm")
	}
	if why := onDisk("/dev/shm/none/run"); why != "" {
		t.Errorf("on a tmpfs: %q", why)
	}
}

func TestDoctorBadInput(t *testing.T) {
	for _, args := range [][]string{
		{"--root", filepath.Join(t.TempDir(), "missing")}, {"--root", t.TempDir()}, {"--root", t.TempDir(), "--capture", t.TempDir()},
		{"--rot"}, {"more"},
	} {
		if out, code := doctor(t, args...); code != cli.CodeBadInput || out != "" {
			t.Errorf("%q: exit code %d, %q", args, code, out)
		}
	}
}

// A policy that makes control groups of resctrl, and pqos in the PATH: doctor warns of the two. Not where the policy only observes, and not without pqos.
func TestDoctorWarnsOfPqos(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pqos"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.yaml")
	for _, c := range []struct{ policies, path, want string }{
		{"cache: {mode: enforce}", dir, "pqos -I fails while cache has"},
		{"remedy: {mode: enforce}\nbandwidth: {mode: enforce}", dir, "pqos -I fails while bandwidth or remedy has"},
		{"cache: {mode: observe}", dir, ""},
		{"pressure: {mode: enforce}", dir, ""},
		{"cache: {mode: enforce}", t.TempDir(), ""},
	} {
		t.Setenv("PATH", c.path)
		if err := os.WriteFile(path, []byte("version: 1\nprofile: cpi2\nagent: {run_dir: /dev/shm/none}\ntasks: [{match: /be-*, job: batch, class: BE}]\n"+c.policies+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		p := prospect(t.Context(), path, nil)
		if said := strings.Contains(p.Warning, "pqos"); said != (c.want != "") || !strings.Contains(p.Warning, c.want) {
			t.Errorf("%s, pqos in %s: %q (%s)", c.policies, c.path, p.Warning, p.Config)
		}
	}
}

// Where policy bandwidth is on, doctor says whether it is counted how long memory takes to answer.
func TestDoctorSaysWhetherLatencyIsCounted(t *testing.T) {
	c, ok := config.Defaults(config.DefaultProfile)
	if !ok {
		t.Fatal("no defaults")
	}
	yes := []probe.Finding{{Name: probe.MemoryLatency, Answer: probe.Yes, Why: "amd_l3, opened"}}
	no := []probe.Finding{{Name: probe.MemoryLatency, Answer: probe.No, Why: "no such PMU"}}
	if said := latencyOf(&c, yes); said != "" {
		t.Errorf("the policy is off: %q", said)
	}
	c.Policies.CPU.BandwidthMode = model.ModeObserve
	for want, findings := range map[string][]probe.Finding{"counted, by amd_l3, opened": yes, "not counted, so bandwidth goes by CPI (docs/policies/bandwidth.md): no such PMU": no, "not probed": nil} {
		if said := latencyOf(&c, findings); !strings.HasSuffix(said, want) {
			t.Errorf("%q, want %q", said, want)
		}
	}
}

// Of a simulated machine of two sockets: one service is as policies take it to be, one's pages lie elsewhere, one may run on both sockets.
func TestDoctorSaysWhereServicesAre(t *testing.T) {
	for _, layout := range []cgroup.Layout{cgroup.LayoutV1, cgroup.LayoutV2} {
		m, err := machine.New(machine.Skylake(), 1)
		if err != nil {
			t.Fatal(err)
		}
		k, err := kernfs.New(m, kernfs.Options{Layout: layout})
		if err != nil {
			t.Fatal(err)
		}
		mounts, err := cgroup.Discover(k)
		if err != nil {
			t.Fatal(err)
		}
		cg, err := cgroup.Open(k, mounts)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, s := range []struct {
			name, cpus string
			pages      []float64
		}{{"near", "0-3", []float64{1, 0}}, {"far", "0-3", []float64{0.25, 0.75}}, {"wide", "0-31", []float64{0.5, 0.5}}} {
			paths = append(paths, "/"+s.name)
			if layout == cgroup.LayoutV2 {
				err = k.Mkdir("/sys/fs/cgroup/"+s.name, 0o755)
			} else {
				for _, controller := range []string{"cpu", "cpuset", "memory"} {
					err = errors.Join(err, k.Mkdir("/sys/fs/cgroup/"+controller+"/"+s.name, 0o755))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if layout != cgroup.LayoutV2 {
				err = k.WriteFile("/sys/fs/cgroup/cpuset/"+s.name+"/cpuset.mems", []byte("0-1"))
			}
			if err := errors.Join(err, cg.WriteCPUs("/"+s.name, s.cpus)); err != nil {
				t.Fatal(err)
			}
			c := machine.TaskConfig{Name: s.name, Threads: 1, CPI: 1, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{}, Pages: s.pages}
			if _, err := k.Start("/"+s.name, c); err != nil {
				t.Fatal(err)
			}
		}
		got := premisesOf(k, mounts, cg, paths)
		want := `of 3 services 1 have local pages and one socket (docs/policies/balm.md); "/far": 75 % of its pages lie on other sockets' memory; "/wide": it may run on 2 sockets`
		if got != want {
			t.Errorf("%s: %q, want %q", layout, got, want)
		}
		if none := premisesOf(k, mounts, cg, nil); none != "" {
			t.Errorf("%s: without services %q", layout, none)
		}
	}
}
