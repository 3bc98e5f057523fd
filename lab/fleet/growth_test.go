package fleet

import (
	"os"
	"testing"

	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
)

// A hub that gets jobs step by step learns each of them, publishes each, and says what that took; nothing of any job is passed over.
func TestAHubGrows(t *testing.T) {
	p := spec.Defaults()
	p.MinSamplesPerTask, p.PeriodNsec = growWindows, 10e9
	f, cl, end, err := hubIn(t.Context(), t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	g := &growing{field: field{dir: f.dir}, client: client.Client{URL: cl.URL, TokenFile: hub.AdminToken(f.dir)}, nodes: f.hub.NodesURL(), pid: os.Getpid(), tasks: growFew, windows: growWindows, signals: learned()[:growUsual]}
	for i := range growFew {
		if err := g.let(growNode(i)); err != nil {
			t.Fatal(err)
		}
	}
	from := 0
	for _, jobs := range []int{150, 400} {
		step := Growth{Jobs: jobs, Tasks: growFew, Samples: (jobs - from) * growFew * growWindows}
		if err := g.step(t.Context(), &step, from); err != nil { // which counts samples, jobs and sheets
			t.Fatal(err)
		}
		if step.Sheets < jobs-from || step.Ingest <= 0 || step.Calculate <= 0 || step.Publish <= 0 || step.Resident <= 0 || step.Peak < step.Resident {
			t.Errorf("%+v", step)
		}
		t.Logf("%+v", step)
		from = jobs
	}
}
