package linux

import (
	"math"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// bound is what shared LC tasks have used at most. Two sources have an upper bound of it, each by
// itself: what their CPUs did, which strangers there make useless, and what the groups did that hold
// them (holders.go), which batch work in these may make useless. The one that grows less is read, and
// both now and then.
type bound struct {
	sum     uint64 // nanoseconds
	sources [2]boundSource
	chosen  int // of sources
	left    int // readings of the chosen one until both are read
}

// The sources.
const (
	ofCPUs = iota
	ofHolders
)

// boundSource is one of them.
type boundSource struct {
	from  model.Counter // from which its next growth counts
	grown uint64        // since both were read
	known bool          // by how much it grew with the last reading
}

// compareBounds is how many readings of one source come between two of both: with one each 50 ms
// less than a second.
const compareBounds = 16

// LCBound implements node.Host: a few reads on kept descriptors.
func (h *Host) LCBound(cpus model.CPUSet) model.Counter {
	if h.byCPU.cpus != cpus {
		h.byCPU.cpus, h.bound.sources[ofCPUs] = cpus, boundSource{}
	}
	return h.bound.next(h.readBound)
}

// readBound returns up to where a source has grown, and from where its next growth counts.
func (h *Host) readBound(source int) (until, from model.Counter) {
	if source == ofHolders {
		return h.holders.read()
	}
	v := h.byCPU.read(h.topology.last)
	return v, v
}

// next takes the next reading.
func (b *bound) next(read func(source int) (until, from model.Counter)) model.Counter {
	both, grown := b.left == 0, uint64(math.MaxUint64)
	for i := range b.sources {
		s := &b.sources[i]
		if s.known = false; !both && i != b.chosen {
			continue
		}
		until, from := read(i)
		more, outcome := model.Delta(s.from, until)
		s.from, s.grown, s.known = from, s.grown+more, outcome == model.OK
		if s.known {
			grown = min(grown, more)
		}
	}
	if grown == math.MaxUint64 {
		return b.begin()
	}
	if b.left--; both {
		b.choose()
	}
	b.sum += grown
	return model.Read(b.sum)
}

// begin is for when nobody knows what was used since the last reading: what is returned is less than it
// was, or nothing, so that no difference is taken.
func (b *bound) begin() model.Counter {
	b.left = 0
	was := b.sum
	b.sum = 0
	if was == 0 || b.sources[ofCPUs].from.Outcome != model.OK && b.sources[ofHolders].from.Outcome != model.OK {
		return model.Counter{}
	}
	return model.Read(0)
}

// choose takes the source that grew less since both were read.
func (b *bound) choose() {
	cpus, holders := &b.sources[ofCPUs], &b.sources[ofHolders]
	b.chosen, b.left = ofCPUs, compareBounds
	if holders.known && (!cpus.known || holders.grown < cpus.grown) {
		b.chosen = ofHolders
	}
	cpus.grown, holders.grown = 0, 0
}

// byCPU is the CPU time of each possible CPU, which the root of cpuacct has in one file. cgroup v2 has
// no such thing: /proc/stat counts ticks and takes longer to read than a few dozen tasks, and
// /proc/schedstat shows what runs on only when it is switched away from.
type byCPU struct {
	file *cgroup.UsagePerCPU // nil: not to be had
	nsec []uint64            // of the last reading
	ids  []int               // the possible CPUs
	of   *model.Topology     // that ids are of
	cpus model.CPUSet        // whose time is asked for
}

func (b *byCPU) open(cg cgroup.Driver) {
	if v1, ok := cg.(*cgroup.V1); ok {
		b.file, _ = v1.OpenUsagePerCPU("/") // the other source is left
	}
}

// read returns the CPU time of the CPUs together, in nanoseconds: one read on a kept descriptor.
func (b *byCPU) read(top *model.Topology) model.Counter {
	if b.file == nil || top == nil {
		return model.Counter{}
	}
	if b.of != top {
		b.of, b.ids = top, top.Possible.Members()
	}
	var err error
	if b.nsec, err = b.file.UsageNsec(b.nsec); err != nil || len(b.nsec) != len(b.ids) {
		return model.Counter{}
	}
	sum := uint64(0)
	for i, nsec := range b.nsec {
		if b.cpus.Has(b.ids[i]) {
			sum += nsec
		}
	}
	return model.Read(sum)
}
