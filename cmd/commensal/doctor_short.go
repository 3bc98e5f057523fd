package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/probe"
	"github.com/commensal-io/commensal/model"
)

// usedBy says which policies a remedy is of, or that a signal is gone by; "" where this version makes
// no use of either, whatever the machine has.
func usedBy(name string) string {
	if slices.ContainsFunc(model.Sources(), func(s model.Source) bool { return s.Row().Probe == name }) {
		return model.ByDetection
	}
	return engine.PoliciesOf(name)
}

// prospects is how far this host has come: is there a configuration, and does an agent run.
type prospects struct {
	Config  string   `json:"config"`
	Agent   string   `json:"agent"`
	Warning string   `json:"warning,omitempty"`
	Guests  string   `json:"guests,omitempty"`  // of tasks that are virtual machines; "": there are none
	Memory  string   `json:"memory,omitempty"`  // whether services are as balm and remedy take them to be; "": nobody asks, or nobody can tell
	Latency string   `json:"latency,omitempty"` // whether it is counted how long memory takes to answer; "": nobody asks
	Next    []string `json:"next"`
}

// prospect looks at configuration and agent, and says what to do next.
func prospect(parent context.Context, path string, findings []probe.Finding) *prospects {
	c, err := config.Load(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &prospects{
			Config: path + " is not there", Agent: "does not run",
			Next: []string{"commensal init        looks at this host and writes a configuration that only observes"},
		}
	case err != nil:
		return &prospects{Config: err.Error(), Agent: "does not run", Next: []string{"commensal config check " + path}}
	}
	p := &prospects{Config: path + ": " + modes(c)}
	if jobs := jobsHere(c); jobs != nil {
		n := 0
		for _, tasks := range jobs {
			n += tasks
		}
		p.Config += fmt.Sprintf(", %d tasks here", n)
		p.Warning = c.NoSpec(jobs)
	}
	for _, why := range []string{onDisk(c.Agent.RunDir), besidePqos(c)} {
		if why != "" {
			p.Warning = strings.TrimPrefix(p.Warning+"; "+why, "; ")
		}
	}
	p.Memory, p.Latency = memoryHere(c), latencyOf(c, findings)
	ctx, cancel := context.WithTimeout(parent, time.Second)
	defer cancel()
	if st, err := agent.NewClient(c.Agent.Socket).Brief(ctx); err == nil {
		if slices.ContainsFunc(c.Tasks, func(t config.Task) bool { return t.Guest != "" }) {
			p.Guests = guestWarning(st.Warnings)
		}
		p.Agent = fmt.Sprintf("runs since %s, %d windows", st.StartedAt.Format(time.DateTime), st.Windows)
		p.Next = []string{"commensal top         what it sees and does, live", "commensal status      the same once, with warnings"}
		return p
	}
	p.Guests = guestsHere(parent, c)
	p.Agent = "does not run, or does not answer you"
	p.Next = []string{
		"commensal config match " + path + "   which cgroups are tasks",
		"systemctl enable --now commensal, or commensal agent -c " + path,
	}
	return p
}

// onDisk says what is wrong with a run directory that is not in memory; "": nothing, or
// nobody can tell.
func onDisk(dir string) string {
	var st unix.Statfs_t
	for at := dir; ; at = filepath.Dir(at) { // what is not there yet will be on its parent's file system
		if err := unix.Statfs(at, &st); err == nil {
			break
		} else if !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at) {
			return ""
		}
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return ""
	}
	return fmt.Sprintf("agent.run_dir %s is not on a tmpfs: on a disk that is full, slow or read-only the agent could neither hold nor note what it released", dir)
}

// besidePqos says what policies that make control groups of resctrl mean for pqos; "": there are none, or it is not in the PATH.
func besidePqos(c *config.Config) string {
	if _, err := exec.LookPath("pqos"); err != nil {
		return ""
	}
	var names []string
	for _, s := range c.Policies.Sections() {
		if *s.Mode == model.ModeEnforce && slices.Contains(strings.Split(engine.PoliciesOf(probe.RemedyWays)+", "+engine.PoliciesOf(probe.RemedyBandwidth), ", "), s.Name) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("pqos is installed: pqos -I fails while %s has batch work in a control group, and where pqos -I came first no group is left for it (docs/OPERATIONS.md)", strings.Join(names, " or "))
}

// jobsHere counts the tasks of each job on this host; nil when that cannot be told.
func jobsHere(c *config.Config) map[string]int {
	m := &matching{}
	paths, err := m.list()
	if err != nil {
		return nil
	}
	m.host.Names, _ = m.names("") // of this host, of which none is no error
	if m.fill(c, paths) != nil {
		return nil
	}
	jobs := map[string]int{}
	for i := range m.Tasks {
		jobs[m.Tasks[i].Job]++
	}
	return jobs
}

// noSpecHere says which jobs can have no spec on this host; see config.NoSpec.
func noSpecHere(c *config.Config) string { return c.NoSpec(jobsHere(c)) }

// modes says in a few words how far a configuration lets each policy go.
func modes(c *config.Config) string {
	var parts []string
	for _, p := range c.Policies.Sections() {
		parts = append(parts, p.Name+" "+p.Mode.String())
	}
	return "profile " + c.Profile + ", " + strings.Join(parts, ", ")
}

// printShort writes a diagnosis on one screen.
func printShort(w io.Writer, d *diagnosis) error {
	fmt.Fprintln(w, "Signals of distress")
	printAbilities(w, d.Signals)
	fmt.Fprintln(w, "Remedies")
	printAbilities(w, d.Remedies)
	var unbuilt []string
	for _, a := range append(append([]ability{}, d.Signals...), d.Remedies...) {
		if a.UsedBy == "" {
			unbuilt = append(unbuilt, a.Name)
		}
	}
	fmt.Fprintf(w, "Not built yet: no policy of this version uses them\n  %s\n", strings.Join(unbuilt, ", "))
	if p := d.Prospects; p != nil {
		fmt.Fprintf(w, "Configuration  %s\nAgent          %s\n", p.Config, p.Agent)
		if p.Guests != "" {
			fmt.Fprintf(w, "Guests         %s\n", p.Guests)
		}
		if p.Memory != "" {
			fmt.Fprintf(w, "Memory         %s\n", p.Memory)
		}
		if p.Latency != "" {
			fmt.Fprintf(w, "Latency        %s\n", p.Latency)
		}
		if p.Warning != "" {
			fmt.Fprintf(w, "WARNING        %s\n", p.Warning)
		}
		fmt.Fprintf(w, "Next           %s\n", strings.Join(p.Next, "\n               "))
	}
	_, err := fmt.Fprintln(w, "(all findings, and the reasons in full: commensal doctor --all)")
	return err
}

// printAbilities writes those that policies make use of: what there is on one line, what there
// is not on a line for each thing that would give it.
func printAbilities(w io.Writer, list []ability) {
	var has []string
	lacks, wants := map[string][]string{}, []string{}
	for _, a := range list {
		switch {
		case a.UsedBy == "":
		case a.Available:
			has = append(has, a.Name)
		default:
			if lacks[a.Wants] == nil {
				wants = append(wants, a.Wants)
			}
			lacks[a.Wants] = append(lacks[a.Wants], a.Name)
		}
	}
	if len(has) > 0 {
		fmt.Fprintf(w, "  yes  %s\n", strings.Join(has, ", "))
	}
	for _, want := range wants {
		fmt.Fprintf(w, "  no   %s: wants %s\n", strings.Join(lacks[want], ", "), want)
	}
}
