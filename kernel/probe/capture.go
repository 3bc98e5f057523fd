package probe

// A captured tree: the files that the probes read on a machine, below their own paths, and no others, with the outcomes
// of the system calls (calls.go). Run gives the same answers on it, as TestCapture holds against the running
// machine. What was read is noted while the probes run, so that a capture knows by itself what they need.
//
// What it does not take over: files that are there and cannot be read (take it as root), and inode numbers.

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Capture probes the running machine and writes what the probes read below dir, which must be empty or not there.
// It returns the findings.
func Capture(dir string) ([]Finding, error) {
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return nil, fmt.Errorf("capture: %s is not empty: %w", dir, os.ErrExist)
	}
	root := hostfs.NewRoot("/")
	r := &recorder{FS: root, files: map[string][]byte{}, dirs: map[string]bool{}}
	n := noted{calls: kernelCalls{fs: root}, made: outcomes{}}
	p := &prober{fs: r, calls: n}
	findings := p.run()
	r.files[callsFile] = []byte(n.made.format())
	if err := r.write(dir); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return findings, nil
}

// recorder notes what is there among what was asked for.
type recorder struct {
	hostfs.FS
	files map[string][]byte // nil content: only whether it is there was asked
	dirs  map[string]bool
}

// ReadFile notes a file with its content.
func (r *recorder) ReadFile(path string, buf []byte) ([]byte, error) {
	b, err := r.FS.ReadFile(path, buf)
	if err == nil {
		r.files[path] = bytes.Clone(b)
	}
	return b, err
}

// WriteFile refuses: probes write nothing.
func (r *recorder) WriteFile(path string, _ []byte) error {
	return &os.PathError{Op: "write", Path: path, Err: unix.EROFS}
}

// ReadDir notes what is in it. Below a cgroup mount it notes the directory alone: a group has some sixty files, and no
// probe asks which; and of its groups only those matter that are looked into.
func (r *recorder) ReadDir(dir string) ([]hostfs.DirEntry, error) {
	entries, err := r.FS.ReadDir(dir)
	if err != nil {
		return entries, err
	}
	r.dirs[dir] = true
	if strings.HasPrefix(dir, "/sys/fs/cgroup") {
		return entries, nil
	}
	for _, e := range entries {
		if name := path.Join(dir, e.Name); e.IsDir {
			r.dirs[name] = true
		} else {
			r.there(name)
		}
	}
	return entries, nil
}

// Inode notes that something is there.
func (r *recorder) Inode(path string) (uint64, error) {
	n, err := r.FS.Inode(path)
	if err == nil {
		if _, notDir := r.FS.ReadDir(path); notDir == nil {
			r.dirs[path] = true
		} else {
			r.there(path)
		}
	}
	return n, err
}

func (r *recorder) there(path string) {
	if _, known := r.files[path]; !known {
		r.files[path] = nil
	}
}

// write writes the tree. Git and archives of files have no empty directories: these get a file .keep.
func (r *recorder) write(to string) error {
	var errs []error
	for name, content := range r.files {
		content, err := filtered(name, content)
		if err == nil {
			err = put(to, name, content)
		}
		errs = append(errs, err)
	}
	for dir := range r.dirs {
		full := filepath.Join(to, hidden(dir))
		if err := os.MkdirAll(full, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		if inside, err := os.ReadDir(full); err == nil && len(inside) == 0 && r.leaf(dir) {
			errs = append(errs, put(to, dir+"/.keep", nil))
		}
	}
	return errors.Join(errs...)
}

// leaf says whether no directory was noted below this one.
func (r *recorder) leaf(dir string) bool {
	for other := range r.dirs {
		if strings.HasPrefix(other, dir+"/") {
			return false
		}
	}
	return true
}

func put(to, name string, content []byte) error {
	full := filepath.Join(to, hidden(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return os.WriteFile(full, content, 0o644)
}

// longID is what identifies a container, a pod or a machine.
var longID = regexp.MustCompile(`[0-9a-f]{12,}`)

// hidden is a text without such.
func hidden(text string) string { return longID.ReplaceAllString(text, "ID") }

// filtered is what of a file is taken: nothing that is the machine's own business, and not more than probes look at.
func filtered(name string, content []byte) ([]byte, error) {
	keep := func(want func(line string) bool) []byte {
		var b strings.Builder
		for line := range strings.Lines(string(content)) {
			if want(line) {
				b.WriteString(line)
			}
		}
		return []byte(b.String())
	}
	begins := func(prefixes ...string) func(string) bool {
		return func(line string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(line, p) })
		}
	}
	switch {
	case name == "/proc/self/mountinfo":
		return []byte(hidden(string(keep(func(line string) bool {
			_, what, _ := strings.Cut(line, " - ")
			return begins("cgroup ", "cgroup2 ", "resctrl ")(what)
		})))), nil
	case name == "/proc/self/cgroup":
		return []byte(hidden(string(keep(func(line string) bool {
			f := strings.SplitN(line, ":", 3)
			return len(f) == 3 && (f[1] == "" || slices.Contains(strings.Split(f[1], ","), "cpu"))
		})))), nil
	case name == "/proc/self/status":
		return keep(begins("Uid:", "CapEff:")), nil
	case name == "/proc/self/limits":
		return keep(begins("Max open files")), nil
	case name == "/proc/stat":
		return keep(begins("cpu ")), nil
	case name == "/proc/cpuinfo": // the first CPU
		first, _, _ := strings.Cut(string(content), "\n\n")
		content = []byte(first + "\n")
		return keep(begins("processor", "vendor_id", "cpu family", "model", "stepping", "flags", "Features")), nil
	case strings.HasPrefix(name, "/boot/config-"):
		return keep(begins("CONFIG_RT_GROUP_SCHED=", "# CONFIG_RT_GROUP_SCHED ")), nil
	case name == packedConfig:
		return filteredConfig(content)
	}
	return content, nil
}

// filteredConfig is a packed configuration that has only what is asked for.
func filteredConfig(packed []byte) ([]byte, error) {
	text, err := unpack(packed)
	if err != nil {
		return nil, err
	}
	kept, err := filtered("/boot/config-", []byte(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(kept)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
