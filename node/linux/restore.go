package linux

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// Restoring is what a restore needs.
type Restoring struct {
	FS      hostfs.FS
	Journal string // path
	Boot    string // of the kernel that runs

	Disk  journal.Disk // nil: the machine's own files
	Clock Clock        // nil: the machine's own
}

// Run puts back what a journal says is outstanding, where it is still ours. It is
// what the guardian and the `restore` command do; doing it twice does no harm. The caller
// holds the journal's lock.
//
// It needs to read the journal and not to write it: where that cannot be, the file stays as
// it is, and whoever restores next finds everything as found.
//
// A corrupt journal is kept, where that can be, beside the new one under a name that ends in
// .corrupt, what it still says is put back, and the report says what could not be read. A
// newer version's journal is an error and nothing is touched.
func (r Restoring) Run() (node.Report, error) {
	j, rep, err := r.open(false)
	if j != nil {
		_ = j.Close() // nothing is held back in it
	}
	return rep, err
}

// Open is what an agent starts with: Run, and a journal that goes on with what could not be
// put back. Whether that journal can be written Tend says.
func (r Restoring) Open() (*journal.Journal, node.Report, error) { return r.open(true) }

// open restores. Unless the journal is to be kept there is none when nothing is to be done.
func (r Restoring) open(keep bool) (*journal.Journal, node.Report, error) {
	if r.Disk == nil {
		r.Disk = journal.RealDisk()
	}
	if r.Clock == nil {
		r.Clock = RealClock{}
	}
	var rep node.Report
	limits, err := r.read(&rep)
	if err != nil {
		return nil, rep, fmt.Errorf("restore: %w", err)
	}
	if !keep && len(limits) == 0 && rep.Unreadable == "" {
		return nil, rep, nil
	}
	// What cannot be written is in memory, and Tend tries again.
	j, _ := journal.ContinueOn(r.Disk, r.Journal, r.Boot, limits)
	if len(limits) == 0 {
		return j, rep, nil
	}
	cg, err := cgroup.Find(r.FS)
	if err != nil {
		return nil, rep, errors.Join(fmt.Errorf("restore: %w", err), j.Close())
	}
	rep.Items = newKnobs(cg, r.FS, r.Clock, j).putBackAll()
	sleeps, _ := r.Clock.(resctrl.Clock)
	rep.Items = append(rep.Items, restoreClasses(r.FS, sleeps, j)...)
	return j, rep, nil
}

// read returns what the journal says of this boot, and notes the rest in a report.
func (r Restoring) read(rep *node.Report) ([]journal.Limit, error) {
	c, err := journal.ReadOn(r.Disk, r.Journal)
	switch {
	case errors.Is(err, journal.ErrCorrupt):
		if aside, kept := journal.KeepCorrupt(r.Disk, r.Journal); kept == nil {
			err = fmt.Errorf("%w; kept as %s", err, aside)
		}
		rep.Unreadable = err.Error()
	case err != nil:
		return nil, err
	}
	if c.Boot != "" && c.Boot != r.Boot {
		rep.Rebooted = true
		return nil, nil
	}
	return c.Limits, nil
}
