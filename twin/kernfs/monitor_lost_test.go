package kernfs_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// numberOf is the RMID of a group, by what it says where the hardware has no value of it.
func numberOf(t *testing.T, k *kernfs.Kernel, group string) int {
	t.Helper()
	for rmid := range 64 {
		k.SetMonitorAnswer(rmid, "Unavailable")
		text, err := k.ReadFile("/sys/fs/resctrl"+group+"/mon_data/mon_L3_00/mbm_total_bytes", nil)
		must(t, err)
		k.SetMonitorAnswer(rmid, "")
		again, err := k.ReadFile("/sys/fs/resctrl"+group+"/mon_data/mon_L3_00/mbm_total_bytes", nil)
		must(t, err)
		if string(text) != string(again) {
			return rmid
		}
	}
	t.Fatalf("%s has no RMID", group)
	return 0
}

// seconds plays windows of a second, and hands each on: what it says of the memories, and what the machine moved in it.
func (c *classed) seconds(n int, each func(i int, o *model.Observation, moved float64)) {
	c.t.Helper()
	var prev model.Snapshot
	var moved [3]float64 // at the last edges: what is read at one edge the next snapshot bears
	for i := range n + 2 {
		c.k.Advance(1e9)
		moved = [3]float64{moved[1], moved[2]}
		for rmid := range 64 {
			for socket := range 2 {
				total, _ := c.k.Machine().RMIDTraffic(rmid, socket)
				moved[2] += total
			}
		}
		prev = model.Snapshot{MonoNsec: c.snap.MonoNsec, Memory: slices.Clone(c.snap.Memory), Domains: slices.Clone(c.snap.Domains)}
		must(c.t, c.h.Observe(model.WindowEnd|model.WindowStart, &c.snap))
		c.do()
		if i >= 2 {
			var o model.Observation
			model.Observe(&prev, &c.snap, &o)
			each(i-2, &o, moved[1]-moved[0])
		}
	}
}

// The hardware loses what one group counted for minutes, as AMD's does where more RMIDs are in use than it can count, and has it again. In the sum of a control group the kernel
// leaves that out meanwhile, without a word: what the sum falls and grows by then nobody moved. What is left counts on.
func TestCountsLostForMinutes(t *testing.T) {
	his := "/mon_groups/pqos-1-0"
	for who, counts := range map[string]bool{"a task's": true, "the root group's own": false, "another program's": false} {
		t.Run(who, func(t *testing.T) {
			c := openCounted(t, counts)
			c.k.Advance(300e9)
			group := map[string]string{"another program's": his}[who]
			if !counts {
				must(t, c.k.Mkdir("/sys/fs/resctrl"+his, 0o755))
				threads, err := c.k.ReadDir("/proc/" + c.thread("/c-stream") + "/task")
				must(t, err)
				for _, thread := range threads {
					must(t, c.k.WriteFile("/sys/fs/resctrl"+his+"/tasks", []byte(thread.Name+"\n")))
				}
			}
			for range 30 {
				c.k.Advance(11e9)
				c.window()
			}
			for _, name := range c.monitors() {
				if counts && strings.Contains(name, "/commensal-t"+strconv.Itoa(int(c.nums["/c-stream"]))+"-") {
					group = name
				}
			}
			rmid := numberOf(t, c.k, group)
			sum := func(o *model.Observation) (total float64, known bool) {
				for _, m := range o.Memory {
					total, known = total+m.Total.V, m.Total.Outcome == model.OK
				}
				return total, known
			}
			for _, answer := range []string{"", "Unavailable", "", "Unavailable", ""} {
				c.seconds(130, func(i int, o *model.Observation, moved float64) {
					if i == 0 {
						c.k.SetMonitorAnswer(rmid, answer)
					}
					total, known := sum(o)
					if known && total > 1.01*moved || !known && (i > 5 || group != "") || i > 5 && answer == "" && total < 0.99*moved {
						t.Errorf("%q, second %d: %.4g bytes, known: %v, of %.4g", answer, i, total, known, moved)
					}
				})
			}
		})
	}
}

// Where one of two classes of best-effort work has no number, nobody knows what best-effort work moves: what the other has is not all of it.
func TestOneOfTwoClassesNotCounted(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/b-registers"), inBE), c.change(model.Set, c.task("/c-stream"), model.InClass(model.ClassOf(c.nums["/c-stream"])))), 2)
	c.window()
	for _, name := range c.groups() {
		rmid := numberOf(t, c.k, "/"+name)
		c.k.SetMonitorAnswer(rmid, "Unavailable")
		for range 2 {
			if o := c.window(); len(o.Memory) != 2 || o.Memory[0].BE.Outcome == model.OK || o.Memory[0].Total.Outcome == model.OK {
				t.Errorf("%s is not counted: %+v", name, o.Memory)
			}
		}
		c.k.SetMonitorAnswer(rmid, "")
		c.window()
		if o := c.window(); o.Memory[0].BE.Outcome != model.OK {
			t.Errorf("both are counted: %+v", o.Memory)
		}
	}
}
