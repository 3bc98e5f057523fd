package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// What the policies beyond CPI² did is told: the members of a group with what became of
// each, what a nudge took, how far caps were loosened.
func TestExplainBeyondTheSeed(t *testing.T) {
	num := model.TaskNum(2)
	suspects := []model.Suspect{{Task: 2, Path: "/a", Class: model.BE, Score: 0.31, Usage: 2, Verdict: "chosen: a member of the group"}}
	inc := &model.Incident{
		ID: "i-1", VictimPath: "/web", State: model.Recovered,
		Rounds: []model.Round{{
			Threshold: 0.35, Steady: 0.1, Chosen: &num, ChosenPath: "/b", Cap: 0.1, AppliedNsec: 1e9, Nudge: true, HeldNsec: 3e9, LostCPUSec: 5.7,
			SignalBefore: 2, SignalAfter: 1.9, WindowsJudged: 2, Verdict: "refuted",
		}, {
			Threshold: 0.35, Suspects: suspects, Chosen: &num, ChosenPath: "/a", AppliedNsec: 9e9, GroupScore: 0.25, Explained: 0.97, Steps: 3, Level: 0.25,
			SignalBefore: 2, SignalAfter: 1.4, WindowsJudged: 2, Verdict: "the victim recovered",
			Members: []model.Member{
				{Task: 2, Path: "/a", Score: 0.31, Usage: 2, Cap: 0.1, Gain: 0.5, Needed: true, Verdict: "needed: the victim suffered without it"},
				{Task: 3, Path: "/c", Score: 0.2, Usage: 1, Cap: 0.1, Gain: 0.1, Alike: true},
			},
		}},
	}
	var b strings.Builder
	if err := printStory(&b, &record.Story{Incident: inc}); err != nil {
		t.Fatal(err)
	}
	rest := b.String()
	for _, want := range []string{
		"(a steady suspect scores 0.10)", "nudged /b to 0.1 CPU", "took 5.7 CPU-seconds: refuted or undecided",
		"a group: score 0.25, explains 97 % of the victim's ups and downs", "MEMBER", "/a", "50 %", "needed: the victim suffered without it",
		"not tried apart; moves as another member does", "together: signal 2 before, 1.4 after (2 windows): the victim recovered",
		fmt.Sprintf("changed %d times; at last they left 25 %%", 3),
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("missing, in order: %q in\n%s", want, b.String())
		}
		rest = after
	}
}

// Where suspects were ordered by what the victim lacks, a round says what that is, by which figures, and what each took of it.
func TestExplainLack(t *testing.T) {
	suspects := []model.Suspect{{Task: 2, Path: "/stream", Class: model.BE, Score: 0.48, Usage: 2, Takes: 18e9, Verdict: "nudged"}, {Task: 3, Path: "/join", Class: model.BE, Score: 0.48, Usage: 2, Verdict: "behind"}}
	for lack, want := range map[model.Lack][]string{
		model.LackUnknown: {"SCORE CPU SUSPECT", "0.48 2.00 /stream"},
		model.LackMemory:  {"it misses the cache 5 times in 1000 instructions, 4.9 while it was well: it lacks memory", "SCORE CPU TAKES SUSPECT", "0.48 2.00 18 GB/s /stream", "0.48 2.00 0 GB/s /join"},
		model.LackCache:   {"it lacks cache", "1.8e+04 MB /stream"},
	} {
		var b strings.Builder
		if err := printStory(&b, &record.Story{Incident: &model.Incident{ID: "i-1", Rounds: []model.Round{{Suspects: suspects, Lack: lack, MPKI: 5, UsualMPKI: 4.9}}}}); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if text := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(text, w) {
				t.Errorf("%s: %q is missing in\n%s", lack, w, b.String())
			}
		}
	}
}

// What a policy that observes would have done does not read as if it had.
func TestDecisionsThatOnlyObserve(t *testing.T) {
	var text strings.Builder
	printDecisions(&text, []model.Decision{
		{Kind: model.DecideCap, Mode: model.ModeObserve.String(), Reason: "holds /a"},
		{Kind: model.DecideAnomaly, Mode: model.ModeObserve.String(), Reason: "cpi 3 is above 2"},
		{Kind: model.DecideCap, Mode: model.ModeEnforce.String(), Reason: "holds /b"},
	})
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%q", text.String())
	}
	for i, would := range []bool{true, false, false} {
		if strings.Contains(lines[i], "(would)") != would {
			t.Errorf("%q: (would) is %v", lines[i], !would)
		}
	}
}

// What was written to the class of service that a task is in is told of the task, and whose it is.
func TestExplainWritesOfTheClass(t *testing.T) {
	var text strings.Builder
	printWrites(&text, []record.Write{
		{WallNsec: 1, Found: model.InClass(model.ClassFound), Now: model.InClass(model.ClassBE)},
		{WallNsec: 2, Of: "class be, domain 1", Found: model.Ways(11), Now: model.Ways(2)},
	})
	for _, want := range []string{"  class be (found: class as found)\n", "  class be, domain 1: 2 ways (found: 11 ways)\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("missing %q in\n%s", want, text.String())
		}
	}
}
