package scenario

import (
	"fmt"
	"time"

	"github.com/commensal-io/commensal/twin/machine"
)

// maxKinds is how many kinds of memory the physics takes of a task.
const maxKinds = 16

// memory returns what a task has in memory, as the physics wants it.
func (p *Plan) memory(at string, kinds []Memory) ([]machine.Heat, error) {
	if len(kinds) > maxKinds {
		return nil, p.doc.Errorf(at, "has %d kinds; expected at most %d", len(kinds), maxKinds)
	}
	whole := p.machine.MemBytes*float64(p.machine.Sockets) + p.machine.SwapBytes
	var heats []machine.Heat
	sum := 0.0
	for i := range kinds {
		m, key := &kinds[i], fmt.Sprintf("%s[%d]", at, i)
		sum += float64(m.Bytes)
		switch {
		case m.Bytes < pageBytes:
			return nil, p.doc.Errorf(key+".bytes", "is %g; expected at least a page, 4KiB", float64(m.Bytes))
		case sum > whole:
			return nil, p.doc.Errorf(key+".bytes", "makes it %.4g bytes of one task, and memory and swap have %.4g", sum, whole)
		case m.Every < 0 || m.Every > maxDuration:
			return nil, p.doc.Errorf(key+".every", "is %s; expected how often each page is used, such as 10m", m.Every)
		case m.Over < 0 || m.Over > maxDuration:
			return nil, p.doc.Errorf(key+".over", "is %s; expected for how long the task runs until it has all of it, such as 1m", m.Over)
		case m.Every > 0 && m.Every < time.Millisecond:
			return nil, p.doc.Errorf(key+".every", "is %s; expected at least 1ms, or 0s for all the time", m.Every)
		}
		heats = append(heats, machine.Heat{Bytes: float64(m.Bytes), File: m.File, EveryNsec: int64(m.Every), OverNsec: int64(m.Over)})
	}
	return heats, nil
}

const pageBytes = 4096
