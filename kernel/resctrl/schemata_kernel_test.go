package resctrl

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestKernelSchemataRefusals holds every refusal of a write to schemata that can be had
// without pseudo-locking against errno and words, and what the driver makes of them. The
// order matters for the rows that leave the words of an earlier row standing.
func TestKernelSchemataRefusals(t *testing.T) {
	d := mounted(t, MountOptions{})
	g := ctrlGroup(t, d, "a")
	before := must[Schemata](t)(d.ReadSchemata(g.Name))
	fullMask := must[*Info](t)(d.Info()).Cache(L3).FullMask
	for _, c := range []struct{ text, status string }{
		{"L3\n", "Missing ':'"},
		{"\n", "Missing ':'"},
		{"L3:\n", "Missing 'L3' value"},
		{"L4:0=3\n", "Unknown or unsupported resource name 'L4'"},
		{"L3:x=3\n", "Missing '=' or non-numeric domain"},
		{"L3:0\n", "Missing '=' or non-numeric domain"},
		{"L3: 0=3\n", "Missing '=' or non-numeric domain"}, // a blank where the table has some
		{"L3:7=3\n", ""},                                   // not a word about a domain that is not there
		{"MB:7=20\n", ""},
		{"L3:0=3;0=7\n", "Duplicate domain 0"},
		{"L3:0=3\nL3:0=3\n", "Duplicate domain 0"},
		{"MB:0=20;0=30\n", "Duplicate domain 0"},
		{"L3:0=zz\n", "Non-hex character in the mask zz"},
		{"L3:0=\n", "Non-hex character in the mask"},
		{"L3:0=0\n", "Mask out of range"},
		{fmt.Sprintf("L3:0=%x\n", uint64(fullMask)+1), "Mask out of range"},
		{"L3:0=5\n", "The mask 5 has non-consecutive 1-bits"},
		{"MB:0=x\n", "Invalid MB value x"},
		{"MB:0=-1\n", "Invalid MB value -1"},
		{"MB:0=9\n", "MB value 9 out of range [10,100]"},
		{"MB:0=101\n", "MB value 101 out of range [10,100]"},
		{"L3:0=3\nMB:0=101\n", "MB value 101 out of range [10,100]"}, // and the first line is not kept
	} {
		err := d.writeSchemata(g.Name, c.text)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, unix.EINVAL) || e.Status != c.status || e.Kind != nil {
			t.Errorf("write %q: %v, want EINVAL and status %q", c.text, err, c.status)
		}
	}
	// Without a newline nothing is looked at, and what stands in the status is older.
	_ = d.writeSchemata(g.Name, "L4:0=3\n")
	err := d.writeSchemata(g.Name, "L3:0=3")
	wantError(t, "no newline", err, "", unix.EINVAL)
	if diff := cmp.Diff(before, must[Schemata](t)(d.ReadSchemata(g.Name))); diff != "" {
		t.Errorf("refused writes changed something (-before +after):\n%s", diff)
	}
	for _, text := range []string{"L3:0=3;\n", "L3:0=0x7;1= 7\n", "L3:0=3;1=3\nMB:0=20\n"} {
		if err := d.writeSchemata(g.Name, text); err != nil {
			t.Errorf("write %q: %v", text, err)
		}
	}
	if err := d.rmdir(g.Name); err != nil {
		t.Fatal(err)
	}
	err = d.writeSchemata(g.Name, "L3:0=3\n")
	wantError(t, "group is gone", err, "", ErrVanished, unix.ENOENT)
}

// rmdir removes a group as another tool would.
func (d *Driver) rmdir(n Name) error { return os.Remove(d.path(n)) }

// TestKernelWriteSchemata: one write of what differs, rounded as the kernel does, read
// back; what is wrong is refused as a whole; only our groups.
func TestKernelWriteSchemata(t *testing.T) {
	d := mounted(t, MountOptions{})
	g := ctrlGroup(t, d, "be")
	cache, domains := full(t, d)
	if !slices.Equal(domains, []int{0, 1}) {
		t.Fatalf("domains %v", domains)
	}
	two := must[Mask](t)(cache.ContiguousMask(2, cache.ShareableBits, LowWays))
	var want Schemata
	for _, dom := range domains {
		want.Set(L3, dom, uint64(two))
		want.Set(MB, dom, 33)
	}
	c, err := d.WriteSchemata(g.Identity, want)
	if err != nil || c.Written != "L3:0=3;1=3\nMB:0=33;1=33\n" || c.Missing != nil {
		t.Fatalf("write: %+v, %v", c, err)
	}
	expect := Schemata{
		{Resource: MB, Domains: []Value{{0, 40}, {1, 40}}}, // the next step up
		{Resource: L3, Domains: []Value{{0, 3}, {1, 3}}},
	}
	if diff := cmp.Diff(expect, c.Now); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(g.Schemata, c.Found); diff != "" {
		t.Errorf("found (-as made +found):\n%s", diff)
	}
	if c, err = d.WriteSchemata(g.Identity, want); err != nil || c.Written != "" {
		t.Errorf("the same again: %+v, %v", c, err)
	}
	want.Set(MB, 1, 50)
	if c, err = d.WriteSchemata(g.Identity, want); err != nil || c.Written != "MB:1=50\n" {
		t.Errorf("one value: %+v, %v", c, err)
	}
	// What the kernel shows can be written as it stands.
	if c, err = d.WriteSchemata(g.Identity, c.Found); err != nil || c.Written != "MB:1=40\n" {
		t.Errorf("put back: %+v, %v", c, err)
	}
	var bad Schemata
	bad.Set(L3, 0, 0x7)
	bad.Set(MB, 0, 5)
	c, err = d.WriteSchemata(g.Identity, bad)
	wantError(t, "one bad value", err, `kernel says "MB value 5 out of range [10,100]"`, unix.EINVAL)
	if diff := cmp.Diff(c.Found, c.Now); diff != "" {
		t.Errorf("a refused write changed something:\n%s", diff)
	}
	bad = nil
	bad.Set(L3, 0, 0)
	_, err = d.WriteSchemata(g.Identity, bad)
	wantError(t, "no ways", err, "Mask out of range", unix.EINVAL)

	root := must[Identity](t)(d.Root())
	_, err = d.WriteSchemata(root, want)
	wantError(t, "the root group", err, "", ErrForeign)
	theirs := stranger(t, d, Name{Ctrl: "COS1"})
	_, err = d.WriteSchemata(theirs, want)
	wantError(t, "another's group", err, "", ErrForeign)
	m := monGroup(t, d, g.Name, "m")
	_, err = d.WriteSchemata(m.Identity, want)
	wantError(t, "a monitoring group", err, "", ErrUnsupported)
}

// TestKernelExclusive: another tool's exclusive ways are seen, avoided, and refused by
// the kernel to whoever asks for them; ours cannot become exclusive while the root group
// shares them.
func TestKernelExclusive(t *testing.T) {
	d := mounted(t, MountOptions{})
	ours := ctrlGroup(t, d, "be")
	wantError(t, "exclusive beside the root group", d.WriteMode(ours.Identity, Exclusive), `kernel says "Schemata overlaps"`, unix.EINVAL)
	wantError(t, "pseudo-lock", d.WriteMode(ours.Identity, PseudoLocked), "", unix.EINVAL)
	if err := d.WriteMode(ours.Identity, Shareable); err != nil {
		t.Errorf("shareable as it is: %v", err)
	}
	wantError(t, "pseudo-lock, asked of the kernel", d.rawMode(ours.Name, "pseudo-locksetup\n"), "Pseudo-locking not supported", unix.EINVAL)
	wantError(t, "unknown mode", d.rawMode(ours.Name, "foo\n"), "Unknown or unsupported mode", unix.EINVAL)

	// An operator gives the low ways to one group alone.
	cache, _ := full(t, d)
	rest := cache.FullMask &^ 0xf
	theirs := stranger(t, d, Name{Ctrl: "critical"})
	put(t, d.path(Name{})+"/schemata", fmt.Sprintf("L3:0=%s;1=%s\n", rest, rest))
	put(t, d.path(ours.Name)+"/schemata", fmt.Sprintf("L3:0=%s;1=%s\n", rest, rest))
	put(t, d.path(theirs.Name)+"/schemata", "L3:0=f;1=f\n")
	put(t, d.path(theirs.Name)+"/mode", "exclusive\n")

	groups := must[[]Group](t)(d.Groups(ListOptions{}))
	if diff := cmp.Diff([]string{"/", "/commensal-be", "/critical"}, names(groups)); diff != "" {
		t.Errorf("groups: %s", diff)
	}
	taken := TakenBits(groups, L3, func(g Group) bool { return g.Ours })
	if want := map[int]Mask{0: 0xf, 1: 0xf}; !cmp.Equal(taken, want) {
		t.Errorf("taken = %v", taken)
	}
	if u := must[*Info](t)(d.Info()).Cache(L3).Usage; len(u) != 2 || u[0].Exclusive != 0xf || u[1].Exclusive != 0xf {
		t.Errorf("bit_usage = %+v", u)
	}
	var bad, good Schemata
	bad.Set(L3, 0, 0x18)
	c, err := d.WriteSchemata(ours.Identity, bad)
	wantError(t, "their way", err, `kernel says "Overlaps with exclusive group"`, unix.EINVAL)
	if v, _ := c.Now.Get(L3, 0); Mask(v) != rest {
		t.Errorf("after the refusal: %x", v)
	}
	mask := must[Mask](t)(cache.ContiguousMask(2, taken[0], LowWays))
	if mask != 0x30 {
		t.Errorf("two ways beside %s: %s", taken[0], mask)
	}
	good.Set(L3, 0, uint64(mask))
	if _, err := d.WriteSchemata(ours.Identity, good); err != nil {
		t.Error(err)
	}
	if again := ctrlGroup(t, d, "new"); len(again.Schemata.Differences(ours.Schemata)) == 0 {
		t.Errorf("a new group got their ways: %s", again.Schemata)
	}
	// Their group that grows into others' ways is refused too, by the kernel.
	err = d.writeSchemata(theirs.Name, "L3:0=1f\n")
	wantError(t, "exclusive group grows", err, "Overlaps with other group", unix.EINVAL)
}

func (d *Driver) rawMode(n Name, text string) error {
	path := d.path(n) + "/" + modeFile
	return d.change(clears, "write", path, text, func() error { return d.fs.WriteFile(path, []byte(text)) })
}

// TestKernelStaleStatus: what mkdir and cpus_list say is told apart from what an earlier
// command left, up to the point where the kernel's buffer is full.
func TestKernelStaleStatus(t *testing.T) {
	d := mounted(t, MountOptions{})
	a := ctrlGroup(t, d, "a")
	wantError(t, "a task that is not there", rawWrite(d.path(a.Name)+"/tasks", "999999\n"), "", unix.ESRCH)
	left := d.status()
	if !strings.Contains(left, "No task 999999") {
		t.Fatalf("status = %q", left)
	}
	// A success does not clear it either.
	stranger(t, d, Name{Ctrl: "theirs"})
	if got := d.status(); got != left {
		t.Errorf("status after mkdir = %q", got)
	}
	_, err := d.CreateGroup("a", 0)
	var e *Error
	if !errors.As(err, &e) || e.Status != "" {
		t.Errorf("mkdir of what is there: %v", err)
	}
	err = d.WriteCPUs(a.Identity, []int{9})
	if !errors.As(err, &e) || e.Status == "" || strings.Contains(e.Status, "No task") {
		t.Errorf("offline CPU: %v", err)
	}
	first := e.Status
	// Now until the buffer is full: no later refusal may be explained by older words.
	for range 40 {
		err = d.WriteCPUs(a.Identity, []int{9})
		if !errors.As(err, &e) || e.Status != first && e.Status != "" {
			t.Fatalf("offline CPU: %v, want %q or nothing", err, first)
		}
	}
	if e.Status != "" || len(d.status()) < statusFull {
		t.Errorf("the buffer is not full: %q, %d bytes", e.Status, len(d.status()))
	}
	// A command that clears makes room again.
	if err := d.WriteMode(a.Identity, Shareable); err != nil {
		t.Error(err)
	}
	err = d.WriteCPUs(a.Identity, []int{9})
	if !errors.As(err, &e) || e.Status != first {
		t.Errorf("offline CPU: %v, want %q", err, first)
	}
}
