package kernfs_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

// player does to a resctrl what bytes say.
type player struct {
	t    testing.TB
	b    *resctrlBed
	data []byte
	pids []int
}

func (p *player) byte() int {
	if len(p.data) == 0 {
		return 0
	}
	v := p.data[0]
	p.data = p.data[1:]
	return int(v)
}

// text is what comes next as it is.
func (p *player) text() string {
	n := min(p.byte()%24, len(p.data))
	s := string(p.data[:n])
	p.data = p.data[n:]
	return s
}

var fuzzNames = []string{"", "/a", "/b", "/c", "/a/mon_groups/m", "/mon_groups/m", "/b/mon_groups/n", "/info", "/mon_data", "/a\nb", "/mon_groups/mon_groups"}

func (p *player) group() string { return resctrlRoot + fuzzNames[p.byte()%len(fuzzNames)] }

// value is a plausible line of schemata, or any text.
func (p *player) value() string {
	switch p.byte() % 4 {
	case 0:
		return p.text()
	case 1:
		return fmt.Sprintf("L3:%d=%x;%d=%x\n", p.byte()%3, p.byte()<<3|p.byte()&7, p.byte()%3, p.byte())
	case 2:
		return fmt.Sprintf("MB:%d=%d\n", p.byte()%3, p.byte())
	}
	return fmt.Sprintf("MB:0=%d\nL3:1=%x\n", p.byte()%120, p.byte())
}

// step does one thing. What the kernel refuses is refused.
func (p *player) step() {
	k := p.b.k
	write := func(file, text string) { _ = k.WriteFile(p.group()+"/"+file, []byte(text)) }
	switch p.byte() % 12 {
	case 0, 1:
		_ = k.Mkdir(p.group(), 0o755)
	case 2:
		_ = k.Rmdir(p.group())
	case 3, 4:
		write("schemata", p.value())
	case 5:
		write("tasks", fmt.Sprintf("%d,%d\n", 300+p.byte()%12, 300+p.byte()%12))
	case 6:
		write([]string{"tasks", "cpus", "cpus_list", "mode"}[p.byte()%4], p.text())
	case 7:
		write("cpus_list", fmt.Sprintf("%d-%d\n", p.byte()%5, p.byte()%5))
	case 8:
		write("mode", []string{"shareable\n", "exclusive\n", "pseudo-locksetup\n"}[p.byte()%3])
	case 9:
		_ = k.Rename(p.group(), p.group())
	case 10:
		_ = k.SetOnline(1+p.byte()%3, p.byte()%2 == 0)
	case 11:
		p.life()
	}
	k.Advance(int64(p.byte()%8) * 100e6)
}

// life ends a process and starts another.
func (p *player) life() {
	i := p.byte() % len(p.pids)
	if err := p.b.k.Kill(p.pids[i]); err != nil {
		p.t.Fatal(err)
	}
	p.pids[i] = p.spawn()
}

func (p *player) spawn() int {
	c := antagonist()
	c.Threads = 2
	pid, err := p.b.k.Spawn(c)
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

// holds checks what holds whatever was written: every thread in one control group and at most
// one monitoring group, every CPU in one, masks without gaps, numbers that no two groups share.
func (p *player) holds(d *resctrl.Driver) {
	p.t.Helper()
	groups, err := d.Groups(resctrl.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	in, monitored, cpus := map[int32]int{}, map[int32]int{}, map[int]int{}
	closids, rmids := map[int]bool{}, map[int]bool{}
	for _, g := range groups {
		if rmids[g.MonID] || g.MonID < 0 || g.MonID >= 64 || !g.Name.IsMon() && (closids[g.CtrlID] || g.CtrlID >= 8) {
			p.t.Errorf("%s: CLOSID %d, RMID %d", g.Name, g.CtrlID, g.MonID)
		}
		rmids[g.MonID] = true
		tasks, err := d.Tasks(g.Name, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		count := in
		if g.Name.IsMon() {
			count = monitored
		} else {
			closids[g.CtrlID] = true
			for _, cpu := range g.CPUs {
				cpus[cpu]++
			}
			p.allowed(g)
		}
		for _, tid := range tasks {
			count[tid]++
		}
	}
	for _, pid := range p.pids {
		for tid := pid; tid < pid+2; tid++ {
			if in[int32(tid)] != 1 || monitored[int32(tid)] > 1 {
				p.t.Errorf("thread %d is in %d control and %d monitoring groups", tid, in[int32(tid)], monitored[int32(tid)])
			}
			delete(in, int32(tid))
		}
	}
	if len(in) > 0 {
		p.t.Errorf("threads that are not: %v", in)
	}
	online, err := cputopology.ReadOnline(p.b.k)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, cpu := range online {
		if cpus[cpu] != 1 {
			p.t.Errorf("CPU %d is in %d groups", cpu, cpus[cpu])
		}
	}
	if len(cpus) != len(online) {
		p.t.Errorf("CPUs %v, online are %v", cpus, online)
	}
	status, err := p.b.k.ReadFile(resctrlRoot+"/info/last_cmd_status", nil)
	if err != nil || len(status) == 0 || len(status) > 512 {
		p.t.Errorf("last_cmd_status %q, %v", status, err)
	}
}

// allowed checks a group's values.
func (p *player) allowed(g resctrl.Group) {
	p.t.Helper()
	for _, line := range g.Schemata {
		for _, v := range line.Domains {
			mask := resctrl.Mask(v.Value)
			bad := mask == 0 || !mask.Contiguous() || mask > 0x7ff
			if line.Resource == resctrl.MB {
				bad = v.Value < 10 || v.Value > 100 || v.Value%10 != 0
			}
			if bad {
				p.t.Errorf("%s: %s", g.Name, g.Schemata)
			}
		}
	}
}

func playResctrl(t testing.TB, data []byte) {
	b, d := mountedBed(t, resctrl.MountOptions{Debug: true})
	p := &player{t: t, b: b, data: data}
	for range 3 {
		p.pids = append(p.pids, p.spawn())
	}
	for steps := 0; len(p.data) > 0 && steps < 64; steps++ {
		p.step()
		if p.holds(d); t.Failed() {
			t.Fatalf("after %d steps", steps+1)
		}
	}
	readAll(t, b.k, resctrlRoot)
	if err := b.k.UnmountResctrl(); err != nil {
		t.Error(err)
	}
}

// readAll reads every file below a directory: each can be read.
func readAll(t testing.TB, fsys hostfs.FS, dir string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		path := dir + "/" + e.Name
		if e.IsDir {
			readAll(t, fsys, path)
		} else if _, err := fsys.ReadFile(path, nil); err != nil {
			t.Error(err)
		}
	}
}

// FuzzResctrl writes anything anywhere.
func FuzzResctrl(f *testing.F) {
	f.Add([]byte("\x00\x01\x00\x03\x01\x01\x00\x10\x01\x20\x05\x01\x01\x02\x00"))
	f.Add([]byte("\x00\x01\x00\x00\x04\x00\x05\x04\x01\x02\x01\x02\x04\x00\x0b\x01"))
	f.Add([]byte("\x00\x01\x00\x00\x02\x00\x09\x04\x06\x08\x01\x01\x00\x0a\x02\x01\x00"))
	f.Add([]byte("\x03\x01\x00\x14L3:0=3;1=0x7\nMB:0=20\n\x06\x01\x00\x05301,\n"))
	f.Fuzz(func(t *testing.T, data []byte) { playResctrl(t, data) })
}

// TestResctrlAnything plays a hundred such.
func TestResctrlAnything(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 17))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		if playResctrl(t, data); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
