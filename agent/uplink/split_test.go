package uplink

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/uplink/spool"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
	"github.com/commensal-io/commensal/model"
)

// A node divides its next batch as the hub says, keeps to that until it hears otherwise, and what is in the spool already stays as it is. Each part has
// a number of its own and a subject that its name in the spool tells.
func TestBatchesAreDivided(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	u, err := Start(ctx, Config{URL: "nats://127.0.0.1:1", Node: "web-1", Dir: dir, MaxBytes: 1 << 20}, Node{Boot: "b", Platform: "p"}, NewGather(1), Hooks{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	send := func() {
		t.Helper()
		b := &wire.Batch{Lost: 2}
		for i := range 20 {
			b.Tasks = append(b.Tasks, wire.Task{Num: uint32(i), Path: fmt.Sprint("/", i), Job: fmt.Sprint("job-", i)})
			b.Samples.Task, b.Samples.WallMsec = append(b.Samples.Task, uint32(i)), append(b.Samples.WallMsec, 1)
			b.Samples.CPU, b.Samples.Flags = append(b.Samples.CPU, 1), append(b.Samples.Flags, wire.Usable)
		}
		u.in <- b
	}
	send() // the hub has said nothing yet
	u.in <- &wire.Batch{Incidents: []*model.Incident{{ID: "i"}}}
	for end := time.Now().Add(20 * time.Second); u.Status().Waiting < 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // until both are on disk
	}
	for _, l := range []string{`{"version": 1, "partitions": 4}`, `{"version": 1, "partitions": 0}`, `{"version": 1, "partitions": 65}`, `{"version": 2, "partitions": 3}`, `no`} {
		u.takeLayout([]byte(l))
	}
	if st := u.Status(); st.Parts != 4 {
		t.Errorf("%d parts", st.Parts)
	}
	send()
	u.Close()
	if st := u.Status(); st.Lost != 4 {
		t.Errorf("%d lost, and not 4: told twice, or not at all", st.Lost)
	}
	sp, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var parts []int
	jobs := map[string]int{}
	for seq := uint64(1); ; seq++ {
		name, data, ok, err := sp.Oldest()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		b, err := codec.Decode(data)
		if err != nil || b.Seq != seq || !strings.Contains(name, b.Spool) {
			t.Fatalf("%s: %+v %v; expected number %d", name, b, err, seq)
		}
		part := partOf(name)
		parts = append(parts, part)
		for _, at := range b.Samples.Task {
			job := b.Tasks[at].Job
			jobs[job]++
			if seq > 2 && wire.PartOf(job, 4) != part {
				t.Errorf("%s is in part %d", job, part)
			}
		}
		if err := sp.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(parts) != "[0 0 0 1 2 3]" || len(jobs) != 20 {
		t.Errorf("parts %v, %d jobs", parts, len(jobs))
	}
	for job, n := range jobs {
		if n != 2 {
			t.Errorf("%d samples of %s", n, job)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}
