package rig

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/rig/wire"
)

const (
	// systemdEnv lets TestSystemd start its guest: the series of a kernel.
	systemdEnv = "RIG_SYSTEMD"
	// playEnv narrows it down to some scenarios, separated by blanks.
	playEnv = "RIG_PLAY"
	// systemdTime bounds a boot of it, on a busy host.
	systemdTime = 25 * time.Minute
)

// scenarios are those of rig/systemd/scenarios: each must be told to have passed.
var scenarios = []string{
	"stop", "restart", "daemon_reload", "hangup", "kill_agent", "kill_guardian", "kill_both", "hang", "hang_both",
	"full_state", "full_state_kill", "full_run", "full_run_kill", "tasks_limit", "memory_limit", "reboot",
}

// The service as make install lays it out, under the distribution's own systemd: whatever
// happens to it, every limit is as it was found, as a script judges that knows nothing of
// the agent's journal. Two boots: the first ends as a power cut does, with limits in force.
func TestSystemd(t *testing.T) {
	series := os.Getenv(systemdEnv)
	if series == "" {
		t.Skipf("it starts a real guest: make rig-systemd")
	}
	tester, err := newTester(Options{Repo: "..", Go: goCommand(t), Series: series, Machine: RDT}, "systemd", io.Discard)
	if errors.Is(err, ErrNotPrepared) { // the service needs nothing that the stock machine lacks
		tester, err = newTester(Options{Repo: "..", Go: goCommand(t), Series: series, Machine: Stock}, "systemd", io.Discard)
	}
	if err != nil {
		t.Fatal(err)
	}
	lock, err := tester.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := tester.builder.Build(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	g := &systemdGuest{tester: tester, disk: filepath.Join(t.TempDir(), "disk"), said: map[string]string{}}
	g.prepare(t)
	want := scenarios
	if play := os.Getenv(playEnv); play != "" {
		want = append(strings.Fields(play), "reboot")
	}
	g.boot(t, "first", "PLAY="+strings.Join(want[:len(want)-1], " "))
	g.boot(t, "second")
	for _, name := range want {
		t.Run(name, func(t *testing.T) {
			switch said, ok := g.said[name]; {
			case !ok:
				t.Error("it was not played to its end")
			case said != "":
				t.Error(said)
			}
		})
	}
}

// systemdGuest is a machine that keeps its disk.
type systemdGuest struct {
	tester    *tester
	disk      string
	installed string            // what make install laid out
	said      map[string]string // of each scenario: why it failed; "": it passed
}

// prepare copies the disk and lays the installation out, with an operator's own files.
func (g *systemdGuest) prepare(t *testing.T) {
	image := filepath.Join(g.tester.dir, "systemd.ext4")
	if _, err := os.Stat(image); err != nil {
		t.Fatalf("%v: %v", err, ErrNotPrepared)
	}
	g.installed = t.TempDir()
	own, units := filepath.Join(g.tester.Repo, "rig", "systemd"), filepath.Join(g.installed, "etc/systemd/system")
	for _, args := range [][]string{
		{"cp", "--sparse=always", image, g.disk},
		// make install would take what an earlier make build left.
		{"make", "-s", "-C", g.tester.Repo, "build", "install", "DESTDIR=" + g.installed},
		{"cp", filepath.Join(own, "config.yaml"), filepath.Join(g.installed, "etc/commensal")},
		{"cp", "-r", filepath.Join(own, "units") + "/.", units},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	// What systemctl enable makes.
	wants := filepath.Join(units, "multi-user.target.wants")
	if err := os.Mkdir(wants, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web", "api", "hog", "pinned", "plain"} {
		if err := os.Symlink("../"+name+".service", filepath.Join(wants, name+".service")); err != nil {
			t.Fatal(err)
		}
	}
}

// boot starts the machine and plays one part of the scenarios.
func (g *systemdGuest) boot(t *testing.T, part string, env ...string) {
	tester, name := g.tester, "systemd-"+part
	files := map[string]string{
		"/rig/bin/guest": filepath.Join(tester.builder.Dir, "bin", "guest"),
		"/rig/systemd":   filepath.Join(tester.Repo, "rig", "systemd"),
		"/bin/busybox":   filepath.Join(tester.dir, "busybox"),
	}
	if part == "first" {
		files["/rig/install"] = g.installed
	}
	step := wire.Step{Name: name, Dir: "/", Argv: []string{"/rig/systemd/scenarios", part}, TimeoutSec: int(systemdTime.Seconds())}
	b, err := tester.boot(name, files, wire.Plan{Root: "/dev/vda", Env: append(env, "LC_ALL=C"), Steps: []wire.Step{step}})
	if err != nil {
		t.Fatal(err)
	}
	b.Disk, b.Silence = g.disk, systemdTime // its units are started before ours, which speaks
	log, err := newResults(filepath.Join(tester.dir, "results", tester.Series, name), io.Discard, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.close(); err != nil {
			t.Error(err)
		}
	}()
	err = Run(t.Context(), tester.dir, b, systemdTime+bootTime, log.console, func(m wire.Message) {
		switch m.Kind {
		case wire.Line:
			t.Log(m.Text)
			g.take(m.Text)
		case wire.End:
			if m.Exit != 0 || m.TimedOut {
				t.Errorf("%s: exit %d, timed out %v", part, m.Exit, m.TimedOut)
			}
		case wire.File:
			log.take(m)
		case wire.Done:
			if m.Text != "" {
				t.Errorf("the kernel complained: %s", m.Text)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		t.FailNow() // the next part would find half of what it needs
	}
}

// take reads what the script says of a scenario.
func (g *systemdGuest) take(line string) {
	word, rest, _ := strings.Cut(line, " ")
	name, why, _ := strings.Cut(rest, " ")
	switch word {
	case "PASS":
		g.said[name] += ""
	case "FAIL":
		g.said[strings.TrimSuffix(name, ":")] += why
	}
}
