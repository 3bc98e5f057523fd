package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/policy/coldpages"
)

const mega = 1 << 20

// anonymous returns so many MiB of memory in small pages, all of them used once.
func anonymous(mib string) ([]byte, error) {
	size, err := strconv.Atoi(mib)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(-1, 0, size*mega, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	use(mem)
	return mem, nil
}

func use(mem []byte) {
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i]++
	}
}

// keep has anonymous memory: args are megabytes, and "hot" for memory that is used twice a second. Told by a line it uses all of it once.
func keep(p *testchild.Parent, args []string) error {
	p.Line()
	mem, err := anonymous(args[0])
	if err != nil {
		return err
	}
	if len(args) > 1 {
		go func() {
			for ; ; time.Sleep(500 * time.Millisecond) {
				// An emulated CPU keeps the page tables' marks that a page was used for ever, unless a larger change empties its cache.
				dummy, err := unix.Mmap(-1, 0, 64*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
				if err = errors.Join(err, unix.Mprotect(dummy, unix.PROT_READ), unix.Munmap(dummy)); err != nil {
					panic(err)
				}
				use(mem)
			}
		}()
	}
	for p.Say("ready"); ; p.Say("used") {
		p.Line()
		use(mem)
	}
}

// coldScene has an idle service and batch work that uses what it has, on a machine with swap.
type coldScene struct {
	*bed
	idle, busy string
	child      *testchild.Child          // the idle one
	last       map[string]coldpages.Idle // what was known of whom
}

func newColdScene(t *testing.T, name, policy string, mib int) *coldScene {
	t.Helper()
	rigtest.Only(t, "swapon, multi-generational LRU")
	rigtest.SwapOn(t, rigtest.SwapDevice, rigtest.SwapBytes)
	bits := "y"
	if rigtest.Kernel() == "6.1" { // with all of it a group on two nodes has no lower bound there (kernel/reclaim, lru_gen_age.go)
		bits = "0x0003"
	}
	rigtest.Set(t, "/sys/kernel/mm/lru_gen/enabled", bits)
	rigtest.Set(t, "/proc/sys/kernel/numa_balancing", "0")
	s := &coldScene{bed: newBed(t, name, settings{mode: "observe"}), last: map[string]coldpages.Idle{}}
	s.idle, s.busy = s.group("victim", unlimited), s.group("be-0", unlimited)
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	// What an emulated CPU takes for a fault is no measure: only what comes back stops it.
	text = append(text, "coldpages: {mode: enforce, "+policy+", lc_file: 0s, be_file: 0s, stall: 1, machine_stall: 1, task_bytes: 67108864, watch: 5m, rest: 30m}\n"...)
	if err := os.WriteFile(s.config, text, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("as last seen: %+v", s.last)
		}
	})
	s.child = testchild.Start(t, "keep "+strconv.Itoa(mib))
	s.move(s.idle, s.child)
	s.move(s.busy, testchild.Start(t, "keep 24 hot"))
	return s
}

// swapped is what of a group's memory is in swap, in MiB.
func (s *coldScene) swapped(group string) int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "memory.swap.current"))
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		s.t.Fatal(err)
	}
	return n / mega
}

// known is what the agent says of a task's idle memory; nothing while its ages were not read.
func (s *coldScene) known(group string) coldpages.Idle {
	if st, err := s.ask(); err == nil {
		for _, task := range st.Tasks {
			if task.Idle != nil {
				s.last[task.Path] = *task.Idle
			}
		}
	}
	return s.last[group]
}

// TestColdPagesSwap: anonymous pages that a service has not used for longer than the threshold go to swap; what batch work uses stays. When the service wakes
// and its pages come back nothing more is taken of it, though it idles again.
func TestColdPagesSwap(t *testing.T) {
	const mib = 24
	s := newColdScene(t, "cold", "lc_anon: 10s, be_anon: 10s", mib)
	p := s.watched()
	// Walks have 0.4 % of a CPU, and an emulated one takes long for each.
	walk := 6 * patience()
	within(t, walk, "ages are read", func() bool { return s.known(s.idle).Ages.MonoNsec > 0 })
	within(t, walk, "the idle service's pages are in swap", func() bool { s.known(s.idle); return s.swapped(s.idle) > mib/2 })
	if used := s.swapped(s.busy); used > mib/4 {
		t.Errorf("%d MiB of what batch work uses are in swap", used)
	}
	eventually(t, "the agent says what was given", func() bool { return s.known(s.idle).Given > mib*mega/2 })
	t.Logf("in swap %d MiB of %s, %d MiB of %s\n%s", s.swapped(s.idle), s.idle, s.swapped(s.busy), s.busy, s.must(0, "status").out)

	s.child.Say("use")
	s.child.Await("used")
	// How much has come back by then is up to how fast an emulated CPU faults: what stops it also ends the count.
	eventually(t, "what comes back stops it", func() bool { i := s.known(s.idle); return i.Resting && i.CameBack > 0 })
	if said := p.said("coldpages", "rest"); !strings.Contains(said, "pages a second come back") {
		t.Errorf("it says %q", said)
	}
	given := s.known(s.idle).Given
	within(t, walk, "it idles again", func() bool { i := s.known(s.idle); return i.Anon > mib*mega/2 })
	time.Sleep(10 * time.Second) // two asks are four seconds apart
	if i := s.known(s.idle); i.Given > given || !i.Resting {
		t.Errorf("it rests, and gave %.0f MiB, before %.0f: %+v", i.Given/mega, given/mega, i)
	}
	t.Logf("%s\n%s", s.must(0, "status").out, p.said("coldpages", "rest"))
	p.stop(unix.SIGTERM)
}

// TestColdPagesSwapByPressure: the other means, memory.reclaim, which before Linux 6.9 cannot be asked for anonymous pages alone: that is said, and nothing is
// taken.
func TestColdPagesSwapByPressure(t *testing.T) {
	const mib = 160 // a hundredth of it is asked for at once, and no less than 1 MiB
	s := newColdScene(t, "tmo", "by: pressure, ratio: 0.01, target: 1, be_anon: 0s", mib)
	p := s.watched()
	if rigtest.Kernel() == "6.1" {
		eventually(t, "the agent says that it cannot ask for them", func() bool { return strings.Contains(p.said("coldpages", "rest"), "swappiness") })
		t.Log(p.said("coldpages", "rest"))
		if n := s.swapped(s.idle); n > 0 {
			t.Errorf("%d MiB are in swap", n)
		}
	} else {
		eventually(t, "anonymous pages are in swap, bit by bit", func() bool { return s.swapped(s.idle) >= 4 })
		if n := s.swapped(s.busy); n > 0 {
			t.Errorf("%d MiB of batch work, of which nothing is asked, are in swap", n)
		}
	}
	p.stop(unix.SIGTERM)
}
