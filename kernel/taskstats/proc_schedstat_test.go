package taskstats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestParseSchedstat(t *testing.T) {
	tests := []struct {
		name, text string
		want       Stats
	}{
		{"good", "3611067 1041820 43\n", Stats{3611067, 1041820, 43, 0, OK}},
		{"no newline", "1 2 3", Stats{1, 2, 3, 0, OK}},
		{"largest", "18446744073709551615 0 0\n", Stats{^uint64(0), 0, 0, 0, OK}},
	}
	for _, test := range tests {
		if got, err := parseSchedstat([]byte(test.text)); err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v; want %+v", test.name, got, err, test.want)
		}
	}
	for _, bad := range []string{"", "\n", "1 2\n", "1 2 \n", "1 2 3 4\n", "-1 2 3\n", "1  2 3\n", "a b c\n",
		"18446744073709551616 0 0\n", "1 2 3x\n"} {
		if got, err := parseSchedstat([]byte(bad)); !errors.Is(err, errMalformed) {
			t.Errorf("%q: got %+v, %v; want errMalformed", bad, got, err)
		}
	}
}

func FuzzParseSchedstat(f *testing.F) {
	f.Add([]byte("3611067 1041820 43\n"))
	f.Add([]byte("0 0 0\n"))
	f.Add([]byte("18446744073709551616 1 1"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSchedstat(b)
		if err != nil {
			return
		}
		again, err := parseSchedstat(fmt.Appendf(nil, "%d %d %d\n", s.RunNsec, s.DelayNsec, s.DelayCount))
		if err != nil || again != s {
			t.Errorf("%q: read %+v, written and read again %+v, %v", b, s, again, err)
		}
	})
}

// tree writes files below a temporary root.
func tree(t *testing.T, files map[string]string) hostfs.FS {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return hostfs.NewRoot(root)
}

func TestSchedstatSumsThreads(t *testing.T) {
	s := NewSchedstat(tree(t, map[string]string{
		"proc/10/task/10/schedstat": "100 20 3\n",
		"proc/10/task/11/schedstat": "1000 200 30\n",
		"proc/20/task/20/schedstat": "0 0 0\n",
		"proc/30/task/30/comm":      "no schedstat here\n",
		"proc/40/task/40/schedstat": "7 7 7\n",
		"proc/40/task/41/comm":      "ended between listing and reading\n",
	}))
	out := make([]Stats, 5)
	if err := s.Query([]int32{10, 20, 30, 40, 50}, out); err != nil {
		t.Fatal(err)
	}
	want := []Stats{{1100, 220, 33, 0, OK}, {Status: Unavailable}, {Status: Unavailable}, {7, 7, 7, 0, OK}, {Status: Gone}}
	for i := range want {
		if out[i] != want[i] {
			t.Errorf("answer %d: got %+v, want %+v", i, out[i], want[i])
		}
	}
	if err := s.Query(make([]int32, 2), out[:1]); !errors.Is(err, ErrShortOutput) {
		t.Errorf("got %v, want ErrShortOutput", err)
	}
}

func TestSchedstatMalformedFailsTheSource(t *testing.T) {
	s := NewSchedstat(tree(t, map[string]string{"proc/10/task/10/schedstat": "100 20\n"}))
	if err := s.Query([]int32{10}, make([]Stats, 1)); !errors.Is(err, errMalformed) {
		t.Errorf("got %v, want errMalformed", err)
	}
}

func TestSchedstatOnThisKernel(t *testing.T) {
	s := NewSchedstat(hostfs.NewRoot("/"))
	if query1(t, s, int32(os.Getpid())).Status == Unavailable {
		t.Skip("this kernel gathers no per-thread schedstat (CONFIG_SCHED_INFO is off)")
	}
	rival := start(t, "spin 1", 0)
	p := start(t, "spin 2", 0)
	until(t, "0.3 s of run time", func() bool { return query1(t, s, p.pid).RunNsec > 300e6 })
	lowRun, lowDelay := sumSchedstat(t, p.pid)
	got := query1(t, s, p.pid)
	highRun, highDelay := sumSchedstat(t, p.pid)
	if got.Status != OK || got.RunNsec < lowRun || got.RunNsec > highRun || got.DelayNsec < lowDelay || got.DelayNsec > highDelay {
		t.Errorf("got %+v, want run in %d..%d, delay in %d..%d", got, lowRun, highRun, lowDelay, highDelay)
	}
	if got.DelayNsec < 100e6 {
		t.Errorf("delay %d ns: two spinners beside a rival on one CPU must wait", got.DelayNsec)
	}
	if n, err := DialTaskstats(); err == nil { // both sources, one truth: no thread of the child ended
		defer func() { _ = n.Close() }()
		low := query1(t, s, p.pid)
		middle := query1(t, n, p.pid)
		high := query1(t, s, p.pid)
		if middle.RunNsec < low.RunNsec || middle.RunNsec > high.RunNsec {
			t.Errorf("taskstats run %d ns is not within schedstat's %d..%d", middle.RunNsec, low.RunNsec, high.RunNsec)
		}
	}
	p.End()
	rival.End()
	if status := query1(t, s, p.pid).Status; status != Gone {
		t.Errorf("reaped: %v, want gone", status)
	}
}
