package taskstats

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dial skips only where the kernel or the privilege is truly missing, and says which.
func dial(t testing.TB) *Netlink {
	t.Helper()
	n, err := DialTaskstats()
	if errors.Is(err, ErrNotSupported) || errors.Is(err, ErrPermission) {
		t.Skipf("no taskstats here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func query1(t testing.TB, s Source, pid int32) Stats {
	t.Helper()
	out := make([]Stats, 1)
	if err := s.Query([]int32{pid}, out); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// until polls, because nothing but the scheduler decides when a child has burnt its share.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited 30 s in vain: %s", what)
}

func TestQueryAgreesWithSchedstat(t *testing.T) {
	n := dial(t)
	p := start(t, "spin 3", -1)
	until(t, "0.3 s of run time", func() bool { return query1(t, n, p.pid).RunNsec > 300e6 })

	// No thread of the child ends, so both count the same; the files are read before and after, which brackets
	// the answer whatever the scheduler does in between.
	lowRun, lowDelay := sumSchedstat(t, p.pid)
	s := query1(t, n, p.pid)
	highRun, highDelay := sumSchedstat(t, p.pid)
	t.Logf("schedstat before: run %d delay %d; taskstats %+v; after: run %d delay %d", lowRun, lowDelay, s, highRun, highDelay)
	if s.Status != OK || s.RunNsec < lowRun || s.RunNsec > highRun {
		t.Errorf("run %d ns (%v) is not within %d..%d", s.RunNsec, s.Status, lowRun, highRun)
	}
	if s.DelayNsec < lowDelay || s.DelayNsec > highDelay {
		t.Errorf("delay %d ns is not within %d..%d", s.DelayNsec, lowDelay, highDelay)
	}
	if s.DelayCount == 0 {
		t.Error("no run-queue passages counted")
	}
}

func TestThreadThatEndedKeepsItsCounters(t *testing.T) {
	n := dial(t)
	rival := start(t, "spin 1", 0)
	p := start(t, "die 300ms", 0) // shares CPU 0 with the rival: its burning thread must gather delay
	p.Await("died")
	s := query1(t, n, p.pid)
	run, delay := sumSchedstat(t, p.pid)
	t.Logf("after the thread ended: taskstats %+v; living threads: run %d delay %d; rival %+v", s, run, delay, query1(t, n, rival.pid))
	if s.RunNsec < 300e6 {
		t.Errorf("run %d ns, want at least the 300 ms that the dead thread burnt", s.RunNsec)
	}
	if run > s.RunNsec-250e6 {
		t.Errorf("living threads ran %d ns of %d: the burner did not end, nothing was tested", run, s.RunNsec)
	}
	if s.DelayNsec < delay+100e6 {
		t.Errorf("delay %d ns, living threads %d: the dead thread's delay beside a rival was lost", s.DelayNsec, delay)
	}
}

func TestTwoSpinnersOnOneCPUWaitAsLongAsTheyRun(t *testing.T) {
	n := dial(t)
	a, b := start(t, "spin 1", 0), start(t, "spin 1", 0)
	pids, first, last := []int32{a.pid, b.pid}, make([]Stats, 2), make([]Stats, 2)
	until(t, "both run", func() bool {
		if err := n.Query(pids, first); err != nil {
			t.Fatal(err)
		}
		return first[0].RunNsec > 50e6 && first[1].RunNsec > 50e6
	})
	until(t, "each ran 1 s more", func() bool {
		if err := n.Query(pids, last); err != nil {
			t.Fatal(err)
		}
		return last[0].RunNsec > first[0].RunNsec+1e9 && last[1].RunNsec > first[1].RunNsec+1e9
	})
	for i := range pids {
		run, delay := last[i].RunNsec-first[i].RunNsec, last[i].DelayNsec-first[i].DelayNsec
		ratio := float64(delay) / float64(run)
		t.Logf("spinner %d: run %.2f s, delay %.2f s, delay/run %.2f", i, float64(run)/1e9, float64(delay)/1e9, ratio)
		// 1.0 when the two have the CPU to themselves; a third party on this CPU adds delay, up to any amount.
		if ratio < 0.6 || ratio > 6 {
			t.Errorf("spinner %d: delay/run %.2f, want about 1", i, ratio)
		}
	}
}

func TestVanishedAndZombie(t *testing.T) {
	n := dial(t)
	p := start(t, "spin 2", -1)
	// Time on two threads: the child is past its exec and has several, which a fresh one has not yet.
	until(t, "0.1 s of run time on several threads", func() bool {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
		return err == nil && len(threads) > 2 && query1(t, n, p.pid).RunNsec > 100e6
	})
	if err := unix.Kill(int(p.pid), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, int(p.pid), &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	// A Go child has several threads, so its zombie keeps the sums of those that ended.
	if s := query1(t, n, p.pid); s.Status != OK || s.RunNsec < 100e6 {
		t.Errorf("zombie of several threads: %+v, want its counters", s)
	}
	p.End()
	if s := query1(t, n, p.pid); s != (Stats{Status: Gone}) {
		t.Errorf("reaped: %+v, want Gone", s)
	}
	if s := query1(t, n, -1); s.Status != Gone {
		t.Errorf("thread group -1: %v, want Gone", s.Status)
	}
}

func TestZombieOfOneThreadIsUnavailable(t *testing.T) {
	n := dial(t)
	// A shell has one thread; it ends at once and stays a zombie until we reap it.
	proc, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 0"}, &os.ProcAttr{})
	if err != nil {
		t.Skipf("no shell to make a single-threaded process with: %v", err)
	}
	t.Cleanup(func() { _, _ = proc.Wait() })
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, proc.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if s := query1(t, n, int32(proc.Pid)); s != (Stats{Status: Unavailable}) {
		t.Errorf("got %+v, want Unavailable: counters that fell to zero are no measurement", s)
	}
}

// mixed is n thread groups, every third of which does not exist.
func mixed(n int) []int32 {
	pids := make([]int32, n)
	for i := range pids {
		pids[i] = int32(os.Getpid())
		if i%3 == 1 {
			pids[i] = -int32(i)
		}
	}
	return pids
}

func checkMixed(t testing.TB, out []Stats) {
	t.Helper()
	for i, s := range out {
		want := OK
		if i%3 == 1 {
			want = Gone
		}
		if s.Status != want {
			t.Fatalf("answer %d: %v, want %v", i, s.Status, want)
		}
	}
}

func TestBatchesKeepTheirOrder(t *testing.T) {
	n := dial(t)
	for _, size := range []int{0, 1, batchSize - 1, batchSize, batchSize + 1, 1000} {
		out := make([]Stats, size)
		if err := n.Query(mixed(size), out); err != nil {
			t.Fatal(err)
		}
		checkMixed(t, out)
	}
	if err := n.Query(make([]int32, 2), make([]Stats, 1)); !errors.Is(err, ErrShortOutput) {
		t.Errorf("got %v, want ErrShortOutput", err)
	}
}

func TestLostRepliesAreAskedAgain(t *testing.T) {
	n := dial(t)
	if err := unix.SetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096); err != nil {
		t.Fatal(err)
	}
	out := make([]Stats, 200)
	before := n.syscalls
	if err := n.Query(mixed(200), out); err != nil {
		t.Fatal(err)
	}
	checkMixed(t, out)
	if spent := n.syscalls - before; spent < 20 {
		t.Errorf("%d system calls: the receive buffer did not overflow, nothing was tested", spent)
	}
}

func TestStaleRepliesAreDropped(t *testing.T) {
	n := dial(t)
	// A query whose replies nobody read, as after a timeout.
	n.seq += 3
	if err := n.send(n.encode([]int32{-1, -1, -1}, n.seq-2)); err != nil {
		t.Fatal(err)
	}
	if s := query1(t, n, int32(os.Getpid())); s.Status != OK {
		t.Errorf("got %v: an answer to an earlier question was taken", s.Status)
	}
	n.seq = ^uint32(0) - 2 // sequence numbers wrap inside the batch
	out := make([]Stats, 10)
	if err := n.Query(mixed(10), out); err != nil {
		t.Fatal(err)
	}
	checkMixed(t, out)
}

func TestReceiveTimesOut(t *testing.T) {
	n := dial(t)
	if _, err := n.receive(unix.MSG_WAITFORONE); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("receive without a question: %v, want EAGAIN after the timeout", err)
	}
}

func TestUnknownFamilyIsNotSupported(t *testing.T) {
	n := dial(t)
	if _, err := n.resolve("COMMENSAL_NONE"); !errors.Is(err, ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
}

func TestQueryDoesNotAllocate(t *testing.T) {
	n := dial(t)
	pids, out := mixed(100), make([]Stats, 100)
	if allocs := testing.AllocsPerRun(50, func() {
		if err := n.Query(pids, out); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations a query, want none", allocs)
	}
}

// BenchmarkQuery1000 asks about 1,000 thread groups: 50 living processes, each 20 times over (a thousand processes
// would weigh more than what is measured; the kernel does the same work). "floor" is the same system calls without
// reading the replies' contents; "one by one" is what a request a call costs.
func BenchmarkQuery1000(b *testing.B) {
	const groups, processes = 1000, 50
	n := dial(b)
	var living []int32
	for range processes {
		living = append(living, start(b, "sleep", -1).pid)
	}
	pids, out := make([]int32, groups), make([]Stats, groups)
	for i := range pids {
		pids[i] = living[i%processes]
	}
	run := func(name string, work func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := n.syscalls
			for b.Loop() {
				if err := work(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n.syscalls-before)/float64(b.N), "syscalls/op")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/groups, "ns/process")
		})
	}
	run("batched", func() error { return n.Query(pids, out) })
	run("floor", func() error { return n.floor(pids) })
	run("one_by_one", func() error {
		for i := range pids {
			if err := n.Query(pids[i:i+1], out[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	})
}

// floor sends and receives the batches of a query and looks at nothing.
func (n *Netlink) floor(pids []int32) error {
	for from := 0; from < len(pids); from += batchSize {
		batch := pids[from:min(from+batchSize, len(pids))]
		n.seq += uint32(len(batch))
		if err := n.send(n.encode(batch, n.seq)); err != nil {
			return err
		}
		for got := 0; got < len(batch); {
			more, err := n.receive(unix.MSG_WAITFORONE)
			if err != nil {
				return fmt.Errorf("after %d replies: %w", got, err)
			}
			got += more
		}
	}
	return nil
}
