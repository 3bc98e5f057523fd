package soak

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// A fleet's hub lays a change of policies and limits over what a running agent's file says, another in its place, or takes it off. Agents
// that start anew are told again. What would need a restart is refused, and then the agent goes by its file.

// drawRollOuts draws when that is. It draws from a stream of its own, as it came after the others.
func (p *plan) drawRollOuts(r source, end int64) {
	if !r.chance(0.5) {
		return
	}
	for range r.count(1, 8) {
		p.events = append(p.events, event{at: r.seconds(0, float64(end)/1e9), do: rollOut, pick: r.Uint64(), both: r.chance(0.3)})
	}
	sortEvents(p.events)
}

// rollOut has a change of a few parameters come, or go.
func (w *world) rollOut(e *event) {
	name := "roll-out-ends"
	if w.rolled = nil; !e.both {
		text, err := w.changed(source{rand.New(rand.NewPCG(e.pick, 9))})
		if err != nil {
			w.fail("simulation", err.Error())
			return
		}
		if w.rolled, err = w.plan.config.Overlaid(string(text)); err != nil {
			name = "roll-out-refused"
		} else {
			name, w.rolls = "roll-out", append(w.rolls, w.rolled.Policies)
		}
	}
	w.inj.Note(name, "")
	if w.life != nil {
		w.tellRollOut()
	}
}

// tellRollOut tells the agent what it is to go by.
func (w *world) tellRollOut() {
	by := w.rolled
	if by == nil {
		by = &w.plan.config
	}
	w.life.RollOut(by)
}

// changed draws some parameters of policies anew, and returns what an operator would write of them: a mapping, in JSON, which is YAML, too.
func (w *world) changed(r source) ([]byte, error) {
	c := w.plan.config
	rows := model.Below("limits", c.Policies.Limits.Rows())
	for _, s := range c.Policies.Sections() {
		rows = append(rows, model.Below(s.Name, s.Rows, []model.Param{{Key: "mode", At: s.Mode}})...)
	}
	root := map[string]any{}
	for _, i := range r.Perm(len(rows))[:r.count(1, 12)] {
		drawRow(r, &c, &rows[i])
		at, names := root, strings.Split(rows[i].Key, ".")
		for _, name := range names[:len(names)-1] {
			if at[name] == nil {
				at[name] = map[string]any{}
			}
			at, _ = at[name].(map[string]any)
		}
		at[names[len(names)-1]] = rows[i].At
		if text, ok := rows[i].At.(*time.Duration); ok {
			at[names[len(names)-1]] = text.String()
		}
	}
	return json.Marshal(root)
}

// ever reports whether the file or a roll-out so far had something.
func (w *world) ever(has func(p *engine.Params) bool) bool {
	return has(&w.plan.config.Policies) || slices.ContainsFunc(w.rolls, func(p engine.Params) bool { return has(&p) })
}
