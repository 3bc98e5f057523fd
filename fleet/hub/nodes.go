package hub

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

// Enrolled is a node that may connect. Key is the public half of its NKey; nobody but the node has the other.
type Enrolled struct {
	Name  string    `json:"name"`
	Key   string    `json:"key"`
	Added time.Time `json:"added"`
}

func nodesFile(dir string) string { return filepath.Join(dir, "nodes.json") }

// Nodes lists the enrolled nodes of a hub's folder, by name.
func Nodes(dir string) ([]Enrolled, error) {
	b, err := os.ReadFile(nodesFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	var list []Enrolled
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("hub: %s: %w", nodesFile(dir), err)
	}
	for _, n := range list {
		if err := wire.NodeName(n.Name); err != nil {
			return nil, fmt.Errorf("hub: %s: %w", nodesFile(dir), err)
		}
		if !nkeys.IsValidPublicUserKey(n.Key) {
			return nil, fmt.Errorf("hub: %s: node %s: %q is no public user key", nodesFile(dir), n.Name, n.Key)
		}
	}
	return list, nil
}

// Enrol lets a node connect, and returns the seed that it proves itself with. A node that was enrolled before gets a new one, and
// the old one is worth nothing from then on. A running hub sees it within seconds.
func Enrol(dir, name string, now time.Time) (seed []byte, err error) {
	if err := wire.NodeName(name); err != nil {
		return nil, err
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	defer pair.Wipe()
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if seed, err = pair.Seed(); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	seed = slices.Clone(seed)
	return seed, change(dir, func(list []Enrolled) []Enrolled {
		list = slices.DeleteFunc(list, func(n Enrolled) bool { return n.Name == name })
		return append(list, Enrolled{Name: name, Key: public, Added: now.UTC()})
	})
}

// Dismiss lets a node connect no more; ok is false where none of that name is enrolled.
func Dismiss(dir, name string) (ok bool, err error) {
	err = change(dir, func(list []Enrolled) []Enrolled {
		n := len(list)
		list = slices.DeleteFunc(list, func(n Enrolled) bool { return n.Name == name })
		ok = len(list) < n
		return list
	})
	return ok, err
}

func change(dir string, f func(list []Enrolled) []Enrolled) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	list, err := Nodes(dir)
	if err != nil {
		return err
	}
	list = f(list)
	slices.SortFunc(list, func(a, b Enrolled) int { return cmp.Compare(a.Name, b.Name) })
	b, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return store.Replace(nodesFile(dir), b)
}
