package linux

import (
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// memoryHigh is memory.high of a task's own group, which holds all groups inside together. cgroup v1 has none.
type memoryHigh struct {
	ownGroup
	cg     identifier
	memory *reclaim.Memory
	no     error // why there is no controller
}

func newMemoryHigh(cg identifier, fs hostfs.FS) *memoryHigh {
	k := &memoryHigh{cg: cg}
	m, err := cgroup.Discover(fs)
	if err == nil {
		k.memory, err = reclaim.Open(fs, m)
	}
	k.no = err
	return k
}

// pageBytes is what the kernel rounds a limit down to.
const pageBytes = 4096

func (k *memoryHigh) inode(path string) (uint64, error) { return k.cg.Inode(path) }

// groups: on cgroup v2 none is renamed.
func (k *memoryHigh) groups() ([]string, error) { return nil, nil }

func (k *memoryHigh) read(path string) (model.Setting, error) {
	if k.no != nil {
		return model.Ask(model.MemoryHigh), k.no
	}
	return MemoryHighOf(k.memory, path)
}

// MemoryHighOf reads a group's limit.
func MemoryHighOf(m *reclaim.Memory, path string) (model.Setting, error) {
	n, err := m.ReadHigh(path)
	if err != nil {
		return model.Ask(model.MemoryHigh), err
	}
	return model.HighMemory(n), nil
}

func (k *memoryHigh) write(path string, _, to model.Setting) error {
	if k.no != nil {
		return k.no
	}
	return k.memory.WriteHigh(path, to.Amount)
}

// want never lets a task have more than was found. The kernel keeps whole pages.
func (k *memoryHigh) want(_ string, c *model.Change, found model.Setting) (model.Setting, string, error) {
	want := c.Value
	if want.Amount != model.NoMemoryHigh {
		want.Amount -= want.Amount % pageBytes
	}
	if c.Kind == model.Hold {
		return found.Tightest(want), "", nil
	}
	return want, "", nil
}

func (k *memoryHigh) others(_ *journal.Limit, now model.Setting) model.Setting { return now }
