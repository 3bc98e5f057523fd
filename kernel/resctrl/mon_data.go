package resctrl

// mon_data/mon_L3_<domain>/*: what a group's threads did, per domain.
//
// https://docs.kernel.org/filesystems/resctrl.html ("mon_data")
//
//	llc_occupancy    16777216      bytes in the cache now
//	mbm_total_bytes  7654604800    bytes to and from memory since the group was made
//	mbm_local_bytes  7654604800    the part of it to the domain's own memory
//
// Instead of a number there may be
//
//	Unavailable   no value at present: the hardware has not counted long enough, or has
//	              lost the RMID (AMD, with more RMIDs in use than it can count)
//	Error         the hardware refused the RMID or the event
//	Unassigned    mbm_assign_mode is mbm_event, and no counter is assigned
//
// and reading succeeds all the same. A control group's value includes its monitoring
// groups'. Counts belong to the group, not to its threads: a thread that moves leaves what
// it counted behind, and llc_occupancy of the old group falls only as its lines are
// evicted. The numbers are in steps of some ten KiB.
//
// Where a cache is shared by several NUMA nodes (sub-NUMA clustering), mon_L3_<domain>
// holds the sum, and a directory mon_sub_L3_<node> each node's; the sum is read here.
// Directories of other names (mon_PERF_PKG_<package>) are none of ours.
//
// A domain whose last CPU goes offline takes its directory along: reading a kept
// descriptor is ENODEV. When it comes back it has a new directory, and its counts may
// have fallen.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	monL3Prefix = "mon_L3_"
	// monValueSize holds the longest content and one byte more, which the reader needs
	// to see the end: 20 digits and a newline.
	monValueSize = 64
)

// CountState is how reading one value came out.
type CountState uint8

// The states. The zero value is Absent.
const (
	Absent      CountState = iota // no such event here, or the domain is offline
	Counted                       // Bytes is the value
	Unavailable                   // the hardware has no value at present
	Failed                        // the hardware refused ("Error")
	Unassigned                    // no counter is assigned to the event
	Backwards                     // only of Since: the counter fell, so nothing follows
)

// String returns the state's name.
func (s CountState) String() string {
	names := [...]string{"absent", "counted", "unavailable", "failed", "unassigned", "backwards"}
	if int(s) < len(names) {
		return names[s]
	}
	return "state(" + strconv.Itoa(int(s)) + ")"
}

// Count is one value. Bytes is 0 unless State is Counted.
type Count struct {
	State CountState
	Bytes uint64
}

// Since returns what a counter grew by since an earlier reading of the same group and
// domain. Where either is no number, the state says why; a counter that fell (a domain
// that was offline, counters that were assigned anew) is Backwards.
func (c Count) Since(earlier Count) Count {
	switch {
	case c.State != Counted:
		return Count{State: c.State}
	case earlier.State != Counted:
		return Count{State: earlier.State}
	case c.Bytes < earlier.Bytes:
		return Count{State: Backwards}
	}
	return Count{State: Counted, Bytes: c.Bytes - earlier.Bytes}
}

// Monitored is one domain's values.
type Monitored struct {
	Domain    int
	Occupancy Count // bytes in the cache now
	Total     Count // bytes to and from memory, a counter
	Local     Count // the part to the domain's own memory, a counter
}

// Monitor reads one group, ours or not, with kept descriptors: up to three a domain. It
// stays bound to the directory that it was opened on, and keeps resctrl from being
// unmounted. It is not safe for concurrent use.
type Monitor struct {
	d       *Driver
	id      Identity
	domains []monDomain
	buf     []byte
	closed  bool
}

// monDomain is one domain's open files; nil where there is no such event, and all nil
// when the domain is gone.
type monDomain struct {
	id    int
	files [3]hostfs.File // occupancy, total, local
}

// OpenMonitor opens a group for reading. A kernel or CPU that monitors nothing is
// ErrUnsupported.
func (d *Driver) OpenMonitor(n Name) (*Monitor, error) {
	inode, err := d.fs.Inode(d.path(n))
	if err != nil {
		return nil, fmt.Errorf("monitor %s: %w", n, d.explain(n, err))
	}
	m := &Monitor{d: d, id: Identity{Name: n, Inode: inode}, buf: make([]byte, 0, monValueSize)}
	if err := m.Refresh(); err != nil {
		return nil, err
	}
	return m, nil
}

// Identity returns the group that is read.
func (m *Monitor) Identity() Identity { return m.id }

// Refresh opens the domains that came since, and lets go of those that are gone. Nothing
// tells of a domain that comes back, so who keeps a Monitor calls it now and then, and
// after CPUs went on- or offline. ErrVanished when the group is gone.
func (m *Monitor) Refresh() error {
	if m.closed {
		return fmt.Errorf("monitor %s: %w", m.id.Name, fs.ErrClosed)
	}
	dir := m.d.path(m.id.Name) + "/" + monDataDir
	entries, err := m.d.list(dir)
	if err != nil {
		return fmt.Errorf("monitor %s: %w", m.id.Name, m.d.explain(m.id.Name, err))
	}
	var fresh []monDomain
	var errs []error
	for _, e := range entries {
		id, ok := parseMonDomain(e.Name)
		if !e.IsDir || !ok {
			continue
		}
		dom, err := m.reopen(id, dir+"/"+e.Name)
		errs = append(errs, err)
		if err == nil {
			fresh = append(fresh, dom)
		}
	}
	for i := range m.domains {
		if m.domains[i].alive() { // not taken over: the directory is gone
			errs = append(errs, m.domains[i].close())
		}
	}
	m.domains = fresh
	// Last: what was opened is the group's only if the group was still at its place then.
	err = m.d.verify(m.id)
	for i := range m.domains {
		if err != nil {
			errs = append(errs, m.domains[i].close())
		}
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("monitor %s: %w", m.id.Name, err)
	}
	return nil
}

// reopen takes the open files of a domain over, or opens them. A descriptor of a domain
// that went and came back reads ENODEV: it is tried.
func (m *Monitor) reopen(id int, dir string) (monDomain, error) {
	for i := range m.domains {
		old := &m.domains[i]
		if old.id != id || !old.alive() {
			continue
		}
		if _, err := m.read(old); err != nil {
			return *old, err
		}
		if old.alive() {
			kept := *old
			old.files = [3]hostfs.File{}
			return kept, nil
		}
	}
	dom := monDomain{id: id}
	for i, event := range [...]string{eventOccupancy, eventTotal, eventLocal} {
		f, err := m.d.fs.Open(dir + "/" + event)
		if gone(err) {
			continue // no such event, or the domain went offline
		}
		if err != nil {
			return dom, errors.Join(err, dom.close())
		}
		dom.files[i] = f
	}
	return dom, nil
}

// parseMonDomain reads "mon_L3_01".
func parseMonDomain(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, monL3Prefix)
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	return int(id), err == nil
}

// Read appends every domain's values to dst[:0], by domain directory. A domain that has
// gone offline since Refresh is Absent in all values. ErrVanished when the group is gone,
// also when another one has its name. It does not allocate when dst is large enough,
// except once for a domain or group that goes.
func (m *Monitor) Read(dst []Monitored) ([]Monitored, error) {
	dst = dst[:0]
	if m.closed {
		return dst, fmt.Errorf("monitor %s: %w", m.id.Name, fs.ErrClosed)
	}
	lost, alive := false, false
	for i := range m.domains {
		dom := &m.domains[i]
		was := dom.alive()
		v, err := m.read(dom)
		if err != nil {
			return dst, fmt.Errorf("monitor %s: %w", m.id.Name, err)
		}
		lost = lost || was && !dom.alive()
		alive = alive || dom.alive()
		dst = append(dst, v)
	}
	if lost || !alive {
		// A domain that goes and a group that goes read alike.
		if err := m.d.verify(m.id); err != nil {
			return dst[:0], fmt.Errorf("monitor %s: %w", m.id.Name, err)
		}
	}
	return dst, nil
}

// read reads a domain's values, and closes it when it is gone.
func (m *Monitor) read(dom *monDomain) (Monitored, error) {
	v := Monitored{Domain: dom.id}
	for i, f := range dom.files {
		if f == nil {
			continue
		}
		var err error
		m.buf, err = f.ReadRecord(m.buf)
		if gone(err) {
			return Monitored{Domain: dom.id}, dom.close()
		}
		if err != nil {
			return v, err
		}
		c, err := parseCount(m.buf)
		if err != nil {
			return v, fmt.Errorf("domain %d: %w", dom.id, err)
		}
		switch i {
		case 0:
			v.Occupancy = c
		case 1:
			v.Total = c
		case 2:
			v.Local = c
		}
	}
	return v, nil
}

// Close lets go of all descriptors. A second Close does nothing.
func (m *Monitor) Close() error {
	var errs []error
	for i := range m.domains {
		errs = append(errs, m.domains[i].close())
	}
	m.domains, m.closed = nil, true
	return errors.Join(errs...)
}

// alive says whether any file is open.
func (dom *monDomain) alive() bool {
	return dom.files[0] != nil || dom.files[1] != nil || dom.files[2] != nil
}

func (dom *monDomain) close() error {
	var errs []error
	for i, f := range dom.files {
		if f != nil {
			errs = append(errs, f.Close())
			dom.files[i] = nil
		}
	}
	return errors.Join(errs...)
}

// parseCount reads a file's content. It does not allocate unless it fails.
func parseCount(data []byte) (Count, error) {
	text := bytes.TrimRight(data, "\n")
	switch string(text) {
	case "Unavailable":
		return Count{State: Unavailable}, nil
	case "Error":
		return Count{State: Failed}, nil
	case "Unassigned":
		return Count{State: Unassigned}, nil
	}
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return Count{}, fmt.Errorf("%w: monitoring value %q", ErrMalformed, clip(string(data)))
	}
	return Count{State: Counted, Bytes: v}, nil
}
