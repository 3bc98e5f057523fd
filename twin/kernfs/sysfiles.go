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
	k.addText(k.dir("/sys/kernel/cgroup"), "delegate", "cgroup.procs\ncgroup.threads\ncgroup.subtree_control\nmemory.oom.group\n")
}

func (k *Kernel) addCPU(dir *node, cpu int) {
	c := k.m.Config()
	cores := c.Sockets * c.CoresPerSocket
	socket := c.SocketOf(cpu)
	var siblings, shared model.CPUSet
	for o := range c.CPUs() {
		if c.CoreOf(o) == c.CoreOf(cpu) {
			siblings.Add(o)
		}
		if c.SocketOf(o) == socket {
			shared.Add(o)
		}
	}
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
	topology := k.addDir(dir, "topology")
	for name, text := range map[string]string{
		"physical_package_id": strconv.Itoa(socket), "die_id": "0", "core_id": strconv.Itoa(c.CoreOf(cpu) % max(1, cores/c.Sockets)),
		"core_cpus_list": siblings.String(), "thread_siblings_list": siblings.String(),
		"package_cpus_list": shared.String(), "core_siblings_list": shared.String(),
	} {
		k.addText(topology, name, text+"\n")
	}
	k.addDir(dir, fmt.Sprintf("node%d", socket)).link = true
	cache := k.addDir(dir, "cache")
	k.addCache(cache, 0, 1, "Data", cpu, 32<<10, siblings)
	k.addCache(cache, 1, 1, "Instruction", cpu, 32<<10, siblings)
	k.addCache(cache, 2, 2, "Unified", cpu, 1<<20, siblings)
	k.addCache(cache, 3, 3, "Unified", socket, int(c.LLCBytes), shared)
	k.addText(cache.children["index3"], "ways_of_associativity", strconv.Itoa(c.LLCWays)+"\n")
}

func (k *Kernel) addCache(in *node, index, level int, kind string, id, bytes int, shared model.CPUSet) {
	dir := k.addDir(in, fmt.Sprintf("index%d", index))
	k.addText(dir, "level", strconv.Itoa(level)+"\n")
	k.addText(dir, "type", kind+"\n")
	k.addText(dir, "id", strconv.Itoa(id)+"\n")
	k.addText(dir, "size", strconv.Itoa(bytes>>10)+"K\n")
	k.addText(dir, "shared_cpu_list", shared.String()+"\n")
}
