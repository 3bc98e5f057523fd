package rig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Machine is a kind of emulated machine: 2 sockets with 2 cores each, 2 NUMA nodes with
// 1 GiB each, a disk, a swap device and a slow disk.
type Machine string

// The machines.
const (
	RDT   Machine = "rdt"   // with RDT and a PMU, by the patched emulator
	Stock Machine = "stock" // the distribution's emulator
)

// geometry of the emulated RDT: few enough RMIDs and CLOSIDs that a test can use them up.
const geometry = "l3_cbm=11,l3_clos=8,mba_clos=8,rmid=64"

// diskMiB is the size of the guest's disk, of its swap device and of its slow disk.
const diskMiB = 256

// slowDisk is what the emulator lets the slow disk do, reads and writes together: so little that emulated CPUs can ask for more. It reads and writes past the
// host's page cache; a flush costs nothing, as on a disk whose cache is safe: what it costs on the host is up to whatever else that writes.
const slowDisk = "cache.direct=on,cache.no-flush=on,throttling.bps-total=20000000,throttling.iops-total=200"

// Boot is one start of a machine.
type Boot struct {
	Machine   Machine
	Kernel    *Kernel
	Initramfs string
	Dir       string // a folder of its own for what it needs and leaves
	// Exact lets virtual time follow the instructions executed, which makes counters
	// exact and the guest slow; else its clocks run at wall speed.
	Exact bool
	// Table is the file shared with the patched emulator.
	Table string
	// Disk is an image for the guest's disk, which it may change; "": an empty one is made.
	Disk string
	// Extra are more words for the emulator: devices.
	Extra []string
	// Terminal has the console's output as it comes, and the process's own input goes to
	// the console; nil: neither.
	Terminal io.Writer
	// Silence is how long the guest may give no sign of life, PowerOff how long it may
	// take to end after its last message; 0: as long as a busy host needs.
	Silence, PowerOff time.Duration
}

// emulator returns the program.
func (m Machine) emulator(dir string) (string, error) {
	if m == Stock {
		path, err := exec.LookPath("qemu-system-x86_64")
		if err != nil {
			return "", fmt.Errorf("the stock emulator: %w", ErrNotPrepared)
		}
		return path, nil
	}
	path := filepath.Join(dir, "qemu-rdt")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the emulator with RDT and PMU: %w", ErrNotPrepared)
	}
	return path, nil
}

// disks are the files of the guest's disk, of its swap device and of its slow disk.
func (b *Boot) disks() []string {
	return []string{b.disk(), filepath.Join(b.Dir, "swap"), filepath.Join(b.Dir, "slow")}
}

// prepareDisks makes the guest's disks, the first and the slow one with an empty ext4.
func (b *Boot) prepareDisks() error {
	for _, path := range b.disks() {
		if path == b.Disk {
			continue
		}
		// Made anew, so that nothing of an earlier boot is in it.
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600), os.Truncate(path, diskMiB<<20)); err != nil {
			return err
		}
	}
	if b.Disk != "" {
		return nil
	}
	mke2fs, err := findMke2fs()
	if err != nil {
		return err
	}
	for _, path := range []string{b.disk(), b.disks()[2]} {
		// Not lazily: the kernel would write what is missing while tests measure.
		out, err := exec.Command(mke2fs, "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-N", "4096", "-F", path).CombinedOutput()
		if err != nil {
			return fmt.Errorf("mke2fs: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// disk is the file of the guest's disk.
func (b *Boot) disk() string {
	if b.Disk != "" {
		return b.Disk
	}
	return filepath.Join(b.Dir, "disk")
}

// findMke2fs also looks where the PATH of a user who is not root does not lead.
func findMke2fs() (string, error) {
	for _, name := range []string{"mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"} {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("mke2fs: %w", ErrNotPrepared)
}

// optionValue quotes a value of one of QEMU's options, where a comma ends it.
func optionValue(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// command returns the emulator's command. The console is its standard output; port is
// the unix socket on which the host listens for messages.
func (b *Boot) command(qemu, port string) *exec.Cmd {
	cpu := "max"
	if b.Machine == RDT {
		// An Intel that the kernel has no model-specific events for: the
		// architectural ones remain, and they are what is emulated.
		cpu = "max,vendor=GenuineIntel,family=6,model=6,stepping=3,pmu=on"
	}
	args := []string{
		// QEMU 7.2 with a host thread a CPU crashes guests that patch their own code
		// while other CPUs run it.
		"-accel", "tcg,thread=single",
		"-machine", "q35", "-cpu", cpu,
		"-smp", "4,sockets=2,cores=2,threads=1", "-m", "2G",
		"-object", "memory-backend-ram,id=m0,size=1G", "-object", "memory-backend-ram,id=m1,size=1G",
		"-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
		"-numa", "dist,src=0,dst=1,val=21",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", "socket,id=port,path=" + optionValue(port), "-serial", "chardev:port",
		"-kernel", b.Kernel.Image, "-initrd", b.Initramfs,
		// no_timer_check: on a busy host the boot's test of the timer may fail.
		// nmi_watchdog=0: it would hold one of the counters. panic=-1: with
		// -no-reboot a panic ends the emulator at once.
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic cgroup_no_v1=all psi=1 nmi_watchdog=0 no_timer_check",
		"-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot",
	}
	for i, path := range b.disks() {
		how := "cache=unsafe"
		if i == 2 {
			how = slowDisk
		}
		args = append(args,
			"-drive", fmt.Sprintf("file=%s,if=none,id=d%d,format=raw,%s", optionValue(path), i, how),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=d%d", i))
	}
	if b.Exact {
		args = append(args, "-icount", "shift=1,sleep=on")
	}
	cmd := exec.Command(qemu, append(args, b.Extra...)...)
	cmd.Env = append(os.Environ(), "QEMU_RDT="+geometry)
	if b.Table != "" {
		cmd.Env = append(cmd.Env, "QEMU_RDT_SHM="+b.Table)
	}
	return cmd
}
