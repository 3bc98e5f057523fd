package scenario

import "container/heap"

// What happens at one time happens in this order.
const (
	orderStart  = iota // the machine as it is found
	orderSample        // what was until now is measured before anything changes
	orderEvent
	orderAgent // the agent looks at what is then
)

// item is something that is due.
type item struct {
	at    int64
	order int
	seq   int
	do    func() error
}

// agenda holds what is due, by time, order, and the sequence in which it was noted.
type agenda struct {
	items []item
	seq   int
}

func (a *agenda) Len() int { return len(a.items) }
func (a *agenda) Less(i, j int) bool {
	x, y := &a.items[i], &a.items[j]
	if x.at != y.at {
		return x.at < y.at
	}
	if x.order != y.order {
		return x.order < y.order
	}
	return x.seq < y.seq
}
func (a *agenda) Swap(i, j int) { a.items[i], a.items[j] = a.items[j], a.items[i] }

// Push implements heap.Interface.
func (a *agenda) Push(x any) { a.items = append(a.items, x.(item)) }

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := a.items[len(a.items)-1]
	a.items = a.items[:len(a.items)-1]
	return last
}

// note puts something on the agenda.
func (a *agenda) note(at int64, order int, do func() error) {
	a.seq++
	heap.Push(a, item{at, order, a.seq, do})
}

// take returns what is due first.
func (a *agenda) take() (item, bool) {
	if len(a.items) == 0 {
		return item{}, false
	}
	return heap.Pop(a).(item), true
}
