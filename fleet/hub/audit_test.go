package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

// SQL finds each line of the audit once: of a hub that had it before it had the table, of one that ended before a commit, and beside half a line
// that a power cut left. No node needs to send anything for it.
func TestTheAuditIsATable(t *testing.T) {
	needSQL(t)
	cfg := testConfig(t.TempDir())
	b := startHub(t, cfg)
	ann := &person{Name: "ann", Role: Operator}
	for i := range 3 {
		if _, err := b.command(ann, "nobody", wireCommand("cap", fmt.Sprintf("/be-%d", i), "it's he")); err == nil {
			t.Fatal("done on a node that is not there")
		}
	}
	b.stop() // at once: most of this is in no commit
	f, err := os.OpenFile(auditFile(cfg.Dir), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"time": "2026-01-01T00:00:00Z", "id": "half`)
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	b = startHub(t, cfg)
	if err := b.setOff(t.Context(), &person{Name: "bob", Role: Admin}, true, "trouble"); err != nil {
		t.Fatal(err)
	}
	count := func() string {
		r, err := b.query(t.Context(), &Query{SQL: "SELECT who, what, node, count(*), count(DISTINCT id), min(why), max(result), count(*) FILTER (WHERE detail LIKE '%/be-2%') FROM audit GROUP BY ALL ORDER BY who"})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.Rows)
	}
	const want = "[[ann cap nobody 6 3 it's he failed: node nobody is not connected 1] [bob kill-switch  2 1 trouble done 0]]"
	eventually(t, "the table has it", func() bool { return strings.Contains(count(), "bob kill-switch  2") })
	if got := count(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	b.stop()
	b = startHub(t, cfg)
	if got := count(); got != want {
		t.Errorf("after another start: %s", got)
	}
	i := slices.IndexFunc(questions, func(q Question) bool { return q.Name == "audit" })
	if r, err := b.query(t.Context(), &Query{SQL: questions[i].SQL, Args: []any{1}}); err != nil || len(r.Rows) != 8 || r.Rows[0][1] != "bob" || r.Rows[7][1] != "ann" {
		t.Errorf("%v, %v", r, err)
	}
}

// What cannot be written to the audit is not done, and leaves no half of a line that a later act would become a part of.
func TestNothingIsDoneWithoutTheAudit(t *testing.T) {
	cfg := testConfig(t.TempDir())
	b := startHub(t, cfg)
	bob := &person{Name: "bob", Role: Admin}
	if err := b.setOff(t.Context(), bob, true, "before"); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(auditFile(cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	defer unix.Unmount(small, unix.MNT_DETACH) //nolint:errcheck // a test's
	full, err := os.OpenFile(small+"/audit", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err := full.Write(make([]byte, 4000)); err != nil {
		t.Fatal(err)
	}
	b.audit.mu.Lock()
	real, end := b.audit.f, b.audit.end
	b.audit.f, b.audit.end = full, 4000
	b.audit.mu.Unlock()
	err = b.setOff(t.Context(), bob, false, "a disk that is full")
	if err == nil || !strings.Contains(err.Error(), "nothing is done") {
		t.Errorf("%v", err)
	}
	if off, err := b.off(t.Context()); err != nil || !off.Off.Off || off.Why != "before" {
		t.Errorf("%+v, %v: done without the audit", off, err)
	}
	if left, err := full.Stat(); err != nil || left.Size() != 4000 {
		t.Errorf("%d bytes are left, %v", left.Size(), err)
	}
	b.audit.mu.Lock()
	b.audit.f, b.audit.end = real, end
	b.audit.mu.Unlock()
	if err := b.setOff(t.Context(), bob, false, "room"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(auditFile(cfg.Dir)); err != nil || after.Size() <= st.Size() || end != st.Size() {
		t.Errorf("%v: %d bytes, %d before", err, after.Size(), st.Size())
	}
}

// Who may enter is changed beside a hub that runs and writes acts of its own: each line is whole, and one row, whoever wrote it, also after another start. What
// fails is told as such, and before the first start of a hub there is an audit as well.
func TestEnrolmentIsInTheAudit(t *testing.T) {
	needSQL(t)
	cfg := testConfig(t.TempDir())
	enrolment := func(what, node string, do func() error) error {
		return Enrolment(cfg.Dir, wire.Act{What: what, Node: node, By: "root", Why: "it's new"}, do)
	}
	first := func() error { _, err := Enrol(cfg.Dir, "n0", time.Now()); return err }
	if err := enrolment("node-add", "n0", first); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(auditFile(cfg.Dir), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"time": "2026-01-01T00:00:00Z", "id": "half`); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	b := startHub(t, cfg)
	var both sync.WaitGroup
	both.Go(func() {
		for i := range 20 {
			if err := b.setOff(t.Context(), &person{Name: "bob", Role: Admin}, i%2 == 0, "trouble"); err != nil {
				t.Error(err)
			}
		}
	})
	both.Go(func() {
		for i := range 20 {
			if err := enrolment("node-add", fmt.Sprintf("n%d", i), func() error { _, err := Enrol(cfg.Dir, fmt.Sprintf("n%d", i), time.Now()); return err }); err != nil {
				t.Error(err)
			}
		}
	})
	both.Wait()
	broken := errors.New("no such node")
	if err := enrolment("node-remove", "n99", func() error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	eventually(t, "the hub has what others wrote", func() bool {
		list := b.audit.list()
		return list[len(list)-1].Result == "failed: no such node" && list[len(list)-1].Role == "local"
	})
	const want = "[[bob admin kill-switch 40 20 trouble done] [root local node-add 42 21 it's new done] [root local node-remove 2 1 it's new failed: no such node]]"
	count := func() string {
		r, err := b.query(t.Context(), &Query{SQL: "SELECT who, role, what, count(*), count(DISTINCT id), min(why), max(result) FROM audit GROUP BY ALL ORDER BY who, what"})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.Rows)
	}
	eventually(t, "the table has it", func() bool { return count() == want })
	b.stop()
	b = startHub(t, cfg)
	if got := count(); got != want {
		t.Errorf("after another start: %s", got)
	}
	b.stop()
	if err := errors.Join(os.Remove(auditFile(cfg.Dir)), os.Mkdir(auditFile(cfg.Dir), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := enrolment("node-add", "n100", func() error { t.Error("done without the audit"); return nil }); err == nil || !strings.Contains(err.Error(), "nothing is done") {
		t.Error(err)
	}
}

// Who asks for the audit has what he did himself at once, and what others appended from the next look on; before that he waits for nobody who appends.
func TestTheAuditIsListedAsItIsKnown(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := openAudit(auditFile(dir), s, slog.New(slog.DiscardHandler)) // nobody follows it
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	listed := func() (list string) {
		for _, act := range a.list() {
			list += act.By + " "
		}
		return list
	}
	write := func(by string) {
		t.Helper()
		if err := a.write(wire.Act{ID: newID(), By: by}); err != nil {
			t.Fatal(err)
		}
	}
	write("ann")
	if got := listed(); got != "ann " {
		t.Errorf("of the only writer: %q", got)
	}
	if err := Enrolment(dir, wire.Act{By: "root"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	write("bob")
	if got := listed(); got != "ann root root bob " {
		t.Errorf("of two who write by turns: %q", got)
	}
	if err := Enrolment(dir, wire.Act{By: "root"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(auditFile(dir))
	if err == nil {
		err = lockAudit(other)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() { got <- listed() }()
	select {
	case list := <-got:
		if list != "ann root root bob " {
			t.Errorf("while somebody appends: %q", list)
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits for who appends")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	a.look()
	if got := listed(); got != "ann root root bob root root " {
		t.Errorf("after a look: %q", got)
	}
}
