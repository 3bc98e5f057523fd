package rig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/rig/wire"
)

// liveEnv lets TestLive start real guests: "1" with each kernel that is prepared, or the
// series of one. It takes some 15 seconds a kernel.
const liveEnv = "RIG_LIVE"

// A real guest whose steps go wrong: one hangs and is ended, one leaves things behind, one
// comes after them, and one makes the kernel panic. It also tests the guest's own program,
// most of which no other machine could bear.
func TestLive(t *testing.T) {
	which := os.Getenv(liveEnv)
	if which == "" {
		t.Skipf("it starts real guests: %s=1 go test ./rig -run Live, after make rig", liveEnv)
	}
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(repo, artefacts)
	prepared, err := filepath.Glob(filepath.Join(dir, "kernel", "*", "release"))
	if err != nil {
		t.Fatal(err)
	}
	if which != "1" {
		prepared = []string{filepath.Join(dir, "kernel", which, "release")}
	}
	if len(prepared) == 0 {
		t.Fatalf("%s=%s, and no kernel: %v", liveEnv, which, ErrNotPrepared)
	}
	machine := RDT
	if _, err := machine.emulator(dir); err != nil {
		machine = Stock
	}
	builder := &Builder{Repo: repo, Dir: t.TempDir(), Go: goCommand(t)}
	if err := builder.Build(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, release := range prepared {
		series := filepath.Base(filepath.Dir(release))
		t.Run(series, func(t *testing.T) { liveGuest(t, dir, builder, series, machine) })
	}
}

// A script of one's own: with files, its output, its exit code and what it leaves in /out.
func TestLiveExec(t *testing.T) {
	which := os.Getenv(liveEnv)
	if which == "" || which == "1" {
		t.Skipf("it starts a real guest: %s=6.12 go test ./rig -run Live, after make rig", liveEnv)
	}
	data := t.TempDir()
	writeFile(t, filepath.Join(data, "tree", "file"), "of the host\n")
	writeFile(t, filepath.Join(data, "script"), `cat /data/tree/file
ls -d /var/lock /var/log /run
echo kept >/out/kept
exit 3
`)
	var out strings.Builder
	err := Exec(t.Context(), Options{
		Repo: "..", Go: goCommand(t), Series: which, Machine: RDT, Files: map[string]string{"/data": data},
	}, filepath.Join(data, "script"), &out)
	var ended *ExitError
	if !errors.As(err, &ended) || ended.Code != 3 {
		t.Errorf("got %v, want exit code 3", err)
	}
	if want := "of the host\n/run\n/var/lock\n/var/log\n"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("it said %q, want %q", out.String(), want)
	}
	kept, err := os.ReadFile(filepath.Join("..", artefacts, "results", which, execName, "out", "kept"))
	if err != nil || string(kept) != "kept\n" {
		t.Errorf("it kept %q, %v", kept, err)
	}
}

// shell is a step of a plan.
func shell(name string, sec int, script string) wire.Step {
	return wire.Step{Name: name, Dir: "/mnt", Argv: []string{"/bin/sh", "-c", script}, TimeoutSec: sec}
}

func liveGuest(t *testing.T, dir string, builder *Builder, series string, machine Machine) {
	k, err := OpenKernel(dir, series)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := k.Modules(guestModules...)
	if err != nil {
		t.Fatal(err)
	}
	b := &Boot{Machine: machine, Kernel: k, Dir: t.TempDir()}
	b.Initramfs = filepath.Join(b.Dir, "initramfs")
	leaves := "mkdir -p /sys/fs/cgroup/left/below; setsid sleep 1000 & echo left"
	if machine == RDT {
		leaves = "mount -t resctrl resctrl /sys/fs/resctrl || exit 9; " + leaves
	}
	initramfs := &Initramfs{
		Init: filepath.Join(builder.Dir, "bin", "guest"), Files: builder.files(nil), Modules: modules,
		Plan: wire.Plan{
			Disk: "/dev/vda", Env: []string{"WORD=of the plan"},
			Steps: []wire.Step{
				shell("works", 60, "echo $WORD; pwd; uname -r; exit 3"),
				shell("hangs", 3, "trap '' QUIT; echo waiting; sleep 1000 & while :; do sleep 1; done"),
				shell("leaves", 60, leaves),
				shell("next", 60, "mkdir /sys/fs/cgroup/left && rmdir /sys/fs/cgroup/left && echo clean"),
				shell("panics", 60, "echo the end is near; echo c >/proc/sysrq-trigger"),
				shell("never", 60, "echo too late"),
			},
		},
	}
	if err := initramfs.Write(b.Initramfs); err != nil {
		t.Fatal(err)
	}
	var console []string
	ends, said := map[string]wire.Message{}, map[string]string{}
	err = Run(t.Context(), dir, b, 3*time.Minute, func(line string) { console = append(console, line) }, func(m wire.Message) {
		switch m.Kind {
		case wire.Line:
			said[m.Step] += m.Text + "\n"
		case wire.End:
			ends[m.Step] = m
		case wire.Done:
			t.Error("the plan was carried out")
		}
	})
	t.Logf("console:\n%s", strings.Join(console, "\n"))
	if !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), panicText+": sysrq triggered crash") {
		t.Errorf("got %v, want %v with the kernel's own words", err, ErrDied)
	}
	for name, want := range map[string]string{
		"works": "of the plan\n/mnt\n" + k.Release + "\n", "hangs": "waiting\n", "leaves": "left\n", "next": "clean\n", "never": "",
	} {
		if said[name] != want {
			t.Errorf("%s said %q, want %q", name, said[name], want)
		}
	}
	if end := ends["works"]; end.Exit != 3 || end.TimedOut || end.Text != "" || end.Sec <= 0 {
		t.Errorf("the first step: %+v", end)
	}
	if end := ends["hangs"]; end.Exit != -1 || !end.TimedOut || end.Text != "" {
		t.Errorf("the one that hangs: %+v", end)
	}
	end := ends["leaves"]
	if end.Exit != 0 || end.TimedOut {
		t.Errorf("the one that leaves things: %+v", end)
	}
	left := []string{"running: sleep 1000", "left cgroup /left\n", "left cgroup /left/below\n"}
	if machine == RDT {
		left = append(left, "left resctrl mounted")
	}
	for _, text := range left {
		if !strings.Contains(end.Text+"\n", text) {
			t.Errorf("it does not say %q: %q", text, end.Text)
		}
	}
	if strings.Contains(end.Text, "cannot") {
		t.Errorf("it was not cleaned up: %q", end.Text)
	}
	if end := ends["next"]; end.Exit != 0 || end.TimedOut || end.Text != "" {
		t.Errorf("the one after those: %+v", end)
	}
	for _, name := range []string{"panics", "never"} {
		if end, ok := ends[name]; ok {
			t.Errorf("%s ended: %+v", name, end)
		}
	}
}
