package psi

// {cpu,memory,io}.pressure of a v2 group: the pressure of its own tasks and those below,
// in the format of /proc/pressure (pressure.go); and cgroup.pressure, which switches the
// group's accounting off (since Linux 6.1).
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#core-interface-files
// https://docs.kernel.org/accounting/psi.html#cgroup2-interface
//
//	cgroup.pressure    1
//	cpu.pressure       some avg10=88.17 avg60=31.05 avg300=7.20 total=2910412
//	                   full avg10=61.95 avg60=20.26 avg300=4.59 total=1804270
//
// The pressure files need no controller: every group has them. In a group "full" for cpu
// is real: the time in which all of its tasks were kept from running.
//
// While the accounting is off the pressure files are not there, and a descriptor or a
// trigger that was opened before is dead for good, also after it is on again; the totals
// then go on from where they stopped.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// What callers branch on for a group, besides ErrUnsupported and ErrMalformed.
var (
	// ErrGroupGone: the group was removed. A new one at its path is another group.
	ErrGroupGone = errors.New("cgroup is gone")
	// ErrSwitchedOff: the group's accounting is off, or was so since the file was
	// opened, which must then be opened anew.
	ErrSwitchedOff = errors.New("pressure accounting of the cgroup is switched off")
)

// Group is the pressure files of one v2 group. It keeps nothing open.
type Group struct {
	fs  hostfs.FS
	dir string
}

// OfGroup returns the pressure files in a v2 group's directory, absolute within fs. It
// does not look whether the group is there.
func OfGroup(fs hostfs.FS, dir string) Group { return Group{fs, dir} }

// Path returns a resource's pressure file.
func (g Group) Path(r Resource) string { return g.dir + "/" + string(r) + ".pressure" }

// Read reads one pressure file once.
func (g Group) Read(r Resource) (Pressure, error) {
	return read(g.fs, g.Path(r), g.wrapper(g.Path(r)))
}

// Open opens one pressure file for repeated reading. Its Totals also fail with
// ErrGroupGone and ErrSwitchedOff.
func (g Group) Open(r Resource) (*Reader, error) {
	return open(g.fs, g.Path(r), g.wrapper(g.Path(r)))
}

// OpenTrigger arms a trigger on one pressure file, as OpenTrigger of this package does.
// When its Wait says ErrTriggerGone, it also says ErrGroupGone or ErrSwitchedOff.
func (g Group) OpenTrigger(r Resource, kind Kind, stall, window time.Duration) (*Trigger, error) {
	return openTrigger(g.fs, g.Path(r), kind, stall, window, g.wrapper(g.Path(r)))
}

// ReadAccounting says whether the group's pressure is accounted. Before Linux 6.1 it
// always is, and there is no such file: ErrUnsupported.
func (g Group) ReadAccounting() (bool, error) {
	on, err := g.readAccounting()
	if err != nil && !errors.Is(err, ErrMalformed) {
		err = g.wrapper(g.dir+"/cgroup.pressure")("read accounting of", err)
	}
	return on, err
}

func (g Group) readAccounting() (bool, error) {
	path := g.dir + "/cgroup.pressure"
	data, err := g.fs.ReadFile(path, nil)
	if err != nil {
		return false, err
	}
	on, err := parseAccounting(data)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return on, nil
}

// WriteAccounting switches the accounting of the group alone on or off: the groups above
// and below go by their own switches.
func (g Group) WriteAccounting(on bool) error {
	value := []byte("0")
	if on {
		value = []byte("1")
	}
	if err := g.fs.WriteFile(g.dir+"/cgroup.pressure", value); err != nil {
		return g.wrapper(g.dir+"/cgroup.pressure")("switch accounting of", err)
	}
	return nil
}

func parseAccounting(data []byte) (bool, error) {
	switch string(bytes.TrimSuffix(data, []byte("\n"))) {
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, fmt.Errorf("%w: cgroup.pressure %q", ErrMalformed, clip(data))
}

// wrapper returns the wrap of a file of the group whose directory is there now: a file
// that is missing, or whose descriptor is dead, is so for one of three reasons.
func (g Group) wrapper(path string) wrapFunc {
	before, beforeErr := g.fs.Inode(g.dir)
	return func(op string, err error) error {
		absent := errors.Is(err, fs.ErrNotExist)
		dead := errors.Is(err, unix.ENODEV) || errors.Is(err, ErrTriggerGone)
		if !absent && !dead {
			return wrap(op, err)
		}
		for range settleTries {
			now, nowErr := g.fs.Inode(g.dir)
			if beforeErr != nil || nowErr != nil || now != before {
				return fmt.Errorf("%s pressure: %w: %w", op, ErrGroupGone, err)
			}
			on, readErr := g.readAccounting()
			_, fileErr := g.fs.Inode(path)
			// Where the file is there it is on again, and the descriptor died meanwhile.
			if readErr == nil && (!on || (dead && fileErr == nil)) {
				return fmt.Errorf("%s pressure: %w: %w", op, ErrSwitchedOff, err)
			}
			if absent {
				break // the kernel has no such file
			}
			time.Sleep(settlePause)
		}
		return wrap(op, err)
	}
}

// The kernel takes the pressure files away before it says that the accounting is off, and
// before it takes the directory: for a moment a dead descriptor has no visible reason.
// Then it is looked for again, this often and with this pause.
const (
	settleTries = 50
	settlePause = time.Millisecond
)
