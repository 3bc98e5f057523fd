package linux

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// ownGroup is what knobs have in common that are of a task's own group alone: no descriptor is kept, no group below is
// touched, and a value is written as it stands.
type ownGroup struct{}

func (ownGroup) begin()      {}
func (ownGroup) keep(string) {}
func (ownGroup) drop(string) {}

func (ownGroup) held(string) (now model.Setting, inode uint64, ok bool) { return now, 0, false }

func (ownGroup) below(*journal.Limit, []journal.Limit) ([]journal.Limit, error) { return nil, nil }

func (ownGroup) order(plan []journal.Limit) []step {
	steps := make([]step, len(plan))
	for i := range plan {
		steps[i] = step{i, plan[i].Intended, true}
	}
	return steps
}

func (ownGroup) ours(l *journal.Limit, now model.Setting) bool { return l.Ours(now) }

func (ownGroup) took(l *journal.Limit, now model.Setting) bool { return now == l.Intended }

func (ownGroup) met([]journal.Limit) ([]journal.Limit, map[string]error) { return nil, nil }

func (ownGroup) nearest(plan []journal.Limit) []string { return make([]string, len(plan)) }

func (ownGroup) asFound(l *journal.Limit, now model.Setting) bool { return now == l.Found }

func (ownGroup) onTheWayBack(l *journal.Limit, now model.Setting) bool { return l.OnTheWayBack(now) }
