package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/slo"
)

// target is where the agent is; every operators' command takes it.
type target struct{ socket, config string }

func (t *target) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.socket, "socket", "", "the agent's socket (default: from the configuration)")
	configFlag(cmd, &t.config)
}

func (t *target) client() (*agent.Client, error) { return client(t.socket, t.config) }

// send sends one command and prints that it was taken.
func (t *target) send(cmd *cobra.Command, p *cli.Printer, req agent.Request, done string) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	if err := c.Command(cmd.Context(), req); err != nil {
		return asked(err)
	}
	return p.Print(map[string]string{"done": done}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, done)
		return err
	})
}

func capCommand(p *cli.Printer) *cobra.Command {
	var t target
	var cpus float64
	var d time.Duration
	def := hardcap.Defaults()
	cmd := &cobra.Command{
		Use: "cap TASK", Short: "Hard-cap a task now, whatever the policies say", Args: cobra.ExactArgs(1),
		Long: "Hard-cap a task (a cgroup path from `commensal status`) for a time. An operator's cap stands in observe\nmode too, replaces a policy's, and takes a knob back that another program had written.",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := agent.Request{Kind: model.CommandCap, Task: args[0], Cap: cpus, Duration: d.Seconds()}
			return t.send(cmd, p, req, fmt.Sprintf("%s is capped to %g CPU for %s", args[0], cpus, d))
		},
	}
	t.flags(cmd)
	cmd.Flags().Float64Var(&cpus, "cpus", def.Quota, "CPU-sec/sec it may use")
	cmd.Flags().DurationVar(&d, "for", time.Duration(def.DurationNsec), "how long")
	return cmd
}

func demoteCommand(p *cli.Printer) *cobra.Command {
	var t target
	var d time.Duration
	cmd := &cobra.Command{
		Use: "demote TASK", Short: "Let a task run only when nobody else wants the CPU, for a time", Args: cobra.ExactArgs(1),
		Long: "Demote a task (a cgroup path from `commensal status`) for a time: cpu.idle, before Linux 5.15 the least weight. It\nkeeps all CPU time that nobody else wants. Like `cap` it stands in observe mode too; `uncap` ends it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := agent.Request{Kind: model.CommandDemote, Task: args[0], Duration: d.Seconds()}
			return t.send(cmd, p, req, fmt.Sprintf("%s is demoted for %s", args[0], d))
		},
	}
	t.flags(cmd)
	cmd.Flags().DurationVar(&d, "for", time.Duration(hardcap.Defaults().DurationNsec), "how long")
	return cmd
}

func reclaimCommand(p *cli.Printer) *cobra.Command {
	var t target
	var mib int64
	cmd := &cobra.Command{
		Use: "reclaim TASK", Short: "Ask the kernel to take idle memory back from a task, once (cgroup v2)", Args: cobra.ExactArgs(1),
		Long: "Ask the kernel to reclaim memory from a best-effort task (memory.reclaim), the coldest first. What the task\nneeds comes back when it touches it, so there is nothing to undo. It runs beside the agent's loop; what came\nof it is a decision `ran` or `refused`, in the log and in `commensal explain TASK`.",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := agent.Request{Kind: model.CommandReclaim, Task: args[0], Bytes: mib << 20}
			return t.send(cmd, p, req, fmt.Sprintf("the kernel is asked for %d MiB of %s", mib, args[0]))
		},
	}
	t.flags(cmd)
	cmd.Flags().Int64Var(&mib, "mib", 64, "how much, in MiB")
	return cmd
}

func movePagesCommand(p *cli.Printer) *cobra.Command {
	var t target
	var node, keep int
	cmd := &cobra.Command{
		Use: "move-pages TASK --off NODE", Short: "Move a task's pages off a memory node, once", Args: cobra.ExactArgs(1),
		Long: "Move pages of a best-effort task's processes off a memory node to the others, in equal parts (move_pages(2)), so\nthat who lives on that node has more of its bandwidth. New pages go where they went before. To undo it, move\nthem off the other node. It runs beside the agent's loop, eight seconds for a GiB; `uncap` ends it where it is.\nWhat came of it is a decision `ran` or `refused`, in the log and in `commensal explain TASK`.",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := agent.Request{Kind: model.CommandMovePages, Task: args[0], Node: node, Keep: float64(keep) / 100}
			return t.send(cmd, p, req, fmt.Sprintf("pages of %s are being moved off node %d", args[0], node))
		},
	}
	t.flags(cmd)
	cmd.Flags().IntVar(&node, "off", 0, "memory node")
	cmd.Flags().IntVar(&keep, "keep", 0, "of a process's pages, so many per cent may stay there")
	_ = cmd.MarkFlagRequired("off")
	return cmd
}

func uncapCommand(p *cli.Printer) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "uncap TASK", Short: "Free a task; policies leave it alone for a cap's duration", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.send(cmd, p, agent.Request{Kind: model.CommandUncap, Task: args[0]}, args[0]+" is being freed")
		},
	}
	t.flags(cmd)
	return cmd
}

func protectCommand(p *cli.Printer) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "protect on|off [JOB]", Short: "Turn protection on or off, for one job or for all", Args: cobra.RangeArgs(1, 2),
		Long: "Turn protection of a job's tasks on or off: off releases the caps that were set for them, and sets no more.\nWithout a job it means every policy: all of them (hard caps, cpuset, cpu_pool, burst) give back what they\nhave and go on observing, until `commensal protect on`. Operators' own caps stay.",
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, ok := map[string]string{"on": model.CommandProtectOn, "off": model.CommandProtectOff}[args[0]]
			if !ok {
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("protect %s: expected on or off", args[0]))
			}
			req, who := agent.Request{Kind: kind}, "all jobs"
			if len(args) == 2 {
				req.Job, who = args[1], args[1]
			}
			return t.send(cmd, p, req, fmt.Sprintf("protection of %s is %s", who, args[0]))
		},
	}
	t.flags(cmd)
	return cmd
}

func statusCommand(p *cli.Printer) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "status", Short: "Tasks, their signals, what is held and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.client()
			if err != nil {
				return err
			}
			st, err := c.Status(cmd.Context())
			if err != nil {
				return asked(err)
			}
			return p.Print(st, func(w io.Writer) error { return printStatus(w, st) })
		},
	}
	t.flags(cmd)
	return cmd
}

func printStatus(w io.Writer, st *agent.Status) error {
	fmt.Fprintf(w, "commensal %s, profile %s", st.Version, st.Profile)
	for i := range st.Policies {
		p := &st.Policies[i]
		fmt.Fprintf(w, ", %s %s", p.Name, p.Mode)
		if p.Now != p.Mode {
			fmt.Fprintf(w, " (now: %s)", p.Now)
		}
	}
	fmt.Fprintf(w, ", %d windows since %s\n", st.Windows, st.StartedAt.Format(time.DateTime))
	if st.KillSwitch {
		fmt.Fprintln(w, "KILL SWITCH is there: everything is released, nothing is held")
	}
	printFleet(w, st.Fleet, st.Specs)
	for _, j := range st.ProtectOff {
		if j == "" {
			j = "all jobs"
		}
		fmt.Fprintf(w, "protection is off for %s\n", j)
	}
	for _, warning := range st.Warnings {
		fmt.Fprintf(w, "WARNING: %s\n", warning)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "\nTASK\tJOB\tCLASS\tCPU\tSIGNAL\t\tTHRESHOLD\tLAST WINDOW\n")
	for i := range st.Tasks {
		t := &st.Tasks[i]
		limit := "-"
		if t.Threshold > 0 {
			limit = fmt.Sprintf("%.2f", t.Threshold)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Path, t.Job, classText(&t.Task), valueText(t.CPU, "%.3f"), t.Source, valueText(t.Signal, "%.2f"), limit, t.Verdict)
	}
	if len(st.Tasks) == 0 {
		fmt.Fprintln(tw, "(no cgroup matches a rule under tasks)")
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if err := printIdle(w, st); err != nil {
		return err
	}
	printHeld(w, st)
	printIncidents(w, st)
	for _, s := range st.SLO {
		state := slo.Status{State: s.State, Reason: s.Reason}
		target := ""
		if s.Text != "" {
			target = "; " + s.Text
		}
		fmt.Fprintf(w, "latency of %s: %s, p50 %.2f ms, p99 %.2f ms (probe's own lateness %.2f ms)%s\n", s.Job, oneLine(state.String()), s.P50*1e3, s.P99*1e3, s.Lateness*1e3, oneLine(target))
	}
	return nil
}

// printIdle prints how long the memory of tasks lay idle, where somebody has read that: figure 6 of Alibaba's paper, by task.
func printIdle(w io.Writer, st *agent.Status) error {
	edges := [...]int64{300e9, 3600e9, 5400e9, 6 * 3600e9, 24 * 3600e9, 48 * 3600e9}
	if !slices.ContainsFunc(st.Tasks, func(t agent.TaskStatus) bool { return t.Idle != nil }) {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "\nMiB NOT USED FOR\tPAGES\t")
	for _, edge := range edges {
		fmt.Fprintf(tw, "%gh\t", math.Round(float64(edge)/360e9)/10)
	}
	fmt.Fprint(tw, "MAY GO\tTAKEN\tCAME FREE\tCAME BACK\t\n")
	for i := range st.Tasks {
		t := st.Tasks[i].Idle
		if t == nil {
			continue
		}
		for _, pages := range [...]model.PageKind{model.AnonPages, model.FilePages} {
			fmt.Fprintf(tw, "%s\t%s\t", st.Tasks[i].Path, pages)
			for _, edge := range edges {
				fmt.Fprintf(tw, "%d\t", t.Ages.Of(pages)[model.AgeEdge(edge)]>>20)
			}
			if pages == model.AnonPages {
				fmt.Fprintf(tw, "%d\t\t\t\t\n", t.Anon>>20)
				continue
			}
			fmt.Fprintf(tw, "%d\t%.0f\t%.0f\t%.0f\t\n", t.File>>20, t.Reclaimed/(1<<20), t.Given/(1<<20), t.CameBack/(1<<20))
		}
	}
	return tw.Flush()
}

func classText(t *model.Task) string {
	if t.Class == model.BE {
		return fmt.Sprintf("%s %s", t.Class, t.Importance)
	}
	return t.Class.String()
}

// valueText prints a value, or why there is none.
func valueText(v model.Value, format string) string {
	if v.Outcome != model.OK {
		return "(" + v.Outcome.String() + ")"
	}
	return fmt.Sprintf(format, v.V)
}

func printHeld(w io.Writer, st *agent.Status) {
	printPlaces(w, st)
	for i := range st.Held {
		h := &st.Held[i]
		if h.Knob.Spec().Owned() && h.State == engine.KnobHeld {
			continue // with the others that are there
		}
		text, in := h.State.String(), h.Cap > 0 || h.State == engine.KnobHeld && h.Knob.Spec().CPUs == nil
		if h.Quota > 0 {
			text, in = "lowered", true
			if h.Quota >= h.Found.Ratio() {
				text = "raised"
			}
		}
		fmt.Fprintf(w, "\n%s: %s", h.Path, text)
		if in {
			fmt.Fprintf(w, " to %s, before: %s, %.0f s left", h.Written.Brief(), h.Found.Brief(), h.Seconds)
		}
		if h.Why != "" {
			fmt.Fprintf(w, " (%s)", h.Why)
		}
		for _, c := range h.Claims {
			fmt.Fprintf(w, "\n  claim of %s: %s", claimant(&c), c.Reason)
			if c.Incident != "" {
				fmt.Fprintf(w, " [%s]", c.Incident)
			}
		}
		fmt.Fprintln(w)
	}
}

// claimant says who made a claim.
func claimant(c *model.Claim) string { return strings.TrimSpace(c.Owner.String() + " " + c.Policy) }

// printPlaces prints where tasks are held, a line for all that have the same CPUs.
func printPlaces(w io.Writer, st *agent.Status) {
	tasks := map[string][]string{}
	for i := range st.Held {
		if h := &st.Held[i]; h.Knob.Spec().Owned() && h.State == engine.KnobHeld {
			text := h.Written.Brief()
			tasks[text] = append(tasks[text], h.Path)
		}
	}
	const names = 3
	for _, text := range slices.Sorted(maps.Keys(tasks)) {
		list := tasks[text]
		fmt.Fprintf(w, "\n%s: %s", text, strings.Join(list[:min(len(list), names)], ", "))
		if n := len(list) - names; n > 0 {
			fmt.Fprintf(w, " and %d more", n)
		}
	}
	if len(tasks) > 0 {
		fmt.Fprintln(w)
	}
}

// shownIncidents is how many incidents `status` shows; --json has all that are kept.
const shownIncidents = 8

func printIncidents(w io.Writer, st *agent.Status) {
	list := st.Incidents
	if len(list) > shownIncidents {
		list = list[len(list)-shownIncidents:]
	}
	if len(list) > 0 {
		fmt.Fprintln(w, "\nlatest incidents (commensal explain ID):")
	}
	for _, inc := range list {
		var held []string
		for _, r := range inc.Rounds {
			for _, m := range r.Members {
				if m.Path != r.ChosenPath {
					held = append(held, m.Path)
				}
			}
			if r.ChosenPath != "" {
				held = append(held, r.ChosenPath)
			}
		}
		who := "nobody"
		if len(held) > 0 {
			who = strings.Join(held, ", then ")
		}
		fmt.Fprintf(w, "  %s  %s  %s  %s %.2f over %.2f: %s\n", inc.ID, inc.VictimPath, inc.State, inc.Source, inc.Signal, inc.Threshold, who)
	}
}
