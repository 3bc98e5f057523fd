// Package look fills in what a host's cgroups are like, for package node/survey to guess from.
// It reads and changes nothing.
package look

import (
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/node/survey"
)

// maxPIDs bounds the processes that are looked at in one group: a service listens with its
// first ones.
const maxPIDs = 256

// At fills in what each group is like now. It takes as long as it is told to, over which
// it measures CPU. What cannot be read is left open. root is "/", or a tree with a proc.
func At(list []survey.Group, driver cgroup.Driver, root string, during time.Duration) {
	open := make([]cgroup.Group, len(list))
	before := make([]uint64, len(list))
	for i := range list {
		g, err := driver.Open(list[i].Path)
		if err != nil {
			continue
		}
		defer g.Close() //nolint:errcheck // read only
		if before[i], err = g.UsageNsec(); err == nil {
			open[i], list[i].Seen = g, true
		}
	}
	begin := time.Now()
	time.Sleep(during)
	for i, g := range open {
		if g == nil {
			continue
		}
		took := time.Since(begin)
		if after, err := g.UsageNsec(); err == nil && after >= before[i] && took > 0 {
			list[i].CPU = float64(after-before[i]) / float64(took)
		}
		settings(&list[i], driver)
		if pids, err := g.Procs(nil); err == nil {
			processes(&list[i], root, pids[:min(len(pids), maxPIDs)])
		}
	}
}

// settings reads quota, weight and cpu.idle.
func settings(g *survey.Group, driver cgroup.Driver) {
	if m, err := driver.ReadCPUMax(g.Path); err == nil && m.QuotaUsec > 0 {
		g.Quota = m.Ratio()
	}
	if shares, err := driver.ReadShares(g.Path); err == nil {
		g.Weight = max(1, (shares*100+512)/1024) // as the kernel does
	}
	if idle, err := driver.ReadIdle(g.Path); err == nil {
		g.Idle = idle
	}
}
