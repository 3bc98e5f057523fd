package linux

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// Restore puts back what a journal says is outstanding, where it is still ours. It is
// what the guardian, the `restore` command and the next start of the agent do; doing it
// twice does no harm. The caller holds the journal's lock.
//
// A corrupt journal is kept beside the new one under a name that ends in .corrupt-TIME,
// what it still says is put back, and the report says what could not be read. A newer
// version's journal is an error and nothing is touched.
func Restore(fs hostfs.FS, path, boot string) (node.Report, error) {
	var rep node.Report
	c, err := journal.Read(path)
	switch {
	case errors.Is(err, journal.ErrCorrupt):
		rep.Unreadable = err.Error()
		aside := fmt.Sprintf("%s.corrupt-%s", path, time.Now().UTC().Format("20060102T150405.000"))
		if err := os.Link(path, aside); err != nil {
			return rep, fmt.Errorf("restore: keep the corrupt journal: %w", err)
		}
		rep.Unreadable += "; kept as " + aside
	case err != nil:
		return rep, fmt.Errorf("restore: %w", err)
	}
	if c.Boot != "" && c.Boot != boot {
		rep.Rebooted = true
		c.Limits = nil
	}
	if len(c.Limits) == 0 && rep.Unreadable == "" {
		return rep, nil
	}
	j, err := journal.Continue(path, boot, c.Limits)
	if err != nil {
		return rep, fmt.Errorf("restore: %w", err)
	}
	defer j.Close() //nolint:errcheck // every entry was synced
	if len(c.Limits) == 0 {
		return rep, nil
	}
	m, err := cgroup.Discover(fs)
	if err != nil {
		return rep, fmt.Errorf("restore: %w", err)
	}
	cg, err := cgroup.Open(fs, m)
	if err != nil {
		return rep, fmt.Errorf("restore: %w", err)
	}
	k := newKnobs(cg, j)
	rep.Items = k.restore(j.Outstanding())
	return rep, nil
}
