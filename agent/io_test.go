package agent_test

import (
	endian "encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/learned"
	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

var (
	ioRounds  = flag.Int("io-rounds", 2, "how often TestScrubber has a scrubber beside a database")
	ioMeasure = flag.Duration("io-measure", 10*time.Second, "for how long TestScrubber measures the database alone, with the scrubber held and with nobody held")
)

// The database: rows of a KiB, clients that think between two transactions, and the rows that one changes.
const (
	dbRows, rowBytes = 20_000, 1024
	dbClients        = 4
	dbThink          = time.Second // in the mean
	dbChanges        = 2
)

var dbTable = []byte("rows")

func dbKey(i int) []byte { return endian.BigEndian.AppendUint32(nil, uint32(i)) }

// database is a bbolt whose clients read and change rows, each transaction on the disk before it is done (fdatasync, twice); args: the file. Told by a
// line it says what each took that ended since it was last told, in ms.
func database(p *testchild.Parent, args []string) error {
	p.Line()
	db, err := bbolt.Open(args[0], 0o600, nil)
	if err != nil {
		return err
	}
	for first := 0; first < dbRows; first += 1000 {
		err := db.Update(func(tx *bbolt.Tx) error {
			t, err := tx.CreateBucketIfNotExists(dbTable)
			for i := first; i < first+1000 && err == nil; i++ {
				err = t.Put(dbKey(i), make([]byte, rowBytes))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var took []byte
	client := func(rng *rand.Rand) {
		for {
			time.Sleep(time.Duration(rng.ExpFloat64() * float64(dbThink)))
			began := time.Now()
			if err := db.Update(func(tx *bbolt.Tx) error { return change(tx.Bucket(dbTable), rng) }); err != nil {
				panic(err)
			}
			mu.Lock()
			took = fmt.Appendf(took, "%.1f ", time.Since(began).Seconds()*1e3)
			mu.Unlock()
		}
	}
	for i := range dbClients {
		go client(rand.New(rand.NewPCG(1, uint64(i))))
	}
	for p.Say("ready"); ; {
		p.Line()
		mu.Lock()
		p.Say("%s", took)
		took = took[:0]
		mu.Unlock()
	}
}

// change is one transaction: it counts some rows up.
func change(t *bbolt.Bucket, rng *rand.Rand) error {
	for range dbChanges {
		key := dbKey(rng.IntN(dbRows))
		row := slices.Clone(t.Get(key))
		endian.BigEndian.PutUint64(row, endian.BigEndian.Uint64(row)+1)
		if err := t.Put(key, row); err != nil {
			return err
		}
	}
	return nil
}

// scrub goes through a file over and over, past the page cache: args are the file, "read" or "rewrite", the bytes of an operation, how many are under
// way at once, and the pause of each after it in ms. Told by a line it says how many bytes that were since it was last told.
func scrub(p *testchild.Parent, args []string) error {
	p.Line()
	var n [3]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(args[2+i]); err != nil {
			return err
		}
	}
	fd, err := unix.Open(args[0], unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	do := unix.Pread
	if args[1] == "rewrite" {
		do = unix.Pwrite
	}
	var next, done atomic.Int64
	for range n[1] {
		buf, err := unix.Mmap(-1, 0, n[0], unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		go func() {
			for ; ; time.Sleep(time.Duration(n[2]) * time.Millisecond) {
				got, err := do(fd, buf, (next.Add(1)-1)*int64(n[0])%st.Size)
				if err != nil {
					panic(err)
				}
				done.Add(int64(got))
			}
		}()
	}
	for p.Say("ready"); ; {
		p.Line()
		p.Say("%d", done.Swap(0))
	}
}

// The three times in which a round measures the database.
const (
	alone = iota
	held
	nobody
)

// TestScrubber: a scrubber reads or rewrites a file as fast as it can beside a database on a disk of 20 MB/s and 200 operations a second, with a backup that reads
// steadily and batch work that uses no disk. Under policy io the scrubber is named and held at its part of the disk, and nobody else is; its limit goes with the agent.
//
// Each round measures the database three times: alone with the agent watching, with the scrubber held, and after the agent has stopped, with nobody held.
// Written down before the rounds that are reported: the scrubber is named and held in at least nine of ten rounds, within a minute of its beginning; nobody else is held in any;
// no limit is left; and the p99 of all transactions of all rounds is at most twice that alone. Times are told and not asserted: emulated CPUs stand still when they like.
func TestScrubber(t *testing.T) {
	rigtest.Only(t, "fills a disk")
	s := newScrubScene(t)
	rng, n, others := random(t), 0, 0
	var all [3][]float64
	for i := range *ioRounds {
		r := s.round(i, rng)
		n += policy.One(r.held)
		if others += len(r.others); len(r.others) > 0 {
			t.Errorf("round %d: held as well: %s", i, strings.Join(r.others, ", "))
		}
		for at := range all {
			all[at] = append(all[at], r.took[at]...)
		}
	}
	t.Logf("%d rounds: the scrubber held in %d, others held %d times; transactions of all rounds: alone %s; held %s; nobody held %s", *ioRounds, n, others, told(all[alone]), told(all[held]), told(all[nobody]))
	if 10*n < 9**ioRounds {
		t.Errorf("the scrubber was held in %d of %d rounds", n, *ioRounds)
	}
}

// told says how many transactions there were, and what they took at the median and at the 99th percentile.
func told(ms []float64) string {
	if len(ms) == 0 {
		return "none"
	}
	slices.Sort(ms)
	return fmt.Sprintf("%d, %.0f, %.0f ms", len(ms), ms[len(ms)/2], ms[(99*len(ms)-1)/100])
}

// scrubScene is the database and its neighbours.
type scrubScene struct {
	*bed
	victim, scrubber string
	db               *testchild.Child
	file             string // that is scrubbed
}

// scrubRound is what became of one.
type scrubRound struct {
	accused
	took [3][]float64 // ms
}

func newScrubScene(t *testing.T) *scrubScene {
	t.Helper()
	disk := rigtest.SlowDisk(t)
	s := &scrubScene{bed: newBed(t, "io", settings{}), file: filepath.Join(disk, "big")}
	if err := s.cg.(*cgroup.V2).Enable(s.root, cgroup.CPU, cgroup.Memory, cgroup.IO); err != nil {
		t.Fatal(err)
	}
	s.victim, s.scrubber = s.group("victim", unlimited), s.group("be-scrubber", unlimited)
	backup, batch := s.group("be-backup", unlimited), s.group("be-batch", unlimited)
	s.configureFor("io: {mode: enforce}", [2]string{"scrubber", "best-effort"}, [2]string{"backup", "batch"}, [2]string{"batch", "best-effort"})
	// Unwritten places of a file would be read from no disk.
	small := filepath.Join(disk, "small")
	for path, size := range map[string]int{s.file: 128 << 20, small: 16 << 20} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unix.Sync()
	s.db = testchild.Start(t, "database "+filepath.Join(disk, "db"))
	s.move(s.victim, s.db)
	s.move(backup, testchild.Start(t, "scrub "+small+" read 131072 1 100"))
	s.start("steady", batch, -1)
	return s
}

// took is what transactions took that end in the next time, in ms.
func (s *scrubScene) took() (ms []float64) {
	s.t.Helper()
	s.db.Say("took")
	s.db.Line()
	time.Sleep(*ioMeasure)
	s.db.Say("took")
	for word := range strings.FieldsSeq(s.db.Line()) {
		f, err := strconv.ParseFloat(word, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		ms = append(ms, f)
	}
	return ms
}

// round has the scrubber come, be held, and be let go.
func (s *scrubScene) round(i int, rng *rand.Rand) (r scrubRound) {
	t := s.t
	t.Helper()
	does, size, depth := []string{"read", "rewrite"}[i%2], 128<<rng.IntN(4)<<10, 4<<rng.IntN(4)
	if err := os.RemoveAll(learned.Path(s.dir + "/state")); err != nil { // each round learns anew
		t.Fatal(err)
	}
	p := s.watched()
	usual := s.usual(model.SourceIO)
	r.took[alone] = s.took()
	scrubber := testchild.Start(t, fmt.Sprintf("scrub %s %s %d %d 0", s.file, does, size, depth))
	s.move(s.scrubber, scrubber)
	began, after := time.Now(), time.Duration(0)
	for !r.held && time.Since(began) < time.Minute {
		time.Sleep(200 * time.Millisecond)
		r.see(s.bed, s.scrubber, model.IOMaxKnob)
		after = time.Since(began)
	}
	time.Sleep(5 * time.Second) // what was under way
	rate := s.rate(scrubber)
	r.took[held] = s.took()
	kept := rate()
	r.see(s.bed, s.scrubber, model.IOMaxKnob)
	if !r.held {
		t.Logf("%s\n%s", p.text(), s.must(0, "status").out)
	}
	p.stop(unix.SIGTERM)
	for _, g := range s.groups {
		if limits, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", g, "io.max")); err != nil || len(limits) > 0 {
			t.Errorf("round %d: after the agent's end io.max of %s has %q, %v", i, g, limits, err)
		}
	}
	time.Sleep(2 * time.Second)
	rate = s.rate(scrubber)
	r.took[nobody] = s.took()
	t.Logf("round %d: %-7s %4d KiB, %2d at once: held %t, after %.1f s; it usually waits %.2f ± %.2f of the time; transactions, median and p99: alone %s; held %s; nobody held %s; it does %.1f of %.1f MB/s",
		i, does, size>>10, depth, r.held, after.Seconds(), usual.Mean, usual.StdDev, told(r.took[alone]), told(r.took[held]), told(r.took[nobody]), kept, rate())
	scrubber.End()
	time.Sleep(2 * time.Second)
	return r
}

// rate begins to count what a scrubber does; the returned function ends that, and says MB/s.
func (s *scrubScene) rate(c *testchild.Child) func() float64 {
	s.t.Helper()
	ask := func() float64 {
		c.Say("done")
		n, err := strconv.ParseFloat(c.Line(), 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	ask()
	began := time.Now()
	return func() float64 { return ask() / 1e6 / time.Since(began).Seconds() }
}
