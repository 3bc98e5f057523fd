package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/model"
)

// monitors are the monitoring groups that there are in the root group of resctrl.
func monitors(t *testing.T) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(resctrlRoot, "mon_groups"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// TestMonitoredTasks: each task is counted in a group of its own, as status, metrics and explain show; groups of others are left; and nothing of
// ours outlives the agent, however it ends.
func TestMonitoredTasks(t *testing.T) {
	rigtest.Only(t, "resctrl is mounted")
	rigtest.NeedRDT(t)
	b := newBed(t, "monitored", settings{mode: "observe"})
	b.mountResctrl()
	const his = "pqos-1-0"
	if err := os.Mkdir(filepath.Join(resctrlRoot, "mon_groups", his), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(b.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.config, append(text, "resctrl: {monitor: on}\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	victim, batch := b.group("victim", unlimited), b.group("be-0", unlimited)
	b.start("web", victim, 0)
	b.start("hog", batch, 1)
	counted := func(p *proc) {
		t.Helper()
		eventually(t, "both tasks are counted", func() bool {
			n := 0
			for _, task := range b.status().Tasks {
				if occupancy, moved := task.Taken(); occupancy.Outcome == model.OK && moved.Outcome == model.OK {
					n++
				}
			}
			return n == 2 && len(monitors(t)) == 3
		})
	}
	left := func(when string) {
		t.Helper()
		if got := monitors(t); !slices.Equal(got, []string{his}) {
			t.Errorf("%s: %v", when, got)
		}
	}
	p := b.agent()
	counted(p)
	if text := b.must(0, "explain", batch).out; !strings.Contains(text, "of the last-level caches") {
		t.Errorf("explain says nothing of what it was counted to take:\n%s", text)
	}
	p.kill()
	b.alone()
	left("kill -9 of the agent")
	p = b.agent()
	counted(p)
	p.killBoth()
	if len(monitors(t)) != 3 {
		t.Error("nothing outlived agent and guardian: the test proves nothing")
	}
	b.must(0, "restore")
	left("restored")
	p = b.agent()
	counted(p)
	p.stop(unix.SIGTERM)
	left("stopped")
}
