package hub

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

// The audit is a file of its own, a line an act, because an act must be on disk before it is done and a commit of the store takes seconds. The
// lines are rows of the store's table as well, from the next commit on, which says through which byte of the file they are: whatever crashes
// when, each line is one row.

// audit is the file.
type audit struct {
	log   *slog.Logger
	store *store.Store

	mu     sync.Mutex
	f      *os.File
	end    int64 // of the last whole line
	recent []wire.Act
}

const maxActs = 500 // that the pages show

func auditFile(dir string) string { return filepath.Join(dir, "store", "audit.jsonl") }

// openAudit opens the file, and puts those lines into the store that it has not.
func openAudit(path string, s *store.Store, log *slog.Logger) (*audit, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	a := &audit{log: log, store: s, f: f}
	if err := a.catchUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("hub: %s: %w", path, err), f.Close())
	}
	return a, nil
}

// catchUp reads on from where the store is.
func (a *audit) catchUp() error {
	st, err := a.f.Stat()
	if err != nil {
		return err
	}
	a.end = a.store.AuditFrom(st.Size())
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
	line, err := json.Marshal(act)
	if err == nil {
		line = append(line, '\n')
		_, err = a.f.Write(line)
	}
	if err == nil {
		err = a.f.Sync()
	}
	if err != nil {
		_ = a.f.Truncate(a.end) // half a line of a full disk
		return fmt.Errorf("the audit cannot be written, so nothing is done: %w", err)
	}
	a.put(line)
	return nil
}

func (a *audit) list() []wire.Act {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]wire.Act{}, a.recent...)
}

func (a *audit) close() { _ = a.f.Close() } // each line is synced
