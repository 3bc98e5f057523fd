package bench

import (
	"os"
	"testing"

	"github.com/commensal-io/commensal/kernel/schedwait"
)

func TestParseProgram(t *testing.T) {
	for _, c := range []struct {
		text, id string
		nsec     uint64
		ok       bool
	}{
		{"pos:\t0\nprog_type:\t26\nprog_id:\t31\nrun_time_ns:\t152000\nrun_cnt:\t9\n", "31", 152000, true},
		{"pos:\t0\nmap_type:\t1\nmap_id:\t4\n", "", 0, false},
		{"link_type:\ttracing\nlink_id:\t7\nprog_id:\t31\n", "31", 0, false},
		{"prog_id:\t31\nrun_time_ns:\tmany\n", "31", 0, false},
		{"", "", 0, false},
	} {
		if id, nsec, ok := parseProgram(c.text); id != c.id || nsec != c.nsec || ok != c.ok {
			t.Errorf("%q: %q, %d, %t", c.text, id, nsec, ok)
		}
	}
}

// The programs of a process that measures waits are found by what the kernel says of its descriptors.
func TestProgramsOfAProcess(t *testing.T) {
	before := programs(os.Getpid())
	s, err := schedwait.Open(schedwait.Options{})
	if err != nil {
		t.Skip(err)
	}
	during := programs(os.Getpid())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after := programs(os.Getpid()); during.count != before.count+6 || after.count != before.count {
		t.Errorf("%d programs before, %d during, %d after", before.count, during.count, after.count)
	}
}

func TestSwitches(t *testing.T) {
	a, err := switches()
	if b, err2 := switches(); err != nil || err2 != nil || a == 0 || b < a {
		t.Errorf("%d, %v, then %d, %v", a, err, b, err2)
	}
}
