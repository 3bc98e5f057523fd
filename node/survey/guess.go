package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/source"
)

// Suggestion is one rule that may go into a configuration.
type Suggestion struct {
	Rule match.Rule
	// Guessed: the class is a guess with a reason. Otherwise nothing speaks for one, or what
	// speaks contradicts itself, and the rule is for a person to finish; Rule.Class means nothing.
	Guessed bool
	Why     string // a sentence for people
	Groups  int    // cgroups of this host that it claims now; 0: none yet
}

// bundle is like cgroups, which one rule claims.
type bundle struct {
	rule   match.Rule
	groups []Group
	name   string // by which it is judged
	cron   bool   // pods of a CronJob
	// nameless: pods of one QoS class, of which nothing tells what they belong to.
	nameless bool
}

// Guess makes rules of groups: LC first, then BE, system, and those that are open; no two of
// the guessed claim one cgroup. infra is how many units were left alone as the host's own.
func Guess(list []Group) (rules []Suggestion, infra int) {
	var bundles []*bundle
	byKey := map[string]*bundle{}
	stems := stemsOf(list)
	systemd := false
	for i := range list {
		g := &list[i]
		if systemd = systemd || g.Unit != ""; g.Unit != "" && isInfrastructure(g.Unit) {
			infra++
			continue
		}
		b := bundleOf(g, stems)
		key := b.rule.String()
		if byKey[key] == nil {
			byKey[key] = b
			bundles = append(bundles, b)
		}
		byKey[key].groups = append(byKey[key].groups, *g)
	}
	for _, b := range bundles {
		rules = append(rules, b.judge())
	}
	slices.SortStableFunc(rules, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), strings.Compare(a.Rule.Job, b.Rule.Job), strings.Compare(a.Rule.String(), b.Rule.String()))
	})
	kept := settle(rules)
	if slot := placeForBatch(systemd); !slices.ContainsFunc(kept, func(r match.Rule) bool { return r.Class == model.BE }) {
		if _, err := match.Compile(append(kept, slot.Rule)); err == nil {
			rules = append(rules, slot)
		}
	}
	return rules, infra
}

func rank(s *Suggestion) int {
	switch {
	case !s.Guessed:
		return 3
	case s.Rule.Class == model.LC:
		return 0
	case s.Rule.Class == model.BE:
		return 1
	}
	return 2
}

// MaxRules bounds the rules that are guessed.
const MaxRules = 64

// settle leaves open what cannot stand beside an earlier rule, and gives jobs of different
// classes different names. It returns the rules that stand.
func settle(rules []Suggestion) (kept []match.Rule) {
	class := map[string]model.Class{}
	for i := range rules {
		s := &rules[i]
		if !s.Guessed {
			continue
		}
		if c, ok := class[s.Rule.Job]; ok && c != s.Rule.Class {
			s.Rule.Job += "-" + strings.ToLower(s.Rule.Class.String())
		}
		if len(kept) == MaxRules {
			s.Guessed, s.Why = false, fmt.Sprintf("left open, since %d rules are as many as a person goes through; as %s: %s", MaxRules, s.Rule.Class, s.Why)
			continue
		}
		if _, err := match.Compile(append(kept, s.Rule)); err != nil {
			s.Guessed, s.Why = false, "left open: "+err.Error()
			continue
		}
		kept = append(kept, s.Rule)
		class[s.Rule.Job] = s.Rule.Class
	}
	return kept
}

// placeForBatch is a rule for batch work on a host that has none that could be told.
func placeForBatch(systemd bool) Suggestion {
	s := Suggestion{Guessed: true, Rule: match.Rule{Job: "batch", Class: model.BE}}
	if systemd {
		s.Rule.Unit = &source.Unit{Name: "*.service", Slice: "batch.slice"}
		s.Why = "no batch work was recognised. What you start in batch.slice would be: systemd-run --slice=batch.slice COMMAND"
		return s
	}
	s.Rule.Glob = "/batch/*"
	s.Why = "no batch work was recognised. What lies in cgroups below /batch would be"
	return s
}

// bundleOf says which rule claims a group and those like it.
func bundleOf(g *Group, stems map[string][]string) *bundle {
	b := &bundle{}
	switch {
	case g.Unit != "":
		name := g.Unit
		stem := name[:strings.LastIndexByte(name, '.')]
		if at := strings.IndexByte(name, '@'); at > 0 {
			name, stem = name[:at+1]+"*"+name[strings.LastIndexByte(name, '.'):], name[:at]
		}
		b.rule.Unit = &source.Unit{Name: name, Slice: g.Slice}
		b.name, b.rule.Job = stem, stem
	case g.Pod != nil:
		w := workloadOf(g.Pod.Name)
		b.rule.Pods = &source.Pods{Namespace: g.Pod.Namespace, Name: w.glob(stems[g.Pod.Namespace]), Level: source.Pod}
		b.name, b.cron, b.rule.Job = w.stem, w.cron, g.Pod.Namespace+"/"+w.stem
	case g.Is != nil && g.Is.Pod != "":
		b.rule.Pods = &source.Pods{QoS: g.Is.QoS, Level: source.Pod}
		b.name, b.rule.Job, b.nameless = string(g.Is.QoS), string(g.Is.QoS), true
	case g.Is != nil && wordOf(batch, parentOf(g.Path)) != "":
		b.rule.Containers = &source.Containers{Parent: parentOf(g.Path)}
		b.name = strings.Trim(strings.TrimSuffix(parentOf(g.Path), ".slice"), "/")
		b.rule.Job = b.name
	case g.Is != nil:
		short := g.Is.ID[:12]
		b.rule.Containers = &source.Containers{Runtime: g.Is.Runtime, ID: short}
		b.name = g.program()
		b.rule.Job = cmp.Or(b.name, "container-"+short)
	default:
		b.rule.Glob = g.Path
		if cut := strings.LastIndexByte(g.Path, '/'); cut > 0 {
			b.rule.Glob = g.Path[:cut] + "/*"
		}
		b.name = strings.TrimSuffix(b.rule.Glob, "/*")
		b.rule.Job = strings.TrimLeft(b.name[strings.LastIndexByte(b.name, '/'):], "/")
	}
	return b
}

// wrappers are programs that only start or watch others.
var wrappers = []string{"tini", "docker-init", "dumb-init", "catatonit", "conmon", "pause", "s6-svscan", "sh", "bash", "sleep"}

// program is what a group runs, as far as a name tells: who listens, else the first that
// is not a wrapper.
func (g *Group) program() string {
	for i := range g.Ports {
		if p := g.Ports[i].Program; p != "" && !slices.Contains(wrappers, p) {
			return p
		}
	}
	for _, p := range g.Programs {
		if !slices.Contains(wrappers, p) {
			return p
		}
	}
	return ""
}

// judge guesses a bundle's class: by what somebody set, by what its processes do, and else by
// its name. What contradicts itself is left open.
func (b *bundle) judge() Suggestion {
	s := Suggestion{Rule: b.rule, Groups: len(b.groups), Guessed: true}
	g := &b.groups[0]
	if b.rule.Pods != nil && (b.rule.Pods.Namespace == "kube-system" || strings.HasSuffix(b.rule.Pods.Namespace, "-system")) {
		s.Rule.Class, s.Why = model.System, "the cluster's own: watched as a suspect, never held"+b.facts()
		return s
	}
	lc := cmp.Or(b.servant(), nameReason(services, b.name, " is a service as a rule"))
	be := cmp.Or(b.filler(), nameReason(batch, b.name, " is batch work as a rule"))
	switch {
	case lc != "" && be != "":
		s.Guessed, s.Why = false, fmt.Sprintf("LC would say that it %s; BE, that it %s%s", lc, be, b.facts())
	case lc != "":
		s.Rule.Class, s.Why = model.LC, "it "+lc+b.facts()
	case be != "":
		s.Rule.Class, s.Why = model.BE, "it "+be+b.facts()
		if g.Idle || g.Is != nil && g.Is.QoS == source.BestEffort {
			s.Rule.Importance = model.BestEffort
		}
	default:
		s.Guessed, s.Why = false, "nothing speaks for a class"+b.facts()
	}
	return s
}

func nameReason(list []string, name, text string) string {
	if w := wordOf(list, name); w != "" {
		return fmt.Sprintf("has %q in its name, which%s", w, text)
	}
	return ""
}

// servant is the reason to take somebody for latency-critical, "" for none.
func (b *bundle) servant() string {
	var ports []string
	for i := range b.groups {
		for _, p := range b.groups[i].Ports {
			text := fmt.Sprintf("%d (%s)", p.Number, p.Program)
			if p.Loopback {
				text = fmt.Sprintf("%d (%s, from here only)", p.Number, p.Program)
			}
			if !slices.Contains(ports, text) {
				ports = append(ports, text)
			}
		}
	}
	const shown = 3
	switch g := &b.groups[0]; {
	case len(ports) > shown:
		return fmt.Sprintf("listens on %s and %d ports more", strings.Join(ports[:shown], ", "), len(ports)-shown)
	case len(ports) > 0:
		return "listens on " + strings.Join(ports, ", ")
	case g.Is != nil && g.Is.QoS == source.Guaranteed:
		return "is Guaranteed: its CPU and memory are set aside for it"
	}
	return ""
}

// filler is the reason to take somebody for best-effort, "" for none.
func (b *bundle) filler() string {
	g := &b.groups[0]
	pod := g.Is != nil && g.Is.Pod != ""
	switch {
	case g.Idle:
		return "has cpu.idle set"
	case pod && g.Is.QoS == source.BestEffort:
		return "is BestEffort: it asked for no CPU and no memory"
	case b.cron:
		return "belongs to a CronJob"
	case !pod && g.Weight > 0 && g.Weight < 100: // a pod's weight is what it asked for
		return fmt.Sprintf("has a CPU weight of %d, where 100 is the default", g.Weight)
	case g.Slice != "" && wordOf(batch, g.Slice) != "":
		return "is in " + g.Slice
	case b.rule.Containers != nil && b.rule.Containers.Parent != "":
		return "is in " + b.rule.Containers.Parent
	}
	return ""
}

func parentOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// facts says what was measured.
func (b *bundle) facts() string {
	cpu, quota, seen := 0.0, 0.0, false
	for i := range b.groups {
		g := &b.groups[i]
		cpu, quota, seen = cpu+g.CPU, quota+g.Quota, seen || g.Seen
	}
	text := ""
	if n := len(b.groups); n > 1 {
		text = fmt.Sprintf("; %d of them", n)
	}
	if b.nameless {
		text += "; no names of pods are known here (" + source.PodLogs + "), so that all are one job"
	}
	if !seen {
		return text
	}
	text += fmt.Sprintf("; %.2f CPU when looked at", cpu)
	if quota > 0 {
		text += fmt.Sprintf(", quota %.3g CPU", quota)
	}
	return text
}
