package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/commensal-io/commensal/rig/wire"
	"golang.org/x/sys/unix"
)

const (
	newRoot = "/root"
	// rigDir is what the system's units find of the initramfs.
	rigDir = "/rig"
	// unitFile is the unit that runs the steps. It may start as many processes as it likes,
	// and systemd does not watch over it: the host does.
	unitFile = "/run/systemd/system/rig.service"
	unitText = `[Unit]
Description=The steps of the rig
[Service]
Type=exec
ExecStart=/rig/bin/guest worker
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
TasksMax=infinity
OOMScoreAdjust=-1000
`
)

// install copies what the initramfs has for the disk: before the system starts, which then
// finds it as if it had always been there.
func install() error {
	if _, err := os.Stat(rigDir + "/install"); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if out, err := exec.Command("/bin/busybox", "cp", "-a", rigDir+"/install/.", newRoot).CombinedOutput(); err != nil {
		return fmt.Errorf("install on the disk: %w: %s", err, out)
	}
	return nil
}

// handOver makes the system on the disk the guest's, as an initramfs does: it loads what
// the disk needs, mounts it, adds a unit that runs the steps, and becomes its init. It
// returns only with an error.
func handOver(plan *wire.Plan) error {
	if err := loadModules(plan); err != nil {
		return err
	}
	wants := filepath.Dir(unitFile) + "/multi-user.target.wants"
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(unitFile, []byte(unitText), 0o644); err != nil { //nolint:gosec // as every unit
		return err
	}
	if err := os.Symlink(unitFile, wants+"/rig.service"); err != nil {
		return err
	}
	if err := os.MkdirAll(newRoot, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(plan.Root, newRoot, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", plan.Root, err)
	}
	if err := install(); err != nil {
		return err
	}
	// systemd mounts it with options of its own.
	if err := unix.Unmount(cgroupRoot, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", cgroupRoot, err)
	}
	for dir, flag := range map[string]uintptr{"/proc": unix.MS_MOVE, "/sys": unix.MS_MOVE, "/dev": unix.MS_MOVE, "/run": unix.MS_MOVE, rigDir: unix.MS_BIND} {
		if err := unix.Mount(dir, newRoot+dir, "", flag, ""); err != nil {
			return fmt.Errorf("mount %s in the new root: %w", dir, err)
		}
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	return fmt.Errorf("start its init: %w", unix.Exec("/sbin/init", []string{"/sbin/init"}, []string{"TERM=dumb"}))
}
