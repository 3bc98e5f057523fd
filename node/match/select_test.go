package match

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/source"
)

// Whatever the rules say, nothing is held in which the agent or PID 1 runs.
func TestVitalCgroupsAreSystem(t *testing.T) {
	agent := "/system.slice/commensal.service"
	paths := []string{"/init.scope", "/system.slice", agent, "/system.slice/a.service", "/batch", "/system.slice/commensal.service2"}
	h := Host{Vital: []string{agent, "/init.scope"}}
	for _, c := range []struct {
		rule Rule
		want string // of class system
	}{
		{Rule{Glob: "/*"}, "/init.scope /system.slice"},
		{Rule{Unit: &source.Unit{Name: "*.service", Slice: "system.slice"}}, agent},
		{Rule{Unit: &source.Unit{Name: "system.slice"}}, "/system.slice"},
		{Rule{Glob: "/batch"}, ""},
	} {
		c.rule.Job, c.rule.Class, c.rule.Importance, c.rule.Eligible = "j", model.BE, model.Critical, true
		r, err := Compile([]Rule{c.rule})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range r.Select(paths, h).Tasks {
			if m.Rule.Class == model.System && !m.Rule.Eligible && m.Vital != "" {
				got = append(got, m.Path)
			} else if m.Rule.Class != model.BE || !m.Rule.Eligible || m.Vital != "" {
				t.Errorf("%s: %+v", m.Path, m)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q is system, want %q", &c.rule, got, c.want)
		}
		if r.rules[0].Class != model.BE {
			t.Error("the rule itself was changed")
		}
	}
}

// A name tells who made a cgroup only where root did; who was given a subtree gives his own
// groups any name he likes.
func TestNamesCountOnlyWhereRootGaveThem(t *testing.T) {
	users := "/user.slice/user-1000.slice/user@1000.service"
	forged := users + "/kubepods/pod11111111-2222-3333-4444-555555555555"
	real := "/kubepods/pod11111111-2222-3333-4444-555555555556"
	box := users + "/docker-" + strings.Repeat("a", 64) + ".scope"
	paths := []string{users, users + "/kubepods", forged, real, box}
	h := Host{RootOwned: func(path string) bool { return !strings.HasPrefix(path, users) && path != real }}
	list := func(rules ...Rule) (tasks []string, refused int) {
		r, err := Compile(rules)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Select(paths, h)
		for _, m := range s.Tasks {
			tasks = append(tasks, m.Path)
		}
		return tasks, len(s.Refused)
	}
	pod := Rule{Pods: &source.Pods{QoS: source.Guaranteed, Level: source.Pod}, Job: "pods"}
	boxes := Rule{Containers: &source.Containers{}, Job: "boxes"}
	if tasks, refused := list(pod, boxes); !slices.Equal(tasks, []string{real}) || refused != 2 {
		t.Errorf("tasks %q, %d refused", tasks, refused)
	}
	pod.Delegated, boxes.Delegated = true, true
	if tasks, refused := list(pod, boxes); len(tasks) != 3 || refused != 0 {
		t.Errorf("delegated: tasks %q, %d refused", tasks, refused)
	}
	if tasks, refused := list(Rule{Glob: users + "/docker-*"}); !slices.Equal(tasks, []string{box}) || refused != 0 {
		t.Errorf("named by path: tasks %q, %d refused", tasks, refused)
	}
}

func TestNamesThatNobodyCanWriteDownAreNoTasks(t *testing.T) {
	r, err := Compile([]Rule{{Glob: "/batch/*"}})
	if err != nil {
		t.Fatal(err)
	}
	good := []string{"/batch/a", "/batch/ä b", "/batch/作業"}
	s := r.Select(append([]string{"/batch/be-\xff", "/batch/\x1b]0;x\a", "/batch/\x7f", "/batch/a\u0085"}, good...), Host{})
	if len(s.Tasks) != len(good) || len(s.Refused) != 4 {
		t.Errorf("%d tasks, %d refused: %+v", len(s.Tasks), len(s.Refused), s)
	}
}
