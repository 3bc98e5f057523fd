package firstlight

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/scenarios"
	"github.com/commensal-io/commensal/twin/scenario"
)

// TwinRound is a scene of waiting on a simulated machine, drawn anew by a seed.
type TwinRound struct {
	Seed   uint64   `json:"seed"`
	Scene  string   `json:"scene"`
	Guilty []string `json:"guilty,omitempty"` // who is to be held; none: nobody
	Ours   Score    `json:"ours"`             // the first name, at the share that the profile asks for
	Scores Scores   `json:"scores"`
}

// Twin plays all scenes of waiting (docs/WAITS.md) on each seed, once for each share of the blame that could be asked for,
// with policies observing, so that the machine is the same each time.
func Twin(ctx context.Context, first uint64, n int, log io.Writer) ([]TwinRound, error) {
	if err := CheckSeeds(first, n); err != nil {
		return nil, err
	}
	names := scenarios.Waits()
	fmt.Fprintf(log, "on simulated machines: %d scenes on %d seeds\n", len(names), n)
	return parallel.Map(ctx, 0, n*len(names), func(i int) (TwinRound, error) {
		r := TwinRound{Seed: first + uint64(i/len(names)), Scene: names[i%len(names)]}
		r.Guilty = scenarios.Guilty(r.Scene)
		for k := range steps {
			if ctx.Err() != nil {
				return r, nil // Map tells
			}
			share := float64(k) / steps
			if k == 0 {
				share = sharesAsked()
			}
			named, err := r.named(share)
			if err != nil {
				return r, fmt.Errorf("first-light: %s on seed %d: %w", r.Scene, r.Seed, err)
			}
			if k == 0 {
				r.Ours = named
			} else {
				r.Scores.note(share, &named)
			}
		}
		return r, nil
	})
}

// sharesAsked is the share that the scenes' profile asks for.
func sharesAsked() float64 {
	c, _ := config.Defaults(config.ProfileSingleNode)
	return c.Policies.Hardcap.Blame.Share
}

// named plays the scene with a share asked for, and scores who is named first.
func (r *TwinRound) named(share float64) (Score, error) {
	s := Score{ToName: -1, ToRecover: -1}
	text, _ := scenarios.Vary(r.Scene, r.Seed)
	run, err := scenario.PlayText(r.Scene+".yaml", string(text), scenario.Options{
		Seed: &r.Seed, Mode: model.ModeObserve.String(), Switches: []scenario.Setting{{Key: "hard_cap.blame.share", Value: fmt.Sprint(share)}},
	})
	if err != nil {
		return s, err
	}
	for i := range run.Decisions {
		d := &run.Decisions[i]
		if d.Kind != model.DecideCap && d.Kind != model.DecideDemote {
			continue
		}
		w := &run.Windows[len(run.Windows)-1]
		k := slices.IndexFunc(w.Tasks, func(t scenario.TaskFigures) bool { return t.Path == d.Path })
		s.add(d.Path, k >= 0 && slices.Contains(r.Guilty, w.Tasks[k].Entry), d.MonoNsec, 0)
		break
	}
	return s, nil
}

// scenesTable says of each scene in how many rounds who was named at what the profile asks for.
func scenesTable(rounds []TwinRound) report.Table {
	t := report.Table{
		Title: "Scenes of waiting on simulated machines", Columns: []report.Column{{Name: "scene"}, report.Figures("rounds", ""), report.Figures("right", ""), report.Figures("wrong", ""), report.Figures("nobody", "")},
		Notes: []string{fmt.Sprintf("The first to be named when a share of %.2f is asked for, as the profile single-node does; nobody is held.", sharesAsked())},
	}
	for _, scene := range scenarios.Waits() {
		n, right, wrong := 0, 0, 0
		for i := range rounds {
			if rounds[i].Scene != scene {
				continue
			}
			n++
			right += rounds[i].Ours.Right
			wrong += rounds[i].Ours.Wrong
		}
		t.Rows = append(t.Rows, report.Cells(scene, fmt.Sprint(n), fmt.Sprint(right), fmt.Sprint(wrong), fmt.Sprint(n-right-wrong)))
	}
	return t
}
