package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// What the limit above all of them holds, and the file of the service, which fits beside the batch work that is there all along.
const (
	thrashLimit = 104 * mega
	thrashFile  = 48 * mega
)

// figure is the number behind a word in a file of a group.
func figure(t *testing.T, group, file, word string) (f float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, file))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), word)
	if _, err := fmt.Sscan(after, &f); err != nil {
		t.Fatalf("%q in %s of %s: %v\n%s", word, file, group, err, text)
	}
	return f
}

// stalls begins to count how a group waits for memory; the returned function ends that, and says for how much of the time it waited, and how many pages of files
// came back in a second.
func stalls(t *testing.T, group string) func() (share, back float64) {
	t.Helper()
	look := func() (sec, pages float64) {
		return figure(t, group, "memory.pressure", "total=") / 1e6, figure(t, group, "memory.stat", "\nworkingset_refault_file ")
	}
	began := time.Now()
	sec, pages := look()
	return func() (float64, float64) {
		s, p := look()
		passed := time.Since(began).Seconds()
		return (s - sec) / passed, (p - pages) / passed
	}
}

// TestThrash: batch work that uses much memory all the time pushes out of what both may have a service's file, and the service waits for its pages, which come from a slow disk. Under
// policy memory it is named and held by memory.high, at which the kernel takes back what it has more: the service then waits less, and fewer of its pages come back. Batch work that has
// memory all along is left alone. Once the hog is gone its limit is, while the agent runs, and after the agent's end there is none.
func TestThrash(t *testing.T) {
	rigtest.Only(t, "swapon, slow disk")
	rigtest.SwapOn(t, rigtest.SwapDevice, rigtest.SwapBytes)
	t.Run("held at once", func(t *testing.T) { thrash(t, "0") })
	t.Run("asked first", func(t *testing.T) { thrash(t, "1073741824") })
}

func thrash(t *testing.T, reclaimBytes string) {
	b := newBed(t, "thrash", settings{})
	if err := b.cg.(*cgroup.V2).Enable(b.root, cgroup.CPU, cgroup.Memory, cgroup.IO); err != nil {
		t.Fatal(err)
	}
	victim, hog, batch := b.group("victim", unlimited), b.group("be-hog", unlimited), b.group("be-batch", unlimited)
	if err := os.WriteFile(filepath.Join("/sys/fs/cgroup", b.root, "memory.max"), []byte(strconv.Itoa(thrashLimit)), 0); err != nil {
		t.Fatal(err)
	}
	b.configureFor(`cpi2: {min_samples_per_task: 10}
memory: {mode: enforce, least_bytes: 16777216, reclaim_bytes: `+reclaimBytes+`, settle: 3s, loosen_after: 8}`, [2]string{"hog", "best-effort"}, [2]string{"batch", "batch"})
	file := filepath.Join(rigtest.SlowDisk(t), "file")
	rigtest.Unread(t, file, thrashFile)
	served := testchild.Start(t, "serve 4 "+file+" 64").Await("ready")
	if err := b.cg.MovePID(victim, served.PID()); err != nil {
		t.Fatal(err)
	}
	b.move(batch, testchild.Start(t, "keep 16 hot"))
	p := b.watched()
	usual := b.usual(model.SourceMemory)
	t.Logf("it usually waits %.3f +- %.3f of the time", usual.Mean, usual.StdDev)

	grown, waits := testchild.Start(t, "keep 96 hot"), stalls(t, victim)
	b.move(hog, grown)
	var who accused
	eventually(t, "the hog is held", func() bool { who.see(b, hog, model.MemoryHigh); return who.held })
	hurt, cameBack := waits()
	helped := []string{"msg=verified ", "policy=memory", "holding " + hog}
	eventually(t, "that has helped", func() bool { return p.line(helped...) != "" })
	// What it lost comes back as it is used, and the limit of a hog that was still growing is halved: so it is asked for six seconds in a row, of half a minute.
	share, back := 0.0, 0.0
	for tries, well := 1, 0; well < 2; tries++ {
		waits = stalls(t, victim)
		time.Sleep(3 * time.Second)
		if share, back = waits(); share < hurt/2 && back < cameBack {
			well++
		} else if well = 0; tries > 10 {
			t.Error("holding the hog has not halved the waiting, or as many pages come back")
			break
		}
		t.Logf("the service waited %.2f of the time and waits %.2f; %.0f of its pages came back a second, and %.0f do", hurt, share, cameBack, back)
	}
	t.Logf("%s%s%s", p.said("memory", "cap"), p.line(helped...), b.must(0, "status").out)

	grown.End()
	high := func(group string) string {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "memory.high"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	// After a step that hurt the next ones come sixteen windows apart.
	within(t, 4*time.Minute, "all is given back", func() bool { who.see(b, hog, model.MemoryHigh); return high(hog) == "max" })
	t.Log(p.said("memory", "release"))
	p.stop(unix.SIGTERM)
	if len(who.others) > 0 {
		t.Errorf("named or held as well: %s", strings.Join(who.others, ", "))
	}
	for _, g := range b.groups {
		if limit := high(g); limit != "max" {
			t.Errorf("after the agent's end memory.high of %s is %s", g, limit)
		}
	}
}
