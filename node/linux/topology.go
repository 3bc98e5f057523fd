package linux

import (
	"math"
	"slices"

	cpuset "github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

// topology follows which CPUs are online and what they share. The kernel numbers cores
// within their package and caches within their level; here each has one number on the
// machine, which it keeps for as long as the agent runs, whoever goes offline meanwhile.
type topology struct {
	online []int // of the last reading
	cores  numbers
	caches numbers
	now    *model.Topology // not in a snapshot yet; nil: nothing new
	last   *model.Topology // that was read
	failed string          // why it could not be read, as told last
}

// numbers gives out numbers in the order of first appearance.
type numbers map[[3]int]int

func (n numbers) of(key [3]int) int {
	v, ok := n[key]
	if !ok {
		v = len(n)
		n[key] = v
	}
	return v
}

// lookAtCPUs reads the topology when other CPUs are online than before.
func (h *Host) lookAtCPUs() {
	t := &h.topology
	online, err := cputopology.ReadOnline(h.opt.FS)
	if err == nil {
		h.online = len(online)
		if slices.Equal(online, t.online) {
			return
		}
		err = t.read(h)
	}
	if err != nil {
		if why := err.Error(); why != t.failed {
			t.failed = why
			h.opt.Log.Warn("which CPUs share a core is not known: no task can be kept to CPUs of its own", "error", why)
		}
		return
	}
	t.online, t.failed, t.last = online, "", t.now
}

// offer adds what the machine has of classes of service, once that is known.
func (h *Host) offer() {
	if h.classes == nil {
		return
	}
	t := &h.topology
	if have := h.classes.news(); have != nil {
		h.classes.told, t.now = have, t.last
	}
	if t.now != nil && h.classes.told != nil {
		now := *t.now
		now.Classes = h.classes.told.Online(now.Online())
		t.now = &now
	}
}

func (t *topology) read(h *Host) error {
	at, err := cputopology.Read(h.opt.FS)
	if err != nil {
		return err
	}
	possible, err := cputopology.ReadPossible(h.opt.FS)
	if err != nil {
		return err
	}
	now := &model.Topology{CPUs: make([]model.CPU, 0, len(at.CPUs)), Possible: cpuset.Of(possible...)}
	if t.cores == nil {
		t.cores, t.caches = numbers{}, numbers{}
	}
	near := MemoryNear(h.opt.FS)
	for i := range at.CPUs {
		c := &at.CPUs[i]
		now.CPUs = append(now.CPUs, model.CPU{
			ID: c.ID, Core: t.cores.of(coreKey(c)), Socket: max(c.Package, 0), LLC: t.caches.of(cacheKey(c)), Node: near(c.Node),
		})
	}
	t.now = now
	return nil
}

// MemoryNear returns which memory node is near the CPUs of a node: itself, or the nearest by the firmware's word where it has no memory, of which the kernel takes
// pages then. Where the kernel tells nothing of nodes all CPUs are near node 0.
func MemoryNear(files hostfs.FS) func(node int) int {
	nodes, err := numa.ReadTopology(files)
	return func(node int) int {
		node = max(node, 0)
		if err != nil || nodes.Node(node) == nil || nodes.Node(node).HasMemory {
			return node
		}
		best, least := node, uint64(math.MaxUint64)
		for _, d := range nodes.Node(node).Distances {
			if to := nodes.Node(d.Node); to != nil && to.HasMemory && d.Count < least {
				best, least = d.Node, d.Count
			}
		}
		return best
	}
}

// Kinds of key: what a number was told apart by.
const (
	keyOwn = -1 - iota
	keyShared
	keyPackage
)

// coreKey tells cores apart: by their number in package and die; where the kernel gives
// none, by the first of the CPUs that share one; else each CPU is a core.
func coreKey(c *cputopology.CPU) [3]int {
	switch {
	case c.Core != cputopology.Unknown:
		return [3]int{max(c.Package, 0), max(c.Die, 0), c.Core}
	case len(c.Siblings) > 0:
		return [3]int{keyShared, 0, c.Siblings[0]}
	}
	return [3]int{keyOwn, 0, c.ID}
}

// cacheKey tells last-level caches apart: by their number, which is one of a level on the
// whole machine; where the kernel gives none, by the first of the CPUs that share one; and
// where it shows no cache, one a package.
func cacheKey(c *cputopology.CPU) [3]int {
	switch {
	case c.LLC.ID != cputopology.Unknown:
		return [3]int{c.LLC.Level, 0, c.LLC.ID}
	case len(c.LLC.Shared) > 0:
		return [3]int{keyShared, c.LLC.Level, c.LLC.Shared[0]}
	}
	return [3]int{keyPackage, 0, max(c.Package, 0)}
}
