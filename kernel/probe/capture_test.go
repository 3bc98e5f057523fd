package probe

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/mountinfo"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

// treeName is the captured tree of the guest that the test runs in.
func treeName() string {
	name := "qemu-" + rigtest.Kernel() + "-v2"
	if os.Getenv(rigtest.EnvMachine) == "stock" {
		name += "-stock"
	}
	return name
}

// TestCapture takes a tree of this machine as it is. In the rig it comes out of the guest: testdata/README.md says how
// it becomes a fixture.
func TestCapture(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files that only root may read would be missing")
	}
	dir := capture(t, treeName())
	if _, err := Capture(dir); !errors.Is(err, os.ErrExist) {
		t.Errorf("captured a second time into %s: %v", dir, err)
	}
}

// TestCaptureInUse takes a tree of a guest at work: groups with limits, swap, somebody's DAMON, and a resctrl that
// we share with somebody who monitors.
func TestCaptureInUse(t *testing.T) {
	rigtest.Only(t, "swap, DAMON and resctrl are put to use")
	const group = "/sys/fs/cgroup/batch"
	must(t, os.Mkdir(group, 0o755))
	t.Cleanup(func() { must(t, os.Remove(group)) })
	swapOn(t)
	if err := write(damonCount, "1"); err == nil {
		t.Cleanup(func() { must(t, write(damonCount, "0")) })
	}
	if Find(now(), ResctrlCAT).Answer == Yes {
		mountResctrl(t, resctrl.MountOptions{CDP: true})
		makeGroup(t, "commensal-batch")
		makeGroup(t, "mon_groups/cadvisor-web")
	}
	findings := Run(Options{FS: hostfs.NewRoot(capture(t, treeName()+"-used"))})
	want(t, "in use", findings, Swap, Yes)
	want(t, "in use", findings, CPUQuota, Yes, group)
	want(t, "in use", findings, MemoryReclaim, Yes, group)
}

// capture takes a tree, and holds that the probes say of it what they said of the machine.
func capture(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "tree")
	if rigtest.Inside() {
		dir = filepath.Dir(rigtest.Out(t, name+callsFile))
	}
	live, err := Capture(dir)
	must(t, err)
	captured := Run(Options{FS: hostfs.NewRoot(dir)})
	for _, list := range [][]Finding{live, captured} {
		for i := range list {
			list[i].Why = hidden(list[i].Why)
		}
	}
	if diff := cmp.Diff(live, captured); diff != "" {
		t.Errorf("of the machine and of its tree (-machine +tree):\n%s", diff)
	}
	files, size := 0, int64(0)
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			files, size = files+1, size+info.Size()
		}
		return err
	}))
	t.Logf("%s: %d files, %d bytes", name, files, size)
	return dir
}

// TestLikeCaptured: the guest still is what its fixture says, and so is what commensal doctor prints there.
func TestLikeCaptured(t *testing.T) {
	rigtest.Only(t, "the fixtures are of its machines")
	fixture := Run(Options{FS: hostfs.NewRoot(filepath.Join("testdata", treeName()))})
	const stale = "another package left the machine changed, or the fixture is to be taken anew (testdata/README.md)"
	compare := func(what string, findings []Finding, signals, remedies []Ability) {
		t.Helper()
		diff := cmp.Diff(answers(fixture), answers(findings)) +
			cmp.Diff(availability(append(Signals(fixture), Remedies(fixture)...)), availability(append(signals, remedies...)))
		if diff != "" {
			t.Errorf("%s: %s (-fixture +machine):\n%s", what, stale, diff)
		}
	}
	live := now()
	compare("probes", live, Signals(live), Remedies(live))

	path, err := exec.LookPath("commensal")
	must(t, err)
	out, err := exec.Command(path, "doctor", "--json").Output()
	must(t, err)
	var said struct {
		Findings          []Finding
		Signals, Remedies []Ability
	}
	must(t, json.Unmarshal(out, &said))
	compare("commensal doctor --json", said.Findings, said.Signals, said.Remedies)
}

// answers are the findings without their evidence.
func answers(findings []Finding) []string {
	var list []string
	for _, f := range findings {
		list = append(list, f.Name+": "+string(f.Answer))
	}
	return list
}

func availability(list []Ability) []string {
	var lines []string
	for _, a := range list {
		lines = append(lines, a.Name+": "+map[bool]string{true: "yes", false: "no"}[a.Available])
	}
	return lines
}

// TestFiltered: what is the machine's own business is not taken.
func TestFiltered(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("CONFIG_SECRET=y\nCONFIG_RT_GROUP_SCHED=y\n")); err != nil {
		t.Fatal(err)
	}
	must(t, z.Close())
	const id = "6ef303872f3ca1805eb6768258e6c35e"
	for _, test := range []struct{ path, text, want string }{
		{mountinfo.Path, "1 1 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 /docker/" + id + " /c rw - cgroup2 cgroup2 rw\n",
			"2 1 0:2 /docker/ID /c rw - cgroup2 cgroup2 rw\n"},
		{"/proc/self/cgroup", "5:memory:/private\n1:cpu,cpuacct:/a/" + id + "\n0::/b\n", "1:cpu,cpuacct:/a/ID\n0::/b\n"},
		{"/proc/self/status", "Name:\tx\nUid:\t0\nCapEff:\tff\nCapBnd:\t1\n", "Uid:\t0\nCapEff:\tff\n"},
		{"/proc/self/limits", "Limit x\nMax open files 1 2 files\n", "Max open files 1 2 files\n"},
		{"/proc/stat", "cpu  1\ncpu0 1\nbtime 4\n", "cpu  1\n"},
		{"/proc/cpuinfo", "processor\t: 0\nflags\t: fpu\nbogomips: 1\n\nprocessor\t: 1\n", "processor\t: 0\nflags\t: fpu\n"},
		{"/boot/config-6.1", "CONFIG_SECRET=y\n# CONFIG_RT_GROUP_SCHED is not set\n", "# CONFIG_RT_GROUP_SCHED is not set\n"},
		{"/proc/swaps", "Filename\n", "Filename\n"},
	} {
		got, err := filtered(test.path, []byte(test.text))
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %q, %v; want %q", test.path, got, err, test.want)
		}
	}
	kept, err := filtered(packedConfig, packed.Bytes())
	must(t, err)
	if text, err := unpack(kept); err != nil || text != "CONFIG_RT_GROUP_SCHED=y\n" {
		t.Errorf("%s: %q, %v", packedConfig, text, err)
	}
	if _, err := filtered(packedConfig, []byte("not packed")); err == nil || !strings.Contains(err.Error(), packedConfig) {
		t.Errorf("a configuration that is not packed: %v", err)
	}
}
