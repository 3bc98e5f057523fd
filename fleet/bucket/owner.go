package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/commensal-io/commensal/fleet/store"
)

// owner is the object that says whose bucket it is, and the file that says who this store is.
type owner struct {
	Version int    `json:"version"`
	Store   string `json:"store"`
}

const ownerName = "_store.json"

// errHistory is of files that a store with another past has put there.
var errHistory = errors.New("the folder was restored from a backup, or two hubs run with copies of it: expected a prefix that nothing else uses")

// own makes sure that no other store fills the bucket: its files would count with ours, and have the same names. A folder that was restored from
// a backup is another store from then on: it gives numbers a second time.
func (m *Mirror) own(ctx context.Context) error {
	if m.owned {
		return nil
	}
	me, path := owner{Version: 1, Store: rand.Text()}, filepath.Join(m.store.Dir(), "bucket.json")
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = me.write(path)
	case err == nil:
		err = json.Unmarshal(b, &me)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	is, err := m.owner(ctx, me)
	if err != nil {
		return err
	}
	if is != me {
		return fmt.Errorf("%s: it is of the store %q, and this one is %q: expected a prefix that nothing else uses", m.to, is.Store, me.Store)
	}
	_, count := m.store.Committed()
	for _, table := range store.Tables() {
		list, err := m.to.List(ctx, table+"/")
		if err != nil {
			return fmt.Errorf("%s: %w", m.to, err)
		}
		for _, o := range list {
			if f, _ := store.ParseName(o.Name); f.Last > count {
				err := owner{Version: 1, Store: rand.Text()}.write(path)
				return errors.Join(fmt.Errorf("%s: %s is there, and the folder is at message %d: %w", m.to, o.Name, count, errHistory), err)
			}
		}
	}
	m.owned = true
	return nil
}

func (o owner) write(path string) error {
	b, err := json.Marshal(o)
	if err == nil {
		err = store.Replace(path, b)
	}
	return err
}

// owner reads whose the bucket is, and makes it ours where it is nobody's.
func (m *Mirror) owner(ctx context.Context, me owner) (is owner, err error) {
	list, err := m.to.List(ctx, ownerName)
	if err != nil {
		return is, fmt.Errorf("%s: %w", m.to, err)
	}
	var b []byte
	if len(list) > 0 {
		if b, err = get(ctx, m.to, list[0]); err != nil {
			return is, err
		}
	}
	if !json.Valid(b) { // none, or half of one
		if b, err = json.Marshal(me); err == nil {
			err = m.put(ctx, entryOf(ownerName, b), bytes.NewReader(b))
		}
		if err != nil {
			return is, err
		}
	}
	if err := json.Unmarshal(b, &is); err != nil {
		return is, fmt.Errorf("%s: %s: %w", m.to, ownerName, err)
	}
	return is, nil
}
