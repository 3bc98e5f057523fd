package linux

import (
	"cmp"
	"fmt"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// Where the ways of services lie: in rows next to each other from the high side, those that some have for themselves before those of the rest,
// which end where those of BE begin. The kernel demands rows, so one that comes or goes moves those below it: their groups are written anew
// with it, and have as many ways as before.

// classWays says how many ways the classes of services are to have in a domain, by what a batch asks for; 0: none any more.
type classWays map[planned]int64

type planned struct {
	class  model.TaskNum
	domain int32
}

// planOf is what a batch asks for.
func planOf(batch []classOp) classWays {
	plan := classWays{}
	for i := range batch {
		op, n := &batch[i], int64(0)
		if op.change.Value.Knob != model.CacheWays || !model.OfServices(op.change.Num) {
			continue
		}
		if op.takes() {
			n = op.change.Value.Amount
		}
		plan[planned{op.change.Num, op.change.Domain}] = n
	}
	return plan
}

// services is what a class of services gets in a domain. Those that have to make room for it are moved first; one that another program
// wrote is left where it is.
func (w *classWorker) services(d *resctrl.Driver, op *classOp) (want resctrl.Schemata, err error) {
	groups, err := d.Groups(resctrl.ListOptions{})
	if err != nil {
		return nil, err
	}
	at, moved := op.knob(), map[model.TaskNum]resctrl.Schemata{}
	for _, c := range w.caches(at.kind) {
		rows, err := w.layOut(c, at.domain, takenOf(groups, c)[int(at.domain)], op.change.Num)
		if err != nil {
			return nil, err
		}
		for class, row := range rows {
			to := moved[class]
			to.Set(c.Resource, int(at.domain), uint64(row))
			moved[class] = to
		}
	}
	for class := range model.ServicesDown {
		g := w.groups[class]
		if _, asked := w.plan[planned{class, at.domain}]; asked || g == nil || moved[class] == nil {
			continue
		}
		now, err := d.ReadSchemata(g.id.Name)
		if err != nil {
			return nil, err
		}
		if len(moved[class].Differences(now)) == 0 || len(g.limit[at].Differences(now)) > 0 {
			continue
		}
		change, err := d.WriteSchemata(g.id, moved[class])
		if err != nil {
			return nil, err
		}
		g.limit[at] = asTaken(moved[class], change.Now)
	}
	return moved[op.change.Num], nil
}

// layOut is where the ways of each class of services lie in one cache, of which others hold some. An error says why one of them has none.
func (w *classWorker) layOut(c *resctrl.Cache, domain int32, taken resctrl.Mask, which model.TaskNum) (map[model.TaskNum]resctrl.Mask, error) {
	be := w.rowOfBE(c.Resource, domain)
	taken |= be
	rows, parts := map[model.TaskNum]resctrl.Mask{}, 0
	for class := range model.ServicesDown {
		n := w.waysOf(class, domain)
		if n == 0 {
			continue
		}
		row, err := resctrl.Mask(0), error(nil)
		switch {
		case class != model.ClassLC:
			row, err = c.ContiguousMask(n, taken, resctrl.HighWays)
			parts += n
		case parts > 0 && n+parts+be.Ways() > c.FullMask.Ways(): // what a part gives back has not come yet
			err = fmt.Errorf("%d ways beside %d of other services and %d of best-effort work: %w", n, parts, be.Ways(), resctrl.ErrNoRoom)
		default:
			row, err = rowOfServices(c, n, parts, taken)
		}
		if err != nil && class == which {
			return nil, err
		}
		if err == nil {
			rows[class] = row
			taken |= row
		}
	}
	return rows, nil
}

// waysOf is how many ways a class of services is to have in a domain, or has; 0: none of its own.
func (w *classWorker) waysOf(class model.TaskNum, domain int32) int {
	if n, ok := w.plan[planned{class, domain}]; ok {
		return int(n)
	}
	at := classKnob{model.CacheWays, domain}
	if g := w.groups[class]; g != nil {
		return int(amount(g.limit[at], at))
	}
	return 0
}

// rowOfServices is a row of n ways from the high side, or of fewer where others hold some, but not of less than half with what parts of them have: without
// us services had those of devices, too, and they lose as little as can be.
func rowOfServices(c *resctrl.Cache, n, parts int, taken resctrl.Mask) (row resctrl.Mask, err error) {
	for n := n; 2*(n+parts) >= c.FullMask.Ways() && (n > 1 || parts == 0); n-- {
		if row, err = c.ContiguousMask(n, taken, resctrl.HighWays); err == nil {
			return row, nil
		}
	}
	return 0, cmp.Or(err, fmt.Errorf("%d ways: %w: services are to have half of %d at the least", n, resctrl.ErrNoRoom, c.FullMask.Ways()))
}

// rowOfBE is what the class of BE fills of a cache, none where nothing limits it.
func (w *classWorker) rowOfBE(r resctrl.Resource, domain int32) resctrl.Mask {
	if g := w.groups[model.ClassBE]; g != nil {
		v, _ := g.limit[classKnob{model.CacheWays, domain}].Get(r, int(domain))
		return resctrl.Mask(v)
	}
	return 0
}
