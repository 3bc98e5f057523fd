package source

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tell says all that this package says of a path, as the .want files write it.
func tell(path string) string {
	var said []string
	if id, ok := Identify(path); ok {
		text := ""
		if id.ID != "" {
			text = "container " + strings.TrimPrefix(string(id.Runtime)+" ", " ") + id.ID
		}
		if id.Pod != "" {
			pod := fmt.Sprintf("pod %s %s", id.QoS, id.Pod)
			if text != "" {
				pod = text + " in " + pod
			}
			text = pod
		}
		said = append(said, text)
	}
	if name, slice, ok := UnitOf(path); ok {
		said = append(said, "unit "+name+" in "+slice)
	}
	return strings.Join(said, "; ")
}

func trees(t testing.TB) map[string]*Tree {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no trees: %v", err)
	}
	found := map[string]*Tree{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := ParseTree(f)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found[name] = tree
	}
	return found
}

// TestTrees: of each host's tree exactly what is written beside it is known.
func TestTrees(t *testing.T) {
	readme, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, tree := range trees(t) {
		text, err := os.ReadFile(strings.TrimSuffix(name, ".txt") + ".want")
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for line := range strings.Lines(string(text)) {
			path, what, _ := strings.Cut(strings.TrimSpace(line), "\t")
			want[path] = what
		}
		got := map[string]string{}
		for _, p := range tree.Paths {
			if s := tell(p); s != "" {
				got[p] = s
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if v1 := strings.Contains(name, "-v1"); v1 != tree.V1 {
			t.Errorf("%s: V1 is %v", name, tree.V1)
		}
		if base := strings.TrimSuffix(filepath.Base(name), ".txt"); !strings.Contains(string(readme), "`"+base+"`") {
			t.Errorf("%s is not in testdata/README.md", base)
		}
	}
}

// TestOutermost: inside a container nothing is known, and inside a pod only its containers.
func TestOutermost(t *testing.T) {
	for name, tree := range trees(t) {
		ids := map[string]Identity{}
		for _, p := range tree.Paths {
			if id, ok := Identify(p); ok {
				ids[p] = id
			}
		}
		for _, p := range slices.Sorted(maps.Keys(ids)) {
			for q, outer := range ids {
				if strings.HasPrefix(p, q+"/") && (!outer.IsPod() || ids[p].IsPod() || ids[p].Pod != outer.Pod) {
					t.Errorf("%s: %s (%s) inside %s (%s)", name, p, ids[p], q, outer)
				}
			}
		}
	}
}

func TestUnitChecks(t *testing.T) {
	for _, c := range []struct {
		unit      Unit
		key, want string
	}{
		{Unit{Name: "nginx.service"}, "", ""}, {Unit{Name: "worker@*.service", Slice: "system-worker.slice"}, "", ""},
		{Unit{Name: `foo\x2dbar.service`}, "", ""}, {Unit{Name: "x.service", Slice: "-.slice"}, "", ""},
		{Unit{Name: "nginx"}, "unit", "full name"}, {Unit{Name: ".service"}, "unit", "full name"}, {Unit{Name: "dbus.socket"}, "unit", "ending in"},
		{Unit{Name: "a/b.service"}, "unit", "no unit's name has"}, {Unit{Name: "-.slice"}, "unit", "whole machine"},
		{Unit{Name: strings.Repeat("a", 255) + ".service"}, "unit", "no unit's name has"},
		{Unit{Name: "a.service", Slice: "batch"}, "slice", "full name"}, {Unit{Name: "a.service", Slice: "a--b.slice"}, "slice", "full name"},
		{Unit{Name: "a.service", Slice: "b*.slice"}, "slice", "full name"}, {Unit{Name: "a.slice", Slice: "b.slice"}, "slice", "own name"},
	} {
		key, why := c.unit.Check()
		if key != c.key || !strings.Contains(why, c.want) || (c.want == "") != (why == "") {
			t.Errorf("%+v: %q, %q; want %q, %q", c.unit, key, why, c.key, c.want)
		}
	}
}

func TestUnitMatches(t *testing.T) {
	for _, c := range []struct {
		unit Unit
		path string
		want bool
	}{
		{Unit{Name: "nginx.service"}, "/system.slice/nginx.service", true},
		{Unit{Name: "nginx.service"}, "/web.slice/nginx.service", true},
		{Unit{Name: "nginx.service", Slice: "system.slice"}, "/web.slice/nginx.service", false},
		{Unit{Name: "nginx.service"}, "/system.slice/nginx.service/worker", false},
		{Unit{Name: "nginx.service"}, "/user.slice/user-1.slice/user@1.service/app.slice/nginx.service", false},
		{Unit{Name: "nginx.service"}, "/docker/" + strings.Repeat("a", 64) + "/system.slice/nginx.service", false},
		{Unit{Name: "batch-*.slice"}, "/batch.slice/batch-a.slice", true},
		{Unit{Name: "batch-*.slice"}, "/batch-a.slice", false},
		{Unit{Name: "batch.slice"}, "/batch.slice", true},
		{Unit{Name: "batch.slice"}, "/batch.slice/a.service", false},
		{Unit{Name: "x.service", Slice: "-.slice"}, "/x.service", true},
		{Unit{Name: "cpu.service"}, "/system.slice/_cpu.service", true},
		{Unit{Name: "*.service"}, "/", false}, {Unit{Name: "*.service"}, "a.service", false}, {Unit{Name: "*.service"}, "", false},
	} {
		if got := c.unit.Matches(c.path); got != c.want {
			t.Errorf("%+v of %s: %v", c.unit, c.path, got)
		}
	}
}

func TestSlicePath(t *testing.T) {
	for name, want := range map[string]string{
		"a-b-c.slice": "a.slice/a-b.slice/a-b-c.slice", "a.slice": "a.slice", "cpu.slice": "_cpu.slice",
		"-.slice": "", "a--b.slice": "", "a-.slice": "", "-a.slice": "", ".slice": "",
	} {
		if got := strings.Join(SlicePath(name), "/"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestSourceChecks(t *testing.T) {
	for _, c := range []struct {
		check interface{ Check() (string, string) }
		key   string
	}{
		{&Containers{}, ""}, {&Containers{Runtime: Docker, ID: "0a"}, ""}, {&Containers{Runtime: "rkt"}, "runtime"},
		{&Containers{ID: "XY"}, "id"}, {&Containers{ID: strings.Repeat("a", 65)}, "id"},
		{&Pods{Level: Pod}, ""}, {&Pods{Level: Container, QoS: BestEffort, UID: "7a1b-c"}, ""},
		{&Pods{Level: Pod, QoS: "best-effort"}, "qos"}, {&Pods{Level: Pod, Namespace: "prod", Name: "web-*"}, ""},
		{&Pods{Level: Pod, Namespace: "a_b"}, "namespace"}, {&Pods{Level: Pod, Name: "Web"}, "name"}, {&Pods{Level: "node"}, "level"}, {&Pods{Level: Pod, UID: "a_b"}, "uid"},
	} {
		if key, why := c.check.Check(); key != c.key || (why == "") != (key == "") {
			t.Errorf("%+v: %q, %q; want %q", c.check, key, why, c.key)
		}
	}
}

func FuzzIdentify(f *testing.F) {
	for _, tree := range trees(f) {
		for _, p := range tree.Paths {
			f.Add(p)
		}
	}
	f.Fuzz(func(t *testing.T, path string) {
		id, ok := Identify(path)
		if !ok {
			return
		}
		if id.ID == "" && id.Pod == "" || id.ID != "" && !isID(id.ID) || (id.Pod == "") != (id.QoS == AnyQoS) {
			t.Fatalf("%q: %+v", path, id)
		}
		if key, why := (&Pods{QoS: id.QoS, UID: id.Pod, Level: Pod}).Check(); why != "" {
			t.Fatalf("%q: %+v: a rule cannot name it: %s %s", path, id, key, why)
		}
		// What lies inside is no second container, and no pod.
		for _, below := range []string{"/x", "/docker-" + strings.Repeat("a", 64) + ".scope", "/kubepods/pod1", "/" + strings.Repeat("b", 64)} {
			inner, ok := Identify(path + below)
			if ok && (!id.IsPod() || inner.IsPod() || inner.Pod != id.Pod) {
				t.Fatalf("%q is %+v, and %s in it %+v", path, id, below, inner)
			}
		}
	})
}

func FuzzUnitOf(f *testing.F) {
	f.Add("/system.slice/nginx.service")
	f.Add(`/system.slice/system-serial\x2dgetty.slice/serial-getty@ttyS0.service`)
	f.Add("/a.slice/a-b.slice")
	f.Add("/ .slice/0.service")
	f.Fuzz(func(t *testing.T, path string) {
		name, slice, ok := UnitOf(path)
		if !ok {
			return
		}
		u := Unit{Name: name}
		if !strings.HasSuffix(name, ".slice") {
			u.Slice = slice
		}
		if key, why := u.Check(); why != "" {
			t.Fatalf("%q: unit %q in %q cannot be named: %s %s", path, name, slice, key, why)
		}
		if !u.Matches(path) {
			t.Fatalf("%q: unit %q in %q does not match", path, name, slice)
		}
		if below := "/" + strings.Join(SlicePath(slice), "/"); slice != rootSlice && !strings.HasPrefix(strings.ReplaceAll(path, "/_", "/"), strings.ReplaceAll(below, "/_", "/")+"/") {
			t.Fatalf("%q: slice %q should lie at %s", path, slice, below)
		}
	})
}
