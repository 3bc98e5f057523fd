package fleet

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/fleet/spec"
)

// Every node that was let in hears a changed spec and does a command to all, each by its own key. More nodes than the process may open files for are
// refused before anything begins.
func TestAllNodesAreReached(t *testing.T) {
	f, cl, end, err := hubIn(t.Context(), t.TempDir(), spec.Params{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	c := &Cost{}
	if err := c.reach(t.Context(), f, cl, 20); err != nil { // which counts who heard it; whoever asked may have the answer before
		t.Fatal(err)
	}
	if r := &c.Reach; r.Nodes != 20 || r.Spread <= 0 || r.Told <= 0 || r.Answered <= 0 || r.Files < 40 {
		t.Errorf("%+v", r)
	}
	t.Logf("%+v", c.Reach)
	if err := c.reach(t.Context(), f, cl, 1<<40); err == nil || !strings.Contains(err.Error(), "ulimit -n") {
		t.Error(err)
	}
}
