package hub

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
)

// Role is what a person may do: each may what those before it may.
type Role int

// The roles.
const (
	Viewer   Role = 1 + iota // look and ask
	Operator                 // hold and free tasks, protection, specs
	Admin                    // the kill switch
)

var roleNames = []string{"nobody", "viewer", "operator", "admin"}

func (r Role) String() string { return roleNames[r] }

// MarshalText writes the role's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a role's name.
func (r *Role) UnmarshalText(b []byte) error {
	i := slices.Index(roleNames, string(b))
	if i < 1 {
		return fmt.Errorf("role %q; expected viewer, operator or admin", b)
	}
	*r = Role(i)
	return nil
}

// person is who may enter. Of the token only the hash is kept.
type person struct {
	Name  string    `json:"name"`
	Role  Role      `json:"role"`
	Token string    `json:"token_sha256"`
	Added time.Time `json:"added"`
}

// door knows who may enter. The file is read again when it changed.
type door struct {
	path string

	mu      sync.Mutex
	stamp   time.Time
	persons []person
}

func personsFile(dir string) string { return filepath.Join(dir, "persons.json") }

// AdminToken is where the first administrator's token is, which a hub draws at its first start.
func AdminToken(dir string) string { return filepath.Join(dir, "admin.token") }

func openDoor(dir string) (*door, error) {
	d := &door{path: personsFile(dir)}
	if _, err := os.Stat(d.path); errors.Is(err, fs.ErrNotExist) {
		token, err := AddPerson(dir, "admin", Admin, time.Now())
		if err != nil {
			return nil, err
		}
		if err := store.Replace(AdminToken(dir), []byte(token+"\n")); err != nil {
			return nil, err
		}
	}
	_, err := d.read()
	return d, err
}

// AddPerson lets somebody in, and returns the token. One of the same name is replaced.
func AddPerson(dir, name string, role Role, now time.Time) (token string, err error) {
	if name == "" || len(name) > 63 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("person %q; expected 1 to 63 letters, digits and signs", name)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	d := &door{path: personsFile(dir)}
	list, err := d.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	token = hex.EncodeToString(b[:])
	list = slices.DeleteFunc(slices.Clone(list), func(p person) bool { return p.Name == name })
	list = append(list, person{Name: name, Role: role, Token: hashOf(token), Added: now.UTC()})
	doc, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	return token, store.Replace(d.path, doc)
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (d *door) read() ([]person, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := os.Stat(d.path)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if d.persons != nil && st.ModTime().Equal(d.stamp) {
		return d.persons, nil
	}
	b, err := os.ReadFile(d.path)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	var list []person
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("hub: %s: %w", d.path, err)
	}
	d.stamp, d.persons = st.ModTime(), list
	return list, nil
}

// admit returns who asks; nil: nobody that may do what the role may.
func (d *door) admit(r *http.Request, least Role) (p *person, code int, why string) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return nil, http.StatusUnauthorized, "expected the header Authorization: Bearer TOKEN"
	}
	list, err := d.read()
	if err != nil {
		return nil, http.StatusInternalServerError, err.Error()
	}
	hash := hashOf(token)
	for i := range list {
		if list[i].Token != hash { // of hashes, whose bytes nobody can choose, the comparison tells nothing
			continue
		}
		if list[i].Role < least {
			return nil, http.StatusForbidden, fmt.Sprintf("%s is %s; this takes %s", list[i].Name, list[i].Role, least)
		}
		return &list[i], http.StatusOK, ""
	}
	return nil, http.StatusUnauthorized, "the token is not known"
}
