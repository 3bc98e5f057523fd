package cache

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/internal/glob"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Parts of the services' ways.
//
// Intuition. Services that share their ways are to each other what batch work is to them: one that reads through the cache drives out the
// others' lines, and nothing of `exclusive` keeps it from that. An operator who knows which they are gives them a part of their own, and the rest the others.
//
// Hard cases. A part takes a class of service, of which a machine has few: those named last go without first. A part that is too small harms
// whom it was meant for, and one for nothing harms the rest. So the services of each part are looked at by themselves, and the rest: where all services together did not
// gain as the policy asks, or those of one part or the rest lost as much, they share their ways again, before anything else is given up.

// leastPart is the least number of ways that some services have: with one a cache is mapped directly.
const leastPart = 2

// named is a part as an operator names it: jobs by a pattern, and how many ways they have.
type named struct {
	jobs string
	ways int
}

// Part is a part that some services are to have. Index is its place among those that are named.
type Part struct {
	Index int `json:"index"`
	Ways  int `json:"ways"`
}

// parseParts reads "kafka=2, web-*=3".
func parseParts(text string) (list []named, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		jobs, ways, ok := strings.Cut(strings.TrimSpace(one), "=")
		n, bad := strconv.Atoi(strings.TrimSpace(ways))
		jobs = strings.TrimSpace(jobs)
		switch {
		case !ok || bad != nil || jobs == "":
			return nil, fmt.Errorf("has %q; expected JOB=WAYS, with * and ? in JOB, with commas between", strings.TrimSpace(one))
		case n < leastPart || n > 64:
			return nil, fmt.Errorf("gives %s %d ways; expected %d to 64", jobs, n, leastPart)
		case slices.ContainsFunc(list, func(o named) bool { return o.jobs == jobs }):
			return nil, fmt.Errorf("names %s twice", jobs)
		}
		list = append(list, named{jobs, n})
	}
	if len(list) > model.MaxParts {
		return nil, fmt.Errorf("names %d parts; expected %d at the most", len(list), model.MaxParts)
	}
	return list, nil
}

// read takes in which parts are named; what is said anew is tried anew.
func (s *State) read(text string) {
	if text != s.Named {
		s.Named, s.Whole, s.ShareNsec, s.named = text, false, 0, nil
	}
	if s.named == nil {
		s.named, _ = parseParts(text) // Check has looked at it
		s.looked = false
	}
}

// look finds out which named parts have services, and whether some have none: each time that there are other tasks.
func (s *State) look(v *policy.View) {
	if s.looked {
		return
	}
	s.looked, s.there, s.unnamed = true, [model.MaxParts]bool{}, false
	for i := range v.Tasks {
		if t := &v.Tasks[i].Task; t.Class != model.LC {
			continue
		} else if at := s.partOf(t.Job); at >= 0 {
			s.there[at] = true
		} else {
			s.unnamed = true
		}
	}
}

// partOf is the place of a job's part among those that are named, -1: it has none.
func (s *State) partOf(job string) int {
	return slices.IndexFunc(s.named, func(n named) bool { return glob.Match(n.jobs, job) })
}

// classOf is the class of service that a service is to be in.
func (s *State) classOf(t *model.Task) model.TaskNum {
	if len(s.Parts) == 0 {
		return model.ClassLC
	}
	at := s.partOf(t.Job)
	if !s.asked(at) {
		return model.ClassLC
	}
	return model.ClassOfPart(at)
}

// asked reports whether a part is asked for.
func (s *State) asked(i int) bool {
	return slices.ContainsFunc(s.Parts, func(p Part) bool { return p.Index == i })
}

// rest is how many ways services have that are of no part.
func (s *State) rest() int {
	n := s.Asked
	for _, p := range s.Parts {
		n -= p.Ways
	}
	return n
}

// parting works out which parts services are to have.
func (s *State) parting(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) []Part {
	s.KeepParts = ""
	if s.read(p.Parts); len(s.named) == 0 {
		return nil
	}
	leave := func(word, why string) {
		s.KeepParts = why
		w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Reason: why})
	}
	if p.Share != Exclusive {
		leave("part share", "services have no parts of their ways: cache.share is not exclusive")
	}
	if s.Own == 0 {
		return nil
	}
	for i := range s.named {
		for _, d := range have.Caches {
			switch k := v.Class(model.ClassOfPart(i), d, model.CacheWays); {
			case k.Void:
				leave("void part", fmt.Sprintf("services share their ways: another program sets what %s has", s.named[i].jobs))
				return nil
			case k.Refused && !k.Pending && s.asked(i): // what was refused long ago is still told
				s.ShareNsec = v.NowNsec + p.RestNsec
				w.Once("refused part", model.Decision{Kind: model.DecideLeftAlone, Reason: fmt.Sprintf("services share their ways: what %s is to have was refused: %s", s.named[i].jobs, k.Why)})
			}
		}
	}
	switch {
	case s.Whole:
		s.KeepParts = "services share their ways: parts of their own did not help"
		return nil
	case v.NowNsec < s.ShareNsec:
		s.KeepParts = "services share their ways for a while: what one is to have was refused"
		return nil
	}
	s.look(v)
	least := max(have.Least, leastPart)
	classes, left, list := v.NotAlone(have)-1, s.Own-least, s.room[:0] // one class and the least are the rest's
	for i, n := range s.named {
		if !s.there[i] {
			continue
		}
		ways := max(n.ways, least)
		if len(list) >= classes {
			leave("part classes", fmt.Sprintf("no class of service is left for %s and those named after it: they share their ways with the rest", n.jobs))
			break
		}
		if ways > left {
			leave("part ways", fmt.Sprintf("no %d ways are left for %s and those named after it: they share their ways with the rest, who keep %d", ways, n.jobs, least))
			break
		}
		left -= ways
		list = append(list, Part{i, ways})
	}
	s.room = list
	return list
}

// worse says which services fare worse in parts of their own than before, by as much as all together are to fare better: those of a part, or the rest; "": none do.
func (s *State) worse(p *Params, v *policy.View) string {
	for i := range len(s.Parts) + 1 {
		class, who := model.ClassLC, "services of no part"
		if i < len(s.Parts) {
			class, who = model.ClassOfPart(s.Parts[i].Index), "services of "+s.named[s.Parts[i].Index].jobs
		}
		of := func(num model.TaskNum) bool {
			t := v.Task(num)
			return t != nil && s.classOf(&t.Task) == class
		}
		before, after := s.Before.Of(of), s.After.Of(of)
		if ratio, noise := after.Beside(&before); ratio > 1+p.Gain && ratio-1 > 2*noise {
			return fmt.Sprintf(", but that of %s %.3g times", who, ratio)
		}
	}
	return ""
}

// parts says what of their ways some services have for themselves.
func (s *State) parts() string {
	text := ""
	for i, p := range s.Parts {
		text += fmt.Sprintf("%s %s %d", [...]string{", of them", ","}[policy.One(i > 0)], s.named[p.Index].jobs, p.Ways)
	}
	if s.KeepParts != "" {
		text += "; " + s.KeepParts
	}
	return text
}

// standing are the parts that stand, as bits, if all do.
func (s *State) standing(have *model.Classes, v *policy.View, w *policy.Wishes) (bits uint32, all bool) {
	for _, p := range s.Parts {
		if !limited(model.ClassOfPart(p.Index), model.CacheWays, have.Caches, p.Ways, v, w) {
			return 0, false
		}
		bits |= 1 << p.Index
	}
	return bits, true
}

// resting reports whether there are services of no part.
func (s *State) resting() bool {
	for i, there := range s.there {
		if there && !s.asked(i) {
			return true
		}
	}
	return s.unnamed || len(s.Parts) == 0
}
