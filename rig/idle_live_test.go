package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	vm "github.com/commensal-io/commensal/kernel/guest"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/rig/wire"
)

// idleLoad has a program read a file twice and hold anonymous memory, and then does nothing. It says "freed" when a program that held more memory has
// ended, and "idle" when all is quiet. Without bit 4 of the LRU: the machine has two nodes, whose walks hide from each other what was used before Linux 6.12
// (docs/GUESTS.md).
const idleLoad = `
mkswap /dev/vdb >/dev/null && swapon /dev/vdb && echo 3 >/sys/kernel/mm/lru_gen/enabled || exit 9
/rig/bin/commensal-guest 2>&1 &
mkdir /sys/fs/cgroup/load
dd if=/dev/zero of=/dev/null bs=256M count=1 2>/dev/null
echo freed
sh -c 'echo $$ >/sys/fs/cgroup/load/cgroup.procs; dd if=/dev/zero of=/mnt/file bs=1M count=160 2>/dev/null; sync; cat /mnt/file /mnt/file >/dev/null'
sh -c 'echo $$ >/sys/fs/cgroup/load/cgroup.procs; exec dd if=/dev/zero bs=96M count=1 2>/dev/null' | sleep 1000 &
sleep 5
grep AnonHuge /proc/meminfo
echo idle
sleep 1000
`

// idleGuest is a running guest with idle memory, and who asks it.
type idleGuest struct {
	t      *testing.T
	socket string
	pid    int32 // of the emulator
	said   chan string

	commensal string // the program, of the same build
}

// startIdle starts a guest whose balloon reports free pages, or does not.
// enter: the emulator's group is made one of these directories first.
func startIdle(t *testing.T, reporting string, enter ...string) *idleGuest {
	which := os.Getenv(liveEnv)
	if which == "" || which == "1" {
		t.Skipf("it starts a real guest: %s=6.12 go test ./rig -run LiveIdle, after make rig", liveEnv)
	}
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(repo, artefacts)
	builder := &Builder{Repo: repo, Dir: t.TempDir(), Go: goCommand(t)}
	if err := builder.Build(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	k, err := OpenKernel(dir, which)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := k.Modules(append([]string{"virtio_balloon", "virtio_console"}, guestModules...)...)
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "commensal-idle-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	g := &idleGuest{t: t, socket: filepath.Join(sockets, "commensal.sock"), said: make(chan string, 64)}
	b := &Boot{Machine: RDT, Kernel: k, Dir: t.TempDir(), Extra: []string{
		"-device", "virtio-balloon-pci,free-page-reporting=" + reporting, "-device", "virtio-serial-pci",
		"-chardev", "socket,id=guest,server=on,wait=off,path=" + g.socket, "-device", "virtserialport,chardev=guest,name=" + vm.PortName,
	}}
	emulators := dir
	if len(enter) > 0 {
		emulators = wrapped(t, dir, b.Machine, enter)
	}
	g.commensal = filepath.Join(builder.Dir, "bin", "commensal")
	b.Initramfs = filepath.Join(b.Dir, "initramfs")
	initramfs := &Initramfs{
		Init: filepath.Join(builder.Dir, "bin", "guest"), Files: builder.files(nil), Modules: modules,
		Plan: wire.Plan{Disk: "/dev/vda", Steps: []wire.Step{shell("load", 900, idleLoad)}},
	}
	if err := initramfs.Write(b.Initramfs); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	over := errors.New("the test has seen enough")
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, emulators, b, 10*time.Minute, func(line string) { t.Log("console:", line) }, func(m wire.Message) {
			if m.Kind == wire.Line {
				g.said <- m.Text
			}
		})
		close(g.said)
	}()
	t.Cleanup(func() {
		stop(over)
		if err := <-ended; !errors.Is(err, over) && !errors.Is(err, context.Canceled) {
			t.Error("the guest:", err)
		}
	})
	return g
}

// await waits until the guest says a word.
func (g *idleGuest) await(word string) {
	g.t.Helper()
	for text := range g.said {
		if g.t.Log("guest:", text); text == word {
			return
		}
	}
	g.t.Fatal("the guest ended")
}

// monitor is the process of the emulator, as whoever dials its socket finds it.
func (g *idleGuest) monitor() int32 {
	g.t.Helper()
	if g.pid != 0 {
		return g.pid
	}
	conn, err := net.Dial("unix", g.socket)
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		g.t.Fatal(err)
	}
	var cred *unix.Ucred
	if err := errors.Join(raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }), err); err != nil {
		g.t.Fatal(err)
	}
	g.pid = cred.Pid
	return g.pid
}

// memory is how much of the guest's memory the host has, in MiB: of the emulator's mappings those that are as large as a node of the guest, and
// not what it translates the guest's code to, which grows by itself.
func (g *idleGuest) memory() (mib float64) {
	g.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", g.monitor()))
	if err != nil {
		g.t.Fatal(err)
	}
	const node = 1 << 20 // KiB; RDT's machine has two of them
	found, counts := 0, false
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		switch {
		case len(f) > 4 && len(f[1]) == 4: // a mapping: addresses, permissions, and more
			counts = f[1] == "rw-p"
		case f[0] == "Size:" && counts:
			if counts = f[1] == strconv.Itoa(node); counts {
				found++
			}
		case f[0] == "Rss:" && counts:
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				g.t.Fatal(err)
			}
			mib += float64(kib) / 1024
		}
	}
	if found != 2 {
		g.t.Fatalf("%d of the emulator's mappings are as large as a node", found)
	}
	return mib
}

func (g *idleGuest) ask(r vm.Request) vm.Answer {
	g.t.Helper()
	a, err := vm.ParseAddress("unix:" + filepath.Join(filepath.Dir(g.socket), "*.sock"))
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 60*time.Second)
	defer cancel()
	conn, err := a.Dial(ctx, hostfs.NewRoot("/"), []int32{g.monitor()})
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // all was said
	answer, err := vm.Ask(ctx, conn, r)
	if err != nil {
		g.t.Fatalf("%s: %v", r.Do, err)
	}
	return answer
}

// settled waits until what the host has of the guest's memory has fallen by so much, or for as long as is given.
func (g *idleGuest) settled(from, by float64, within time.Duration) float64 {
	now := g.memory()
	for deadline := time.Now().Add(within); from-now < by && time.Now().Before(deadline); now = g.memory() {
		time.Sleep(500 * time.Millisecond)
	}
	return now
}

// still waits until the guest gives nothing back by itself any more, as it does for some seconds after it freed something, longer on a slow machine.
func (g *idleGuest) still(within time.Duration) {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		was := g.memory()
		time.Sleep(3 * time.Second) // free pages are reported within two
		if was-g.memory() < 4 {
			return
		}
	}
}

// A guest's idle memory comes back to the host when the guest is asked, and does not without; measured by the host.
func TestLiveIdleMemory(t *testing.T) {
	edge := 8 * time.Second
	ages := vm.Request{Do: vm.DoAges, EdgesNsec: []int64{edge.Nanoseconds()}}
	const mib = 1 << 20
	for reporting, within := range map[string]time.Duration{"on": 20 * time.Second, "off": 6 * time.Second} { // free pages are reported within two seconds
		t.Run("reporting "+reporting, func(t *testing.T) {
			var table strings.Builder
			g := startIdle(t, reporting)
			g.await("freed")
			start := time.Now()
			row := func(what string, said float64, from, to float64) {
				fmt.Fprintf(&table, "| %-52s | %5.0f s | %5.0f | %5.0f | %5.0f | %5.0f |\n", what, time.Since(start).Seconds(), from, to, from-to, said)
			}
			defer func() {
				t.Logf("free page reporting %s\n| what | at | on the host before, MiB | after | fell | the guest said |\n%s", reporting, table.String())
			}()
			g.await("idle")
			g.still(time.Minute)
			g.ask(ages)
			before := g.memory()
			time.Sleep(edge + 2*time.Second)
			idle := g.ask(ages)
			control := g.memory()
			row("ages asked, nothing reclaimed (control)", float64(idle.Anon[0]+idle.File[0])/mib, before, control)
			if before-control > 16 {
				t.Errorf("without being asked the guest gave %.0f MiB", before-control)
			}
			if idle.File[0] < 128*mib || idle.Anon[0] < 64*mib || idle.RoomBytes < 128*mib {
				t.Errorf("idle for %s: %+v", edge, idle)
			}
			// Whole free blocks of 2 MiB are reported: a block of which one page is in use does not come back. How much of a program's memory lies so is
			// chance (74 to 114 MiB came back of 94, and 40 once by the emulator's whole RSS), so it alone is held to a quarter, which is more than comes without reporting, and all to a half.
			from, all := control, 0.0
			for _, pages := range []string{vm.FilePages, vm.AnonPages} {
				a := g.ask(vm.Request{Do: vm.DoReclaim, Bytes: 256 * mib, OlderNsec: edge.Nanoseconds(), Pages: pages})
				said := float64(a.FreedBytes) / mib
				to := g.settled(from, said*0.8, within)
				row("asked for idle "+pages+" pages", said, from, to)
				if said < 60 {
					t.Errorf("%s: the guest freed %.0f MiB", pages, said)
				}
				switch fell := from - to; {
				case reporting == "on" && fell < said/4:
					t.Errorf("%s: the guest said %.0f MiB, the host's fell by %.0f", pages, said, fell)
				case reporting == "off" && fell > 16:
					t.Errorf("%s: nothing was reported, and the host's fell by %.0f MiB", pages, fell)
				}
				from, all = to, all+said
			}
			if reporting == "on" && control-from < all/2 {
				t.Errorf("the guest said %.0f MiB of all, the host's fell by %.0f", all, control-from)
			}
		})
	}
}

// wrapped is a folder with an emulator that enters groups before it begins.
func wrapped(t *testing.T, dir string, m Machine, enter []string) string {
	qemu, err := m.emulator(dir)
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n"
	for _, group := range enter {
		script += "echo $$ >" + group + "/cgroup.procs || exit 9\n"
	}
	to := t.TempDir()
	writeFile(t, filepath.Join(to, "qemu-rdt"), script+"exec "+qemu+` "$@"`+"\n")
	if err := os.Chmod(filepath.Join(to, "qemu-rdt"), 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// The whole way: an agent on the host, policy coldpages, a guest that is a task. In mode observe it tells the guest's idle memory and takes nothing; in mode
// enforce what the host has of the guest's memory falls.
func TestLiveIdleAgent(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv(liveEnv) == "" {
		t.Skipf("it starts a real guest and an agent, as root: %s=6.12 go test ./rig -run LiveIdle, after make rig", liveEnv)
	}
	fsys := hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(fsys)
	if err != nil {
		t.Fatal(err)
	}
	cg, err := cgroup.Open(fsys, mounts)
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/commensal-idle-%d", os.Getpid())
	if err := cg.Mkdir(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 { // the kernel may not have forgotten the emulator yet
			if err = cg.Rmdir(path); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error(err)
	})
	dirs := map[string]bool{}
	for _, mount := range mounts.V1 {
		dirs[mount+path] = true
	}
	if mounts.Layout == cgroup.LayoutV2 {
		dirs[mounts.Unified+path] = true
	}
	var enter []string
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if exists(dir) {
			enter = append(enter, dir)
		}
	}
	g := startIdle(t, "on", enter...)
	g.await("idle")
	g.still(time.Minute)
	var table strings.Builder
	for _, mode := range []string{"observe", "enforce"} {
		before := g.memory()
		status := g.agent(path, mode)
		after := g.memory()
		fmt.Fprintf(&table, "| %-7s | %5.0f | %5.0f | %5.0f | %5.0f | %5.0f | %5.0f |\n", mode, before, after, before-after, status.file, status.anon, status.given)
		switch {
		case mode == "observe" && (status.file < 100 || status.anon < 60 || before-after > 24):
			t.Errorf("observe: %+v, on the host from %.0f to %.0f MiB", status, before, after)
		case mode == "enforce" && (before-after < 150 || status.given < 100): // what is reported free later than some seconds after the answer is not counted as given
			t.Errorf("enforce: %+v, on the host from %.0f to %.0f MiB", status, before, after)
		}
	}
	t.Logf("\n| coldpages | on the host before, MiB | after | fell | idle file | idle anonymous | given, by the status |\n%s", table.String())
}

// told is what a status says of the guest's idle memory, in MiB.
type told struct{ file, anon, given float64 }

// agent runs one in a mode until the guest's idle memory was told, or given, for a while, and returns what it said.
func (g *idleGuest) agent(path, mode string) (last told) {
	t := g.t
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	writeFile(t, config, fmt.Sprintf(`version: 1
profile: single-node
signals: [slowdown]
coldpages: {mode: %s, be_anon: 10s, be_file: 10s, machine_bytes: 268435456, task_bytes: 134217728, watch: 1s, rest: 5s}
tasks:
  - {match: %s, job: vm, class: BE, importance: batch, guest: "unix:%s"}
agent: {state_dir: %s/state, run_dir: %s, socket: %s/sock, socket_group: "", kill_switch: %s/off, metrics_listen: "", waits: false}
`, mode, path, g.socket, dir, dir, dir, dir))
	logs, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close() //nolint:errcheck // read after the agent's end
	cmd := exec.Command(g.commensal, "agent", "--beside-another", "--config", config)
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for deadline := began.Add(100 * time.Second); time.Now().Before(deadline); time.Sleep(time.Second) {
		out, err := exec.Command(g.commensal, "status", "--json", "--config", config).Output()
		if err != nil {
			continue
		}
		var st struct {
			Warnings []string
			Tasks    []struct {
				Idle *struct{ Anon, File, Given float64 }
			}
		}
		if err := json.Unmarshal(out, &st); err != nil {
			t.Fatal(err)
		}
		if len(st.Tasks) == 1 && st.Tasks[0].Idle != nil {
			i := st.Tasks[0].Idle
			last = told{i.File / (1 << 20), i.Anon / (1 << 20), i.Given / (1 << 20)}
		}
		if mode == "observe" && time.Since(began) > 40*time.Second && last.file > 100 && last.anon > 60 || last.given > 170 {
			break
		}
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(logs.Name())
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s: %s", mode, text)
	return last
}
