package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/schedwait"
)

// Parties have the names that people know them by, and shares are of the cgroup's own waiting.
func TestReportWaits(t *testing.T) {
	r := &schedwait.Reading{Switches: 4000, Tasks: []schedwait.Waits{
		{Task: 0, Count: [2]int64{20, 4}, Nsec: [2]int64{600e6, 200e6}, LongestNsec: 50e6, Open: 1, Shares: []schedwait.Share{
			{Party: schedwait.TaskParty(1), Nsec: 400e6}, {Party: schedwait.TaskParty(0), Nsec: 200e6},
			{Party: schedwait.Unmanaged, Cgroup: 77, Nsec: 160e6}, {Party: schedwait.Throttled, Nsec: 40e6},
		}},
		{Task: 1},
	}}
	rep := reportWaits([]string{"/lc", "/be"}, r, 2, func(id uint64) string { return map[uint64]string{77: "/other"}[id] })
	if _, err := json.Marshal(rep); err != nil {
		t.Fatal(err) // a task that never waited has no shares of nothing
	}
	var b strings.Builder
	if err := rep.print(&b, 3); err != nil {
		t.Fatal(err)
	}
	want := `/lc waited 400 ms a second; 10 waits a second after a wake-up, 99 of 100 under 0 ms; 2 after losing the CPU; the longest 50 ms
  1 threads waited still at the end: they are not counted
   50.0 %      200 ms  /be
   25.0 %      100 ms  its own threads
   20.0 %       80 ms  /other
  and 1 more
/be waited 0 ms a second; 0 waits a second after a wake-up, 99 of 100 under 0 ms; 0 after losing the CPU; the longest 0 ms
measured for 2 s, 2000 switches a second on this host
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
