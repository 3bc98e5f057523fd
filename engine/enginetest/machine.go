package enginetest

import "github.com/commensal-io/commensal/model"

// Divided is a machine whose sockets have so many memory nodes, last-level caches and CPUs each, of which CPUs have equal parts in their order, and classes of
// service in eight numbers whose domains are the caches: (1, 1, 8, 16) is as AMD's EPYC 7003, (2, 4, 8, 16) two of them that are divided into four nodes each (NPS4),
// (2, 2, 1, 4) as Intel's sub-NUMA clusters of two.
func Divided(sockets, nodes, caches, cpus int) *model.Topology {
	t := Flat(sockets * cpus)
	c := &model.Classes{Ways: 11, Least: 1, LeastLevel: 10, MostLevel: 100, LevelStep: 10, LevelUnit: model.LevelPercent, IDs: 8, Taken: 1}
	for i := range sockets * caches {
		c.Caches, c.Memory, c.Domains = append(c.Caches, int32(i)), append(c.Memory, int32(i)), append(c.Domains, model.Domain{ID: int32(i)})
	}
	for i := range t.CPUs {
		of := &t.CPUs[i]
		socket, at := i/cpus, i%cpus
		of.Socket, of.Node, of.LLC = socket, socket*nodes+at*nodes/cpus, socket*caches+at*caches/cpus
		c.Domains[of.LLC].CPUs.Add(i)
	}
	t.Classes = c
	return t
}
