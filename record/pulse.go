package record

import (
	"encoding/binary"

	"github.com/commensal-io/commensal/model"
)

// The counters of pulses have no names in the header: these are all of any version. The second is
// what BE tasks used, which no policy ever went by: it is no longer read. NodeUsage is there since
// version 5.

func pulseCounters(p *model.Pulse) [3]model.Counter {
	return [...]model.Counter{p.LCUsage, {}, p.NodeUsage}
}

func taskPulseCounters(t *model.TaskPulse) [3]model.Counter {
	return [...]model.Counter{t.Usage, t.Periods, t.Throttled}
}

var inOrder = []int{0, 1, 2}

// before returns what the pulse of a task is differenced against: that of the last pulse
// with detail. j is where to begin to look, and where the search ended.
func (c *coder) before(num model.TaskNum, j int) (model.TaskPulse, int) {
	list := c.pulse.Tasks
	for j < len(list) && list[j].Num < num {
		j++
	}
	if j < len(list) && list[j].Num == num {
		return list[j], j
	}
	return model.TaskPulse{}, j
}

func (c *coder) encodePulse(b []byte, p *model.Pulse) []byte {
	b = binary.AppendVarint(b, p.MonoNsec)
	now, was := pulseCounters(p), pulseCounters(&c.pulse)
	b = appendCounters(b, now[:], was[:])
	b = binary.AppendUvarint(b, uint64(len(p.Tasks)))
	j := 0
	for i := range p.Tasks {
		t := &p.Tasks[i]
		var prev model.TaskPulse
		prev, j = c.before(t.Num, j)
		b = binary.AppendUvarint(b, uint64(t.Num))
		now, was := taskPulseCounters(t), taskPulseCounters(&prev)
		b = appendCounters(b, now[:], was[:])
	}
	c.keepPulse(p)
	return b
}

// encodePassed returns the pulses that were passed over: of each by how much time and usage it was
// before the next one, the last before the pulse itself.
func (c *coder) encodePassed(p *model.Pulse) []int64 {
	c.passed = c.passed[:0]
	next := model.Passed{MonoNsec: p.MonoNsec, LCUsage: p.LCUsage.Value}
	for i := len(p.Passed) - 1; i >= 0; i-- {
		was := p.Passed[i]
		c.passed = append(c.passed, next.MonoNsec-was.MonoNsec, int64(next.LCUsage-was.LCUsage))
		next = was
	}
	return c.passed
}

func passedOf(steps []int64, p *model.Pulse) []model.Passed {
	n := len(steps) / 2
	if n == 0 {
		return nil
	}
	list, next := make([]model.Passed, n), model.Passed{MonoNsec: p.MonoNsec, LCUsage: p.LCUsage.Value}
	for i := range n {
		next.MonoNsec, next.LCUsage = next.MonoNsec-steps[2*i], next.LCUsage-uint64(steps[2*i+1])
		list[n-1-i] = next
	}
	return list
}

func (c *coder) keepPulse(p *model.Pulse) {
	tasks := c.pulse.Tasks
	if len(p.Tasks) > 0 {
		tasks = append(tasks[:0], p.Tasks...)
	}
	c.pulse = *p
	c.pulse.Tasks, c.pulse.Passed = tasks, nil
}

func (c *coder) decodePulse(cur *cursor, p *model.Pulse) {
	*p = model.Pulse{MonoNsec: cur.varint(), Tasks: p.Tasks[:0]}
	var now [3]model.Counter
	was := pulseCounters(&c.pulse)
	readCounters(cur, now[:], was[:], inOrder[:c.pulsed])
	p.LCUsage, p.NodeUsage = now[0], now[2]
	n := cur.uvarint()
	if n > uint64(len(cur.b)) { // a task takes more than a byte
		cur.fail("more tasks than bytes")
		return
	}
	j := 0
	for range n {
		t := model.TaskPulse{Num: model.TaskNum(cur.uvarint())}
		var prev model.TaskPulse
		prev, j = c.before(t.Num, j)
		var now [3]model.Counter
		was := taskPulseCounters(&prev)
		readCounters(cur, now[:], was[:], inOrder)
		t.Usage, t.Periods, t.Throttled = now[0], now[1], now[2]
		if k := len(p.Tasks); k > 0 && p.Tasks[k-1].Num >= t.Num {
			cur.fail("tasks are not in order")
		}
		if cur.err != nil {
			return
		}
		p.Tasks = append(p.Tasks, t)
	}
	c.keepPulse(p)
	if len(p.Tasks) == 0 {
		p.Tasks = nil // as the host says where it was not asked for detail
	}
}
