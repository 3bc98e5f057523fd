package kernfs

import (
	"math"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/machine"
)

// pressureLine is one line of a pressure file: its total and what averages remember.
type pressureLine struct {
	at    int64  // when the averages were last made, ns
	total uint64 // then, ns
	avg   [3]float64
}

// The averages: over how long, and how often the kernel makes them.
var averageSeconds = [...]float64{10, 60, 300}

const averageEveryNsec = 2e9

// line appends a line. The kernel makes averages every two seconds; here it is done when
// somebody reads, over what passed since, which differs only where nobody looked.
func (l *pressureLine) line(buf []byte, kind psi.Kind, now int64, total uint64) []byte {
	if passed := now - l.at; passed >= averageEveryNsec {
		share := math.Min(100, 100*float64(total-min(total, l.total))/float64(passed))
		for i, s := range averageSeconds {
			keep := math.Exp(-float64(passed) / 1e9 / s)
			l.avg[i] = l.avg[i]*keep + share*(1-keep)
		}
		l.at, l.total = now, total
	}
	buf = append(buf, kind...)
	for i, s := range averageSeconds {
		buf = append(strconv.AppendInt(append(buf, " avg"...), int64(s), 10), '=')
		buf = strconv.AppendFloat(buf, l.avg[i], 'f', 2, 64)
	}
	return number(append(buf, " total="...), total/1000)
}

// pressureFile makes the reader of a pressure file; of gives its totals in ns.
func (k *Kernel) pressureFile(of func() (some, full uint64)) readFunc {
	lines := [2]pressureLine{{at: k.m.NowNsec()}, {at: k.m.NowNsec()}}
	return func(buf []byte) ([]byte, error) {
		some, full := of()
		now := k.m.NowNsec()
		return lines[1].line(lines[0].line(buf, psi.Some, now, some), psi.Full, now, full), nil
	}
}

// pick returns the totals of a resource.
func pick(p machine.Pressure, r psi.Resource) (some, full uint64) {
	switch r {
	case psi.CPU:
		return p.CPUSome, p.CPUFull
	case psi.Memory:
		return p.MemorySome, p.MemoryFull
	case psi.IO:
		return p.IOSome, p.IOFull
	}
	return 0, 0
}

// WatchStalls watches for programs that wait for memory, as a poll of /proc/pressure/memory does (linux.Options.Stalls).
func (k *Kernel) WatchStalls(some, full float64) (linux.StallSource, error) {
	return k.m.WatchStalls(some, full), nil
}

var resources = []psi.Resource{psi.CPU, psi.Memory, psi.IO}

// addPressureFiles makes a group's. The totals of its processes are added up: of several
// that stall at the same time each counts, where the kernel counts the time once.
func (k *Kernel) addPressureFiles(g *group) {
	for _, r := range resources {
		k.addFile(g.dir, string(r)+".pressure", k.pressureFile(func() (some, full uint64) {
			return pick(k.stalled(g), r)
		}), nil)
	}
}

// setAccounting is a write of cgroup.pressure: without it a group has no pressure files.
func (k *Kernel) setAccounting(g *group, data []byte) error {
	v, err := integer(data)
	if err != nil {
		return err
	}
	if v != 0 && v != 1 {
		return unix.ERANGE
	}
	if g.pressure == (v == 1) {
		return nil
	}
	g.pressure = v == 1
	// What was shown when it was switched off is kept, and from when it is on again what was
	// not: the totals go on from where they stopped.
	g.unseen = k.stalled(g)
	if g.pressure {
		k.addPressureFiles(g)
		return nil
	}
	for _, r := range resources {
		k.remove(g.dir.children[string(r)+".pressure"])
	}
	return nil
}

// stalled returns what a group's accounting has seen.
func (k *Kernel) stalled(g *group) machine.Pressure {
	if g.up == nil {
		return usage{stall: k.m.SystemPressure()}.since(usage{stall: g.unseen}).stall
	}
	return usage{stall: k.sum(g).stall}.since(usage{stall: g.unseen}).stall
}

// addSystemPressure makes the machine's.
func (k *Kernel) addSystemPressure(dir *node) {
	for _, r := range slices.Clone(resources) {
		k.addFile(dir, string(r), k.pressureFile(func() (some, full uint64) {
			return pick(k.m.SystemPressure(), r)
		}), nil)
	}
}
