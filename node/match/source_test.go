package match

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/node/source"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func path(glob string) Rule        { return Rule{Glob: glob} }
func unit(name, slice string) Rule { return Rule{Unit: &source.Unit{Name: name, Slice: slice}} }
func box(c source.Containers) Rule { return Rule{Containers: &c} }
func pods(q source.QoS, uid string) Rule {
	return Rule{Pods: &source.Pods{QoS: q, UID: uid, Level: source.Pod}}
}
func inPods(q source.QoS) Rule { return Rule{Pods: &source.Pods{QoS: q, Level: source.Container}} }

func named(namespace, name string) Rule {
	return Rule{Pods: &source.Pods{Namespace: namespace, Name: name, Level: source.Pod}}
}

// TestOverlapOfSources: what is refused before any cgroup exists, and what is not.
func TestOverlapOfSources(t *testing.T) {
	docker, anyBox := box(source.Containers{Runtime: source.Docker}), box(source.Containers{})
	const once, inside = "one cgroup could match both", "inside"
	for _, c := range []struct {
		a, b Rule
		want string
	}{
		// Units.
		{unit("nginx.service", ""), unit("redis.service", ""), ""},
		{unit("nginx.service", ""), unit("n*.service", ""), once},
		{unit("nginx.service", ""), unit("*.scope", ""), ""},
		{unit("w@*.service", "a.slice"), unit("w@*.service", "b.slice"), ""},
		{unit("w@*.service", "a.slice"), unit("w@1.service", ""), once},
		{unit("nginx.service", ""), unit("system.slice", ""), inside},
		{unit("nginx.service", "web.slice"), unit("system.slice", ""), ""},
		{unit("nginx.service", ""), unit("batch.slice", ""), ""}, // only Slice= could put it there
		{unit("w@1.service", ""), unit("system-w.slice", ""), inside},
		{unit("batch-a.slice", ""), unit("batch.slice", ""), inside},
		{unit("user@1000.service", ""), unit("user-1000.slice", ""), inside},
		{unit("user@1000.service", "user-1000.slice"), unit("user-1000.slice", ""), inside},
		{unit("session-1.scope", ""), unit("user.slice", ""), inside},
		// Units and globs.
		{path("/system.slice/*"), unit("nginx.service", ""), once},
		{path("/batch.slice/*.service"), unit("nginx.service", ""), once},
		{path("/batch.slice/*.service"), unit("nginx.service", "system.slice"), ""},
		{path("/batch/*"), unit("nginx.service", ""), ""},
		{path("/a.slice/b.slice/*"), unit("nginx.service", ""), ""}, // no slice lies there
		{path("/a.slice/a-b.slice/*"), unit("nginx.service", ""), once},
		{path("/system.slice"), unit("nginx.service", ""), inside},
		{path("/system.slice/nginx.service/worker"), unit("nginx.service", ""), inside},
		{path("/batch.slice"), unit("batch.slice", ""), once},
		{path("/a.slice/_*"), unit("*.service", "a.slice"), once},
		// Containers.
		{docker, box(source.Containers{Runtime: source.Podman}), ""},
		{docker, anyBox, once},
		{box(source.Containers{ID: "0a"}), box(source.Containers{ID: "0b"}), ""},
		{box(source.Containers{ID: "0a"}), box(source.Containers{ID: "0"}), once},
		{box(source.Containers{Parent: "/a"}), box(source.Containers{Parent: "/b"}), ""},
		{box(source.Containers{Parent: "/a/*"}), box(source.Containers{Parent: "/*/b"}), once},
		{box(source.Containers{Parent: "/actions_job"}), docker, ""},
		{box(source.Containers{Parent: "/ecs/*"}), docker, once}, // /ecs/x.slice/docker-ID.scope
		{box(source.Containers{Parent: "/docker"}), docker, once},
		{box(source.Containers{Parent: "/batch.slice"}), docker, once},
		{box(source.Containers{Parent: "/batch.slice", Runtime: source.Podman}), docker, ""},
		{path("/docker/*"), docker, once},
		{path("/docker/*/x"), docker, inside},
		{path("/docker"), docker, inside},
		{path("/batch/*"), docker, ""},
		{path("/batch/*"), anyBox, once},
		{path("/batch/job-*"), anyBox, ""},
		{path("/batch.slice/*"), docker, once},
		{path("/batch.slice/*.service"), docker, ""},
		{path("/actions"), box(source.Containers{Parent: "/actions"}), inside},
		{unit("docker-*.scope", ""), docker, once},
		{unit("*.service", ""), docker, ""},
		{unit("system.slice", ""), docker, inside},
		{unit("batch.slice", ""), docker, ""}, // only --cgroup-parent could
		{unit("machine.slice", ""), box(source.Containers{Runtime: source.Podman}), inside},
		// Pods.
		{pods(source.BestEffort, ""), pods(source.Guaranteed, ""), ""},
		{pods(source.BestEffort, ""), pods(source.AnyQoS, ""), once},
		{pods(source.AnyQoS, "a"), pods(source.AnyQoS, "b"), ""},
		{pods(source.BestEffort, ""), inPods(source.BestEffort), inside},
		{pods(source.BestEffort, ""), inPods(source.Burstable), ""},
		{named("prod", "web-*"), named("prod", "db-*"), ""},
		{named("prod", "web-*"), named("", "web-1"), once},
		{named("prod", ""), named("test", ""), ""},
		{named("prod", ""), pods(source.BestEffort, ""), once},
		{named("prod", ""), inPods(source.BestEffort), inside},
		{pods(source.AnyQoS, ""), anyBox, ""},
		{inPods(source.AnyQoS), anyBox, ""},
		{path("/kubepods/*"), pods(source.BestEffort, ""), inside},
		{path("/kubepods/*"), pods(source.Guaranteed, ""), once},
		{path("/kubepods/burstable/*"), pods(source.BestEffort, ""), ""},
		{path("/kubepods.slice/kubepods-besteffort.slice/*"), pods(source.BestEffort, ""), once},
		{path("/x/y/kubepods/besteffort/pod1"), pods(source.BestEffort, ""), once}, // a kubelet's --cgroup-root
		{unit("kubepods-besteffort.slice", ""), pods(source.BestEffort, ""), inside},
		{unit("kubepods-besteffort.slice", ""), pods(source.Burstable, ""), ""},
		{unit("kubepods-besteffort-pod*.slice", ""), pods(source.BestEffort, ""), once},
		{unit("*.slice", ""), pods(source.BestEffort, ""), once},
		{unit("cri-containerd-*.scope", ""), inPods(source.AnyQoS), once},
	} {
		for _, rules := range [][]Rule{{c.a, c.b}, {c.b, c.a}} {
			_, err := Compile(rules)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s and %s: error %v, want %q", &rules[0], &rules[1], err, c.want)
			}
		}
	}
}

func TestRuleErrorsNameTheirKey(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		key  string
	}{
		{Rule{}, "match"}, {path("x"), "match"}, {unit("nginx", ""), "unit"}, {unit("a.service", "b"), "slice"},
		{box(source.Containers{Runtime: "rkt"}), "container.runtime"}, {box(source.Containers{Parent: "x"}), "container.parent"},
		{pods("silver", ""), "pods.qos"}, {Rule{Pods: &source.Pods{}}, "pods.level"},
		{Rule{Glob: "/a", Pods: &source.Pods{Level: source.Pod}}, "match"},
	} {
		_, err := Compile([]Rule{path("/fine"), c.rule})
		var re *RuleError
		if !errors.As(err, &re) || re.Key != c.key || re.Rule != 1 {
			t.Errorf("%s: %v (%+v), want key %s", &c.rule, err, re, c.key)
		}
	}
}

func TestSelect(t *testing.T) {
	r, err := Compile([]Rule{
		{Unit: &source.Unit{Name: "nginx.service"}, Job: "web"},
		{Unit: &source.Unit{Name: "batch.slice"}, Job: "batch"},
		{Containers: &source.Containers{Runtime: source.Docker}, Job: "boxes"},
		{Pods: &source.Pods{QoS: source.BestEffort, Level: source.Pod}, Job: "pods"},
	})
	if err != nil {
		t.Fatal(err)
	}
	box := "/system.slice/docker-" + idA + ".scope"
	stray := "/batch.slice/docker-" + idB + ".scope"
	pod := "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice"
	paths := []string{
		stray, "/batch.slice/nginx.service", "/system.slice/nginx.service", box + "/system.slice/nginx.service", box, "/batch.slice/batch-a.slice",
		pod + "/cri-containerd-" + idA + ".scope", pod, "/batch.slice", "/system.slice", "/kubepods.slice/kubepods-besteffort.slice",
	}
	show := func(list []Match) (out []string) {
		for _, m := range list {
			out = append(out, strings.TrimSuffix(m.Path+" "+m.Rule.Job+" in "+m.Inside, " in "))
		}
		return out
	}
	wantTasks := []string{"/batch.slice batch", pod + " pods", box + " boxes", "/system.slice/nginx.service web"}
	wantNested := []string{stray + " boxes in /batch.slice", "/batch.slice/nginx.service web in /batch.slice"}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		sel := r.Select(paths, Host{})
		if diff := cmp.Diff(wantTasks, show(sel.Tasks)); diff != "" {
			t.Fatalf("tasks (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantNested, show(sel.Nested)); diff != "" {
			t.Fatalf("nested (-want +got):\n%s", diff)
		}
		rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	}
	// Slices in slices of one rule: the outermost is meant, and the rest not worth a word.
	wild, err := Compile([]Rule{{Unit: &source.Unit{Name: "batch*.slice"}, Job: "batch"}})
	if err != nil {
		t.Fatal(err)
	}
	if s := wild.Select(paths, Host{}); len(s.Tasks) != 1 || s.Tasks[0].Path != "/batch.slice" || len(s.Nested) != 0 {
		t.Errorf("slices in slices: %v, %v", show(s.Tasks), show(s.Nested))
	}
	// A cgroup that is made inside a task takes nothing away from it, whatever came first.
	if s := r.Select([]string{"/batch.slice"}, Host{}); len(s.Tasks) != 1 || len(s.Nested) != 0 {
		t.Errorf("half a tree: %+v", s)
	}
}

// allPaths are those of every captured tree, with variants put where somebody could.
func allPaths(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../source/testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no trees: %v", err)
	}
	var all []string
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := source.ParseTree(f)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range tree.Paths {
			all = append(all, p, "/a.slice"+p, "/a"+p, p[strings.LastIndexByte(p, '/'):], "/batch"+p[strings.LastIndexByte(p, '/'):])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// drawRule draws a rule near a path: one that matches it, or that could.
func drawRule(rng *rand.Rand, p string) Rule {
	vague := func(s string) string {
		if len(s) < 2 || rng.IntN(2) == 0 {
			return s
		}
		i := rng.IntN(len(s))
		j := i + rng.IntN(len(s)-i)
		return s[:i] + "*" + s[j:]
	}
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	id, _ := source.Identify(p)
	name, slice, _ := source.UnitOf(p)
	cut := strings.LastIndexByte(p, '/')
	switch rng.IntN(4) {
	case 0:
		if name != "" {
			return unit(vague(name), pick("", slice))
		}
	case 1:
		if id.ID != "" {
			return box(source.Containers{
				Runtime: source.Runtime(pick("", string(id.Runtime), "docker", "podman")), ID: id.ID[:rng.IntN(4)], Parent: pick("", p[:cut], vague(p[:cut])),
			})
		}
	case 2:
		return Rule{Pods: &source.Pods{
			Namespace: pick("", "", "prod", "p*"), Name: pick("", "", "web-1", "web-*"),
			QoS: source.QoS(pick("", string(id.QoS), "besteffort")), UID: pick("", id.Pod), Level: source.Level(pick("pod", "container")),
		}}
	}
	parts := strings.Split(p[1:], "/")
	for i := range parts {
		parts[i] = vague(parts[i])
	}
	return path("/" + strings.Join(parts, "/"))
}

// TestNothingIsClaimedTwice: of two rules that are let through side by side no path
// matches both, whatever was proved of their forms.
func TestNothingIsClaimedTwice(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	paths := allPaths(t)
	near := func() string { return paths[rng.IntN(len(paths))] }
	names := source.Names{}
	for i, p := range paths {
		if id, ok := source.Identify(p); ok && id.Pod != "" {
			names[id.Pod] = []source.PodName{{Namespace: "prod", Name: "web-1"}, {Namespace: "prod", Name: "db-1"}, {Namespace: "test", Name: "web-1"}}[i%3]
		}
	}
	through, refused := 0, 0
	for range 1500 {
		p := near()
		a, b := drawRule(rng, p), drawRule(rng, p)
		if rng.IntN(3) == 0 {
			b = drawRule(rng, near())
		}
		one, errA := Compile([]Rule{a})
		two, errB := Compile([]Rule{b})
		if errA != nil || errB != nil {
			continue
		}
		if _, err := Compile([]Rule{a, b}); err != nil {
			refused++
			continue
		}
		through++
		for _, p := range paths {
			if one.find(p, names) == 0 && two.find(p, names) == 0 {
				t.Fatalf("%s matches %s and %s, which were let through", p, &a, &b)
			}
		}
	}
	t.Logf("%d pairs let through, %d refused", through, refused)
	if through < 100 || refused < 100 {
		t.Error("one side was hardly tried")
	}
}

// TestNestedUsually: in the captured trees, where everything is where it is as a rule, two
// rules of one source each that are let through never nest.
func TestNestedUsually(t *testing.T) {
	paths := allPaths(t)
	var all []Rule
	for _, q := range source.Classes() {
		all = append(all, pods(q, ""), inPods(q))
	}
	for _, rt := range source.Runtimes() {
		all = append(all, box(source.Containers{Runtime: rt}))
	}
	for i := range all {
		for j := range i {
			r, err := Compile([]Rule{all[j], all[i]})
			if err != nil {
				continue
			}
			if nested := r.Select(paths, Host{}).Nested; len(nested) > 0 {
				t.Errorf("%s and %s: %s in %s", &all[j], &all[i], nested[0].Path, nested[0].Inside)
			}
		}
	}
}

// BenchmarkSelect is a discovery on a large Kubernetes node: 250 pods of 3 containers each.
func BenchmarkSelect(b *testing.B) {
	r, err := Compile([]Rule{pods(source.BestEffort, ""), pods(source.Guaranteed, ""), box(source.Containers{}), unit("nginx.service", "")})
	if err != nil {
		b.Fatal(err)
	}
	var paths []string
	for i := range 250 {
		pod := "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.Repeat("0", i%30+1) + strings.Repeat("1", i/30+1) + ".slice"
		paths = append(paths, pod)
		for j := range 3 {
			paths = append(paths, pod+"/cri-containerd-"+strings.Repeat("a", 63)+string("012"[j])+".scope")
		}
	}
	for b.Loop() {
		if tasks := r.Select(paths, Host{}).Tasks; len(tasks) != 250 {
			b.Fatal(len(tasks))
		}
	}
}
