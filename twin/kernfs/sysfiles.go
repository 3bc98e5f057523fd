package kernfs

import (
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/model"
	"golang.org/x/sys/unix"
)

// addSys makes /sys/devices/system/cpu and what of /sys/kernel the drivers read.
func (k *Kernel) addSys() {
	c := k.m.Config()
	cpus := k.dir("/sys/devices/system/cpu")
	all := model.FullSet(c.CPUs()).String() + "\n"
	k.addText(cpus, "possible", all)
	k.addText(cpus, "present", all)
	k.addFile(cpus, "online", always(func(buf []byte) []byte { return append(append(buf, k.m.Online().String()...), '\n') }), nil)
	for cpu := range c.CPUs() {
		k.addCPU(k.addDir(cpus, fmt.Sprintf("cpu%d", cpu)), cpu)
	}
	k.addLRUGen()
	k.addText(k.dir("/sys/kernel/cgroup"), "delegate", "cgroup.procs\ncgroup.threads\ncgroup.subtree_control\nmemory.oom.group\n")
}

// addCPU makes cpuN: its switch, and what it has while it is online.
func (k *Kernel) addCPU(dir *node, cpu int) {
	c := k.m.Config()
	if cpu > 0 {
		k.addFile(dir, "online", always(func(buf []byte) []byte {
			online := k.m.Online()
			return flag(buf, online.Has(cpu))
		}), func(data []byte) error {
			v, err := integer(data)
			if err != nil || v != 0 && v != 1 {
				return unix.EINVAL
			}
			return k.setOnline(cpu, v == 1)
		})
	}
	k.addDir(dir, fmt.Sprintf("node%d", c.SocketOf(cpu))).link = true
	k.addTopology(dir, cpu)
}

// addTopology makes what goes with a CPU that goes offline: topology and cache. The lists
// name those that are online.
func (k *Kernel) addTopology(dir *node, cpu int) {
	c := k.m.Config()
	socket := c.SocketOf(cpu)
	var siblings, shared, near model.CPUSet
	for o := range c.CPUs() {
		if c.CoreOf(o) == c.CoreOf(cpu) {
			siblings.Add(o)
		}
		if c.SocketOf(o) == socket {
			shared.Add(o)
		}
		if c.CacheOf(o) == c.CacheOf(cpu) {
			near.Add(o)
		}
	}
	topology := k.addDir(dir, "topology")
	k.addText(topology, "physical_package_id", strconv.Itoa(socket)+"\n")
	k.addText(topology, "die_id", "0\n")
	k.addText(topology, "core_id", strconv.Itoa(c.CoreOf(cpu)%c.CoresPerSocket)+"\n")
	for name, set := range map[string]model.CPUSet{
		"core_cpus_list": siblings, "thread_siblings_list": siblings, "package_cpus_list": shared, "core_siblings_list": shared,
	} {
		k.addOnline(topology, name, set)
	}
	cache := k.addDir(dir, "cache")
	k.addCache(cache, 0, 1, "Data", cpu, 32<<10, siblings)
	k.addCache(cache, 1, 1, "Instruction", cpu, 32<<10, siblings)
	l2 := cpu
	if k.opt.Resctrl.L2Ways > 0 {
		l2 = l2ID(&c, c.CoreOf(cpu))
	}
	k.addCache(cache, 2, 2, "Unified", l2, l2Bytes, siblings)
	k.addCache(cache, 3, 3, "Unified", c.CacheOf(cpu), int(c.LLCBytes), near)
	k.addText(cache.children["index3"], "ways_of_associativity", strconv.Itoa(c.LLCWays)+"\n")
}

// l2Bytes is the size of a core's L2, of which the physics knows nothing.
const l2Bytes = 1 << 20

// addOnline makes a list of those CPUs of a set that are online.
func (k *Kernel) addOnline(in *node, name string, set model.CPUSet) {
	k.addFile(in, name, always(func(buf []byte) []byte {
		return append(append(buf, set.And(k.m.Online()).String()...), '\n')
	}), nil)
}

func (k *Kernel) addCache(in *node, index, level int, kind string, id, bytes int, shared model.CPUSet) {
	dir := k.addDir(in, fmt.Sprintf("index%d", index))
	k.addText(dir, "level", strconv.Itoa(level)+"\n")
	k.addText(dir, "type", kind+"\n")
	k.addText(dir, "id", strconv.Itoa(id)+"\n")
	k.addText(dir, "size", strconv.Itoa(bytes>>10)+"K\n")
	k.addOnline(dir, "shared_cpu_list", shared)
}
