package partition

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
)

// Options of a run.
type Options struct {
	Seed     uint64
	Quick    bool
	HostOnly bool
	TwinOnly bool
	// Defaults: the agent on this host has its default parameters, and every arm 30 steps.
	Defaults bool
	Agent    string // path of the agent's binary, for the host's part
	Keep     string // folder to keep the agents' records and logs in; "": none
	Log      io.Writer
}

// Run plays both parts, one after the other: the twin would disturb the host's. What the
// context's end leaves unfinished is an error.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &Result{Seed: o.Seed, Quick: o.Quick, Defaults: o.Defaults}
	if !o.TwinOnly {
		before := loadAverage()
		blocks, err := playHost(ctx, o, sizeOfHost(o))
		if err != nil {
			return nil, err
		}
		r.Host = summarise(blocks, runtime.NumCPU())
		r.Host.Facts = hostFacts(before, r.Host.Steal)
	}
	if !o.HostOnly {
		size := sizeOfTwin(o.Quick)
		fmt.Fprintf(o.Log, "twin: %d tables of %d arms and more, %.0f minutes each\n", len(twinTables()), len(arms()), size.length.Minutes())
		var err error
		if r.Twin, err = playTwin(ctx, o, size); err != nil {
			return nil, err
		}
	}
	r.judge()
	return r, nil
}

// loadAverage is what the host had to do before we came: of others.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// hostFacts describe the machine.
func hostFacts(load string, steal float64) [][2]string {
	fs := hostfs.NewRoot("/")
	facts := [][2]string{
		{"CPUs", fmt.Sprint(runtime.NumCPU())}, {"load average before", load}, {"steal", fmt.Sprintf("%.1f %% of all CPU", 100*steal)},
	}
	if p, err := procstat.ReadPlatform(fs); err == nil {
		facts = append(facts, [2]string{"platform", p})
	}
	if k, err := procstat.ReadKernelRelease(fs); err == nil {
		facts = append(facts, [2]string{"kernel", k})
	}
	return facts
}
