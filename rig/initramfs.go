package rig

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cavaliergopher/cpio"
	"github.com/commensal-io/commensal/rig/wire"
)

// modulesDir is where the guest finds its modules.
const modulesDir = "/rig/modules"

// Initramfs is what a guest starts with. It is written uncompressed: to unpack it costs
// an emulated CPU more than to copy it costs the emulator.
type Initramfs struct {
	Init    string            // the static program that becomes /init
	Files   map[string]string // path in the guest to a file or folder of the host
	Modules []Module
	Plan    wire.Plan // its Modules are set by Write
}

// Write writes the archive.
func (i *Initramfs) Write(name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := bufio.NewWriter(f)
	a := &archive{w: cpio.NewWriter(buf), dirs: map[string]bool{"/": true}}
	if err := i.write(a); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	return errors.Join(a.w.Close(), buf.Flush())
}

func (i *Initramfs) write(a *archive) error {
	for _, dir := range []string{"/proc", "/sys", "/dev", "/tmp", "/run", "/mnt", "/var/lock", "/var/log", "/var/tmp"} {
		if err := a.mkdir(dir); err != nil {
			return err
		}
	}
	if err := a.copyFile("/init", i.Init); err != nil {
		return err
	}
	plan := i.Plan
	for _, m := range i.Modules {
		at := modulesDir + "/" + m.Name + ".ko"
		if err := a.file(at, m.Data, 0o644); err != nil {
			return err
		}
		plan.Modules = append(plan.Modules, at)
	}
	for _, at := range slices.Sorted(maps.Keys(i.Files)) {
		if err := a.copyAny(at, i.Files[at]); err != nil {
			return err
		}
	}
	data, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	return a.file(wire.PlanPath, data, 0o644)
}

// archive is a cpio archive of the kind that the kernel unpacks.
// https://docs.kernel.org/driver-api/early-userspace/buffer-format.html
type archive struct {
	w    *cpio.Writer
	dirs map[string]bool
}

func (a *archive) mkdir(dir string) error {
	if a.dirs[dir] {
		return nil
	}
	if err := a.mkdir(path.Dir(dir)); err != nil {
		return err
	}
	a.dirs[dir] = true
	return a.w.WriteHeader(&cpio.Header{Name: strings.TrimPrefix(dir, "/"), Mode: cpio.TypeDir | 0o755, Links: 2})
}

func (a *archive) file(at string, data []byte, mode cpio.FileMode) error {
	if err := a.mkdir(path.Dir(at)); err != nil {
		return err
	}
	h := &cpio.Header{Name: strings.TrimPrefix(at, "/"), Mode: cpio.TypeReg | mode, Size: int64(len(data)), Links: 1}
	if err := a.w.WriteHeader(h); err != nil {
		return err
	}
	_, err := a.w.Write(data)
	return err
}

func (a *archive) copyFile(at, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return a.file(at, data, cpio.FileMode(info.Mode().Perm()))
}

// copyAny copies a file or a tree; a link that was named itself is followed.
func (a *archive) copyAny(at, from string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		to := path.Join(at, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			return a.mkdir(to)
		case d.Type()&fs.ModeSymlink != 0:
			return a.symlink(to, name)
		default:
			return a.copyFile(to, name)
		}
	})
}

// symlink keeps a link a link: captured trees of /sys are full of them.
func (a *archive) symlink(at, from string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if err := a.mkdir(path.Dir(at)); err != nil {
		return err
	}
	h := &cpio.Header{Name: strings.TrimPrefix(at, "/"), Mode: cpio.TypeSymlink | 0o777, Size: int64(len(target)), Links: 1}
	if err := a.w.WriteHeader(h); err != nil {
		return err
	}
	_, err = a.w.Write([]byte(target))
	return err
}
