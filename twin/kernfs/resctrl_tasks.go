package kernfs

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/model"
	"golang.org/x/sys/unix"
)

// showTasks lists a group's threads. A control group's are all that have its CLOSID.
func (r *resctrlFS) showTasks(g *resctrlGroup, buf []byte) []byte {
	r.k.eachProcess(func(p *process) {
		for tid := range p.tids() {
			id := r.ids[tid]
			if id.closid == g.closid && (!g.isMon() || id.rmid == g.rmid) {
				buf = appendLine(buf, int(tid))
			}
		}
	})
	return buf
}

// writeTasks moves the threads of a list, one after the other: what stands before one that
// is refused has moved.
func (r *resctrlFS) writeTasks(g *resctrlGroup, data []byte) error {
	r.clearStatus()
	rest := string(data)
	for rest != "" && rest[0] != '\n' {
		var field string
		field, rest, _ = strings.Cut(rest, ",")
		field = strings.TrimSpace(field)
		tid, err := strconv.ParseInt(field, 0, 32)
		switch {
		case err != nil || strings.Contains(field, "_"):
			return r.refuse("Task list parsing error pid " + field)
		case tid < 0:
			return r.refuse(fmt.Sprintf("Invalid pid %d", tid))
		}
		if err := r.moveThread(g, int32(tid)); err != nil {
			r.say(fmt.Sprintf("Error while processing task %d\n", tid))
			return err
		}
	}
	return nil
}

// moveThread moves one thread. 0 would be the writer, who is no task of the machine.
func (r *resctrlFS) moveThread(g *resctrlGroup, tid int32) error {
	p := r.k.threadOf(tid)
	if p == nil {
		r.say(fmt.Sprintf("No task %d\n", tid))
		return unix.ESRCH
	}
	to := resctrlIDs{g.closid, g.rmid}
	if g.isMon() && r.ids[tid].closid != g.closid {
		return r.refuse("Can't move task to different control group")
	}
	r.ids[tid] = to
	r.follow(p)
	return nil
}

// showCPUMask appends a group's CPUs as the kernel prints a mask: 32 bits between commas, the
// highest first.
func (r *resctrlFS) showCPUMask(g *resctrlGroup, buf []byte) []byte {
	n := r.cfg.CPUs()
	for chunk := (n - 1) / 32; chunk >= 0; chunk-- {
		word := uint32(g.cpus[chunk/2] >> (32 * (chunk % 2)))
		digits := (min(32, n-32*chunk) + 3) / 4
		buf = fmt.Appendf(buf, "%0*x", digits, word)
		buf = append(buf, ",\n"[min(1, 1-min(chunk, 1))])
	}
	return buf
}

// parseCPUMask reads the same; fewer digits than there are CPUs will do.
func parseCPUMask(text string) (model.CPUSet, error) {
	var s model.CPUSet
	chunks := strings.Split(strings.TrimSpace(text), ",")
	for i, c := range chunks {
		word, err := strconv.ParseUint(c, 16, 32)
		at := len(chunks) - 1 - i
		if err != nil || at/2 >= len(s) {
			return s, unix.EINVAL
		}
		s[at/2] |= word << (32 * (at % 2))
	}
	return s, nil
}

// lastOf returns the highest element of a set, -1 of the empty one.
func lastOf(s model.CPUSet) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return 64*i + bits.Len64(s[i]) - 1
		}
	}
	return -1
}

// writeCPUs gives a group CPUs. As on 6.12, it appends to last_cmd_status what it has to say.
func (r *resctrlFS) writeCPUs(g *resctrlGroup, data []byte, parse func(string) (model.CPUSet, error)) error {
	want, err := parse(string(data))
	switch {
	case err != nil:
		return r.refuse("Bad CPU list/mask")
	case lastOf(want) >= r.cfg.CPUs():
		r.say("Bad CPU list/mask\n")
		return unix.ERANGE
	case want.Without(r.cpus) != model.CPUSet{}:
		return r.refuse("Can only assign online CPUs")
	}
	if g.isMon() {
		return r.giveMonCPUs(g, want)
	}
	return r.giveCPUs(g, want)
}

// giveCPUs makes a control group's CPUs these: they leave their groups, and those that it
// lets go of fall to the root group. Its monitoring groups lose theirs.
func (r *resctrlFS) giveCPUs(g *resctrlGroup, want model.CPUSet) error {
	dropped, added := g.cpus.Without(want), want.Without(g.cpus)
	if g == r.root && dropped != (model.CPUSet{}) {
		return r.refuse("Can't drop CPUs from default group")
	}
	for i := range dropped {
		r.root.cpus[i] |= dropped[i]
	}
	for _, o := range r.groups {
		if o == g {
			continue
		}
		o.cpus = o.cpus.Without(added)
		for _, m := range o.mon {
			m.cpus = m.cpus.And(o.cpus)
		}
	}
	g.cpus = want
	for _, m := range g.mon {
		m.cpus = model.CPUSet{}
	}
	return nil
}

// giveMonCPUs makes a monitoring group's CPUs these, of those that its control group has.
func (r *resctrlFS) giveMonCPUs(g *resctrlGroup, want model.CPUSet) error {
	if want.Without(g.ctrl.cpus) != (model.CPUSet{}) {
		return r.refuse("Can only add CPUs to mongroup that belong to parent")
	}
	for _, o := range g.ctrl.mon {
		if o != g {
			o.cpus = o.cpus.Without(want)
		}
	}
	g.cpus = want
	return nil
}
