package scenario

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/commensal-io/commensal/internal/strictyaml"
)

// defaultGroup is the name of the CLOS that every task is in from the start.
const defaultGroup = "default"

// checkGroups checks the groups and puts the actors into them.
func (p *Plan) checkGroups() error {
	s := p.Scenario
	for i := range s.Control {
		g := &s.Control[i]
		at := fmt.Sprintf("control[%d]", i)
		if !nameForm.MatchString(g.Name) {
			return p.doc.Errorf(at+".name", "is %q; expected letters, digits, - and _, a letter first", short(g.Name))
		}
		if first, ok := p.groups[g.Name]; ok {
			return p.doc.Errorf(at+".name", "is %q, which is also the name in line %d", g.Name, p.doc.Line(fmt.Sprintf("control[%d].name", first)))
		}
		p.groups[g.Name] = i
		if len(s.Control) > maxGroups {
			return p.doc.Errorf("control", "has %d groups; expected at most %d", len(s.Control), maxGroups)
		}
		if err := p.checkMasks(at+".ways", g.Ways); err != nil {
			return err
		}
		if err := p.checkLevels(at+".mba", g.MBA); err != nil {
			return err
		}
		if _, err := p.cpus(at+".cpus", g.CPUs); err != nil {
			return err
		}
		if err := p.checkShares(at+".shares", g.Shares, 0); err != nil {
			return err
		}
		if g.CPUMax != nil {
			if _, err := p.limit(at+".cpu_max", g.CPUMax); err != nil {
				return err
			}
		}
		if err := p.join(at, i); err != nil {
			return err
		}
	}
	return nil
}

// maxGroups is above what any hardware has (resctrl: 16).
const maxGroups = 64

// join puts a group's tasks into it.
func (p *Plan) join(at string, i int) error {
	g := &p.Scenario.Control[i]
	if g.Name == defaultGroup && len(g.Tasks) > 0 {
		return p.doc.Errorf(at+".tasks", "the group %q has all tasks that are in no other", defaultGroup)
	}
	if g.Name == defaultGroup && (g.CPUs != "" || g.Shares != 0 || g.CPUMax != nil) {
		return p.doc.Errorf(at, "the group %q takes ways and mba only", defaultGroup)
	}
	for j, name := range g.Tasks {
		key := fmt.Sprintf("%s.tasks[%d]", at, j)
		found, err := p.targets(key, name)
		if err != nil {
			return err
		}
		for _, a := range found {
			if other := p.actors[a].group; other >= 0 {
				return p.doc.Errorf(key, "%s is in group %q already", p.actors[a].name, p.Scenario.Control[other].Name)
			}
			p.actors[a].group = i
		}
	}
	return nil
}

// checkMasks checks way masks as the kernel does: contiguous, and within the cache.
func (p *Plan) checkMasks(key string, masks Masks) error {
	if len(masks) > 1 && len(masks) != p.machine.Caches() {
		return p.doc.Errorf(key, "has %d masks; expected one, or one for each of %d last-level caches", len(masks), p.machine.Caches())
	}
	for i, m := range masks {
		k := key
		if len(masks) > 1 {
			k = fmt.Sprintf("%s[%d]", key, i)
		}
		switch {
		case bits.Len32(m) > p.machine.LLCWays:
			return p.doc.Errorf(k, "is %#x, and the cache has %d ways: at most %#x", m, p.machine.LLCWays, uint32(1)<<p.machine.LLCWays-1)
		case !contiguous(m):
			return p.doc.Errorf(k, "is %#x; expected at least one way, and all of them side by side", m)
		}
	}
	return nil
}

func (p *Plan) checkLevels(key string, levels Levels) error {
	if len(levels) > 1 && len(levels) != p.machine.Caches() {
		return p.doc.Errorf(key, "has %d levels; expected one, or one for each of %d last-level caches", len(levels), p.machine.Caches())
	}
	if bad := slices.IndexFunc(levels, func(v int) bool { return v < 10 || v > 100 }); bad >= 0 {
		return p.doc.Errorf(key, "is %d; expected 10 to 100 per cent", levels[bad])
	}
	return nil
}

func (p *Plan) checkShares(key string, v, least int64) error {
	if v < least || v > 262144 || v == 1 {
		return p.doc.Errorf(key, "is %d; expected 2 to 262144", v)
	}
	return nil
}

// group finds a group by its name.
func (p *Plan) group(key, name string) error {
	if _, ok := p.groups[name]; ok || name == defaultGroup {
		return nil
	}
	var known []string
	for i := range p.Scenario.Control {
		known = append(known, p.Scenario.Control[i].Name)
	}
	if near := strictyaml.Nearest(name, known); near != "" {
		return p.doc.Errorf(key, "is %q; did you mean %q?", short(name), near)
	}
	return p.doc.Errorf(key, "is %q; expected the name of a group under control", short(name))
}
