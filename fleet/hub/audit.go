package hub

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

// The audit is a file of its own, a line an act, because an act must be on disk before it is done and a commit of the store takes seconds. The
// lines are rows of the store's table as well, from the next commit on, which says through which byte of the file they are: whatever crashes
// when, each line is one row. Who may enter is said by a command beside the hub (Enrolment), which appends lines of its own: whoever appends has the
// file's lock meanwhile, and the hub reads on from where it was.

// audit is the file.
type audit struct {
	log   *slog.Logger
	store *store.Store

	mu     sync.Mutex
	f      *os.File
	end    int64 // of the last whole line
	recent []wire.Act
}

const (
	maxActs   = 500         // that the pages show
	lookEvery = time.Second // for lines of others
)

func auditFile(dir string) string { return filepath.Join(dir, "store", "audit.jsonl") }

// openAudit opens the file, and puts those lines into the store that it has not.
func openAudit(path string, s *store.Store, log *slog.Logger) (*audit, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	a := &audit{log: log, store: s, f: f}
	st, err := f.Stat()
	if err == nil {
		a.end = s.AuditFrom(st.Size())
		err = a.catchUp()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hub: %s: %w", path, err), f.Close())
	}
	return a, nil
}

// catchUp reads on from where the store is, or what others appended.
func (a *audit) catchUp() error {
	if err := lockAudit(a.f); err != nil {
		return err
	}
	defer unlockAudit(a.f)
	return a.readOn()
}

// lockAudit waits for whoever appends a line: that takes no longer than a sync.
func lockAudit(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("the audit's lock: %w", err)
	}
	return nil
}

func unlockAudit(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) } // it ends with the file as well

// readOn is called with the file's lock: no line is half written.
func (a *audit) readOn() error {
	st, err := a.f.Stat()
	if err != nil || st.Size() <= a.end {
		return err
	}
	r := bufio.NewReader(io.NewSectionReader(a.f, a.end, st.Size()-a.end))
	for {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if line[len(line)-1] != '\n' { // half a line of a power cut: what is appended must not become a part of it
			if _, err := a.f.Write([]byte{'\n'}); err != nil {
				return err
			}
			line = append(line, '\n')
		}
		a.put(line)
	}
}

// put hands a line to the store, and keeps it for who asks for the latest.
func (a *audit) put(line []byte) {
	a.end += int64(len(line))
	var act wire.Act
	if err := json.Unmarshal(line, &act); err != nil {
		a.log.Warn("a line of the audit is no act: the table goes without it", "ends_at_byte", a.end, "error", err)
		return
	}
	a.store.PutAct(act, a.end)
	a.recent = append(a.recent, act)
	if len(a.recent) > maxActs {
		a.recent = append(a.recent[:0], a.recent[len(a.recent)-maxActs:]...)
	}
}

func (a *audit) write(act wire.Act) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := lockAudit(a.f); err != nil {
		return fmt.Errorf("%w: %w", errNoAudit, err)
	}
	defer unlockAudit(a.f)
	if err := a.readOn(); err != nil {
		return fmt.Errorf("%w: %w", errNoAudit, err)
	}
	line, err := appendAct(a.f, act, a.end)
	if err == nil {
		a.put(line)
	}
	return err
}

var errNoAudit = errors.New("the audit cannot be written, so nothing is done")

// appendAct writes a line to where the file ends, and leaves no half of one.
func appendAct(f *os.File, act wire.Act, end int64) ([]byte, error) {
	line, err := json.Marshal(act)
	if err == nil {
		line = append(line, '\n')
		_, err = f.Write(line)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(end) // half a line of a full disk
		return nil, fmt.Errorf("%w: %w", errNoAudit, err)
	}
	return line, nil
}

// Enrolment does what changes who may enter a hub's folder, and writes it to the audit there: before it is done, and what came of it. Who does it is a user of
// the machine. Why may be empty, and is else as CheckWhy has it. A hub that runs shows it within seconds. An error is of what was to be done, or of the audit, without which nothing is.
func Enrolment(dir string, act wire.Act, do func() error) error {
	path := auditFile(dir)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("%w: %w", errNoAudit, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o640)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAudit, err)
	}
	defer f.Close() //nolint:errcheck // each line is synced
	act.ID, act.Role = newID(), "local"
	if err := appendLocked(f, act); err != nil {
		return err
	}
	act.Detail, act.Result = nil, "done"
	err = do()
	if err != nil {
		act.Result = "failed: " + err.Error()
	}
	return errors.Join(err, appendLocked(f, act))
}

func appendLocked(f *os.File, act wire.Act) error {
	if err := lockAudit(f); err != nil {
		return fmt.Errorf("%w: %w", errNoAudit, err)
	}
	defer unlockAudit(f)
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAudit, err)
	}
	if last := make([]byte, 1); st.Size() > 0 { // half a line of a power cut
		if _, err := f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			_, _ = f.WriteString("\n") // where it fails, so does the line
		}
	}
	act.Time = time.Now().UTC()
	_, err = appendAct(f, act, st.Size())
	return err
}

// look reads what others appended.
func (a *audit) look() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.catchUp(); err != nil {
		a.log.Warn("what others wrote to the audit is not read", "error", err)
	}
}

// list returns the latest: all that this hub wrote, and what others appended until a second ago (follow). It waits for nobody who appends.
func (a *audit) list() []wire.Act {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]wire.Act{}, a.recent...)
}

// follow takes over what others append, so that the table has it as well.
func (a *audit) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
			a.look()
		}
	}
}

func (a *audit) close() { _ = a.f.Close() } // each line is synced
