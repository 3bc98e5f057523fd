package hub

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// maxWhy bounds a reason, in bytes.
const maxWhy = 500

// CheckWhy says what is wrong with the reason that somebody gives for what changes the fleet; nil: nothing. The kill switch needs one like
// all else: whoever finds a node that holds nothing, and has to decide whether it may go on, has only that.
func CheckWhy(why string) error {
	switch {
	case strings.TrimSpace(why) == "":
		return errors.New("a reason is missing (why): a few words for the audit, and for whoever looks at a node")
	case len(why) > maxWhy:
		return fmt.Errorf("the reason (why) has %d bytes; expected at most %d", len(why), maxWhy)
	case !utf8.ValidString(why) || strings.ContainsFunc(why, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the reason (why) is %.40q; expected one line of text", why)
	}
	return nil
}

// do writes an act, does it, and writes what came of it.
func (h *Hub) do(p *person, act wire.Act, detail any, f func() (string, error)) (string, error) {
	if err := CheckWhy(act.Why); err != nil {
		return "", fmt.Errorf("%w: %w", errBad, err)
	}
	if detail != nil {
		var err error
		if act.Detail, err = json.Marshal(detail); err != nil {
			return "", err
		}
	}
	act.Time, act.By, act.Role = time.Now().UTC(), p.Name, p.Role.String()
	if act.ID == "" {
		act.ID = newID()
	}
	if err := h.audit.write(act); err != nil {
		return "", err
	}
	result, err := f()
	act.Time, act.Result, act.Detail = time.Now().UTC(), result, nil
	if err != nil {
		act.Result = "failed: " + err.Error()
	}
	return result, errors.Join(err, h.audit.write(act))
}

// commandKinds are what an operator may ask of one node, or of the hook for it.
var commandKinds = []string{"cap", "confine", "demote", "protect-off", "protect-on", "restart", "uncap"}

const answerTimeout = 10 * time.Second

// command asks one node, and waits for its answer. A command that has an ID keeps it.
func (h *Hub) command(p *person, node string, c wire.Command) (wire.Answer, error) {
	c.ID, c.By, c.WallNsec = cmp.Or(c.ID, newID()), p.Name+" through the hub", time.Now().UnixNano()
	var ans wire.Answer
	detail := c
	detail.Why, detail.By = "", ""
	_, err := h.do(p, wire.Act{ID: c.ID, What: c.Kind, Node: node, Why: c.Why}, detail, func() (string, error) {
		b, err := json.Marshal(c)
		if err != nil {
			return "", err
		}
		m, err := h.t.nc.Request(wire.CommandPrefix+node, b, answerTimeout)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return "", fmt.Errorf("node %s is not connected", node)
		case err != nil:
			return "", fmt.Errorf("node %s: %w", node, err)
		}
		if err := json.Unmarshal(m.Data, &ans); err != nil {
			return "", fmt.Errorf("node %s: %w", node, err)
		}
		if ans.Error != "" {
			return "refused: " + ans.Error, nil
		}
		return "done", nil
	})
	return ans, err
}

// protectTries is how often a change of protection is tried while other hubs make theirs.
const protectTries = 10

// protection is of which jobs protection is off in the whole fleet.
func (h *Hub) protection(ctx context.Context) (*wire.Protection, error) {
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		return nil, err
	}
	p := &wire.Protection{Off: []wire.Unprotected{}}
	_, err = lookUp(ctx, kv, wire.KeyProtection, p)
	return p, err
}

// setProtection turns protection of a job, "" of all, on or off in the whole fleet: by a key, so that nodes that come later hear it as well. What a node was
// told itself stays as it is.
func (h *Hub) setProtection(ctx context.Context, p *person, job string, on bool, why string) (now *wire.Protection, err error) {
	what := model.CommandProtectOff
	if on {
		what = model.CommandProtectOn
	}
	_, err = h.do(p, wire.Act{What: what, Node: "*", Why: why}, map[string]string{"job": job}, func() (string, error) {
		kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
		if err != nil {
			return "", err
		}
		for try := 1; ; try++ {
			now = &wire.Protection{Off: []wire.Unprotected{}}
			revision, err := lookUp(ctx, kv, wire.KeyProtection, now)
			if err = errors.Join(err, now.Check()); err != nil { // of a newer hub
				return "", err
			}
			now.Turn(job, on, p.Name, why, time.Now().UnixNano())
			if err := now.Check(); err != nil {
				return "", fmt.Errorf("%w: job: %w", errBad, err)
			}
			if b, err := json.Marshal(now); err != nil {
				return "", err
			} else if len(b) > wire.MaxProtectionBytes {
				return "", fmt.Errorf("%w: protection would be off for %d jobs, whose names and reasons are more than the %d bytes that nodes read; turn some on first", errUnknown, len(now.Off), wire.MaxProtectionBytes)
			}
			if _, err = write(ctx, kv, wire.KeyProtection, now, revision); !errors.Is(err, jetstream.ErrKeyExists) || try == protectTries { // else another hub was quicker
				return "done", err
			}
		}
	})
	return now, err
}

// offStatus is the fleet's kill switch.
type offStatus struct {
	wire.Off
	At time.Time `json:"at"`
}

func (h *Hub) off(ctx context.Context) (*offStatus, error) {
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		return nil, err
	}
	e, err := kv.Get(ctx, wire.KeyOff)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return &offStatus{}, nil
	}
	if err != nil {
		return nil, err
	}
	st := &offStatus{At: e.Created()}
	return st, json.Unmarshal(e.Value(), &st.Off)
}

// setOff releases everything on every node, or lets the fleet go on.
func (h *Hub) setOff(ctx context.Context, p *person, off bool, why string) error {
	_, err := h.do(p, wire.Act{What: "kill-switch", Why: why}, map[string]bool{"off": off}, func() (string, error) {
		kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(wire.Off{Off: off, By: p.Name, Why: why, WallNsec: time.Now().UnixNano()})
		if err != nil {
			return "", err
		}
		_, err = kv.Put(ctx, wire.KeyOff, b)
		return "done", err
	})
	return err
}

// errUnknown is of a job that the hub does not know, or of which nothing is to be done.
var errUnknown = errors.New("not done")

// specAct publishes a spec that is held back, or goes back to an older sheet.
func (h *Hub) specAct(ctx context.Context, p *person, what string, k spec.Key, revision uint64, why string) (*wire.SpecSheet, error) {
	var sh wire.SpecSheet
	if !h.owns(k.Job) {
		return nil, fmt.Errorf("%w: job %q is of shard %d of %d, and this is hub %d: ask that one", errUnknown, k.Job, h.cfg.shardOf(k.Job), h.cfg.Shards, h.cfg.Shard)
	}
	detail := map[string]any{"job": k.Job, "platform": k.Platform, "revision": revision}
	if k.Size != "" {
		detail["size"] = k.Size
	}
	_, err := h.do(p, wire.Act{What: "spec-" + what, Why: why}, detail, func() (string, error) {
		now := time.Now().UnixNano()
		switch what {
		case "accept":
			h.mu.Lock()
			var ok bool
			sh, ok = h.learner.Accept(k, now)
			h.mu.Unlock()
			if !ok {
				return "", fmt.Errorf("%w: no spec of %s is held back", errUnknown, k)
			}
		case "rollback":
			old, err := h.sheetBefore(ctx, k, revision)
			if err != nil {
				return "", err
			}
			h.mu.Lock()
			sh, err = h.learner.Pin(k, old, now)
			h.mu.Unlock()
			if err != nil {
				return "", fmt.Errorf("%w: %w", errUnknown, err)
			}
		case "unpin":
			h.mu.Lock()
			ok := h.learner.Unpin(k)
			h.mu.Unlock()
			if !ok {
				return "", fmt.Errorf("%w: %s is not pinned", errUnknown, k)
			}
			return "done", nil
		default:
			return "", fmt.Errorf("%w: %q; expected accept, rollback or unpin", errUnknown, what)
		}
		if err := h.send(ctx, &sh); err != nil {
			return "", err
		}
		return fmt.Sprintf("revision %d", sh.Revision), nil
	})
	return &sh, err
}

// sheetBefore finds a sheet that was published: the one of a revision, or, of 0, the one before the last.
func (h *Hub) sheetBefore(ctx context.Context, k spec.Key, revision uint64) (wire.SpecSheet, error) {
	list, err := h.sheetsOf(ctx, k)
	if err != nil {
		return wire.SpecSheet{}, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Revision == revision || revision == 0 && i == len(list)-2 {
			return list[i], nil
		}
	}
	return wire.SpecSheet{}, fmt.Errorf("%w: of %s %d sheets are kept, and none is revision %d", errUnknown, k, len(list), revision)
}

// lockDir keeps a second hub out of the folder.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	for range 50 { // one that is just ending
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return f, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	_ = f.Close()
	return nil, fmt.Errorf("hub: another hub runs in %s", dir)
}
