package linux

import (
	"errors"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// Restoring is what a restore needs.
type Restoring struct {
	FS      hostfs.FS
	Journal string // path
	Boot    string // of the kernel that runs

	Disk  journal.Disk // nil: the machine's own files
	Clock Clock        // nil: the machine's own; it names a corrupt journal that is kept
}

// Restore is Run on the machine's own files and clock.
func Restore(fs hostfs.FS, path, boot string) (node.Report, error) {
	return Restoring{FS: fs, Journal: path, Boot: boot}.Run()
}

// Run puts back what a journal says is outstanding, where it is still ours. It is
// what the guardian, the `restore` command and the next start of the agent do; doing it
// twice does no harm. The caller holds the journal's lock.
//
// A corrupt journal is kept beside the new one under a name that ends in .corrupt-TIME,
// what it still says is put back, and the report says what could not be read. A newer
// version's journal is an error and nothing is touched.
func (r Restoring) Run() (node.Report, error) {
	if r.Disk == nil {
		r.Disk = journal.RealDisk()
	}
	if r.Clock == nil {
		r.Clock = RealClock{}
	}
	var rep node.Report
	c, err := journal.ReadOn(r.Disk, r.Journal)
	switch {
	case errors.Is(err, journal.ErrCorrupt):
		rep.Unreadable = err.Error()
		aside := fmt.Sprintf("%s.corrupt-%s", r.Journal, time.Unix(0, r.Clock.WallNsec()).UTC().Format("20060102T150405.000"))
		if err := r.Disk.Link(r.Journal, aside); err != nil {
			return rep, fmt.Errorf("restore: keep the corrupt journal: %w", err)
		}
		rep.Unreadable += "; kept as " + aside
	case err != nil:
		return rep, fmt.Errorf("restore: %w", err)
	}
	if c.Boot != "" && c.Boot != r.Boot {
		rep.Rebooted = true
		c.Limits = nil
	}
	if len(c.Limits) == 0 && rep.Unreadable == "" {
		return rep, nil
	}
	j, err := journal.ContinueOn(r.Disk, r.Journal, r.Boot, c.Limits)
	if err != nil {
		return rep, fmt.Errorf("restore: %w", err)
	}
	defer j.Close() //nolint:errcheck // every entry was synced
	if len(c.Limits) == 0 {
		return rep, nil
	}
	m, err := cgroup.Discover(r.FS)
	if err != nil {
		return rep, fmt.Errorf("restore: %w", err)
	}
	cg, err := cgroup.Open(r.FS, m)
	if err != nil {
		return rep, fmt.Errorf("restore: %w", err)
	}
	rep.Items = newKnobs(cg, r.FS, r.Clock, j).putBackAll()
	return rep, nil
}
