package linux

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// reads reads a file once, when it is told which, and then does nothing.
func reads(p *testchild.Parent, _ []string) error {
	p.Say("ready")
	f, err := os.Open(p.Line())
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if _, err := io.Copy(io.Discard, f); err != nil {
		return err
	}
	p.Say("read")
	return p.Stay()
}

// On this kernel: page cache of a group that was read once grows old and is given back, by age. Where the kernel has no ages or takes nothing back, both say so by
// name, and nothing happens to the group's pages.
func TestColdFilePagesOnTheKernel(t *testing.T) {
	const fileBytes = 48 << 20
	b := newBed(t, "cold")
	if b.mounts.V1[cgroup.Memory] == "" && !slices.Contains(b.mounts.UnifiedControllers, cgroup.Memory) {
		t.Skip("this kernel has no memory controller")
	}
	file := filepath.Join(rigtest.DiskDir(t), "file")
	rigtest.Unread(t, file, fileBytes)
	if rigtest.Inside() { // Debian's kernels have it and leave it off
		const enabled = "/sys/kernel/mm/lru_gen/enabled"
		if err := os.WriteFile(enabled, []byte("y"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.WriteFile(enabled, []byte("n"), 0) })
	}
	path := b.mkdir("be-1")
	b.inUse, b.ages = true, model.AskedAges{ShortestNsec: 1e9, LongestNsec: 2e9}
	b.open(false)
	child := testchild.Start(t, "reads").Await("ready")
	if err := b.cg.MovePID(path, child.PID()); err != nil {
		t.Fatal(err)
	}
	child.Say(file)
	child.Await("read")
	cached := func() uint64 {
		b.observe(model.WindowStart | model.WindowEnd)
		return b.sample(path).C[model.CountMemoryFile].Value
	}
	var before uint64
	b.until("the kernel counts what was read", func() bool { before = cached(); return before >= fileBytes/2 })
	ask := func() model.Result {
		t.Helper()
		b.h.Apply([]model.Change{{Seq: 9, Target: model.OfTask(b.tasks[path].Num), Kind: model.Run, Value: model.ReclaimCold(fileBytes/2, model.FilePages, 1e9)}})
		var res []model.Result
		b.until("an answer", func() bool { res = b.h.Results(res); return len(res) > 0 })
		return res[0]
	}
	if missing := strings.Join(b.h.Missing(), "; "); strings.Contains(missing, "ages of pages") {
		r := ask()
		if r.Kind != model.Refused || !strings.Contains(r.Error, "no memory.reclaim") && !strings.Contains(r.Error, "multi-generational") {
			t.Errorf("without ages: %+v", r)
		}
		t.Skipf("this kernel tells no ages: %s; asked for pages by age it says: %s", missing, r.Error)
	}
	old := func() uint64 { // as the last reading has it
		time.Sleep(time.Second)
		b.observe(model.WindowStart | model.WindowEnd)
		for _, a := range b.snap.Ages {
			if a.Num == b.tasks[path].Num {
				return max(a.File[0], 1)
			}
		}
		return 0
	}
	b.until("ages are read", func() bool { return old() > 0 })
	r := ask()
	if r.Kind == model.Refused && strings.Contains(r.Error, "no memory.reclaim") {
		t.Skipf("this kernel tells ages and takes nothing back: %s", r.Error)
	}
	b.until("old pages are given back", func() bool {
		if r.Now.Amount < fileBytes/4 {
			time.Sleep(time.Second)
			old()
			r = ask()
		}
		return r.Now.Amount >= fileBytes/4
	})
	if after := cached(); r.Kind != model.Applied || after > before-fileBytes/8 {
		t.Errorf("%+v; page cache went from %d to %d", r, before, after)
	}
}
