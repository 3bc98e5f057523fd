package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/coldpages"
)

// Idle memory is told by class and age of all tasks whose ages were read, and by task what is old enough to go.
func TestIdleMetrics(t *testing.T) {
	task := func(path string, class model.Class, mib uint64) TaskStatus {
		i := &coldpages.Idle{Anon: int64(mib), Reclaimed: 9, Given: 7, CameBack: 3}
		i.Ages.Anon[0], i.Ages.File[model.NumAgeEdges-1] = mib, 2*mib
		return TaskStatus{Task: model.Task{Path: path, Job: "j", Class: class}, Idle: i}
	}
	st := &Status{Tasks: []TaskStatus{task("/a", model.LC, 10), task("/b", model.LC, 20), {Task: model.Task{Path: "/unread", Class: model.LC}}, task("/c", model.BE, 5)}}
	c := &collector{desc: describe()}
	got := map[string]float64{}
	take := func(d *prometheus.Desc, v float64, labels ...string) {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "commensal_`), `"`)
		got[fmt.Sprint(name, labels)] = v
	}
	c.idle(st, take, take)
	for name, want := range map[string]float64{
		"idle_memory_bytes[LC anonymous 10]": 30, "idle_memory_bytes[LC file 172800]": 60, "idle_memory_bytes[BE anonymous 10]": 5, "task_idle_memory_bytes[/b j anonymous]": 20,
		"task_taken_bytes_total[/b j]": 9, "task_given_back_bytes_total[/a j]": 7, "task_came_back_bytes_total[/c j]": 3,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s: %v, want %v; there are %v", name, v, want, slices.Sorted(maps.Keys(got)))
		}
	}
	if n := len(got); n != 4*model.NumAgeEdges+3*5 {
		t.Errorf("%d series", n)
	}
}
