package resctrl

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseSchemata(t *testing.T) {
	padded := "    MB:0= 50;1=100\n    L3:0=00ff;1=0fff\n"
	plain := "MB:0=50;1=100\nL3:0=ff;1=fff\n"
	want := Schemata{
		{Resource: MB, Domains: []Value{{0, 50}, {1, 100}}},
		{Resource: L3, Domains: []Value{{0, 0xff}, {1, 0xfff}}},
	}
	for _, c := range []struct {
		name, text string
		want       Schemata
		back       string // what String makes of it
	}{
		{"padded", padded, want, plain},
		{"unpadded", plain, want, plain},
		{"no newline", strings.TrimSuffix(plain, "\n"), want, plain},
		{"empty", "", nil, ""},
		{"no domain online", "L3:\n", Schemata{{Resource: L3}}, ""},
		{"no limit in MiB/s", "MB:0=4294967295\n", Schemata{{Resource: MB, Domains: []Value{{0, Unlimited}}}}, "MB:0=4294967295\n"},
		{"waiting for its region", "L3:uninitialized\n", Schemata{{Resource: L3, Uninitialized: true}}, ""},
		{"a resource to come", "MB_HLIM:0=x,y;1\nL3:0=1\n", Schemata{{Resource: "MB_HLIM", Raw: "0=x,y;1"}, {Resource: L3, Domains: []Value{{0, 1}}}}, "L3:0=1\n"},
		{"great cache ids", "L2:4294967295=f\n", Schemata{{Resource: L2, Domains: []Value{{4294967295, 15}}}}, "L2:4294967295=f\n"},
	} {
		got, err := ParseSchemata(c.text)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
		if got.String() != c.back {
			t.Errorf("%s: String = %q", c.name, got)
		}
	}
	for _, bad := range []string{"L3", "L3:0", "L3:0=", "L3:0=xyz", "L3:=f", "L3:-1=f", "L3:0=f;;1=f", "L3:0=f;0=f", ":0=f", "L3:0=1\nL3:1=1", "MB:0=-1", "MB:0=ff", "L3:0=f 1"} {
		if got, err := ParseSchemata(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseSchemata(%q) = %v, %v", bad, got, err)
		}
	}
}

func TestSchemataSetAndDifferences(t *testing.T) {
	var s Schemata
	s.Set(L3, 0, 3)
	s.Set(MB, 1, 20)
	s.Set(L3, 1, 7)
	s.Set(L3, 0, 1)
	if s.String() != "L3:0=1;1=7\nMB:1=20\n" {
		t.Errorf("%q", s)
	}
	now, err := ParseSchemata("L3:0=1;1=6\nMB:0=20\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Ref{{L3, 1}}, s.Differences(now)); diff != "" {
		t.Error(diff)
	}
	if (Ref{L3, 1}).String() != "L3:1" {
		t.Error(Ref{L3, 1})
	}
}

func TestPlanSchemata(t *testing.T) {
	info := &Info{
		Caches:     []Cache{{Resource: L3, FullMask: 0xfff}},
		Bandwidths: []Bandwidth{{Resource: MB, Unit: Percent, Min: 10, Max: 100, Gran: 10}},
	}
	for _, c := range []struct {
		name, now, want string
		write, expect   string
		missing         []Ref
	}{
		{"all the same", "MB:0=50\nL3:0=3\n", "L3:0=3\nMB:0=50\n", "", "L3:0=3\nMB:0=50\n", nil},
		{"the same when rounded", "MB:0=50\n", "MB:0=41\n", "", "MB:0=50\n", nil},
		{"bandwidth last", "MB:0=50\nL3:0=3\n", "MB:0=33\nL3:0=1\n", "L3:0=1\nMB:0=33\n", "L3:0=1\nMB:0=40\n", nil},
		{"only what differs", "L3:0=3;1=3;2=3\n", "L3:0=3;2=1;1=3\n", "L3:2=1\n", "L3:0=3;2=1;1=3\n", nil},
		{"a domain is offline", "L3:0=3\nMB:0=50\n", "L3:0=1;1=1\nMB:1=10\n", "L3:0=1\n", "L3:0=1\n", []Ref{{L3, 1}, {MB, 1}}},
		{"both halves", "L3DATA:0=f\nL3CODE:0=3\n", "L3:0=3\n", "L3DATA:0=3\n", "L3CODE:0=3\nL3DATA:0=3\n", nil},
		{"one half", "L3DATA:0=f\nL3CODE:0=f\n", "L3CODE:0=3\n", "L3CODE:0=3\n", "L3CODE:0=3\n", nil},
		{"nothing wished", "L3:0=f\n", "", "", "", nil},
	} {
		now, err1 := ParseSchemata(c.now)
		want, err2 := ParseSchemata(c.want)
		p, err3 := PlanSchemata(info, now, want)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if p.Write.String() != c.write || p.Expect.String() != c.expect || !cmp.Equal(p.Missing, c.missing) {
			t.Errorf("%s: write %q, expect %q, missing %v", c.name, p.Write, p.Expect, p.Missing)
		}
	}
	for _, r := range []Resource{L2, SMBA, L3Code, "NEW"} {
		_, err := PlanSchemata(info, Schemata{{Resource: L3, Domains: []Value{{0, 1}}}}, Schemata{{Resource: r, Domains: []Value{{0, 1}}}})
		wantError(t, string(r), err, string(r), ErrUnsupported)
	}
	stands := Schemata{{Resource: MB, Domains: []Value{{0, 50}}}}
	_, err := PlanSchemata(&Info{}, stands, Schemata{{Resource: MB, Domains: []Value{{0, 48}}}})
	wantError(t, "info was listed short", err, "without it", ErrMalformed)
	amd := Bandwidth{Unit: EighthGBps, Gran: 1}
	if amd.Round(17) != 17 || info.Bandwidths[0].Round(91) != 100 || info.Bandwidths[0].Round(90) != 90 {
		t.Error("Round")
	}
}

func TestMask(t *testing.T) {
	for m, want := range map[Mask]bool{0: true, 1: true, 3: true, 0xf0: true, 5: false, 1<<63 | 1: false, 1 << 63: true, ^Mask(0): true, 1<<64 - 2: true} {
		if m.Contiguous() != want {
			t.Errorf("%s contiguous: %v", m, !want)
		}
	}
	if Mask(0x70f).Ways() != 7 || Mask(0xc00).String() != "c00" {
		t.Error("Ways, String")
	}
	c := Cache{Resource: L3, FullMask: 0xfff, MinBits: 2}
	for _, x := range []struct {
		n     int
		avoid Mask
		from  Side
		want  Mask // 0: ErrNoRoom
	}{
		{2, 0, LowWays, 0x3},
		{2, 0, HighWays, 0xc00},
		{2, 0x1, LowWays, 0x6},
		{2, 0xc00, HighWays, 0x300},
		{2, 0x555, LowWays, 0x0},
		{3, 0xf0f, LowWays, 0x70},
		{12, 0, LowWays, 0xfff},
		{12, 0x800, HighWays, 0},
		{13, 0, LowWays, 0},
		{1, 0, LowWays, 0},
		{0, 0, LowWays, 0},
		{-1, 0, LowWays, 0},
		{64, 0, HighWays, 0},
	} {
		got, err := c.ContiguousMask(x.n, x.avoid, x.from)
		if got != x.want || (err == nil) != (x.want != 0) || err != nil && !errors.Is(err, ErrNoRoom) {
			t.Errorf("ContiguousMask(%d, %s, %d) = %s, %v, want %s", x.n, x.avoid, x.from, got, err, x.want)
		}
	}
	// A full mask with a gap, as no CPU has had yet, and one of 64 ways.
	gap := Cache{FullMask: 0xf0f}
	if m, err := gap.ContiguousMask(4, 0xf, LowWays); m != 0xf00 || err != nil {
		t.Error(m, err)
	}
	wide := Cache{FullMask: ^Mask(0)}
	if m, err := wide.ContiguousMask(64, 0, HighWays); m != ^Mask(0) || err != nil {
		t.Error(m, err)
	}
	if m, err := (&Cache{FullMask: 1}).ContiguousMask(0, 0, LowWays); err == nil {
		t.Error(m)
	}
}

func TestTakenBits(t *testing.T) {
	parse := func(s string) Schemata {
		got, err := ParseSchemata(s)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	groups := []Group{
		{Mode: Shareable, Schemata: parse("L3CODE:0=fff\nL3DATA:0=fff\n")},
		{Mode: Exclusive, Schemata: parse("L3CODE:0=3;1=0\nL3DATA:0=c;1=1\nMB:0=50\nL2:0=f\n")},
		{Mode: PseudoLocked, Schemata: parse("L3:1=8\n")},
		{Mode: PseudoLockSetup, Schemata: parse("L3:uninitialized\n")},
		{Mode: Exclusive, Schemata: parse("L3:0=f00\n"), Ours: true},
	}
	ours := func(g Group) bool { return g.Ours }
	for r, want := range map[Resource]map[int]Mask{
		L3: {0: 0xf, 1: 0x9}, L3Code: {0: 0xf, 1: 0x9}, L2: {0: 0xf}, MB: {},
	} {
		if got := TakenBits(groups, r, ours); !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", r, got, want)
		}
	}
	if got := TakenBits(groups, L3, nil)[0]; got != 0xf0f {
		t.Errorf("all: %s", got)
	}
}

func TestParseBitUsage(t *testing.T) {
	got, err := parseBitUsage("0=0HXSEP;3=SS\n")
	want := []DomainUsage{
		{Domain: 0, Unused: 0x30, Hardware: 0x18, Shareable: 0xc, Exclusive: 0x2, PseudoLocked: 0x1},
		{Domain: 3, Shareable: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, bad := range []string{"0", "x=S", "0=Z", "0=" + strings.Repeat("S", 65)} {
		if _, err := parseBitUsage(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := parseBitUsage("\n"); got != nil || err != nil {
		t.Errorf("no domain: %v, %v", got, err)
	}
}

func TestParseSmallFiles(t *testing.T) {
	for text, want := range map[string]string{"[default]\nmbm_event\n": "default", "default\n[mbm_event]": "mbm_event", "": "", "default": "", "[]": ""} {
		if got := parseChosen(text); got != want {
			t.Errorf("parseChosen(%q) = %q", text, got)
		}
	}
	counts, err := parseDomainCounts("0=32;1=30\n")
	if diff := cmp.Diff([]DomainCount{{0, 32}, {1, 30}}, counts); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, bad := range []string{"0=x", "0", "0=-1"} {
		if _, err := parseDomainCounts(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("parseDomainCounts(%q): %v", bad, err)
		}
	}
	for name, want := range map[string]int{"mon_L3_00": 0, "mon_L3_12": 12, "mon_L3_": -1, "mon_L3_x": -1, "mon_sub_L3_00": -1, "mon_PERF_PKG_00": -1, "mon_L3_-1": -1, "mon_L3_99999999999": -1} {
		if got, ok := parseMonDomain(name); ok != (want >= 0) || ok && got != want {
			t.Errorf("parseMonDomain(%q) = %d, %v", name, got, ok)
		}
	}
	tasks, err := parseTasks(nil, []byte("13\n\n2147483647\n"))
	if !cmp.Equal(tasks, []int32{13, 2147483647}) || err != nil {
		t.Error(tasks, err)
	}
	for _, bad := range []string{"x", "-1", "0", "2147483648"} {
		if _, err := parseTasks(nil, []byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("parseTasks(%q): %v", bad, err)
		}
	}
}

func TestParseCount(t *testing.T) {
	for text, want := range map[string]Count{
		"16777216\n": {Counted, 16777216}, "0\n": {State: Counted}, "18446744073709551615": {Counted, 1<<64 - 1},
		"Unavailable\n": {State: Unavailable}, "Error\n": {State: Failed}, "Unassigned\n": {State: Unassigned},
	} {
		if got, err := parseCount([]byte(text)); got != want || err != nil {
			t.Errorf("parseCount(%q) = %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "\n", "-1", "1.5", "error", "18446744073709551616"} {
		if got, err := parseCount([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("parseCount(%q) = %v, %v", bad, got, err)
		}
	}
}

func TestSince(t *testing.T) {
	n := func(v uint64) Count { return Count{Counted, v} }
	for _, c := range []struct{ now, earlier, want Count }{
		{n(7), n(5), n(2)},
		{n(5), n(5), n(0)},
		{n(4), n(5), Count{State: Backwards}},
		{Count{State: Unavailable}, n(5), Count{State: Unavailable}},
		{n(5), Count{State: Failed}, Count{State: Failed}},
		{n(5), Count{}, Count{State: Absent}},
		{Count{State: Unassigned}, Count{State: Unavailable}, Count{State: Unassigned}},
	} {
		if got := c.now.Since(c.earlier); got != c.want {
			t.Errorf("%v since %v = %v, want %v", c.now, c.earlier, got, c.want)
		}
	}
	if Backwards.String() != "backwards" || Absent.String() != "absent" || CountState(99).String() != "state(99)" {
		t.Error("String")
	}
}

func TestName(t *testing.T) {
	for s, want := range map[string]Name{
		"/": {}, "/a": {Ctrl: "a"}, "/mon_groups/m": {Mon: "m"}, "/a/mon_groups/m": {Ctrl: "a", Mon: "m"},
		"/a b": {Ctrl: "a b"}, "/a/mon_groups/mon_groups": {Ctrl: "a", Mon: "mon_groups"},
	} {
		got, err := ParseName(s)
		if got != want || err != nil || got.String() != s {
			t.Errorf("ParseName(%q) = %+v, %v; String %q", s, got, err, got)
		}
	}
	for _, bad := range []string{"", "a", "//", "/a/", "/a/b", "/a/mon_groups", "/mon_groups", "/mon_groups/", "/info", "/mon_data", "/..", "/a/mon_groups/..", "/a\nb", "/a/mon_groups/b/c"} {
		if got, err := ParseName(bad); !errors.Is(err, ErrBadName) {
			t.Errorf("ParseName(%q) = %+v, %v", bad, got, err)
		}
	}
	id := Identity{Name{"a", "m"}, 7}
	b, err := json.Marshal(id)
	var back Identity
	if err == nil {
		err = json.Unmarshal(b, &back)
	}
	if err != nil || back != id || string(b) != `{"Name":"/a/mon_groups/m","Inode":7}` {
		t.Errorf("%s, %+v, %v", b, back, err)
	}
	if (Name{"a", "m"}).Parent() != (Name{Ctrl: "a"}) || !(Name{}).IsRoot() || (Name{Mon: "m"}).IsRoot() {
		t.Error("Parent, IsRoot")
	}
	for n, want := range map[Name]string{
		{Ctrl: "COS3"}: "pqos (intel-cmt-cat)", {Ctrl: "COSMOS"}: "", {Ctrl: "COS"}: "", {Mon: "cadvisor-x"}: "cAdvisor",
		{Mon: "pqos-4711-0"}: "pqos (intel-cmt-cat)", {Ctrl: "a", Mon: "pqos-4711-1"}: "pqos (intel-cmt-cat)", {Ctrl: "pqos-4711-0"}: "",
		{Ctrl: strings.Repeat("0a", 32)}: "a container runtime (the name is a container's id)", {Ctrl: "goresctrl.gold"}: "goresctrl (containerd, CRI-O or an NRI plugin)",
	} {
		if got := tool(n); got != want {
			t.Errorf("tool(%s) = %q", n, got)
		}
	}
}

func TestParseMountinfo(t *testing.T) {
	line := "30 25 0:26 / /sys/fs/resctrl rw,relatime shared:9 - resctrl resctrl rw,cdp,mba_MBps\n"
	for _, c := range []struct {
		name, text string
		want       []MountInfo
	}{
		{"one among others", "1 1 0:2 / / rw - rootfs rootfs rw\n" + line, []MountInfo{{Point: "/sys/fs/resctrl", Device: "0:26", Options: MountOptions{CDP: true, MBps: true}}}},
		{"no source", "30 25 0:26 / /r rw - resctrl  rw,cdpl2,debug\n", []MountInfo{{Point: "/r", Device: "0:26", Options: MountOptions{CDPL2: true, Debug: true}}}},
		{"read-only", "30 25 0:26 / /a\\040b ro - resctrl x rw\n", []MountInfo{{Point: "/a b", Device: "0:26", ReadOnly: true}}},
		{"a part of it", "30 25 0:26 /group /r rw - resctrl x rw\n", nil},
		{"none", "1 1 0:2 / / rw - rootfs rootfs rw\n", nil},
		{"empty", "", nil},
		{"lines that are none of ours", "x\n\n- - -\n", nil},
	} {
		got, err := parseMountinfo(c.text)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, diff)
		}
	}
	for _, bad := range []string{" - resctrl ", "30 25 0:26 / - resctrl x rw", "30 25 0:26 / /r rw - resctrl x"} {
		if _, err := parseMountinfo(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if s := (MountOptions{CDP: true, CDPL2: true, MBps: true, Debug: true}).String(); s != "cdp,cdpl2,mba_MBps,debug" {
		t.Error(s)
	}
}

func TestParseLocks(t *testing.T) {
	text := "1: FLOCK  ADVISORY  WRITE 217 00:1a:1 0 EOF\n" +
		"1: -> FLOCK  ADVISORY  WRITE 218 00:1a:1 0 EOF\n" +
		"2: FLOCK  ADVISORY  READ 99 00:1a:1 0 EOF\n" +
		"3: POSIX  ADVISORY  WRITE 7 00:1a:1 0 EOF\n" +
		"4: FLOCK  ADVISORY  WRITE 8 00:1a:2 0 EOF\n" +
		"5: FLOCK  ADVISORY  WRITE 0 00:1a:1 0 EOF\nrubbish\n"
	if got := parseLocks(text, "0:26", 1); !cmp.Equal(got, []int{99, 217}) {
		t.Errorf("%v", got)
	}
	for _, device := range []string{"", "0", "x:y"} {
		if got := parseLocks(text, device, 1); got != nil {
			t.Errorf("%q: %v", device, got)
		}
	}
}

func TestParseGroupsOf(t *testing.T) {
	for text, want := range map[string]Name{
		"res:/\nmon:\n": {}, "res:a\nmon:m\n": {Ctrl: "a", Mon: "m"}, "res:/\nmon:m\n": {Mon: "m"}, "res:a:b c\nmon:\n": {Ctrl: "a:b c"},
	} {
		if got, err := parseGroupsOf(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := parseGroupsOf("res:\nmon:\n"); !errors.Is(err, ErrNotMounted) {
		t.Error(err)
	}
	for _, bad := range []string{"", "res:a", "res:a\nmon:b", "mon:a\nres:b\n", "res:..\nmon:\n", "res:a\nmon:a/b\n"} {
		if got, err := parseGroupsOf(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func TestFreshStatus(t *testing.T) {
	long := strings.Repeat("Bad CPU list/mask\n", 28)
	for _, c := range []struct {
		name          string
		how           command
		before, after string
		err           error
		want          string
	}{
		{"cleared and said", clears, "", "Missing ':'", unix.EINVAL, "Missing ':'"},
		{"cleared, the same again", clears, "No task 5", "No task 5", unix.ESRCH, "No task 5"},
		{"two lines", clears, "", "No task 5\nError while processing task 5", unix.ESRCH, "No task 5; Error while processing task 5"},
		{"appended", appends, "No task 5", "No task 5\nOut of RMIDs", unix.EBUSY, "Out of RMIDs"},
		{"appended to nothing", appends, "", "Out of RMIDs", unix.EBUSY, "Out of RMIDs"},
		{"silent", appends, "No task 5", "No task 5", unix.EEXIST, ""},
		{"cleared by a newer kernel, the same again", appends, "Out of RMIDs", "Out of RMIDs", unix.EBUSY, "Out of RMIDs"},
		{"cleared by a newer kernel", appends, "No task 5", "Out of RMIDs", unix.EBUSY, "Out of RMIDs"},
		{"the buffer is full", appends, long, long, unix.EBUSY, ""},
		{"silent after all", clears, "", "", unix.EINVAL, ""},
		{"blanks at the end", clears, "", "Non-hex character in the mask ", unix.EINVAL, "Non-hex character in the mask"},
	} {
		if got := freshStatus(c.how, c.before, c.after, c.err); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if parseStatus("ok\n") != "" || parseStatus("a\nb\n") != "a\nb" {
		t.Error("parseStatus")
	}
}

func TestError(t *testing.T) {
	e := &Error{
		Op: "mkdir", Path: "/sys/fs/resctrl/x", Status: "Out of RMIDs", Kind: ErrLimbo,
		Err: &fs.PathError{Op: "mkdir", Path: "/sys/fs/resctrl/x", Err: unix.EBUSY},
	}
	want := `resctrl: mkdir /sys/fs/resctrl/x: the free RMIDs are in limbo: device or resource busy: kernel says "Out of RMIDs"`
	if e.Error() != want || !errors.Is(e, unix.EBUSY) || !errors.Is(e, ErrLimbo) || errors.Is(e, ErrExhausted) {
		t.Errorf("%v", e)
	}
	e = &Error{Op: "write", Path: "/p", Text: "L3:0=5\n", Err: errors.New("x")}
	if e.Error() != `resctrl: write /p "L3:0=5\n": x` {
		t.Errorf("%v", e)
	}
	if len(clip(strings.Repeat("x", 1000))) > 130 {
		t.Error("clip")
	}
}

func TestCountBudget(t *testing.T) {
	info := &Info{
		Caches:     []Cache{{Resource: L3, NumCLOSIDs: 16, IOAlloc: "enabled"}},
		Bandwidths: []Bandwidth{{Resource: MB, NumCLOSIDs: 8}},
		Monitoring: &Monitoring{NumRMIDs: 32},
	}
	b := countBudget(info, []user{
		{}, {ours: true}, {ours: true, mon: true}, {}, {mon: true}, {mode: PseudoLocked}, {mode: PseudoLockSetup}, {mode: Exclusive},
	})
	if want := (Pool{Known: true, Total: 8, Ours: 1, Others: 5}); b.CLOSIDs != want {
		t.Errorf("CLOSIDs %+v, want %+v", b.CLOSIDs, want)
	}
	if want := (Pool{Known: true, Total: 32, Ours: 2, Others: 4}); b.RMIDs != want {
		t.Errorf("RMIDs %+v, want %+v", b.RMIDs, want)
	}
	b.RMIDs.Limbo = 3
	if s := b.RMIDs.String(); s != "26 of 32 free (2 ours, 4 others'), up to 3 of them in limbo" {
		t.Error(s)
	}
	if n := (&Info{Caches: []Cache{{NumCLOSIDs: 128}}}).NumCLOSIDs(); n != maxCLOSIDs {
		t.Errorf("%d CLOSIDs of 128", n)
	}
	monOnly := countBudget(&Info{Monitoring: &Monitoring{NumRMIDs: 8}}, []user{{}, {mon: true}})
	if monOnly.CLOSIDs.Known || monOnly.RMIDs.Free() != 6 {
		t.Errorf("%+v", monOnly)
	}
	wantError(t, "a control group where nothing is controlled", monOnly.allows(false, Options{}), "", ErrUnsupported)
	if err := monOnly.allows(true, Options{ReserveCLOSIDs: 5, ReserveRMIDs: 5}); err != nil {
		t.Error(err)
	}
	wantError(t, "the reserve", monOnly.allows(true, Options{ReserveRMIDs: 6}), "6 kept for others", ErrExhausted)
	ctrlOnly := countBudget(&Info{Caches: []Cache{{NumCLOSIDs: 4}}}, []user{{}})
	wantError(t, "a monitoring group where nothing is monitored", ctrlOnly.allows(true, Options{}), "", ErrUnsupported)
	if err := ctrlOnly.allows(false, Options{ReserveRMIDs: 5}); err != nil {
		t.Error(err)
	}
	wantError(t, "the last CLOSID", ctrlOnly.allows(false, Options{ReserveCLOSIDs: 3}), "3 of 4 free", ErrExhausted)
}

func TestLimboMemory(t *testing.T) {
	var d Driver
	at := time.Unix(1000, 0)
	check := func(after time.Duration, free, want int) {
		t.Helper()
		if got := d.inLimbo(at.Add(after), free); got != want {
			t.Errorf("after %s: %d of %d in limbo, want %d", after, got, free, want)
		}
	}
	check(0, 5, 0)
	d.noteFreed(at, 2)
	d.noteFreed(at.Add(300*time.Millisecond), 1)
	check(400*time.Millisecond, 5, 3)
	check(400*time.Millisecond, 2, 2)
	check(1200*time.Millisecond, 5, 1)
	check(1300*time.Millisecond, 5, 0)
	d.noteLimbo(at.Add(2*time.Second), true) // a creation met EBUSY: all of them
	check(2500*time.Millisecond, 5, 5)
	check(3*time.Second, 5, 0)
	d.noteLimbo(at.Add(4*time.Second), true)
	d.noteLimbo(at.Add(4*time.Second), false)
	check(4*time.Second, 5, 0)
}
