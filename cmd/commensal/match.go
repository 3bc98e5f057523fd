package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/source"
)

// matching is what `config match` prints.
type matching struct {
	File    string        `json:"file"`
	Tree    string        `json:"tree"`   // what was looked at: a file, or "this host"
	Layout  string        `json:"layout"` // v1, hybrid or v2
	Cgroups int           `json:"cgroups"`
	Tasks   []matched     `json:"tasks"`
	Nested  []matched     `json:"nested"` // claimed, and inside another rule's task
	Refused []refused     `json:"refused"`
	Rules   []matchedRule `json:"rules"`
	Warning string        `json:"warning,omitempty"` // what of the host could not be listed

	host   match.Host
	driver cgroup.Driver // of this host's cgroups, once they are listed
}

// refused is a cgroup that a rule claims and that is no task.
type refused struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// matched is one cgroup and what it would be.
type matched struct {
	Path   string           `json:"path"`
	Rule   int              `json:"rule"` // index under tasks
	Job    string           `json:"job"`
	Class  model.Class      `json:"class"`
	Is     *source.Identity `json:"is,omitempty"` // what its path tells
	Pod    *source.PodName  `json:"pod,omitempty"`
	Inside string           `json:"inside,omitempty"`
	Vital  string           `json:"vital,omitempty"` // the cgroup of the agent or of PID 1 that it is or contains
}

// matchedRule is one rule and how much it claims.
type matchedRule struct {
	Rule  int    `json:"rule"`
	Names string `json:"names"`
	Tasks int    `json:"tasks"`
	Note  string `json:"note,omitempty"` // why it may have none
}

const thisHost = "this host"

const matchLong = `Which cgroups are tasks by a configuration, and of which rule, job and class: on this
host as it is now, or in a list of another host's cgroups.

    find /sys/fs/cgroup -type d > host.txt         on the other host
    ls /var/log/pods > pods.txt                    where rules name Kubernetes pods
    commensal config match config.yaml --tree host.txt --pods pods.txt

It reads cgroup directories' names and nothing else. Rules match by the path of the cpu
controller's hierarchy (cgroup v1) or of the one there is (v2).

Exit codes: 0 some cgroup is a task; 1 one that a rule claims is none (it lies inside a
task of another rule, or nobody vouches for its name), or would hold the agent or PID 1; 2 bad input; 3 no rule claims anything; 5 the cgroups
cannot be listed.`

func matchCommand(p *cli.Printer) *cobra.Command {
	var tree, pods string
	cmd := &cobra.Command{
		Use: "match FILE", Short: "Say which cgroups of this host, or of a list, are tasks by a configuration", Args: cobra.ExactArgs(1), Long: matchLong,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := load(args[0])
			if err != nil {
				return err
			}
			m := &matching{File: args[0], Tree: tree}
			paths, err := m.list()
			if err != nil {
				return err
			}
			if m.host.Names, err = m.names(pods); err != nil {
				return err
			}
			if err := m.fill(c, paths); err != nil {
				return err
			}
			if err := p.Print(m, m.print); err != nil {
				return err
			}
			switch {
			case len(m.Nested)+len(m.Refused) > 0 || slices.ContainsFunc(m.Tasks, func(t matched) bool { return t.Vital != "" }):
				return cli.Fail(cli.CodeFailed, &cli.Told{})
			case len(m.Tasks) == 0:
				return cli.Fail(cli.CodeUnknown, &cli.Told{})
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&tree, "tree", "", "a list of cgroups, as find prints it, - for stdin (default: this host)")
	cmd.Flags().StringVar(&pods, "pods", "", "the names in the other host's "+source.PodLogs+", as ls prints them (with --tree)")
	return cmd
}

// list lists the cgroups, and says of which host and layout they are.
func (m *matching) list() ([]string, error) {
	if m.Tree == "" {
		m.Tree = thisHost
		return m.listHost()
	}
	in := os.Stdin
	if m.Tree != "-" {
		f, err := os.Open(m.Tree)
		if err != nil {
			return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--tree: %w", err))
		}
		defer f.Close() //nolint:errcheck // read only
		in = f
	}
	t, err := source.ParseTree(in)
	if err != nil {
		return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--tree %s: %w", m.Tree, err))
	}
	m.Layout = cgroup.LayoutV2.String()
	if t.V1 {
		m.Layout = cgroup.LayoutV1.String()
	}
	return t.Paths, nil
}

// names lists what pods are called: on this host as the agent does, else from a list.
func (m *matching) names(file string) (source.Names, error) {
	switch {
	case file != "" && m.Tree == thisHost:
		return nil, cli.Fail(cli.CodeBadInput, errors.New("--pods goes with --tree: of this host the names are looked up"))
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--pods: %w", err))
		}
		return source.ParsePodLogs(strings.Fields(string(b))), nil
	case m.Tree != thisHost:
		return nil, nil
	}
	list, err := hostfs.NewRoot("/").ReadDir(source.PodLogs)
	if err != nil {
		return nil, nil //nolint:nilerr // no Kubernetes here: what needs names says so
	}
	var entries []string
	for _, e := range list {
		entries = append(entries, e.Name)
	}
	return source.ParsePodLogs(entries), nil
}

func (m *matching) listHost() ([]string, error) {
	fs := hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(fs)
	if err != nil {
		return nil, err
	}
	driver, err := cgroup.Open(fs, mounts)
	if err != nil {
		return nil, err
	}
	m.Layout, m.driver = mounts.Layout.String(), driver
	m.host.RootOwned = func(path string) bool {
		uid, err := driver.Owner(path)
		return err == nil && uid == 0
	}
	if m.host.Vital, err = cgroup.ReadPaths(fs, mounts.Layout, "1"); err != nil {
		m.Warning = err.Error()
	}
	paths, err := driver.List()
	var partial *cgroup.PartialError
	if errors.As(err, &partial) {
		m.Warning, err = err.Error(), nil
	}
	return paths, err
}

// What the cgroups of the agent and of PID 1 are called where systemd runs them, here or on
// the host of a list.
const (
	agentUnit = "/commensal.service"
	systemd   = "/init.scope"
)

// fill judges the cgroups by the rules.
func (m *matching) fill(c *config.Config, paths []string) error {
	names := m.host.Names
	rules := c.Rules()
	compiled, err := match.Compile(rules)
	if err != nil {
		return cli.Fail(cli.CodeBadInput, err)
	}
	m.Cgroups = len(paths)
	m.Tasks, m.Nested, m.Refused = []matched{}, []matched{}, []refused{}
	for _, p := range paths {
		if strings.HasSuffix(p, agentUnit) || p == systemd {
			m.host.Vital = append(m.host.Vital, p)
		}
	}
	m.Rules = make([]matchedRule, len(rules))
	for i := range rules {
		m.Rules[i] = matchedRule{Rule: i, Names: rules[i].String()}
	}
	sel := compiled.Select(paths, m.host)
	for _, t := range sel.Tasks {
		m.Tasks = append(m.Tasks, matchedOf(&t, names))
		m.Rules[t.Index].Tasks++
	}
	for _, r := range sel.Refused {
		m.Refused = append(m.Refused, refused{r.Path, r.Why})
	}
	for _, t := range sel.Nested {
		m.Nested = append(m.Nested, matchedOf(&t, names))
		m.Rules[t.Index].Note = "what it names lies inside tasks of other rules"
	}
	for i := range m.Rules {
		r := &m.Rules[i]
		switch {
		case r.Tasks > 0 || r.Note != "":
		case rules[i].Unit != nil && m.Layout != cgroup.LayoutV2.String():
			r.Note = "on cgroup v1 a unit has a cpu cgroup only where it, or one beside it, asks: systemctl set-property UNIT CPUWeight=100"
		case rules[i].Pods != nil && rules[i].Pods.NeedNames() && len(names) == 0:
			r.Note = "no names of pods are known (" + source.PodLogs + ")"
		}
	}
	return nil
}

func matchedOf(t *match.Match, names source.Names) matched {
	m := matched{Path: t.Path, Rule: t.Index, Job: t.Rule.Job, Class: t.Rule.Class, Inside: t.Inside, Vital: t.Vital}
	if id, ok := source.Identify(t.Path); ok {
		m.Is = &id
		if n, ok := names[id.Pod]; ok {
			m.Pod = &n
		}
	}
	return m
}

func (m *matching) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	// Paths come last: those of pods are longer than all the rest together.
	fmt.Fprintf(tw, "RULE\tJOB\tCLASS\tIS\tCGROUP\n")
	for i := range m.Tasks {
		t := &m.Tasks[i]
		is := "-"
		if t.Is != nil {
			is = t.Is.String()
		}
		if t.Pod != nil {
			is = t.Pod.Namespace + "/" + t.Pod.Name + ": " + is
		}
		fmt.Fprintf(tw, "tasks[%d]\t%s\t%s\t%s\t%s\n", t.Rule, t.Job, t.Class, is, t.Path)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, t := range m.Nested {
		fmt.Fprintf(w, "NO TASK: %s (tasks[%d], job %s) lies inside the task %s\n", t.Path, t.Rule, t.Job, t.Inside)
	}
	for _, t := range m.Tasks {
		if t.Vital != "" {
			fmt.Fprintf(w, "SYSTEM: %s: the agent or PID 1 runs in it (%s), so it is never held\n", t.Path, t.Vital)
		}
	}
	for _, r := range m.Refused {
		fmt.Fprintf(w, "NO TASK: %s: %s\n", r.Path, r.Why)
	}
	for _, r := range m.Rules {
		if r.Tasks > 0 {
			continue
		}
		line := fmt.Sprintf("tasks[%d] (%s) claims nothing", r.Rule, r.Names)
		if r.Note != "" {
			line += ": " + r.Note
		}
		fmt.Fprintln(w, line)
	}
	if m.Warning != "" {
		fmt.Fprintln(w, m.Warning)
	}
	_, err := fmt.Fprintf(w, "%d of %d cgroups of %s (cgroup %s) are tasks\n", len(m.Tasks), m.Cgroups, m.Tree, m.Layout)
	return err
}
