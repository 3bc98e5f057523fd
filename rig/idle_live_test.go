package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	vm "github.com/commensal-io/commensal/kernel/guest"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/rig/wire"
)

// idleLoad has a program read a file twice and hold anonymous memory, and then does nothing. It says "freed" when a program that held more memory has
// ended, and "idle" when all is quiet.
const idleLoad = `
mkswap /dev/vdb >/dev/null && swapon /dev/vdb || exit 9
/rig/bin/commensal-guest 2>&1 &
mkdir /sys/fs/cgroup/load
dd if=/dev/zero of=/dev/null bs=256M count=1 2>/dev/null
echo freed
sh -c 'echo $$ >/sys/fs/cgroup/load/cgroup.procs; dd if=/dev/zero of=/mnt/file bs=1M count=160 2>/dev/null; sync; cat /mnt/file /mnt/file >/dev/null'
sh -c 'echo $$ >/sys/fs/cgroup/load/cgroup.procs; exec dd if=/dev/zero bs=96M count=1 2>/dev/null' | sleep 1000 &
sleep 5
echo idle
sleep 1000
`

// idleGuest is a running guest with idle memory, and who asks it.
type idleGuest struct {
	t      *testing.T
	socket string
	pid    int32 // of the emulator
	said   chan string
}

// startIdle starts a guest whose balloon reports free pages, or does not.
func startIdle(t *testing.T, reporting string) *idleGuest {
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
	modules, err := k.Modules(append([]string{"virtio_balloon"}, guestModules...)...)
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
	if _, err := RDT.emulator(dir); err != nil {
		b.Machine = Stock
	}
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
		ended <- Run(ctx, dir, b, 10*time.Minute, func(line string) { t.Log("console:", line) }, func(m wire.Message) {
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

// rss is the memory of the emulator on the host, in MiB.
func (g *idleGuest) rss() float64 {
	g.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", g.monitor()))
	if err != nil {
		g.t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		g.t.Fatal(err)
	}
	return float64(resident) * float64(os.Getpagesize()) / (1 << 20)
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

// settled waits until the emulator's memory has fallen by so much, or for 20 seconds.
func (g *idleGuest) settled(from, by float64) float64 {
	now := g.rss()
	for deadline := time.Now().Add(20 * time.Second); from-now < by && time.Now().Before(deadline); now = g.rss() {
		time.Sleep(500 * time.Millisecond)
	}
	return now
}

// A guest's idle memory comes back to the host when the guest is asked, and does not without; measured by the host.
func TestLiveIdleMemory(t *testing.T) {
	edge := 8 * time.Second
	ages := vm.Request{Do: vm.DoAges, EdgesNsec: []int64{edge.Nanoseconds()}}
	const mib = 1 << 20
	for _, reporting := range []string{"on", "off"} {
		t.Run("reporting "+reporting, func(t *testing.T) {
			var table strings.Builder
			g := startIdle(t, reporting)
			g.await("freed")
			start := time.Now()
			row := func(what string, said float64, from, to float64) {
				fmt.Fprintf(&table, "| %-52s | %5.0f s | %5.0f | %5.0f | %5.0f | %5.0f |\n", what, time.Since(start).Seconds(), from, to, from-to, said)
			}
			defer func() {
				t.Logf("free page reporting %s\n| what | at | RSS before, MiB | after | fell | the guest said |\n%s", reporting, table.String())
			}()
			g.await("idle")
			g.ask(ages)
			before := g.rss()
			time.Sleep(edge + 2*time.Second)
			idle := g.ask(ages)
			control := g.rss()
			row("ages asked, nothing reclaimed (control)", float64(idle.Anon[0]+idle.File[0])/mib, before, control)
			if before-control > 16 {
				t.Errorf("without being asked the guest gave %.0f MiB", before-control)
			}
			if idle.File[0] < 128*mib || idle.Anon[0] < 64*mib || idle.RoomBytes < 128*mib {
				t.Errorf("idle for %s: %+v", edge, idle)
			}
			from := control
			for _, pages := range []string{vm.FilePages, vm.AnonPages} {
				a := g.ask(vm.Request{Do: vm.DoReclaim, Bytes: 256 * mib, OlderNsec: edge.Nanoseconds(), Pages: pages})
				said := float64(a.FreedBytes) / mib
				to := g.settled(from, said*0.8)
				row("asked for idle "+pages+" pages", said, from, to)
				if said < 60 {
					t.Errorf("%s: the guest freed %.0f MiB", pages, said)
				}
				switch fell := from - to; {
				case reporting == "on" && fell < said/2:
					t.Errorf("%s: the guest said %.0f MiB, the host's fell by %.0f", pages, said, fell)
				case reporting == "off" && fell > 16:
					t.Errorf("%s: nothing was reported, and the host's fell by %.0f MiB", pages, fell)
				}
				from = to
			}
		})
	}
}
