package linux

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// freezer is the part of a cgroup driver that freezing needs.
type freezer interface {
	ReadFreezeAsked(path string) (bool, error)
	WriteFreezeAsked(path string, frozen bool) error
	FreezerInode(path string) (uint64, error)
	Descendants(path string) ([]string, error)
}

// freezing is whether a task's group asks to be frozen: cgroup.freeze of cgroup v2, freezer.state of v1, in a hierarchy
// of its own. Those below freeze with it, whatever they ask for themselves, which is never touched. That its
// processes have stopped is not waited for: one that is deep in the kernel may take long, and the loop may not.
type freezing struct {
	ownGroup
	cg   freezer
	flat bool // v2
}

func (f *freezing) inode(path string) (uint64, error) { return f.cg.FreezerInode(path) }

func (f *freezing) groups() ([]string, error) {
	if f.flat {
		return nil, nil
	}
	return f.cg.Descendants("/")
}

func (f *freezing) read(path string) (model.Setting, error) {
	frozen, err := f.cg.ReadFreezeAsked(path)
	if err != nil {
		return model.Ask(model.GroupFreeze), err
	}
	return model.Freeze(frozen), nil
}

func (f *freezing) write(path string, _, to model.Setting) error {
	return f.cg.WriteFreezeAsked(path, to.Amount != 0)
}

// want: who was found frozen stays so.
func (f *freezing) want(_ string, c *model.Change, found model.Setting) (model.Setting, string, error) {
	if c.Kind == model.Hold && found.Amount >= c.Value.Amount {
		return found, "", nil
	}
	return model.Freeze(c.Value.Amount != 0), "", nil
}

func (f *freezing) others(_ *journal.Limit, now model.Setting) model.Setting { return now }
