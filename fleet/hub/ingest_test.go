package hub

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
)

// Of a backlog of messages as large as they may be a hub has no more in its memory than it asks for at once, and it takes each.
func TestABacklogIsNotFetchedAtOnce(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.CommitEvery = time.Hour
	b := startHub(t, cfg)
	js, err := connect(t, b, "n", enrol(t, b.dir, "n")).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	large := make([]byte, wire.MaxBytes)
	rng := rand.NewChaCha8([32]byte{1})
	send := func(n int) {
		t.Helper()
		for range n {
			_, _ = rng.Read(large)
			if _, err := js.Publish(wire.UpPrefix+"n", large); err != nil {
				t.Fatal(err)
			}
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what is kept for reuse goes at the second
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	refused := func() uint64 {
		if n := b.nodes["n"]; n != nil {
			return n.Refused
		}
		return 0
	}
	b.mu.Lock() // what is taken waits for this, and with it who fetches
	const first, backlog = 1, 200
	send(first)
	time.Sleep(2 * fetchWait) // nothing more is asked for
	send(backlog)
	before := heap()
	for end := time.Now().Add(30 * time.Second); refused() < first+1 && time.Now().Before(end); { // until what is fetched next is being taken
		b.mu.Unlock()
		time.Sleep(time.Microsecond)
		b.mu.Lock()
	}
	if n := refused(); n <= first || n >= backlog/2 {
		t.Errorf("%d messages are taken: this tests nothing", n)
	}
	time.Sleep(2 * fetchWait)
	most := heap()
	b.mu.Unlock()
	if most < fetchBytes/2 || most > before+4*fetchBytes { // the server has some as well
		t.Errorf("%d MiB while a backlog of %d is taken, %d before; %d may be fetched at once", most>>20, backlog, before>>20, fetchBytes>>20)
	}
	eventually(t, "all are taken", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return refused() == first+backlog && b.problem == ""
	})
}
