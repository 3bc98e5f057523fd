package files

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/blkio"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/machine"
)

// What the world does, as it would: it writes files.

// The kernel's default and bounds of weights, on v1's scale. cpu.weight of v2 ends lower.
const (
	defaultShares        = 1024
	minShares, maxShares = 2, 262144
	maxSharesV2          = 102400
	rootPath             = "/"
)

// Start implements scenario.Bed.
func (b *bed) Start(t model.Task, cfg machine.TaskConfig) (int, error) {
	if len(cfg.Pages) == 0 && cfg.CPUs != (model.CPUSet{}) {
		cfg.Pages = b.near(cfg.CPUs)
	}
	pid, err := b.k.Start(t.Path, cfg)
	if err != nil {
		return 0, err
	}
	num, ok := b.k.Task(pid)
	if !ok {
		return 0, fmt.Errorf("%s: process %d is gone at once", t.Path, pid)
	}
	shares := cmp.Or(cfg.Shares, defaultShares)
	b.alive[t.Path] = &resident{shares: shares, cpus: cfg.CPUs}
	return num, b.weigh(t.Path)
}

// near returns the shares of a task's pages when it touches them where it runs. The kernel
// puts a process on its CPUs only once it is there, with its pages.
func (b *bed) near(cpus model.CPUSet) []float64 {
	c := b.Machine().Config()
	pages := make([]float64, c.Sockets)
	for cpu := range c.CPUs() {
		if cpus.Has(cpu) {
			pages[c.SocketOf(cpu)]++
		}
	}
	for n := range pages {
		pages[n] /= float64(cpus.Len()) // not summed up: twenty twentieths are more than all
	}
	return pages
}

// Stop implements scenario.Bed.
func (b *bed) Stop(p string) error {
	if err := b.k.Stop(p); err != nil {
		return err
	}
	delete(b.alive, p)
	// Whoever comes here next has no troubles yet.
	delete(b.refused, p)
	delete(b.lost, p)
	return b.weigh(p)
}

// weigh gives the groups above a task the weight of all tasks in them, as pod managers do:
// so each task has against all others what its own shares say.
func (b *bed) weigh(p string) error {
	for dir := path.Dir(p); dir != rootPath; dir = path.Dir(dir) {
		sum := int64(0)
		for name, r := range b.alive {
			if len(name) > len(dir) && name[:len(dir)] == dir && name[len(dir)] == '/' {
				sum += r.weight()
			}
		}
		if sum == 0 {
			continue
		}
		if err := b.world.WriteShares(dir, uint64(min(max(sum, minShares), maxShares))); err != nil {
			return err
		}
	}
	return nil
}

// weight is what counts of a task: the least where it is SCHED_IDLE.
func (r *resident) weight() int64 {
	if r.idle {
		return minShares + 1
	}
	return r.shares
}

func (b *bed) resident(p string) (*resident, error) {
	r := b.alive[p]
	if r == nil {
		return nil, fmt.Errorf("no task at %s", p)
	}
	return r, nil
}

// SetShares implements scenario.Bed. An idle group takes no shares: they hold afterwards.
func (b *bed) SetShares(p string, shares int64) error {
	r, err := b.resident(p)
	if err != nil {
		return err
	}
	r.shares = shares
	if !r.idle {
		err = b.world.WriteShares(p, uint64(shares))
	}
	if err != nil {
		return err
	}
	return b.weigh(p)
}

// SetIdle implements scenario.Bed. The kernel forgets the shares of a group that was idle.
func (b *bed) SetIdle(p string, idle bool) error {
	r, err := b.resident(p)
	if err != nil {
		return err
	}
	if err := b.world.WriteIdle(p, idle); err != nil {
		return err
	}
	r.idle = idle
	return b.SetShares(p, r.shares)
}

// SetCPUs implements scenario.Bed.
func (b *bed) SetCPUs(p string, cpus model.CPUSet) error {
	r, err := b.resident(p)
	if err != nil {
		return err
	}
	if err := b.world.WriteCPUs(p, cpus.String()); err != nil {
		return err
	}
	r.cpus = cpus
	return nil
}

// SetOnline implements scenario.Bed. On v1 a cpuset loses CPUs that go for good; so those
// who look after the groups write all of them anew when one is back.
func (b *bed) SetOnline(cpu int, online bool) error {
	if err := b.k.SetOnline(cpu, online); err != nil {
		return err
	}
	if !online || b.opt.Layout == cgroup.LayoutV2 {
		return nil
	}
	there := b.Machine().Online()
	groups, err := b.world.List() // those above come first
	if err != nil {
		return err
	}
	for _, p := range groups {
		want := there
		if r := b.alive[p]; r != nil && r.cpus != (model.CPUSet{}) {
			want = r.cpus.And(there)
		}
		if err := b.world.WriteCPUs(p, want.String()); err != nil {
			return err
		}
	}
	return nil
}

// Setting implements scenario.Bed.
func (b *bed) Setting(p string, kind model.KnobKind) (model.Setting, error) {
	switch kind {
	case model.CPUBandwidth:
		v, err := b.world.ReadCPUMax(p)
		return model.Bandwidth(model.CPUMax(v)), err
	case model.CPUPlace:
		text, err := b.world.ReadCPUs(p)
		if err != nil {
			return model.Setting{}, err
		}
		cpus, err := model.ParseCPUSet(text)
		return model.Place(cpus), err
	case model.CPUWeight:
		idle, err := b.world.ReadIdle(p)
		if err == nil && idle {
			return model.Weight(model.WeightIdle), nil
		}
		shares, err := b.world.ReadShares(p)
		return model.Weight(int64(shares)), err
	case model.GroupFreeze:
		frozen, err := b.world.ReadFreezeAsked(p)
		return model.Freeze(frozen), err
	case model.IOMaxKnob:
		return b.ioMax(p)
	case model.MemoryHigh:
		return b.memoryHigh(p)
	case model.ServiceClass:
		return b.class(p)
	}
	return model.Setting{}, fmt.Errorf("no knob %s in a simulated kernel", kind)
}

// ioMax returns a task's limits on the disk, none where the kernel has no such controller.
func (b *bed) ioMax(p string) (model.Setting, error) {
	m, err := cgroup.Discover(b.k)
	if err != nil {
		return model.Setting{}, err
	}
	io, err := blkio.Open(b.k, m)
	if errors.Is(err, cgroup.ErrUnsupported) {
		return model.LimitIO(""), nil
	}
	if err != nil {
		return model.Setting{}, err
	}
	return linux.IOMaxOf(io, p)
}

// memoryHigh returns a task's memory.high, none where the kernel has no such file.
func (b *bed) memoryHigh(p string) (model.Setting, error) {
	none := model.HighMemory(model.NoMemoryHigh)
	m, err := cgroup.Discover(b.k)
	if err != nil {
		return none, err
	}
	memory, err := reclaim.Open(b.k, m)
	if err == nil {
		var now model.Setting
		if now, err = linux.MemoryHighOf(memory, p); err == nil {
			return now, nil
		}
	}
	if errors.Is(err, cgroup.ErrUnsupported) {
		return none, nil
	}
	return none, err
}

// class returns the class of service that a task is in: one of ours has a group of its own.
func (b *bed) class(p string) (model.Setting, error) {
	found := model.InClass(model.ClassFound)
	group, err := b.world.OpenAlone(p)
	if err != nil {
		return found, err
	}
	pids, err := group.Procs(nil)
	if err = errors.Join(err, group.Close()); err != nil || len(pids) == 0 {
		return found, err
	}
	text, err := b.k.ReadFile(fmt.Sprintf("/proc/%d/cpu_resctrl_groups", pids[0]), nil)
	_, name, _ := strings.Cut(string(text), resctrl.DefaultPrefix)
	name, _, _ = strings.Cut(name, "-")
	if num, alone := strings.CutPrefix(name, "task"); alone {
		n, bad := strconv.ParseUint(num, 10, 31)
		return model.InClass(model.ClassOf(model.TaskNum(n))), errors.Join(err, bad)
	}
	for class := model.ClassBE; class < model.NumClasses; class++ {
		if name == model.ClassName(class) {
			return model.InClass(class), err
		}
	}
	return found, err
}

// Stranger implements scenario.Bed.
func (b *bed) Stranger(p string, v model.CPUMax) error {
	return b.world.WriteCPUMax(p, cgroup.CPUMax(v))
}

// LoseCounters implements scenario.Bed.
func (b *bed) LoseCounters(p string, lost bool) error {
	b.lost[p] = lost
	return nil
}

// Refuse implements scenario.Bed.
func (b *bed) Refuse(p, text string) error {
	if text == "" {
		delete(b.refused, p)
		return nil
	}
	no, ok := errnoOf(text)
	if !ok {
		return fmt.Errorf("no error of the kernel says %q", text)
	}
	b.refused[p] = no
	return nil
}
