package main

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/coldpages"
)

// The histogram of idle memory is there where ages were read, and nothing where they were not.
func TestPrintIdle(t *testing.T) {
	st := &agent.Status{Tasks: []agent.TaskStatus{{Task: model.Task{Path: "/a"}}}}
	var text strings.Builder
	if err := printIdle(&text, st); err != nil || text.Len() > 0 {
		t.Errorf("%q, %v", text.String(), err)
	}
	i := &coldpages.Idle{Anon: 300 << 20, Reclaimed: 96 << 20, Given: 64 << 20}
	i.Ages.Anon[model.AgeEdge(6*3600e9)] = 300 << 20
	st.Tasks[0].Idle = i
	if err := printIdle(&text, st); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "MiB NOT USED FOR PAGES 0.1h 1h 1.5h 6h 24h 48h MAY GO TAKEN CAME FREE CAME BACK" ||
		strings.Join(strings.Fields(lines[1]), " ") != "/a anonymous 0 0 0 300 0 0 300" || strings.Join(strings.Fields(lines[2]), " ") != "/a file 0 0 0 0 0 0 0 96 64 0" {
		t.Errorf("%q", lines)
	}
}
