package rig

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kernel is a kernel that rig/prepare unpacked.
type Kernel struct {
	Series  string // "6.1"
	Release string // "6.1.0-56-amd64"
	Image   string // an uncompressed kernel, which the emulator starts directly

	modules map[string]string // name to file, with "_" for "-"
}

// ErrNotPrepared: rig/prepare has not been run for what was asked for.
var ErrNotPrepared = errors.New("not prepared (run make rig)")

// OpenKernel finds a kernel below the rig's folder of artefacts.
func OpenKernel(dir, series string) (*Kernel, error) {
	base := filepath.Join(dir, "kernel", series)
	release, err := os.ReadFile(filepath.Join(base, "release"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("kernel %s: %w", series, ErrNotPrepared)
	}
	if err != nil {
		return nil, err
	}
	k := &Kernel{
		Series:  series,
		Release: strings.TrimSpace(string(release)),
		Image:   filepath.Join(base, "vmlinux"),
		modules: map[string]string{},
	}
	if _, err := os.Stat(k.Image); err != nil {
		return nil, fmt.Errorf("kernel %s: %w: %w", series, ErrNotPrepared, err)
	}
	root := filepath.Join(base, "root", "lib", "modules", k.Release)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _, ok := strings.Cut(d.Name(), ".ko")
		if d.IsDir() || !ok {
			return nil
		}
		k.modules[moduleName(name)] = path
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", series, err)
	}
	if len(k.modules) == 0 {
		return nil, fmt.Errorf("kernel %s: no modules below %s", series, root)
	}
	return k, nil
}

// moduleName: the kernel takes "-" and "_" for the same in a module's name.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// Module is a kernel module, uncompressed.
type Module struct {
	Name string
	Data []byte
}

// Modules returns the named modules with what they depend on, in the order to load them.
// A name that the kernel has no module of is built in, or it is missed in the guest.
// The package was unpacked and not installed, so there is no modules.dep; the modules
// themselves say what they need.
func (k *Kernel) Modules(names ...string) ([]Module, error) {
	var list []Module
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		name = moduleName(name)
		path, ok := k.modules[name]
		if seen[name] || !ok {
			return nil
		}
		seen[name] = true
		data, err := readModule(path)
		if err != nil {
			return err
		}
		needs, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		list = append(list, Module{Name: name, Data: data})
		return nil
	}
	for _, n := range names {
		if err := add(n); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func readModule(path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		return os.ReadFile(path)
	}
	data, err := exec.Command("xz", "-dc", path).Output()
	if err != nil {
		return nil, fmt.Errorf("xz -dc %s: %w", path, err)
	}
	return data, nil
}

// dependencies reads "depends=a,b" and "softdep=pre: a b post: c" from a module's .modinfo.
func dependencies(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, fmt.Errorf("no ELF file: %w", err)
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			names = append(names, strings.Split(list, ",")...)
		}
		if list, ok := strings.CutPrefix(entry, "softdep="); ok {
			names = append(names, loadedBefore(list)...)
		}
	}
	return names, nil
}

// loadedBefore returns the modules of a soft dependency that go first: those after "pre:",
// which may stand before or after what "post:" names.
func loadedBefore(softdep string) []string {
	var names []string
	pre := false
	for word := range strings.FieldsSeq(softdep) {
		switch word {
		case "pre:", "post:":
			pre = word == "pre:"
		default:
			if pre {
				names = append(names, word)
			}
		}
	}
	return names
}
