package numa

import (
	"bytes"
	"errors"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// A parser takes what it is given or says that it is malformed; it neither panics nor
// returns what cannot be.

func malformed(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && !errors.Is(err, ErrMalformed) {
		t.Errorf("an error without a name: %v", err)
	}
	return err != nil
}

// ascending checks what every Counts promises.
func ascending(t *testing.T, c Counts) {
	t.Helper()
	for i, n := range c {
		if n.Node < 0 || n.Node >= MaxNodes || (i > 0 && c[i-1].Node >= n.Node) {
			t.Errorf("nodes out of order or range: %v", c)
		}
	}
}

func FuzzNodeMeminfo(f *testing.F) {
	addCaptured(f, "/sys/devices/system/node/node*/meminfo")
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := parseNodeMeminfo(data); !malformed(t, err) && m.TotalBytes%1024 != 0 {
			t.Errorf("%+v", m)
		}
	})
}

func FuzzDistance(f *testing.F) {
	f.Add("10 21")
	f.Add("21\t10\n")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDistance(s, []int{0, 3})
		if !malformed(t, err) && (len(d) != 2 || d[1].Node != 3) {
			t.Errorf("%v", d)
		}
	})
}

func FuzzZoneinfo(f *testing.F) {
	addCaptured(f, "/proc/zoneinfo")
	f.Fuzz(func(t *testing.T, data []byte) {
		zones, err := parseZoneinfo(nil, data)
		if malformed(t, err) {
			return
		}
		for i := range zones {
			if z := &zones[i]; z.Room() > z.Free || z.Node >= MaxNodes {
				t.Errorf("%+v has room for %d", z, z.Room())
			}
		}
	})
}

func FuzzPolicy(f *testing.F) {
	for _, s := range []string{"default", "prefer (many):0-1 anon=1", "bind=static|balancing:0,2-3", "weighted interleave:0-1", "bind=:0"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		p, rest, err := cutPolicy(line)
		if !malformed(t, err) && (!bytes.HasSuffix(line, rest) || (p.Mode == PolicyOther && !p.Nodes.Empty())) {
			t.Errorf("%+v, rest %q", p, rest)
		}
	})
}

func FuzzNumaMaps(f *testing.F) {
	addCaptured(f, "/proc/100/numa_maps")
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Mapping
		for line := range bytes.Lines(data) {
			if malformed(t, m.parse(bytes.TrimSuffix(line, []byte("\n")))) {
				continue
			}
			ascending(t, m.Pages)
			if len(hostfs.Unescape(string(m.File))) > len(m.File) {
				t.Errorf("%q grew", m.File)
			}
		}
	})
}

func FuzzMaps(f *testing.F) {
	addCaptured(f, "/proc/100/maps")
	addCaptured(f, "/proc/100/smaps")
	f.Fuzz(func(t *testing.T, data []byte) {
		for line := range bytes.Lines(data) {
			a, isHeader, err := parseArea(bytes.TrimSuffix(line, []byte("\n")))
			if !malformed(t, err) && isHeader && a.end <= a.start {
				t.Errorf("%+v", a)
			}
			a.parseVMFlags(line)
		}
	})
}

func FuzzProcStat(f *testing.F) {
	addCaptured(f, "/proc/100/stat")
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := parseStartTicks(data)
		malformed(t, err)
	})
}

func FuzzProcStatus(f *testing.F) {
	addCaptured(f, "/proc/100/status")
	f.Fuzz(func(t *testing.T, data []byte) {
		m, found, err := parseMemoryUse(data)
		if !malformed(t, err) && (m.lockedBytes%1024 != 0 || (m != memoryUse{} && !found)) {
			t.Errorf("%+v, %v", m, found)
		}
	})
}

func FuzzMemoryNumaStat(f *testing.F) {
	addCaptured(f, "/sys/fs/cgroup/batch/memory.numa_stat")
	f.Fuzz(func(t *testing.T, data []byte) {
		var s MemoryNumaStat
		if !malformed(t, s.parse(data)) {
			for _, c := range []Counts{s.AnonBytes, s.FileBytes, s.ShmemBytes, s.UnevictableBytes} {
				ascending(t, c)
			}
		}
		var v1 MemoryNumaStatV1
		if !malformed(t, v1.parse(data)) {
			ascending(t, v1.Own.AnonPages)
			ascending(t, v1.Hierarchical.TotalPages)
		}
	})
}

// FuzzPlan: whatever the placement and the shares, a plan moves off nodes that have too
// many, onto nodes that have too few, and the pages come out even.
func FuzzPlan(f *testing.F) {
	f.Add(uint32(1000), uint32(0), uint32(90), uint32(10), uint32(0))
	f.Add(uint32(7), uint32(5), uint32(1), uint32(1), uint32(1))
	f.Add(uint32(0), uint32(9), uint32(0), uint32(0), uint32(1))
	f.Fuzz(func(t *testing.T, a, b, sa, sb, sc uint32) {
		have := Counts{{0, uint64(a % 5000)}, {1, uint64(b % 5000)}}
		shares := []Share{{0, uint64(sa)}, {1, uint64(sb)}, {2, uint64(sc)}}
		if checkShares(shares) != nil {
			return
		}
		p := newPlan(have, shares)
		want := apportion(have.Total(), shares)
		got := walk(&p, have, 1)
		for node := range 3 {
			w, _ := want.Get(node)
			if g, _ := got.Get(node); g != w {
				t.Errorf("%v to %v: %v, want %v", have, shares, got, want)
			}
		}
	})
}

// walk goes through the plan's pages node by node in units of so many, and returns where
// they are afterwards.
func walk(p *plan, have Counts, unit uint64) Counts {
	got := Counts{}.AddAll(have)
	everywhere := func(int) uint64 { return 1 << 40 }
	for _, h := range have {
		from := p.source(h.Node)
		if from < 0 {
			continue
		}
		for n := uint64(0); n+unit <= h.Count; n += unit {
			for range unit {
				p.pass(from)
			}
			if !p.due(from, unit) {
				continue
			}
			to := p.target(unit, everywhere)
			if to < 0 {
				continue
			}
			p.take(from, to, unit)
			got = got.Add(h.Node, -unit)
			got = got.Add(p.nodes[to].node, unit)
		}
	}
	return got
}
