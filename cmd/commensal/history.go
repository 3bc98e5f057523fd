package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

func replayCommand(p *cli.Printer) *cobra.Command {
	return &cobra.Command{
		Use: "replay RECORD", Short: "Recompute every decision of a record; exit 1 at the first difference", Args: cobra.ExactArgs(1),
		Long: `Recompute every decision of a record, a folder or one segment. Each segment stands alone: one that is
damaged is named and read as far as it is good, and the others are replayed.

Exit codes: 0 it replays exactly; 1 at the first difference; 2 no record, or a segment that is damaged; 4 it may not be read.`,
		RunE: func(_ *cobra.Command, args []string) error {
			res, err := record.Run(args[0])
			if err != nil {
				return recordError(err)
			}
			if err := p.Print(res, func(w io.Writer) error { return printReplay(w, res) }); err != nil {
				return err
			}
			switch {
			case res.First != nil:
				return cli.Fail(cli.CodeFailed, &cli.Told{})
			case len(res.Damaged) > 0:
				return cli.Fail(cli.CodeBadInput, &cli.Told{})
			}
			return nil
		},
	}
}

// recordError: a record that is not there, not one, newer or damaged is bad input.
func recordError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return cli.Fail(cli.CodePrivilege, err)
	}
	return cli.Fail(cli.CodeBadInput, err)
}

func printReplay(w io.Writer, r *record.Replay) error {
	printReading(w, &r.Reading, "replayed")
	fmt.Fprintf(w, "%d segments, %d ticks, %d windows, %d decisions, %d changes recomputed\n", r.Segments, r.Ticks, r.Windows, r.Decisions, r.Changes)
	if r.First == nil {
		text := "no difference: the record replays exactly"
		if len(r.Damaged) > 0 {
			text = "no difference in what could be read"
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	d := r.First
	or := func(s string) string {
		if s == "" {
			return "(nothing)"
		}
		return s
	}
	_, err := fmt.Fprintf(w, "FIRST DIFFERENCE at tick %d (%s), %s %d, in %s\n  recorded: %s\n  replayed: %s\n",
		d.Seq, time.Unix(0, d.WallNsec).Format(time.DateTime), d.What, d.Index, d.Segment, or(d.Recorded), or(d.Replayed))
	return err
}

// printReading names the segments that were not read to their end; did is what was done with the rest.
func printReading(w io.Writer, r *record.Reading, did string) {
	for _, t := range r.Torn {
		fmt.Fprintf(w, "%s ends inside a frame, as after a crash; everything before it was %s\n", t, did)
	}
	for _, d := range r.Damaged {
		fmt.Fprintf(w, "DAMAGED %s: %s; what came before it was %s, and the other segments\n", d.Segment, d.Error, did)
	}
}

const explainLong = `Of an incident: who was suspected, with which scores, what was done and what followed.
Of a task: what each policy did to it, and why, and in which incidents it had a part.

    commensal explain 1k9f-3                       an incident, from commensal status
    commensal explain /batch/job-7 --since 1h      a task: the last hour of the record

It reads the record, also of an agent that does not run, and another host's with --record.

Exit codes: 0 done; 2 the record has no such incident or task; 4 the record may not be read.`

func explainCommand(p *cli.Printer) *cobra.Command {
	var path, rec string
	var since time.Duration
	cmd := &cobra.Command{
		Use: "explain INCIDENT|TASK", Short: "What was decided of an incident or of a task, by whom, and why", Args: cobra.ExactArgs(1), Long: explainLong,
		RunE: func(_ *cobra.Command, args []string) error {
			if rec == "" {
				c, err := load(path)
				if err != nil {
					return err
				}
				rec = agent.RecordPath(c.Agent.StateDir)
			}
			if strings.HasPrefix(args[0], "/") {
				st, err := record.FindTask(rec, args[0], since)
				if err != nil {
					return recordError(err)
				}
				return p.Print(st, func(w io.Writer) error { return printTaskStory(w, st) })
			}
			st, err := record.Find(rec, args[0])
			if err != nil {
				return recordError(err)
			}
			return p.Print(st, func(w io.Writer) error { return printStory(w, st) })
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&rec, "record", "", "folder or segment to look in (default: the agent's)")
	cmd.Flags().DurationVar(&since, "since", 0, "of a task: only so much of the end of the record (default: all of it)")
	return cmd
}

func printStory(w io.Writer, st *record.Story) error {
	printReading(w, &record.Reading{Damaged: st.Damaged}, "read")
	inc := st.Incident
	at := func(mono int64) string { return fmt.Sprintf("+%.1f s", float64(mono-inc.OpenedNsec)/1e9) }
	fmt.Fprintf(w, "incident %s: %s\n\n", inc.ID, inc.State)
	fmt.Fprintf(w, "victim     %s (job %s)\n", inc.VictimPath, inc.VictimJob)
	fmt.Fprintf(w, "opened     %s\n", time.Unix(0, inc.OpenedWall).Format(time.DateTime))
	fmt.Fprintf(w, "signal     %s %.3g, threshold %.3g, %d violations in the window\n", inc.Source, inc.Signal, inc.Threshold, inc.Violations)
	if st.SLO != nil {
		fmt.Fprintf(w, "latency    when it opened %s; lastly %s\n", oneLine(st.SLO.Opened.Text()), oneLine(st.SLO.Last.Text()))
	}
	fmt.Fprintf(w, "spec       %.4g +- %.2g on %s, %s\n", inc.Spec.Mean, inc.Spec.StdDev, inc.Spec.Platform, inc.Spec.Origin())
	for i := range inc.Rounds {
		printRound(w, i+1, &inc.Rounds[i], at)
	}
	if inc.Evidence != "" {
		fmt.Fprintf(w, "\nend        %s\n", inc.Evidence)
	}
	for _, t := range inc.Tried {
		fmt.Fprintf(w, "tried      %s\n", t)
	}
	fmt.Fprintln(w, "\nwhat happened:")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range st.Decisions {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\n", at(d.MonoNsec), d.Kind, d.Path, d.Reason)
	}
	return tw.Flush()
}

func printRound(w io.Writer, n int, r *model.Round, at func(int64) string) {
	if r.ByBlame {
		printBlame(w, n, r, at)
		printHold(w, r, at)
		return
	}
	fmt.Fprintf(w, "\nround %d at %s: %d suspects, score asked for %.2f", n, at(r.MonoNsec), r.Considered, r.Threshold)
	if r.Margin > 0 {
		fmt.Fprintf(w, " (median %.2f + margin %.2f)", r.Median, r.Margin)
	} else if r.Steady != 0 {
		fmt.Fprintf(w, " (a steady suspect scores %.2f)", r.Steady)
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head, takes := "", func(*model.Suspect) string { return "" }
	if r.Lack != model.LackUnknown {
		fmt.Fprintf(w, "  it misses the cache %.3g times in 1000 instructions, %.3g while it was well: it lacks %s. TAKES is of that, more than then.\n", r.MPKI, r.UsualMPKI, r.Lack)
		head, takes = "TAKES\t", func(s *model.Suspect) string { return r.Lack.Amount(s.Takes) + "\t" }
	}
	fmt.Fprintf(tw, "  SCORE\tCPU\t%sSUSPECT\tCLASS\tVERDICT\n", head)
	for i := range r.Suspects {
		s := &r.Suspects[i]
		fmt.Fprintf(tw, "  %.2f\t%.2f\t%s%s\t%s\t%s\n", s.Score, s.Usage, takes(s), s.Path, classOf(s), s.Verdict)
	}
	_ = tw.Flush() // the writer's error shows at the end
	printHold(w, r, at)
}

// classOf is a suspect's class, for those that are tasks.
func classOf(s *model.Suspect) string {
	if s.Kind != model.SuspectTask {
		return "-"
	}
	return s.Class.String()
}

// printBlame shows a round that goes by who had the CPU while the victim waited.
func printBlame(w io.Writer, n int, r *model.Round, at func(int64) string) {
	fmt.Fprintf(w, "\nround %d at %s: its threads waited %.3g ms a second for others, usually %.3g ms; of what is more than usual (%.0f %% asked for):\n",
		n, at(r.MonoNsec), r.WaitedNsec/1e6, r.UsualNsec/1e6, 100*r.Threshold)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if r.Lost > 0 || r.LeftOut > 0 {
		fmt.Fprintf(w, "  a bad window that counts lost up to %.0f %% of the waiting; %d windows of late lost more than %.0f %% and count for nothing\n", 100*r.Lost, r.LeftOut, 100*model.MaxWaitLost)
	}
	if r.ByChance {
		fmt.Fprintf(w, "  good windows scatter so much that this may be chance (%.1f standard errors): nobody answers for it\n", r.RiseErrors)
	}
	fmt.Fprintln(tw, "  BLAME\tFROM - TO\tRAN\tROOM\tCORRELATION\tCPU\tSUSPECT\tCLASS\tVERDICT")
	for _, s := range r.Suspects {
		fmt.Fprintf(tw, "  %.0f %%\t%.0f - %.0f %%\t%.0f %%\t%.0f %%\t%.2f\t%.2f\t%s\t%s\t%s\n", 100*s.Score, 100*s.Low, 100*s.High, 100*s.Ran, 100*s.Room, s.Correlation, s.Usage, s.Path, classOf(&s), s.Verdict)
	}
	_ = tw.Flush() // the writer's error shows at the end
	fmt.Fprintln(w, "  FROM - TO: the share with any one bad window left out. It shows what one window weighs, and is no confidence interval.")
}

// printHold shows who was held in a round, and what became of it.
func printHold(w io.Writer, r *model.Round, at func(int64) string) {
	if r.Chosen == nil {
		return
	}
	if len(r.Members) > 0 {
		printMembers(w, r, at)
		return
	}
	did, would := "held", "hold"
	if r.Uncapped {
		did, would = "demoted", "demote"
	}
	if r.Nudge {
		did = "nudged"
	}
	if r.AppliedNsec == 0 {
		did = "chose to " + would // in observe mode, or before the kernel answered
	}
	fmt.Fprintf(w, "  %s %s", did, r.ChosenPath)
	if !r.Uncapped {
		fmt.Fprintf(w, " to %.3g CPU", r.Cap)
	}
	if r.AppliedNsec > 0 {
		fmt.Fprintf(w, " from %s", at(r.AppliedNsec))
	}
	printEffect(w, r)
}

// printEffect says what became of a round's caps.
func printEffect(w io.Writer, r *model.Round) {
	if r.WindowsJudged > 0 {
		fmt.Fprintf(w, ": signal %.3g before, %.3g after (%d windows)", r.SignalBefore, r.SignalAfter, r.WindowsJudged)
	}
	fmt.Fprintf(w, ": %s\n", r.Verdict)
	if r.Nudge {
		word := "refuted or undecided"
		if r.Confirmed {
			word = "confirmed"
		}
		fmt.Fprintf(w, "  the nudge lasted %.3g s and took %.3g CPU-seconds: %s\n", float64(r.HeldNsec)/1e9, r.LostCPUSec, word)
	}
	if r.Steps > 0 {
		fmt.Fprintf(w, "  the caps were changed %d times; at last they left %.0f %% of what the task used at most\n", r.Steps, 100*r.Level)
	}
}

// printMembers shows a round in which a group was held.
func printMembers(w io.Writer, r *model.Round, at func(int64) string) {
	fmt.Fprintf(w, "  a group: score %.2f, explains %.0f %% of the victim's ups and downs", r.GroupScore, 100*r.Explained)
	if r.AppliedNsec > 0 {
		fmt.Fprintf(w, "; held from %s", at(r.AppliedNsec))
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  MEMBER\tSCORE\tCPU\tCAP\tADDS\tVERDICT")
	for i := range r.Members {
		m := &r.Members[i]
		verdict := cmp.Or(m.Verdict, "not tried apart")
		if m.Alike {
			verdict += "; moves as another member does"
		}
		fmt.Fprintf(tw, "  %s\t%.2f\t%.2f\t%.3g\t%.0f %%\t%s\n", m.Path, m.Score, m.Usage, m.Cap, 100*m.Gain, verdict)
	}
	_ = tw.Flush() // the writer's error shows at the end
	fmt.Fprint(w, "  together")
	printEffect(w, r)
}
