package match

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

func TestFind(t *testing.T) {
	r, err := Compile([]Rule{
		{Glob: "/web/memcached", Job: "memcached", Class: model.LC},
		{Glob: "/batch/job-?", Job: "short"},
		{Glob: "/batch/video-*", Job: "video"},
		{Glob: "/kubepods/*/pod-*", Job: "pods"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/web/memcached": "memcached", "/web/memcached2": "", "/web": "", "/": "", "": "", "relative": "",
		"/batch/job-7": "short", "/batch/job-77": "", "/batch/video-": "video", "/batch/video-a/b": "",
		"/kubepods/burstable/pod-1": "pods", "/kubepods/pod-1": "",
	} {
		got := ""
		if rule := r.Find(path); rule != nil {
			got = rule.Job
		}
		if got != want {
			t.Errorf("%s: job %q, want %q", path, got, want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct{ globs, want string }{
		{"", "is empty"}, {"web", "must begin with /"}, {"/", "root cgroup"}, {"/a//b", "empty"}, {"/a/../b", ".."},
		{"/a/**", "** is not supported"}, {"/a/[ab]", "wildcards"},
		{"/a/*|/a/b", "one cgroup could match both"},
		{"/a/x*|/a/*x", "one cgroup could match both"},
		{"/a|/a/b", "inside"},
		{"/*/c|/a/b/d", ""},
		{"/*|/a/b/d", "inside"},
		{"/a/job-?|/a/job-??", ""},
		{"/a/job-*1|/a/job-*2", ""},
		{"/a/a*b|/a/?b*", "one cgroup could match both"},
	} {
		var rules []Rule
		for _, g := range strings.Split(c.globs, "|") {
			rules = append(rules, Rule{Glob: g})
		}
		_, err := Compile(rules)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.globs, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", c.globs, err, c.want)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("/a/*", "/a/b?", "/a/bc")
	f.Add("/x", "/x/*", "/x/y")
	f.Fuzz(func(t *testing.T, g1, g2, path string) {
		if len(g1)+len(g2)+len(path) > 200 {
			return
		}
		r, err := Compile([]Rule{{Glob: g1, Job: "1"}, {Glob: g2, Job: "2"}})
		if err != nil {
			return
		}
		only1, err1 := Compile([]Rule{{Glob: g1}})
		only2, err2 := Compile([]Rule{{Glob: g2}})
		if err1 != nil || err2 != nil {
			t.Fatalf("both compile together but not alone: %v, %v", err1, err2)
		}
		if only1.Find(path) != nil && only2.Find(path) != nil {
			t.Fatalf("%q matches %q and %q, which were let through", path, g1, g2)
		}
		_ = r.Find(path)
	})
}
