package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// toldTask is how many decisions of a policy are printed; --json has them all.
const toldTask = 10

// printTaskStory tells what each policy did to a task.
func printTaskStory(w io.Writer, st *record.TaskStory) error {
	printReading(w, &record.Reading{Damaged: st.Damaged}, "read")
	t := &st.Task
	fmt.Fprintf(w, "%s (job %s, %s), from %s to %s\n", t.Path, t.Job, classText(t), clock(st.FromNsec), clock(st.UntilNsec))
	if st.Ended {
		fmt.Fprintln(w, "it was gone before the end of the record")
	}
	if occupancy, moved := model.SumDomains(st.Domains); occupancy.Outcome == model.OK || moved.Outcome == model.OK {
		fmt.Fprintf(w, "it had %s MiB of the last-level caches and moved %s MB/s to and from memory when that was counted last\n", inUnits(occupancy, 1<<20), inUnits(moved, 1e6))
	}
	for i := range st.Policies {
		printPolicyStory(w, &st.Policies[i])
	}
	printWrites(w, st.Writes)
	if len(st.Incidents) > 0 {
		fmt.Fprintln(w, "\nincidents (commensal explain ID):")
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for i := range st.Incidents {
			p := &st.Incidents[i]
			score := ""
			if p.Part != "victim" {
				score = fmt.Sprintf("score %.2f", p.Score)
			}
			fmt.Fprintf(tw, "  %s\t%s\t%s\tit was: %s\t%s\t%s\tvictim %s\n", clock(p.WallNsec), p.Incident, p.State, p.Part, score, oneLine(p.Verdict), p.Victim)
		}
		return tw.Flush()
	}
	_, err := fmt.Fprintln(w, "\nit had a part in no incident")
	return err
}

// inUnits is a number of bytes in a larger unit.
func inUnits(v model.Value, unit float64) string {
	v.V /= unit
	return valueText(v, "%.1f")
}

func printPolicyStory(w io.Writer, p *record.PolicyStory) {
	fmt.Fprintf(w, "\n%s", p.Policy)
	if p.Mode != "" && p.Mode != model.ModeOff.String() {
		fmt.Fprintf(w, " (%s)", p.Mode)
	}
	switch n := len(p.Decisions) + p.Earlier; {
	case n == 0 && p.Mode == model.ModeOff.String():
		fmt.Fprintln(w, ": is off")
	case n == 0:
		fmt.Fprintln(w, ": decided nothing about it")
	case n == 1:
		fmt.Fprintln(w, ": one decision")
	default:
		fmt.Fprintf(w, ": %d decisions\n", n)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	list := p.Decisions
	if n := len(list) - toldTask; n > 0 && len(runs(list)) > toldTask {
		list = list[n:]
		fmt.Fprintf(tw, "  (%d earlier ones: --json)\n", n+p.Earlier)
	}
	printDecisions(tw, list)
	_ = tw.Flush() // the writer's error shows at the end
	if len(p.Node) > 0 {
		fmt.Fprintln(w, "  of the node as a whole, lastly:")
		printDecisions(tw, p.Node)
		_ = tw.Flush() // the writer's error shows at the end
	}
}

// runs are the lengths of runs of decisions that say the same.
func runs(list []model.Decision) []int {
	var lengths []int
	for i := range list {
		if i > 0 && list[i].Kind == list[i-1].Kind && list[i].Incident == list[i-1].Incident && list[i].Reason == list[i-1].Reason {
			lengths[len(lengths)-1]++
		} else {
			lengths = append(lengths, 1)
		}
	}
	return lengths
}

func printDecisions(w io.Writer, list []model.Decision) {
	last := -1
	for _, n := range runs(list) {
		last += n
		d := &list[last]
		reason := oneLine(d.Reason)
		if d.Incident != "" {
			reason += " [" + d.Incident + "]"
		}
		if n > 1 {
			reason += fmt.Sprintf(" (%d times, this was the last)", n)
		}
		mode := ""
		if d.Mode == model.ModeObserve.String() && d.Kind.Acts() {
			mode = "(would)"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", clock(d.WallNsec), d.Kind, mode, reason)
	}
}

// printWrites says what the kernel was told, the latest last.
func printWrites(w io.Writer, list []record.Write) {
	if len(list) == 0 {
		fmt.Fprintln(w, "\nwritten: nothing")
		return
	}
	fmt.Fprintf(w, "\nwritten (%d):\n", len(list))
	if n := len(list) - toldTask; n > 0 {
		fmt.Fprintf(w, "  (%d earlier ones: --json)\n", n)
		list = list[n:]
	}
	for _, x := range list {
		of := ""
		if x.Of != "" { // of the class that the task is in
			of = x.Of + ": "
		}
		fmt.Fprintf(w, "  %s  %s%s (found: %s)\n", clock(x.WallNsec), of, x.Now.Brief(), x.Found.Brief())
	}
}

// oneLine replaces what could move the cursor, of names and errors that others made.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// clock prints a wall time.
func clock(wallNsec int64) string {
	if wallNsec == 0 {
		return "-"
	}
	return time.Unix(0, wallNsec).Format(time.DateTime)
}
