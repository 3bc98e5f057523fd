package numa

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
)

// TestKernelHuge: transparent huge pages move whole, and the share holds to half of one:
// recognised by page flags, and to a whole one when measured without them.
func TestKernelHuge(t *testing.T) {
	root, a, b := twoNodes(t)
	for _, blind := range []bool{false, true} {
		c := spawn(t, "", childSpec{Pages: 10 * 512, Node: a, Huge: true})
		if n := hugeBytes(t, c); n < 10*fakeHugeSize*9/10 {
			t.Skipf("the kernel gave %d bytes in huge pages; transparent_hugepage is never, or memory is fragmented", n)
		}
		m := newMover(t, root, MoverConfig{MaxPages: 2048})
		m.blind = m.blind || blind
		if blind != m.blind {
			t.Error("page flags cannot be read, as root")
		}
		for _, percent := range []uint64{30, 0} {
			states, _ := move(t, m, Target{PID: c.pid, Shares: shares(a, b, percent)})
			s := states[0]
			want := apportion(s.After.Total(), shares(a, b, percent))
			got, _ := s.After.Get(b)
			wanted, _ := want.Get(b)
			if off := int64(got) - int64(wanted); s.Status != Settled || off > 512 || off < -512 || (!blind && (off > 256 || off < -256)) {
				t.Errorf("blind %v, %d %%: %+v, want %v", blind, percent, s, want)
			}
			region, _ := nodesOf(t, c, c.Anon, 10*512)
			if n, _ := region.Get(b); percent > 0 && (n < 2*512 || n > 4*512) || percent == 0 && n > 512 || n%512 != 0 {
				t.Errorf("blind %v, %d %%: of 10 huge pages %v", blind, percent, region)
			}
		}
		if n := hugeBytes(t, c); n < 10*fakeHugeSize*8/10 {
			t.Errorf("blind %v: huge pages were split: %d bytes are left", blind, n)
		}
		intact(t, c)
		c.end()
	}
}

// TestKernelMediumPages: large pages of other sizes than the huge one (Linux 6.8) move
// whole, too: the share holds to half of one, and none is torn.
func TestKernelMediumPages(t *testing.T) {
	root, a, b := twoNodes(t)
	rigtest.Only(t, "it makes all processes use 64 KiB pages")
	const dir = "/sys/kernel/mm/transparent_hugepage/"
	pages := 64 << 10 / os.Getpagesize()
	if _, err := os.Stat(dir + "hugepages-64kB"); errors.Is(err, os.ErrNotExist) {
		pages = 1 // this kernel has only the huge ones: without them, small pages
	}
	for name, value := range map[string]string{"enabled": "never", "hugepages-64kB/enabled": "always", "hugepages-2048kB/enabled": "never"} {
		if pages > 1 || name == "enabled" {
			setWord(t, dir+name, value)
		}
	}
	c := spawn(t, "", childSpec{Pages: 2048, Node: a, Huge: true})
	m := newMover(t, root, MoverConfig{MaxPages: 512})
	for _, percent := range []uint64{10, 35, 0} {
		states, _ := move(t, m, Target{PID: c.pid, Shares: shares(a, b, percent)})
		want := apportion(states[0].After.Total(), shares(a, b, percent))
		got, _ := states[0].After.Get(b)
		wanted, _ := want.Get(b)
		if off := int64(got) - int64(wanted); off > int64(pages/2) || off < -int64(pages/2) {
			t.Errorf("%d %%: %+v, want %v", percent, states[0], want)
		}
		nodes, _ := nodesAt(t, c, c.Anon, c.spec.Pages)
		for part := range slices.Chunk(nodes, pages) {
			if slices.Min(part) != slices.Max(part) {
				t.Errorf("%d %%: a page of %d was torn: %v", percent, pages, part)
			}
		}
	}
	intact(t, c)
	t.Logf("pages of %d small ones", pages)
}

// setWord writes a setting of the form "always [madvise] never" and puts it back.
func setWord(t *testing.T, file, value string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, old, _ := strings.Cut(string(data), "[")
	old, _, ok := strings.Cut(old, "]")
	if !ok {
		t.Fatalf("%s: %q", file, data)
	}
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, []byte(old), 0); err != nil {
			t.Error(err)
		}
	})
}

// hugeBytes returns how much of a child's region is mapped by huge pages.
func hugeBytes(t *testing.T, c *child) uint64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kb uint64
		if n, _ := fmt.Sscanf(line, "AnonHugePages: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}
