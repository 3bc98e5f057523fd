package cputrace

import "math"

const msec = int64(1e6) // nanoseconds

// bins are the CPU time used in each millisecond of a recording.
type bins []uint32

// fill adds an amount evenly over a time since the start. What lies outside is left out.
func (b bins) fill(from, to int64, amount float64) {
	if to <= from || amount <= 0 {
		return
	}
	rate := amount / float64(to-from)
	for i := max(from, 0) / msec; i < int64(len(b)) && i*msec < to; i++ {
		part := float64(min(to, (i+1)*msec)-max(from, i*msec)) * rate
		b[i] = uint32(min(float64(b[i])+part+0.5, math.MaxUint32))
	}
}

// lane is one counter.
type lane struct {
	last  uint64
	moved int64 // when it last stepped, or the start
}

// sums are what all lanes counted.
type sums struct {
	used, putBack uint64 // nanoseconds
}

// step takes in a reading at now, the one before being at then. alone: the counter is of
// one CPU, and cannot have run faster than time.
//
// A step that is no larger than the time between the readings may have been anywhere in it,
// and is spread over it. One that is larger ended within it and began before: at the rate
// of one CPU, or of as many as it takes to have come together since the counter last
// stepped; no charge reaches back further than a tick.
func (l *lane) step(b bins, value uint64, then, now, tick int64, alone bool, s *sums) {
	if value <= l.last {
		l.last = value // the same; or it was reset, and what it counted since is lost
		return
	}
	d := value - l.last
	l.last = value
	s.used += d
	amount, between := float64(d), now-then
	width := 1.0
	if !alone {
		reach := min(now-l.moved, max(tick, between))
		width = max(1, amount/float64(max(reach, 1)))
	}
	l.moved = now
	if long := int64(amount / width); long > between {
		s.putBack += d
		b.fill(now-long, now, amount)
		return
	}
	b.fill(then, now, amount)
}
