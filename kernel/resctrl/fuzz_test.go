package resctrl

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each parser must survive anything, and what it accepts must hold together.

func FuzzParseSchemata(f *testing.F) {
	for _, s := range []string{
		"    MB:0= 50;1=100\n    L3:0=00ff;1=0fff\n", "MB:0=50\nL3:0=ff\n", "L3:uninitialized\n", "NEW:0=x\n",
		"L3CODE:0=f\nL3DATA:0=f\n", "L3:0=f;0=f", "MB:0=4294967295\n", "L2:4294967295=f;\n", ":", "L3:\n", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchemata(text)
		if err != nil {
			return
		}
		back, err := ParseSchemata(s.String())
		if err != nil {
			t.Fatalf("%q reads, its own text %q does not: %v", text, s, err)
		}
		if refs := append(s.Differences(back), back.Differences(s)...); len(refs) > 0 || back.String() != s.String() {
			t.Errorf("%q: %q and %q differ in %v", text, s, back, refs)
		}
		// A plan for what stands there changes nothing.
		plan, err := PlanSchemata(&Info{Bandwidths: []Bandwidth{{Resource: MB}, {Resource: SMBA}}}, s, back)
		if err != nil || len(plan.Write) != 0 || len(plan.Missing) != 0 {
			t.Errorf("%q: plan %+v, %v", text, plan, err)
		}
	})
}

func FuzzParseBitUsage(f *testing.F) {
	for _, s := range []string{"0=XXSSSSSSSSSS;1=0HXSEP\n", "", "0=", "0=Z", "x=S"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseBitUsage(text)
		if err != nil {
			return
		}
		for _, u := range list {
			if u.Unused&u.Shareable != 0 || u.Exclusive&u.PseudoLocked != 0 || u.Shareable&u.Exclusive != 0 {
				t.Errorf("%q: %+v", text, u)
			}
		}
	})
}

func FuzzParseDomainCounts(f *testing.F) {
	for _, s := range []string{"0=32;1=30\n", "", "0=x", "0"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parseDomainCounts(text) })
}

func FuzzParseChosen(f *testing.F) {
	for _, s := range []string{"[default]\nmbm_event\n", "", "[]", "[a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := parseChosen(text); len(got) > len(text) {
			t.Errorf("%q: %q", text, got)
		}
	})
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"/", "/a", "/a/mon_groups/m", "/mon_groups/m", "", "/..", "/info", "/mon_groups/mon_groups/m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err == nil && n.String() != s {
			t.Errorf("%q reads as %+v, which is %q", s, n, n)
		}
	})
}

func FuzzParseMountinfo(f *testing.F) {
	for _, s := range []string{
		"30 25 0:26 / /sys/fs/resctrl rw,relatime shared:9 - resctrl resctrl rw,cdp,mba_MBps\n",
		"30 25 0:26 / /a\\040b ro - resctrl  rw\n", "1 1 0:2 / / rw - rootfs rootfs rw\n", "", "x", "\\1 - - -",
	} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parseMountinfo(text) })
}

func FuzzParseLocks(f *testing.F) {
	f.Add("1: FLOCK  ADVISORY  WRITE 217 00:1a:1 0 EOF\n", "0:26", uint64(1))
	f.Add("1: -> FLOCK  ADVISORY  WRITE 217 00:1a:1 0 EOF\n", "", uint64(0))
	f.Fuzz(func(t *testing.T, text, device string, inode uint64) {
		for _, pid := range parseLocks(text, device, inode) {
			if pid <= 0 {
				t.Errorf("pid %d", pid)
			}
		}
	})
}

func FuzzParseGroupsOf(f *testing.F) {
	for _, s := range []string{"res:/\nmon:\n", "res:a\nmon:m\n", "res:\nmon:\n", "", "res:a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseGroupsOf(text)
		if err != nil {
			return
		}
		// A name out of this file must be one that paths can be made of.
		if n.Ctrl != "" && !validElement(n.Ctrl) || n.Mon != "" && !validElement(n.Mon) {
			t.Errorf("%q: %+v", text, n)
		}
	})
}

func FuzzParseTasks(f *testing.F) {
	for _, s := range []string{"1\n2\n", "", "x", "0", "-1", "99999999999"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ids, err := parseTasks(nil, data)
		for _, id := range ids {
			if id <= 0 {
				t.Errorf("%q: %d, %v", data, id, err)
			}
		}
	})
}

func FuzzParseCount(f *testing.F) {
	for _, s := range []string{"16777216\n", "Unavailable\n", "Error\n", "Unassigned\n", "", "x", "99999999999999999999"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCount(data)
		if err == nil && c.State == Absent || c.State != Counted && c.Bytes != 0 {
			t.Errorf("%q: %v, %v", data, c, err)
		}
	})
}

func FuzzFreshStatus(f *testing.F) {
	f.Add("No task 5\n", "No task 5\nOut of RMIDs\n")
	f.Add("ok\n", "ok\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, how := range []command{clears, appends} {
			if got := freshStatus(how, parseStatus(before), parseStatus(after), ErrExhausted); len(got) > 2*len(after) {
				t.Errorf("%q, %q: %q", before, after, got)
			}
		}
	})
}

// FuzzContiguousMask holds the search against trying every mask.
func FuzzContiguousMask(f *testing.F) {
	f.Add(uint16(0xfff), uint16(0xc00), uint8(2), true)
	f.Add(uint16(0), uint16(0), uint8(0), false)
	f.Fuzz(func(t *testing.T, full, avoid uint16, n uint8, high bool) {
		c := Cache{Resource: L3, FullMask: Mask(full)}
		from := LowWays
		if high {
			from = HighWays
		}
		got, err := c.ContiguousMask(int(n), Mask(avoid), from)
		var want []Mask
		for m := Mask(1); m <= 0xffff; m++ {
			if m.Ways() == int(n) && m.Contiguous() && m&Mask(full) == m && m&Mask(avoid) == 0 {
				want = append(want, m)
			}
		}
		switch {
		case len(want) == 0 && err == nil, len(want) > 0 && err != nil:
			t.Errorf("%d of %x without %x: %s, %v, want one of %v", n, full, avoid, got, err, want)
		case err == nil && !high && got != want[0], err == nil && high && got != want[len(want)-1]:
			t.Errorf("%d of %x without %x: %s, want one of %v", n, full, avoid, got, want)
		}
		if diff := cmp.Diff(err != nil, got == 0); diff != "" {
			t.Error(diff)
		}
	})
}
