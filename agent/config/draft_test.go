package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/source"
	"github.com/commensal-io/commensal/node/survey"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

const trees = "../../node/source/testdata"

// draftOf drafts a configuration of a list of cgroups, and holds it to what any draft must be:
// a good file that observes, claims each cgroup once and finds what it says.
func draftOf(t *testing.T, paths []string, names source.Names) []byte {
	t.Helper()
	rules, infra := survey.Guess(survey.Groups(paths, names))
	text := Draft(rules, "a test", infra)
	c, err := Parse("draft", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p := c.Params("cpu")
	if p.Mode != model.ModeObserve || p.CPU.CPUSetMode != model.ModeObserve || p.CPU.CPUPoolMode != model.ModeObserve || p.CPU.BurstMode != model.ModeObserve {
		t.Errorf("it does more than observe")
	}
	compiled, err := match.Compile(c.Rules())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, m := range compiled.Select(paths, match.Host{Names: names}).Tasks {
		found[m.Rule.String()]++
	}
	for _, r := range rules {
		if r.Guessed && found[r.Rule.String()] < r.Groups {
			t.Errorf("%s claims %d cgroups, meant %d", r.Rule.String(), found[r.Rule.String()], r.Groups)
		}
	}
	return text
}

// TestDraftOfEveryHost drafts from each tree of node/source's; its goldens are read by people.
func TestDraftOfEveryHost(t *testing.T) {
	files, err := filepath.Glob(trees + "/*.txt")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d trees: %v", len(files), err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		t.Run(name, func(t *testing.T) {
			in, err := os.Open(f)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close() //nolint:errcheck // read only
			tree, err := source.ParseTree(in)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "draft-"+name, draftOf(t, tree.Paths, nil))
		})
	}
}

// golden compares with a file of testdata, of which only the tasks: the head is alike in all.
func golden(t *testing.T, name string, text []byte) {
	t.Helper()
	_, got, ok := strings.Cut(string(text), "never touched.\n")
	if !ok {
		t.Fatalf("no head:\n%s", text)
	}
	file := filepath.Join("testdata", name+".yaml")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-want +got (go test -rewrite writes it anew):\n%s", d)
	}
}

// TestDraftOfNamedPods: where pods' names are known each workload is a job, and workloads of
// which one's name begins with another's are told apart.
func TestDraftOfNamedPods(t *testing.T) {
	var paths []string
	names := source.Names{}
	for i, p := range []struct{ qos, namespace, name string }{
		{"burstable", "shop", "web-6d4cf56db6-x2x9z"},
		{"burstable", "shop", "web-6d4cf56db6-mk7rl"},
		{"guaranteed", "shop", "web-api-79bd47f8c5-q8w2z"},
		{"guaranteed", "shop", "db-0"},
		{"guaranteed", "shop", "db-1"},
		{"besteffort", "jobs", "report-28412340-7zdkc"},
		{"besteffort", "jobs", "crunch-x2kqz"},
		{"besteffort", "kube-system", "kube-proxy-6xsx9"},
		{"burstable", "kube-system", "etcd-node1"},
	} {
		uid := strings.Repeat(string(rune('a'+i)), 8)
		path := "/kubepods/" + p.qos + "/pod" + uid
		if p.qos == "guaranteed" {
			path = "/kubepods/pod" + uid
		}
		paths = append(paths, path, path+"/"+strings.Repeat("0", 64))
		names[uid] = source.PodName{Namespace: p.namespace, Name: p.name}
	}
	golden(t, "draft-named-pods", draftOf(t, paths, names))
}

// TestDraftOfWhatWasSeen: ports, weights and cpu.idle speak before names, and what contradicts
// itself is left open.
func TestDraftOfWhatWasSeen(t *testing.T) {
	unit := func(name string, g survey.Group) survey.Group {
		g.Path, g.Unit, g.Slice, g.Seen = "/system.slice/"+name, name, "system.slice", true
		return g
	}
	port := func(n int, local bool, program string) []survey.Port {
		return []survey.Port{{Number: n, Loopback: local, Program: program}}
	}
	id := strings.Repeat("4f", 32)
	list := []survey.Group{
		unit("front.service", survey.Group{CPU: 0.41, Quota: 2, Weight: 100, Ports: port(8080, false, "front")}),
		unit("cache.service", survey.Group{CPU: 0.02, Weight: 100, Ports: port(11211, true, "memcached")}),
		unit("index.service", survey.Group{CPU: 3.9, Weight: 20}),
		unit("scan.service", survey.Group{CPU: 1, Weight: 1, Idle: true}),
		unit("odd.service", survey.Group{CPU: 1, Weight: 20, Ports: port(9000, false, "odd")}),
		unit("backup.service", survey.Group{Weight: 100, Ports: port(873, false, "rsync")}),
		unit("plain.service", survey.Group{CPU: 0.3, Weight: 100}),
		unit("worker@1.service", survey.Group{CPU: 0.5, Weight: 50}),
		unit("worker@2.service", survey.Group{CPU: 0.6, Weight: 50}),
		{Path: "/docker/" + id, Is: &source.Identity{Runtime: source.Docker, ID: id}, Seen: true, Programs: []string{"sh", "true"}, Ports: port(80, false, "true")},
	}
	rules, infra := survey.Guess(list)
	text := Draft(rules, "a test", infra)
	if _, err := Parse("draft", text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	golden(t, "draft-seen", text)
}

// FuzzDraft: of any list of cgroups and any pods' names a good file is drafted.
func FuzzDraft(f *testing.F) {
	files, err := filepath.Glob(trees + "/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), "kube-system_etcd-node1_33d556edd3ae8ef21980288cef77ae8b")
	}
	f.Fuzz(func(t *testing.T, list, pods string) {
		tree, err := source.ParseTree(strings.NewReader(list))
		if err != nil || len(tree.Paths) > 200 {
			return
		}
		rules, infra := survey.Guess(survey.Groups(tree.Paths, source.ParsePodLogs(strings.Fields(pods))))
		text := Draft(rules, "fuzz", infra)
		if _, err := Parse("draft", text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	})
}

// TestNoSpec: said of protected jobs with too few tasks, and of nobody else.
func TestNoSpec(t *testing.T) {
	const rules = `tasks:
  - {match: "/web/*", job: web, class: LC}
  - {match: "/db/*", job: db, class: LC}
  - {match: "/batch/*", job: batch, class: BE}
  - {match: "/kept/*", job: kept, class: BE, eligible: true}
`
	for _, c := range []struct {
		head  string
		tasks map[string]int
		want  string
	}{
		{"", map[string]int{"web": 1, "db": 5, "batch": 1, "kept": 2}, "kept (2), web (1); hard_cap.cpi2.min_tasks asks for 5, as profile relief has it"},
		{"profile: single-node\n", map[string]int{"web": 1}, ""},
		{"profile: single-node\ncpi2: {min_tasks: 2}\n", map[string]int{"web": 1, "db": 2}, "web (1); hard_cap.cpi2.min_tasks asks for 2"},
		{"", map[string]int{"web": 0, "batch": 3}, ""},
		{"", nil, ""},
	} {
		cfg, err := Parse("f.yaml", []byte(c.head+rules))
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.NoSpec(c.tasks); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q, %v: %q, want %q", c.head, c.tasks, got, c.want)
		}
	}
}
