package main

import (
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/probe"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/policy"
)

// mostNamed bounds how many services doctor names; the others it counts.
const mostNamed = 3

// latencyOf says what policy bandwidth goes by; "": it is off.
func latencyOf(c *config.Config, findings []probe.Finding) string {
	if c.Policies.CPU.BandwidthMode == model.ModeOff {
		return ""
	}
	f := probe.Find(findings, probe.MemoryLatency)
	if f.Answer == probe.Yes {
		return "of memory: counted, by " + f.Why
	}
	return "of memory: not counted, so bandwidth goes by CPI (docs/policies/bandwidth.md): " + f.Why
}

// memoryHere says whether services on this host are as policies take them to be that give way by memory (policy/home.go); "": no such policy is on, there
// is no service, the machine has one memory node, or it cannot be told.
func memoryHere(c *config.Config) string {
	if !c.Policies.Needs().Homes {
		return ""
	}
	m := &matching{}
	paths, err := m.list()
	if err != nil || m.fill(c, paths) != nil {
		return ""
	}
	files := hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(files)
	if err != nil {
		return ""
	}
	var services []string
	for i := range m.Tasks {
		if m.Tasks[i].Class == model.LC {
			services = append(services, m.Tasks[i].Path)
		}
	}
	return premisesOf(files, mounts, m.driver, services)
}

// premisesOf looks at services by their paths.
func premisesOf(files hostfs.FS, mounts *cgroup.Mounts, cg cgroup.Driver, services []string) string {
	homes, err := linux.OpenHomes(files, mounts)
	cpus, err2 := cputopology.Read(files)
	if err != nil || err2 != nil || homes == nil || len(services) == 0 {
		return ""
	}
	machine, near := &model.Topology{}, linux.MemoryNear(files)
	for i := range cpus.CPUs {
		c := &cpus.CPUs[i]
		machine.CPUs = append(machine.CPUs, model.CPU{ID: c.ID, Socket: max(c.Package, 0), Node: near(c.Node)})
	}
	hold, others := 0, []string{}
	for _, path := range services {
		text, err := cg.ReadEffectiveCPUs(path)
		if err != nil {
			text = ""
		}
		set, err := model.ParseCPUSet(text)
		if err != nil || set.Empty() {
			set = machine.Online()
		}
		var at *model.PageHomes
		if read, err := homes.Of(path); err == nil {
			at = &read
		}
		if p := policy.PremisesOf(machine, set, at); p.Hold() {
			hold++
		} else {
			others = append(others, fmt.Sprintf("%q: %s", path, &p))
		}
	}
	said := fmt.Sprintf("of %d services %d have local pages and one socket (docs/policies/balm.md)", len(services), hold)
	if more := len(others) - mostNamed; more > 0 {
		others = append(others[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	if len(others) > 0 {
		said += "; " + strings.Join(others, "; ")
	}
	return said
}
