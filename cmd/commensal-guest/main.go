// Command commensal-guest runs in a virtual machine and answers its host's agent: how long the guest's memory has lain idle, and gives
// idle memory back when it is asked (docs/GUESTS.md).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/guest"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
)

// version is set by the build.
var version = "dev"

const (
	// again is how soon it is looked again whether a host is there.
	again = 250 * time.Millisecond
	// portWithin is for how long nobody but a port that is still to come can ask: the driver may be a module, and tells a port's name some time after it finds the device.
	portWithin = 10 * time.Second
)

func main() { os.Exit(run()) }

// run returns the exit code: 2 bad usage, 4 nobody can ask, 5 failed while running.
func run() int {
	port := flag.String("port", guest.PortName, "listen on the virtio-serial port of this `name` where there is one")
	vsock := flag.Uint("vsock", guest.VsockPort, "listen on this vsock `port` where there is vsock; 0: do not")
	prepare := flag.Bool("prepare", true, "mount debugfs and switch the multi-generational LRU on where that is not so")
	showVersion := flag.Bool("version", false, "print the version")
	flag.Parse()
	if *showVersion {
		fmt.Println("commensal-guest", version)
		return 0
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if flag.NArg() > 0 {
		log.Error("it takes no arguments", "got", flag.Args())
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *prepare {
		if err := ready(); err != nil {
			log.Warn("ages of pages cannot be told", "error", err)
		}
	}
	errs := make(chan error, 2)
	fd, err := listenVsock(uint32(*vsock))
	vsocked := err == nil
	if vsocked {
		go func() { errs <- serveVsock(ctx, fd) }()
	} else if !errors.Is(err, fs.ErrNotExist) {
		log.Info("no vsock", "error", err)
	}
	device := ""
	if !vsocked {
		if device = awaitPort(ctx, *port, portWithin); device == "" && ctx.Err() == nil {
			log.Error("nobody can ask: there is neither a virtio-serial port of that name nor vsock", "name", *port)
			return 4
		}
	}
	go func() {
		if device == "" {
			device = awaitPort(ctx, *port, math.MaxInt64)
		}
		if device != "" {
			log.Info("answering on a port", "device", device)
			errs <- servePort(ctx, device)
		}
	}()
	log.Info("answering", "version", version, "vsock", vsocked)
	select {
	case <-ctx.Done():
	case err := <-errs:
		log.Error("ended", "error", err)
		return 5
	}
	return 0
}

// ready has the kernel tell ages.
func ready() error {
	lru := reclaim.NewLRUGen(hostfs.NewRoot("/"))
	bits, err := lru.Enabled()
	if err != nil {
		return err
	}
	if bits&reclaim.LRUGenCore == 0 {
		if _, err := lru.SetEnabled(reclaim.LRUGenAll); err != nil {
			return err
		}
	}
	const debugfs = "/sys/kernel/debug"
	if _, err := os.Stat(debugfs + "/lru_gen"); err == nil {
		return nil
	}
	return unix.Mount("debugfs", debugfs, "debugfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// findPort returns the device of a virtio-serial port; "": there is none. The links in /dev/virtio-ports are udev's, which small guests have not.
func findPort(name string) string {
	names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // a constant pattern
	for _, file := range names {
		if data, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(data)) == name {
			return "/dev/" + filepath.Base(filepath.Dir(file))
		}
	}
	return ""
}

// awaitPort waits for a port, which its driver may not have named yet; "": it did not come in time.
func awaitPort(ctx context.Context, name string, within time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		if device := findPort(name); device != "" {
			return device
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(again):
		}
	}
}

// servePort answers on a virtio-serial port. While no host is connected it reads nothing.
func servePort(ctx context.Context, path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	in := guest.NewInside(hostfs.NewRoot("/"))
	for {
		if err := in.Serve(ctx, descriptor(fd)); !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", path, err)
		}
		time.Sleep(again)
	}
}

// descriptor reads and writes a descriptor without the runtime's poller, which takes a port whose host went away for one that has ended.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	n, err := restart(func() (int, error) { return unix.Read(int(d), p) })
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (d descriptor) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n, err := restart(func() (int, error) { return unix.Write(int(d), p[done:]) })
		if err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

func restart(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return max(0, n), err
		}
	}
}

func listenVsock(port uint32) (int, error) {
	if port == 0 {
		return 0, fs.ErrNotExist
	}
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	if err := unix.Listen(fd, 4); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// serveVsock answers one host after the other: programs in the guest, which could ask as well, get no more than root of the guest has anyway, and only the host's CID is heard.
func serveVsock(ctx context.Context, listening int) error {
	in := guest.NewInside(hostfs.NewRoot("/"))
	for {
		fd, from, err := unix.Accept4(listening, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			return fmt.Errorf("vsock: %w", err)
		}
		if at, ok := from.(*unix.SockaddrVM); ok && at.CID == unix.VMADDR_CID_HOST {
			_ = in.Serve(ctx, descriptor(fd)) // the host went away, or takes nothing more
		}
		_ = unix.Close(fd) // all was written
	}
}
