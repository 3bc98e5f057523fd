package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// remake removes a group and makes a new one at its path, with the same limit: only the
// inode tells them apart.
func (b *bed) remake(path string) cgroup.CPUMax {
	b.t.Helper()
	limit := b.read(path)
	if err := b.cg.Rmdir(path); err != nil {
		b.t.Fatal(err)
	}
	if err := b.cg.Mkdir(path); err != nil {
		b.t.Fatal(err)
	}
	b.write(path, limit)
	return limit
}

// TestRemadeGroup: a new cgroup at a held one's path is somebody else's, even when its
// limit is the one that we had written.
func TestRemadeGroup(t *testing.T) {
	t.Parallel()
	b := newBed(t, "remade", settings{})
	task := b.group("be-0", unlimited)
	other := b.group("be-1", unlimited)

	t.Log("restore after a crash")
	p := b.agent()
	b.hold(task, "0.04", "10m")
	b.hold(other, "0.04", "10m")
	p.killBoth()
	limit := b.remake(task)
	r := b.must(0, "restore", "--json")
	var rep node.Report
	if err := json.Unmarshal([]byte(r.out), &rep); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]node.RestoreKind{}
	for _, it := range rep.Items {
		kinds[it.Path] = it.Kind
	}
	if want := map[string]node.RestoreKind{task: node.LeftGone, other: node.Restored}; !maps.Equal(kinds, want) {
		t.Errorf("restore says %v, expected %v", kinds, want)
	}
	b.same("after restore", map[string]cgroup.CPUMax{task: limit, other: unlimited})

	t.Log("under a running agent")
	b.write(task, unlimited)
	p = b.agent()
	b.hold(task, "0.04", "10m")
	num := b.number(task)
	limit = b.remake(task)
	eventually(t, "the new group is a new task", func() bool { return b.number(task) != num && b.number(task) >= 0 })
	if h := b.held(task); h != nil {
		t.Errorf("the new task inherits %+v", h)
	}
	b.same("the new task", map[string]cgroup.CPUMax{task: limit, other: unlimited})
	p.stop(unix.SIGTERM)
	b.same("after the agent's end", map[string]cgroup.CPUMax{task: limit, other: unlimited})
}

// number returns a task's number, -1 when the agent does not know the task.
func (b *bed) number(path string) int {
	b.t.Helper()
	for _, task := range b.status().Tasks {
		if task.Path == path {
			return int(task.Num)
		}
	}
	return -1
}

// crashed holds two tasks and crashes; it returns the journal's lines and the limits
// that are left behind.
func (b *bed) crashed(tasks ...string) (lines [][]byte, left map[string]cgroup.CPUMax) {
	b.t.Helper()
	p := b.agent()
	for _, task := range tasks {
		b.hold(task, "0.04", "10m")
	}
	p.killBoth()
	text, err := os.ReadFile(agent.JournalPath(b.dir + "/run"))
	if err != nil {
		b.t.Fatal(err)
	}
	return bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")), b.knobs()
}

// line makes one journal line as a newer version might.
func line(entry string) []byte {
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum([]byte(entry), crc32.MakeTable(crc32.Castagnoli)), entry)
}

// TestDamagedJournal: what is intact is put back, what is not is named and kept.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	b := newBed(t, "journal", settings{})
	one, two := b.group("be-1", unlimited), b.group("be-2", cgroup.CPUMax{QuotaUsec: 90_000, PeriodUsec: 100_000, BurstUsec: 9_000})
	found := b.knobs()
	lines, left := b.crashed(one, two)
	if left[one] == found[one] || left[two] == found[two] {
		t.Fatalf("not held: %v", left)
	}
	last := lines[len(lines)-1]
	lines[len(lines)-1] = append(last[:len(last):len(last)], '\n')
	// The intent on the first task, to flip a byte of its found value in.
	at := slices.IndexFunc(lines, func(l []byte) bool {
		return bytes.Contains(l, []byte(`"intent"`)) && bytes.Contains(l, []byte(one))
	})
	flipped := slices.Clone(lines)
	flipped[at] = bytes.Replace(lines[at], []byte(`"quota_usec":-1`), []byte(`"quota_usec":-9`), 1)
	if at < 0 || bytes.Equal(flipped[at], lines[at]) {
		t.Fatalf("no such intent in the journal:\n%s", bytes.Join(lines, nil))
	}
	oneLeft := map[string]cgroup.CPUMax{one: left[one], two: found[two]}
	garbage := []byte("\x00\xff garbage\n")
	newer := line(`{"kind":"open","version":99,"boot":"x"}`)
	for _, c := range []struct {
		name  string
		lines [][]byte
		code  int
		names string // in the message
		want  map[string]cgroup.CPUMax
		kept  bool // the damaged file stays beside the new one
	}{
		{"intact", lines, 0, "", found, false},
		{"flipped byte", flipped, 1, fmt.Sprintf("line %d", at+1), oneLeft, true},
		{"garbage between", slices.Insert(slices.Clone(lines), 2, garbage), 1, "line 3", found, true},
		{"garbage at the end", append(slices.Clone(lines), garbage), 1, fmt.Sprintf("line %d", len(lines)+1), found, true},
		{"first line gone", lines[1:], 1, "line 1", oneLeft, true},
		{"torn line at the end", append(slices.Clone(lines), []byte(`12345678 {"kind":"int`)), 0, "", found, false},
		{"last line cut off", append(slices.Clone(lines[:len(lines)-1]), last[:len(last)/2]), 0, "", found, false},
		{"newer version", append([][]byte{newer}, lines[1:]...), 5, "that version's `commensal restore`", left, false},
	} {
		for _, path := range []string{one, two} {
			b.write(path, left[path])
		}
		b.restoreFrom(c.name, bytes.Join(c.lines, nil), c.code, c.names, c.want, c.kept)
	}
}

// restoreFrom runs restore on a journal and checks what it says and does.
func (b *bed) restoreFrom(name string, text []byte, code int, names string, want map[string]cgroup.CPUMax, kept bool) {
	b.t.Helper()
	path := agent.JournalPath(b.dir + "/run")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
	r := b.must(code, "restore")
	said := r.out + r.err
	if !strings.Contains(said, names) || (names != "" && !strings.Contains(said, path)) {
		b.t.Errorf("%s: expected %q and the file's name in: %s", name, names, said)
	}
	b.same(name, want)
	asides, _ := filepath.Glob(path + ".corrupt*")
	if kept != (len(asides) == 1) {
		b.t.Fatalf("%s: kept beside: %v", name, asides)
	}
	for _, aside := range asides {
		if now, err := os.ReadFile(aside); err != nil || !bytes.Equal(now, text) {
			b.t.Errorf("%s: %s is not the damaged journal (%v)", name, aside, err)
		}
		if !strings.Contains(said, aside) {
			b.t.Errorf("%s: the message does not name %s: %s", name, aside, said)
		}
		if err := os.Remove(aside); err != nil {
			b.t.Fatal(err)
		}
	}
	if code != 5 {
		// What was done is done: a second restore has nothing to do, and says so.
		if r := b.must(0, "restore"); r.out != "nothing to restore\n" {
			b.t.Errorf("%s: a second restore says: %s", name, r.out)
		}
		return
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
		b.t.Errorf("%s: the journal was touched (%v)", name, err)
	}
	// Nor does an agent start on it: it could not put back what it does not understand.
	if r := b.must(5, "agent"); !strings.Contains(r.err, names) {
		b.t.Errorf("%s: an agent says: %s", name, r.err)
	}
	b.same(name+", agent", want)
}

// TestRebootedJournal: after a boot the kernel has forgotten everything, and what stands
// at the old paths is not ours, whatever its inode and value are.
func TestRebootedJournal(t *testing.T) {
	t.Parallel()
	b := newBed(t, "reboot", settings{})
	task := b.group("be-0", unlimited)
	_, left := b.crashed(task)
	path := agent.JournalPath(b.dir + "/run")
	before := func(boot string) {
		t.Helper()
		inode, err := b.cg.Inode(task)
		if err != nil {
			t.Fatal(err)
		}
		v := model.Bandwidth(model.CPUMax(left[task]))
		limits := []journal.Limit{{
			Task: task, Path: task, Inode: inode, Found: model.Bandwidth(model.CPUMax(unlimited)),
			Before: model.Bandwidth(model.CPUMax(unlimited)), Intended: v, ReadBack: &v,
		}}
		j, err := journal.Continue(path, boot, limits)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	const other = "00000000-0000-0000-0000-000000000000"
	before(other)
	if r := b.must(0, "restore"); !strings.Contains(r.out, "earlier boot") {
		t.Errorf("restore says: %s", r.out)
	}
	b.same("restore", left)
	before(other)
	p := b.agent()
	b.same("agent", left)
	time.Sleep(500 * time.Millisecond)
	b.same("agent, later", left)
	p.stop(unix.SIGTERM)
	b.same("agent's end", left)
	// The counter-proof: with this boot's name the very same journal is restored.
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	before(string(bytes.TrimSpace(boot)))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b.restoreFrom("this boot", text, 0, "", map[string]cgroup.CPUMax{task: unlimited}, false)
}

// TestOldJournal: older versions had journal and locks in the state directory. What is left there
// is put back by `restore` and by the next start, which takes the files away; beside such an agent
// that runs neither does anything.
func TestOldJournal(t *testing.T) {
	t.Parallel()
	b := newBed(t, "old", settings{})
	task := b.group("be-0", unlimited)
	found := b.knobs()
	old := agent.JournalPath(b.dir + "/state")
	leave := func() (left map[string]cgroup.CPUMax) {
		t.Helper()
		_, left = b.crashed(task)
		if err := os.Rename(agent.JournalPath(b.dir+"/run"), old); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(b.dir + "/run"); err != nil {
			t.Fatal(err)
		}
		return left
	}
	left := leave()
	running, err := os.Create(b.dir + "/state/agent.lock")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(running.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"agent", "restore"} {
		if r := b.must(5, command); !strings.Contains(r.err, "another agent is running") {
			t.Errorf("%s beside an agent of an older version says: %s", command, r.err)
		}
	}
	b.same("beside an agent of an older version", left)
	if err := running.Close(); err != nil {
		t.Fatal(err)
	}
	b.must(0, "restore")
	b.same("after restore", found)
	leave()
	p := b.agent()
	b.same("after the next start", found)
	for _, name := range []string{"journal", "journal.lock", "agent.lock"} {
		if _, err := os.Stat(b.dir + "/state/" + name); !os.IsNotExist(err) {
			t.Errorf("%s is still in the state directory (%v)", name, err)
		}
	}
	if st := b.status(); len(st.Warnings) > 0 {
		t.Errorf("the agent warns: %v", st.Warnings)
	}
	p.stop(unix.SIGTERM)
}
