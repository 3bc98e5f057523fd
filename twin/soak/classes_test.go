package soak

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/policy/cache"
)

// onlyClasses plays machines with resctrl on which BE gets a part of the cache at once, until the kill switch comes.
func onlyClasses(p *plan) {
	p.rdt, p.config.Policies.CPU.CacheMode = true, model.ModeEnforce
	p.config.Policies.CPU.Cache.PatienceNsec, p.config.Policies.CPU.Cache.Ways = 0, 2
	p.events = append(p.events, event{at: 90e9, do: switchOn})
	sortEvents(p.events)
}

// misplace puts a task of a kind into a class of service that is another kind's, with each batch of changes.
func (b *brokenHost) misplace(w *world, of model.Class, into model.TaskNum) {
	b.apply = func(cs []model.Change) []model.Change {
		for i := range w.life.Engine.State.Tasks.Tasks {
			if x := &w.life.Engine.State.Tasks.Tasks[i]; x.Class == of {
				return append(slices.Clone(cs), model.Change{Seq: 1 << 40, Target: model.OfTask(x.Num), Kind: model.Set, Value: model.InClass(into)})
			}
		}
		return cs
	}
}

// TestClassCheckersFire: what is checked of classes of service is broken on purpose, and said.
func TestClassCheckersFire(t *testing.T) {
	for _, tc := range []struct {
		check string
		how   string
		spoil func(w *world, b *brokenHost)
	}{
		{checkLC, "a service is put into the class", func(w *world, b *brokenHost) { b.misplace(w, model.LC, model.ClassBE) }},
		{checkLC, "batch work is put into the class of services", func(w *world, b *brokenHost) { b.misplace(w, model.BE, model.ClassLC) }},
		{checkLC, "services get less than half of the ways", func(w *world, b *brokenHost) {
			w.plan.config.Policies.CPU.Cache.Share = cache.Exclusive
			b.step = func() {
				for _, name := range w.ourGroups() {
					if strings.HasPrefix(name, servicesPrefix) {
						_ = w.life.owner.FS(w.k).WriteFile(resctrlRoot+name+"/schemata", []byte("L3:0=1\n"))
					}
				}
			}
		}},
		{checkLC, "ways of a part of services are others', too", func(w *world, b *brokenHost) {
			c := &w.plan.config.Policies.CPU.Cache
			c.Share, c.Parts = cache.Exclusive, "web*=2"
			b.step = func() {
				for _, name := range w.ourGroups() {
					if strings.HasPrefix(name, servicesPrefix) && !strings.HasPrefix(name, restPrefix) {
						_ = w.k.Mkdir(resctrlRoot+restPrefix+"x", 0o755) // it has all ways
					}
				}
			}
		}},
		{checkExpiry, "what gives a class back is not done", func(_ *world, b *brokenHost) {
			b.apply = func(cs []model.Change) []model.Change {
				return slices.DeleteFunc(slices.Clone(cs), func(c model.Change) bool { return c.Kind == model.Release && c.Value.Knob.Spec().Beside })
			}
		}},
		{checkJournal, "a group is made that the journal does not have", func(w *world, b *brokenHost) {
			b.step = func() { _ = w.life.owner.FS(w.k).Mkdir(resctrlRoot+resctrl.DefaultPrefix+"x", 0o755) }
		}},
		{checkKnown, "a group is made that does not have our name", func(w *world, b *brokenHost) {
			b.step = func() { _ = w.life.owner.FS(w.k).Mkdir(resctrlRoot+"x", 0o755) }
		}},
		{checkStranger, "another program's group is changed", func(w *world, b *brokenHost) {
			b.step = func() {
				if len(w.class.theirs) == 0 && w.k.Mkdir(resctrlRoot+hisGroup, 0o755) == nil {
					w.remember()
				}
				_ = w.k.WriteFile(resctrlRoot+hisGroup+"/schemata", []byte("L3:0=70\n"))
			}
		}},
		{checkRestored, "the last restore leaves the group", func(w *world, b *brokenHost) {
			b.restore = func() (node.Report, error) {
				w.mutate.noGuardian = true
				return node.Report{}, nil
			}
		}},
		{checkRestored, "guardians believe a short list, and say so", func(w *world, _ *brokenHost) {
			w.mutate.guard = func() (node.Report, error) {
				return node.Report{Items: []node.Restoration{{Kind: node.NotRestored, Error: "1 directories were listed of 2"}}}, nil
			}
		}},
	} {
		t.Run(tc.check+", "+tc.how, func(t *testing.T) {
			o := Options{Minutes: 3, Calm: true, only: onlyClasses}
			if tc.check == checkRestored {
				o.only = func(p *plan) { // and nothing else that could be left
					onlyClasses(p)
					p.config.Policies.SetModes(model.ModeOff)
					p.config.Policies.CPU.CacheMode = model.ModeEnforce
					p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.do != arrive })
				}
			}
			o.mutate.host = func(w *world, h node.Host) node.Host {
				b := &brokenHost{Host: h, w: w}
				tc.spoil(w, b)
				return b
			}
			expectFailure(t, tc.check, tc.how, o)
		})
	}
}
