package kernfs

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/model"
)

// addNodes fills /sys/devices/system/node, a memory node a socket, and what of /proc tells of
// nodes.
func (k *Kernel) addNodes() {
	dir := k.dir("/sys/devices/system/node")
	nodes := model.FullSet(k.sockets())
	for _, name := range []string{"possible", "online", "has_memory", "has_normal_memory"} {
		k.addText(dir, name, nodes.String()+"\n")
	}
	k.addFile(dir, "has_cpu", func(buf []byte) ([]byte, error) {
		var s model.CPUSet
		for node := range k.sockets() {
			if k.cpusOf(node) != (model.CPUSet{}) {
				s.Add(node)
			}
		}
		return append(append(buf, s.String()...), '\n'), nil
	}, nil)
	for node := range k.sockets() {
		k.addNode(k.addDir(dir, fmt.Sprint("node", node)), node)
	}
	proc := k.dir("/proc")
	k.addFile(proc, "zoneinfo", func(buf []byte) ([]byte, error) { return k.showZoneinfo(buf), nil }, nil)
	k.addFile(proc, "kpageflags", nil, nil).pread = showNothing
	k.addText(k.dir("/proc/sys/kernel"), "numa_balancing", "0\n")
}

// showNothing is kpageflags of a machine without large pages.
func showNothing(buf []byte, _ int64) (int, error) {
	clear(buf)
	return len(buf) &^ 7, nil
}

// cpusOf returns a node's CPUs that are online.
func (k *Kernel) cpusOf(node int) model.CPUSet {
	c, online := k.m.Config(), k.m.Online()
	var s model.CPUSet
	for cpu := range c.CPUs() {
		if c.SocketOf(cpu) == node && online.Has(cpu) {
			s.Add(cpu)
		}
	}
	return s
}

func (k *Kernel) addNode(dir *node, node int) {
	k.addFile(dir, "cpulist", func(buf []byte) ([]byte, error) {
		return append(append(buf, k.cpusOf(node).String()...), '\n'), nil
	}, nil)
	distance := ""
	for other := range k.sockets() {
		if other > 0 {
			distance += " "
		}
		if other == node {
			distance += "10"
		} else {
			distance += "21"
		}
	}
	k.addText(dir, "distance", distance+"\n")
	k.addFile(dir, "meminfo", func(buf []byte) ([]byte, error) { return k.showNodeMeminfo(buf, node), nil }, nil)
}

func (k *Kernel) showNodeMeminfo(buf []byte, node int) []byte {
	const kb = pageSize / 1024
	anon, file := k.usedPages()
	c := k.m.Config()
	total, free := int(c.MemBytes/pageSize), k.room()[node]
	for _, line := range []struct {
		name  string
		pages int
	}{
		{"MemTotal", total}, {"MemFree", max(free, 0)}, {"MemUsed", total - max(free, 0)},
		{"Active", anon[node] + file[node]}, {"Inactive", 0}, {"Active(anon)", anon[node]}, {"Inactive(anon)", 0},
		{"Active(file)", file[node]}, {"Inactive(file)", 0}, {"Unevictable", 0}, {"Mlocked", 0},
		{"FilePages", file[node]}, {"Mapped", file[node]}, {"AnonPages", anon[node]}, {"Shmem", 0},
	} {
		buf = fmt.Appendf(buf, "Node %d %-15s %8d kB\n", node, line.name+":", line.pages*kb)
	}
	for _, name := range []string{"HugePages_Total", "HugePages_Free", "HugePages_Surp"} {
		buf = fmt.Appendf(buf, "Node %d %-15s %5d\n", node, name+":", 0)
	}
	return buf
}

// showZoneinfo tells of one zone a node. Its watermarks are those of a usual min_free_kbytes.
func (k *Kernel) showZoneinfo(buf []byte) []byte {
	c := k.m.Config()
	managed := int(c.MemBytes / pageSize)
	low := managed / 512
	for node, free := range k.room() {
		buf = fmt.Appendf(buf, "Node %d, zone   Normal\n  pages free     %d\n        boost    0\n        min      %d\n        low      %d\n        high     %d\n"+
			"        spanned  %d\n        present  %d\n        managed  %d\n        protection: (0, 0, 0, 0, 0)\n",
			node, max(free, 0), low*4/5, low, low*6/5, managed, managed, managed)
	}
	return buf
}

// addMemory fills what of a process's folder tells of its memory.
func (k *Kernel) addMemory(p *process) {
	k.addFile(p.dir, "maps", func(buf []byte) ([]byte, error) { return k.showMaps(p, buf), nil }, nil)
	k.addFile(p.dir, "numa_maps", func(buf []byte) ([]byte, error) { return k.showNumaMaps(p, buf), nil }, nil)
	k.addFile(p.dir, "pagemap", nil, nil).pread = func(buf []byte, off int64) (int, error) { return k.readPagemap(p, buf, off), nil }
	if status := p.dir.children["status"]; status != nil {
		read := status.read
		status.read = func(buf []byte) ([]byte, error) {
			buf, err := read(buf)
			if err != nil {
				return buf, err
			}
			const kb = pageSize / 1024
			return fmt.Appendf(buf, "VmLck:\t%8d kB\nRssAnon:\t%8d kB\nRssFile:\t%8d kB\n", 0, len(k.space(p).nodes)*kb, textPages*kb), nil
		}
	}
	started := k.m.NowNsec() / tickNsec
	k.addFile(p.dir, "stat", func(buf []byte) ([]byte, error) {
		buf = fmt.Appendf(buf, "%d (%s) R 1 %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 %d 0 %d 0 %d", p.pid, p.name, p.pid, p.pid, p.threads, started, len(k.space(p).nodes))
		for range 28 {
			buf = append(buf, " 0"...)
		}
		return append(buf, '\n'), nil
	}, nil)
	if k.resctrl == nil {
		return
	}
	groups := func(dir *node, tid int32) {
		k.addFile(dir, "cpu_resctrl_groups", func(buf []byte) ([]byte, error) { return k.resctrl.groupsOf(tid, buf) }, nil)
	}
	groups(p.dir, p.pid)
	for tid := range p.tids() {
		if dir := p.dir.children["task"].children[strconv.Itoa(int(tid))]; dir != nil {
			groups(dir, tid)
		}
	}
}

func (k *Kernel) showMaps(p *process, buf []byte) []byte {
	buf = fmt.Appendf(buf, "%08x-%08x r-xp 00000000 08:01 %-26d /usr/bin/%s\n", textStart, textStart+textPages*pageSize, 4711, escape(p.name))
	if n := len(k.space(p).nodes); n > 0 {
		buf = fmt.Appendf(buf, "%08x-%08x rw-p 00000000 00:00 0 \n", anonStart, anonStart+n*pageSize)
	}
	return buf
}

func (k *Kernel) showNumaMaps(p *process, buf []byte) []byte {
	buf = fmt.Appendf(buf, "%08x default file=/usr/bin/%s mapped=%d N%d=%d kernelpagesize_kB=4\n", textStart, escape(p.name), textPages, k.textNode(p), textPages)
	s := k.space(p)
	if len(s.nodes) == 0 {
		return buf
	}
	buf = fmt.Appendf(buf, "%08x default anon=%d dirty=%d", anonStart, len(s.nodes), len(s.nodes))
	for node, n := range s.count {
		if n > 0 {
			buf = fmt.Appendf(buf, " N%d=%d", node, n)
		}
	}
	return append(buf, " kernelpagesize_kB=4\n"...)
}

// escape writes a name as the kernel writes paths.
func escape(name string) string {
	out := make([]byte, 0, len(name))
	for i := range len(name) {
		switch c := name[i]; c {
		case ' ', '\t', '\n', '\\', '/':
			out = fmt.Appendf(out, `\%03o`, c)
		default:
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return "task"
	}
	return string(out)
}

// Entries of pagemap.
const (
	pagePresent   = 1 << 63
	pageFile      = 1 << 61
	pageExclusive = 1 << 56
	// userPages is where a process's addresses end.
	userPages = 1 << (47 - 12)
)

// readPagemap is pread(2) of pagemap: nothing when the address space is gone.
func (k *Kernel) readPagemap(p *process, buf []byte, off int64) int {
	if k.procs[p.pid] != p || off < 0 || off%8 != 0 {
		return 0
	}
	s := k.space(p)
	n := 0
	for page := uint64(off / 8); page < userPages && n+8 <= len(buf); page++ {
		var entry uint64
		switch at := uintptr(page * pageSize); {
		case anonPage(s, at) >= 0:
			// Frames of one process are in a row, and no other's.
			entry = pagePresent | pageExclusive | uint64(p.pid)<<24&(1<<55-1) + uint64(anonPage(s, at)) + 1
		case at >= textStart && at < textStart+textPages*pageSize:
			entry = pagePresent | pageFile
		}
		binary.NativeEndian.PutUint64(buf[n:], entry)
		n += 8
	}
	return n
}

// groupPages returns a group's pages by node, with those of groups below or without.
func (k *Kernel) groupPages(g *group, below bool) (anon, file []int) {
	anon, file = make([]int, k.sockets()), make([]int, k.sockets())
	add := func(g *group) {
		for _, m := range g.members {
			for node, n := range k.space(m.p).count {
				anon[node] += n
			}
			for node, n := range k.filePages(m.p) {
				file[node] += n
			}
		}
	}
	if below {
		g.each(add)
	} else {
		add(g)
	}
	return anon, file
}

// showNumaStat is memory.numa_stat of a group, of either version.
func (k *Kernel) showNumaStat(g *group, buf []byte) []byte {
	anon, file := k.groupPages(g, true)
	none := make([]int, len(anon))
	if g.h.v2 {
		for _, line := range []struct {
			name  string
			pages []int
		}{
			{"anon", anon}, {"file", file}, {"kernel_stack", none}, {"pagetables", none}, {"sec_pagetables", none}, {"shmem", none},
			{"file_mapped", file}, {"file_dirty", none}, {"file_writeback", none}, {"swapcached", none},
			{"anon_thp", none}, {"file_thp", none}, {"shmem_thp", none}, {"inactive_anon", none}, {"active_anon", anon},
			{"inactive_file", none}, {"active_file", file}, {"unevictable", none}, {"slab_reclaimable", none}, {"slab_unreclaimable", none},
		} {
			buf = appendCounts(append(buf, line.name...), line.pages, pageSize)
		}
		return buf
	}
	for _, prefix := range []string{"", "hierarchical_"} {
		if prefix == "" {
			anon, file = k.groupPages(g, false)
		} else {
			anon, file = k.groupPages(g, true)
		}
		all := make([]int, len(anon))
		for node := range all {
			all[node] = anon[node] + file[node]
		}
		for _, line := range []struct {
			name  string
			pages []int
		}{{"total", all}, {"file", file}, {"anon", anon}, {"unevictable", none}} {
			sum := 0
			for _, n := range line.pages {
				sum += n
			}
			buf = appendCounts(fmt.Appendf(buf, "%s%s=%d", prefix, line.name, sum), line.pages, 1)
		}
	}
	return buf
}

// appendCounts appends " N0=1 N1=2" and a newline.
func appendCounts(buf []byte, counts []int, unit int) []byte {
	for node, n := range counts {
		buf = fmt.Appendf(buf, " N%d=%d", node, n*unit)
	}
	return append(buf, '\n')
}
