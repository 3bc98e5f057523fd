package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/cmd/commensal/top"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/record"
)

// hostile is a cgroup's name that sets a terminal's title.
const hostile = "/be-\x1b]0;x\a\x9b2J"

// No command hands a terminal what a cgroup's name would have it do.
func TestHostileNamesReachNoTerminal(t *testing.T) {
	num := model.TaskNum(2)
	task := model.Task{Num: 2, Path: hostile, Job: "batch", Class: model.BE}
	inc := &model.Incident{ID: "i-1", VictimPath: hostile, Rounds: []model.Round{{
		Suspects: []model.Suspect{{Task: 2, Path: hostile, Verdict: "chosen"}}, Chosen: &num, ChosenPath: hostile, Verdict: "cured " + hostile,
	}}}
	st := &agent.Status{
		Warnings: []string{hostile}, Tasks: []agent.TaskStatus{{Task: task, Lacks: []string{hostile}, Idle: &coldpages.Idle{}}}, Incidents: []*model.Incident{inc},
		Held: []agent.HeldStatus{{Path: hostile, Cap: 0.1, Why: hostile, Claims: []model.Claim{{Reason: hostile}}}},
	}
	decisions := []model.Decision{{Path: hostile, Reason: hostile}}
	tree := filepath.Join(t.TempDir(), "tree.txt")
	if err := os.WriteFile(tree, []byte("/batch.slice\n/docker/"+hostile[1:]+"\n/batch.slice/"+hostile[1:]+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	match, _ := configMatch(t, "testdata/match/config.yaml", "--tree", tree)
	texts := map[string]string{"config match": match}
	for name, text := range map[string]func(w io.Writer) error{
		"status":  func(w io.Writer) error { return printStatus(w, st) },
		"top":     func(w io.Writer) error { return printTop(w, st, top.SortCPU, false) },
		"ages":    func(w io.Writer) error { return printTop(w, st, top.SortCPU, true) },
		"explain": func(w io.Writer) error { return printStory(w, &record.Story{Incident: inc, Decisions: decisions}) },
		"explain --task": func(w io.Writer) error {
			return printTaskStory(w, &record.TaskStory{Task: task, Policies: []record.PolicyStory{{Decisions: decisions}}, Incidents: []record.TaskPart{}})
		},
		"restore": func(w io.Writer) error {
			return printReport(w, &node.Report{Items: []node.Restoration{{Path: hostile, Kind: node.Restored, Error: hostile}}})
		},
		"match's table": func(w io.Writer) error {
			m := &matching{Tree: hostile, Tasks: []matched{{Path: hostile, Vital: hostile}}, Refused: []refused{{hostile, "why"}}, Warning: hostile}
			return m.print(w)
		},
	} {
		var b bytes.Buffer
		if err := (&cli.Printer{Out: &b}).Print(nil, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(b.String(), "be-") {
			t.Errorf("%s does not name the cgroup: this tests nothing\n%s", name, b.String())
		}
		texts[name] = b.String()
	}
	for name, text := range texts {
		if strings.ContainsAny(text, "\x1b\a") || strings.Contains(text, "\x9b") {
			t.Errorf("%s: %q", name, text)
		}
	}
}
