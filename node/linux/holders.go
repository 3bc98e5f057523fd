package linux

import (
	"errors"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// holders are groups that together hold all shared LC tasks. What they used, less what groups of other
// tasks inside them used, is at least what shared LC tasks did: what else they hold only adds to it.
// Where Kubernetes keeps its quality classes apart they are one group less one other.
type holders struct {
	more, less []cgroup.Group
	of         [2]int // the tasks when they were chosen: the next number, and how many
	broken     bool   // one could not be opened or read: they are chosen again
}

// lead is where the sum begins: at zero what others used between two reads would make it less than that.
const lead = 1 << 40 // nanoseconds

// read returns what they have used until now, in nanoseconds, and from where what they use next
// counts. The groups to be subtracted are read first and once more at the end, so that what these do
// between two reads never makes the difference too little.
func (l *holders) read() (until, from model.Counter) {
	if l.broken || len(l.more) == 0 {
		return model.Counter{}, model.Counter{}
	}
	before, ok1 := sum(l.less)
	all, ok2 := sum(l.more)
	after, ok3 := before, true
	if len(l.less) > 0 {
		after, ok3 = sum(l.less)
	}
	if l.broken = !ok1 || !ok2 || !ok3; l.broken {
		return model.Counter{}, model.Counter{}
	}
	return model.Read(lead + all - before), model.Read(lead + all - after)
}

// sum adds up what groups have used.
func sum(groups []cgroup.Group) (nsec uint64, ok bool) {
	for _, g := range groups {
		v, err := g.UsageNsec()
		if err != nil {
			return 0, false
		}
		nsec += v
	}
	return nsec, true
}

// holdersWorth is how many times fewer reads than a pulse takes holders have to take for others'
// groups to be subtracted.
const holdersWorth = 4

// choose chooses holders anew where the tasks are others than before, and reports whether it did.
func (l *holders) choose(cg cgroup.Driver, next model.TaskNum, tasks []*watched) bool {
	now := [2]int{int(next), len(tasks)}
	if now == l.of && !l.broken {
		return false
	}
	l.close() //nolint:errcheck // reading only
	l.of, l.broken = now, false
	sorted := slices.DeleteFunc(slices.Clone(tasks), func(w *watched) bool { return w.gone })
	slices.SortFunc(sorted, func(a, b *watched) int { return strings.Compare(a.task.Path, b.task.Path) })
	pooled := 0
	for _, w := range sorted {
		if w.pooled() {
			pooled++
		}
	}
	parts := holdersOf(sorted, "", true)
	if len(parts) > max(pooled/holdersWorth, 2) {
		parts = holdersOf(sorted, "", false)
	}
	for _, p := range parts {
		g, err := cg.OpenAlone(p.path)
		switch {
		case err != nil:
			l.broken = true
		case p.less:
			l.less = append(l.less, g)
		default:
			l.more = append(l.more, g)
		}
	}
	return true
}

// holder is a group whose use counts, or is to be subtracted.
type holder struct {
	path string
	less bool
}

// holdersOf returns the fewest groups at or below a path that hold those of its tasks that are shared LC,
// tight: less all others. The root is none of them: it holds everybody, and on v2 it counts ticks.
// The tasks are sorted.
func holdersOf(tasks []*watched, at string, tight bool) []holder {
	if !slices.ContainsFunc(tasks, (*watched).pooled) {
		return nil
	}
	if len(tasks) == 1 {
		return []holder{{path: tasks[0].task.Path}}
	}
	below := children(tasks, at, func(tasks []*watched, at string) []holder { return holdersOf(tasks, at, tight) })
	if at == "" {
		return below
	}
	whole := []holder{{path: at}}
	if tight {
		whole = append(whole, othersOf(tasks, at)...)
	}
	if len(whole) < len(below) {
		return whole
	}
	return below
}

// othersOf returns groups at or below a path that together hold those tasks that are not shared LC, and
// none that is.
func othersOf(tasks []*watched, at string) []holder {
	switch n := slices.IndexFunc(tasks, func(w *watched) bool { return !w.pooled() }); {
	case n < 0:
		return nil
	case !slices.ContainsFunc(tasks, (*watched).pooled):
		return []holder{{path: at, less: true}}
	}
	return children(tasks, at, othersOf)
}

// children collects what there is of each child of a path.
func children(tasks []*watched, at string, of func(tasks []*watched, at string) []holder) (parts []holder) {
	for len(tasks) > 0 {
		name, _, _ := strings.Cut(tasks[0].task.Path[len(at)+1:], "/")
		child := at + "/" + name
		n := slices.IndexFunc(tasks, func(w *watched) bool {
			return w.task.Path != child && !strings.HasPrefix(w.task.Path, child+"/")
		})
		if n < 0 {
			n = len(tasks)
		}
		parts, tasks = append(parts, of(tasks[:n], child)...), tasks[n:]
	}
	return parts
}

func (l *holders) close() error {
	var errs []error
	for _, g := range slices.Concat(l.more, l.less) {
		errs = append(errs, g.Close())
	}
	l.more, l.less = l.more[:0], l.less[:0]
	return errors.Join(errs...)
}
