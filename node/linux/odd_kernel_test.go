package linux

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// nest makes groups inside one another below path, with mkdir relative to the last, which no
// bound on the length of a path stops. They are removed at the end.
func (b *bed) nest(path, name string, deep int) {
	b.t.Helper()
	top := b.mounts.Unified
	if b.mounts.Layout != cgroup.LayoutV2 {
		top = b.mounts.V1[cgroup.CPU]
	}
	at, err := unix.Open(top+path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = unix.Close(at) })
	for range deep {
		parent := at
		if err := unix.Mkdirat(parent, name, 0o755); err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() {
			if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil {
				b.t.Error(err)
			}
		})
		if at, err = unix.Openat(parent, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			b.t.Fatal(err)
		}
		last := at
		b.t.Cleanup(func() { _ = unix.Close(last) })
	}
}

// A group whose path no system call takes hides nobody else: neither tasks that are known nor
// new ones, and not the task that it lies in. It is told once.
func TestAnOddCgroupBlindsNobody(t *testing.T) {
	for name, c := range map[string]struct {
		name string
		deep int
		why  string
	}{
		"path of 4,200 bytes": {strings.Repeat("x", 250), 17, "file name too long"},
		"40 groups deep":      {"x", 40, "nested more than 32 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "odd")
			known := b.mkdir("victim")
			b.open(false)
			b.observe(0)
			if w := b.h.Warnings(nil); len(w) != 0 {
				t.Skipf("this host has such groups already: %q", w)
			}
			b.nest(b.mkdir("be-odd"), c.name, c.deep)
			later := b.mkdir("victim-2")
			for range 3 {
				b.observe(0)
			}
			for _, path := range []string{known, later, b.root + "/be-odd"} {
				if s := b.sample(path); s.C[model.CountUsage].Outcome != model.OK {
					t.Errorf("%s: %+v", path, s)
				}
			}
			if w := b.h.Warnings(nil); len(w) != 1 || !strings.Contains(w[0], c.why) || len(w[0]) > 600 {
				t.Errorf("warnings %q, want one that says %q", w, c.why)
			}
			if n := strings.Count(b.logs.String(), "not all cgroups can be listed"); n != 1 {
				t.Errorf("told %d times:\n%s", n, b.logs.String())
			}
		})
	}
}

// Groups inside a task cost descriptors only where their throttling counts, and not without
// bound: whoever may make groups must not use up what the agent needs to put limits back.
func TestGroupsInsideATaskAreBounded(t *testing.T) {
	b := newBed(t, "inside")
	lc, be := b.mkdir("victim"), b.mkdir("be-many")
	b.open(false)
	b.observe(0)
	before := openFiles(t)
	const many = 100
	for i := range many {
		b.mkdir("be-many/" + strconv.Itoa(i))
	}
	for i := range 5 {
		b.mkdir("victim/" + strconv.Itoa(i))
	}
	b.observe(0)
	if n := openFiles(t) - before; n != 5 {
		t.Errorf("%d descriptors for 5 groups in an LC task and %d in a BE task, want 5", n, many)
	}
	if why := b.lacks(lc, LackNested); why != "" {
		t.Errorf("LC lacks %q", why)
	}
	for i := range many {
		b.mkdir("victim/more-" + strconv.Itoa(i))
	}
	b.observe(0)
	if n := openFiles(t) - before; n > 0 {
		t.Errorf("%d descriptors for %d groups in an LC task, want none", n, many+5)
	}
	if why := b.lacks(lc, LackNested); why == "" {
		t.Error("nobody is told that throttling inside of the LC task is not seen")
	}
	b.observe(0)
	for _, path := range []string{lc, be} {
		if c := b.sample(path).C[model.CountThrottled]; c.Outcome != model.OK {
			t.Errorf("%s: throttled %+v", path, c)
		}
	}
	if n := strings.Count(b.logs.String(), LackNested); n != 1 {
		t.Errorf("told %d times:\n%s", n, b.logs.String())
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
