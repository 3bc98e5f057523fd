package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/headroom"
)

func headroomCommand(p *cli.Printer) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "headroom", Short: "What best-effort work may use now and in the next hours, with each term", Args: cobra.NoArgs,
		Long: "What the services are forecast to use, and what that leaves best-effort work: now, through the next hour, and\nfurther. Each figure is in CPUs, then in GiB of memory, and follows from those beside it; docs/policies/headroom.md says how.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.client()
			if err != nil {
				return err
			}
			h, err := c.Headroom(cmd.Context())
			if err != nil {
				return asked(err)
			}
			return p.Print(h, func(w io.Writer) error { return printHeadroom(w, h) })
		},
	}
	t.flags(cmd)
	return cmd
}

// printHeadroom prints the horizons, then each task, then the hours of the day.
func printHeadroom(w io.Writer, h *agent.Headroom) error {
	if h.Mode == model.ModeOff || h.WallNsec == 0 {
		_, err := fmt.Fprintln(w, map[bool]string{true: "headroom is off", false: "no forecast yet: the first one comes with the first window"}[h.Mode == model.ModeOff])
		return err
	}
	fmt.Fprintf(w, "forecast of %s, in CPUs: best-effort = machine - reserve - services - system - others\n\n", time.Unix(0, h.WallNsec).UTC().Format("2006-01-02 15:04 UTC"))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "THROUGH\tBEST-EFFORT\tMACHINE\tRESERVE\tSERVICES\tSYSTEM\tOTHERS\tNOT KNOWN")
	for i := range h.Horizons {
		o := &h.Horizons[i]
		fmt.Fprintf(tw, "%s\t%.2f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\n", o.Name, o.BE, o.CPUs, o.Reserve, o.LC, o.System, o.Others, o.Cold)
	}
	fmt.Fprint(tw, "\nTASK\tCLASS\tUSES\tMAY USE\tMOST OF LATE\tLEVEL")
	for i := range h.Horizons {
		fmt.Fprintf(tw, "\t%s", h.Horizons[i].Name)
	}
	fmt.Fprintln(tw, "\tWHY")
	for i := range h.Tasks {
		printForecast(tw, h, &h.Tasks[i])
	}
	printForecast(tw, h, &h.Others)
	if err := tw.Flush(); err != nil {
		return err
	}
	for i := range h.Horizons {
		if o := &h.Horizons[i]; o.BoundWhy != "" {
			fmt.Fprintf(w, "\n%s: %s\n", o.Name, o.BoundWhy)
		}
	}
	if h.TakeBackNsec > 0 {
		fmt.Fprintf(w, "\ntaken back within %s by %s\n", time.Duration(h.TakeBackNsec), h.TakeBackBy)
	}
	fmt.Fprint(w, "\nby the hour of the day (UTC):")
	for at, v := range h.Hours {
		text := "-"
		if v.Outcome == model.OK {
			text = fmt.Sprintf("%.1f", v.V)
		}
		fmt.Fprintf(w, " %02d: %s", at, text)
	}
	fmt.Fprintln(w)
	if err := printMemory(w, h); err != nil {
		return err
	}
	for i := range h.GPU.GPUs {
		if err := printGPU(w, h, &h.GPU.GPUs[i]); err != nil {
			return err
		}
	}
	if h.NoGPU == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nGPUs: %s\n", h.NoGPU)
	return err
}

const gib = 1 << 30

// printMemory prints the same of memory.
func printMemory(w io.Writer, h *agent.Headroom) error {
	m := &h.Memory
	if len(m.Horizons) == 0 {
		_, err := fmt.Fprintln(w, "\nmemory: no forecast: it was not read yet, or not for an hour")
		return err
	}
	fmt.Fprintf(w, "\nmemory, in GiB (%.2f are available); a task has what it has less the page cache that is taken back first (CACHE)\n\n", m.Available.V/gib)
	return printMemoryTables(w, h, m)
}

// printMemoryTables prints the horizons and who has how much.
func printMemoryTables(w io.Writer, h *agent.Headroom, m *headroom.MemoryReport) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "THROUGH\tBEST-EFFORT\tMACHINE\tRESERVE\tSERVICES\tSYSTEM\tOTHERS\tNOT KNOWN")
	for i := range m.Horizons {
		o := &m.Horizons[i]
		fmt.Fprintf(tw, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\n", o.Name, o.BE/gib, o.Total/gib, o.Reserve/gib, o.LC/gib, o.System/gib, o.Others/gib, o.Cold)
	}
	fmt.Fprint(tw, "\nTASK\tCLASS\tHAS\tCACHE\tMAY HAVE\tMOST OF LATE\tLEVEL\tA DAY MORE")
	for i := range m.Horizons {
		fmt.Fprintf(tw, "\t%s", m.Horizons[i].Name)
	}
	fmt.Fprintln(tw, "\tWHY")
	for i := range m.Tasks {
		printMemoryForecast(tw, h, &m.Tasks[i])
	}
	printMemoryForecast(tw, h, &m.Others)
	if err := tw.Flush(); err != nil {
		return err
	}
	if o := &m.Horizons[0]; o.BoundWhy != "" {
		fmt.Fprintf(w, "\n%s: %s\n", o.Name, o.BoundWhy)
	}
	if m.TakeBackNsec > 0 {
		fmt.Fprintf(w, "\ntaken back within %s by %s\n", time.Duration(m.TakeBackNsec), m.TakeBackBy)
	}
	return nil
}

// printGPU prints the same of one GPU's memory, who has some of it now, and its time.
func printGPU(w io.Writer, h *agent.Headroom, g *headroom.GPUForecast) error {
	m := &g.Memory
	fmt.Fprintf(w, "\n%s, memory in GiB: %s, of which %s are free\n\n", g.UUID, valueText(inGiB(m.Total), "%.2f"), valueText(inGiB(m.Available), "%.2f"))
	if g.Why != "" {
		fmt.Fprintf(w, "no forecast: %s\n", g.Why)
	} else if err := printMemoryTables(w, h, m); err != nil {
		return err
	}
	for i := range g.Users {
		u := &g.Users[i]
		fmt.Fprintf(w, "%s (%s) has %.2f now\n", u.Path, u.Class, u.Bytes/gib)
	}
	if g.Untold > 0 {
		fmt.Fprintf(w, "processes whose memory the driver does not tell, which counts as others': %d\n", g.Untold)
	}
	fmt.Fprintf(w, "busy, the whole GPU with best-effort work, as a share of its time (of processes nobody tells that): %s", valueText(g.Busy.Last, "%.2f"))
	for i := range g.Busy.Terms {
		fmt.Fprintf(w, ", %s %.2f", h.Horizons[i].Name, g.Busy.Terms[i].CPU)
	}
	if n := len(g.Busy.Terms); n > 0 && g.Busy.Terms[n-1].Cold != "" {
		fmt.Fprintf(w, " (%s)", g.Busy.Terms[n-1].Cold)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func inGiB(v model.Value) model.Value {
	v.V /= gib
	return v
}

// printMemoryForecast prints one task, with the reason for what it is taken to need through the longest horizon.
func printMemoryForecast(w io.Writer, h *agent.Headroom, f *headroom.MemoryForecast) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f", f.Path, f.Class, valueText(inGiB(f.Last), "%.2f"), valueText(inGiB(f.Cache), "%.2f"), f.Limit/gib, f.High/gib, f.Level, f.Trend*86400/gib)
	for i := range f.Terms {
		fmt.Fprintf(w, "\t%.2f", f.Terms[i].Bytes/gib)
	}
	why := ""
	if n := len(f.Terms); n > 0 {
		far := &f.Terms[n-1]
		why = fmt.Sprintf("p%g at %02d h is %.2f, growth %.2f, + %g %%", 100*h.Params.Percentile, far.Hour, far.Profile/gib, far.Growth/gib, 100*h.Params.Margin)
		if far.Cold != "" {
			why = fmt.Sprintf("%s: %s", f.Of, far.Cold)
		}
	}
	fmt.Fprintf(w, "\t%s\n", why)
}

// printForecast prints one task, with the reason for what it is taken to need through the longest horizon.
func printForecast(w io.Writer, h *agent.Headroom, f *headroom.TaskForecast) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%.2f\t%.2f", f.Path, f.Class, valueText(f.Last, "%.2f"), f.Limit, f.High, f.Level)
	for i := range f.Terms {
		fmt.Fprintf(w, "\t%.2f", f.Terms[i].CPU)
	}
	why := ""
	if n := len(f.Terms); n > 0 {
		far := &f.Terms[n-1]
		why = fmt.Sprintf("p%g at %02d h is %.2f, + %g %%", 100*h.Params.Percentile, far.Hour, far.Profile, 100*h.Params.Margin)
		if far.Cold != "" {
			why = fmt.Sprintf("%s: %s", f.Of, far.Cold)
		}
	}
	fmt.Fprintf(w, "\t%s\n", why)
}
