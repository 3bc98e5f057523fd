package hub

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
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

// person is who may enter. Of the token only the hash is kept; "": by certificate only.
type person struct {
	Name  string    `json:"name"`
	Role  Role      `json:"role"`
	Token string    `json:"token_sha256,omitempty"`
	Added time.Time `json:"added"`
}

// door knows who may enter. The file is read again when it changed.
type door struct {
	path string
	ca   *x509.CertPool // that people's certificates are signed by; nil: they have none

	mu      sync.Mutex
	stamp   time.Time
	persons []person
}

func personsFile(dir string) string { return filepath.Join(dir, "persons.json") }

// AdminToken is where the first administrator's token is, which a hub draws at its first start.
func AdminToken(dir string) string { return filepath.Join(dir, "admin.token") }

func openDoor(dir, clientCA string) (*door, error) {
	d := &door{path: personsFile(dir)}
	if clientCA != "" {
		pem, err := os.ReadFile(clientCA)
		if err != nil {
			return nil, fmt.Errorf("hub: --client-ca: %w", err)
		}
		if d.ca = x509.NewCertPool(); !d.ca.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("hub: --client-ca: %s has no certificate", clientCA)
		}
	}
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
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	token = hex.EncodeToString(b[:])
	return token, addPerson(dir, person{Name: name, Role: role, Token: hashOf(token), Added: now.UTC()})
}

// AddCertified lets somebody in by certificate only. One of the same name is replaced, and its token is worth nothing from then on.
func AddCertified(dir, name string, role Role, now time.Time) error {
	return addPerson(dir, person{Name: name, Role: role, Added: now.UTC()})
}

func addPerson(dir string, p person) error {
	if p.Name == "" || len(p.Name) > 63 || strings.ContainsFunc(p.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("person %q; expected 1 to 63 letters, digits and signs", p.Name)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	_, err := changePersons(dir, p.Name, p)
	return err
}

// RemovePerson lets somebody in no more, by token or certificate; ok is false where there is none of that name. A running hub sees it at the next request.
func RemovePerson(dir, name string) (ok bool, err error) { return changePersons(dir, name) }

// changePersons puts others in a person's place; was is false where there is none of that name.
func changePersons(dir, name string, others ...person) (was bool, err error) {
	d := &door{path: personsFile(dir)}
	list, err := d.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	kept := slices.DeleteFunc(slices.Clone(list), func(p person) bool { return p.Name == name })
	if was = len(kept) < len(list); !was && len(others) == 0 {
		return false, nil
	}
	doc, err := json.MarshalIndent(append(kept, others...), "", " ")
	if err != nil {
		return was, fmt.Errorf("hub: %w", err)
	}
	return was, store.Replace(d.path, doc)
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

// asks is what the pages' TLS asks of who connects: for a certificate, of whoever has one. It is judged at each request, not in the handshake: what is
// wrong with it can be said in words then, and who is removed is out at once.
func (d *door) asks(c *tls.Config) *tls.Config {
	if c == nil || d.ca == nil {
		return c
	}
	c = c.Clone()
	c.ClientAuth, c.ClientCAs = tls.RequestClientCert, d.ca
	return c
}

// admit returns who asks; nil: nobody that may do what the role may. A token goes before a certificate.
func (d *door) admit(r *http.Request, least Role) (p *person, code int, why string) {
	list, err := d.read()
	if err != nil {
		return nil, http.StatusInternalServerError, err.Error()
	}
	var at int
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case ok && token != "":
		hash := hashOf(token)
		at = slices.IndexFunc(list, func(p person) bool { return p.Token == hash }) // of hashes, whose bytes nobody can choose, the comparison tells nothing
		why = "the token is not known"
	case d.ca != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		name := r.TLS.PeerCertificates[0].Subject.CommonName
		if err := d.vouched(r.TLS.PeerCertificates); err != nil {
			return nil, http.StatusUnauthorized, fmt.Sprintf("the certificate of %.63q is refused: %s", name, err)
		}
		at = slices.IndexFunc(list, func(p person) bool { return p.Name == name })
		why = fmt.Sprintf("the certificate of %.63q is good, but nobody of that name may enter; `commensal-hub person add` lets them in", name)
	case d.ca != nil:
		return nil, http.StatusUnauthorized, "expected the header Authorization: Bearer TOKEN, or a client's certificate"
	default:
		return nil, http.StatusUnauthorized, "expected the header Authorization: Bearer TOKEN"
	}
	switch {
	case at < 0:
		return nil, http.StatusUnauthorized, why
	case list[at].Role < least:
		return nil, http.StatusForbidden, fmt.Sprintf("%s is %s; this takes %s", list[at].Name, list[at].Role, least)
	}
	return &list[at], http.StatusOK, ""
}

// vouched says what is wrong with the certificates that somebody shows, the own one first; nil: nothing. That they have its key the handshake has shown.
func (d *door) vouched(chain []*x509.Certificate) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: d.ca, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return errors.New("it is not signed by --client-ca")
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return errors.New("it is not for clients (extended key usage)")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("it is good from %s to %s", chain[0].NotBefore.UTC().Format(time.DateTime), chain[0].NotAfter.UTC().Format(time.DateTime))
	}
	return err
}
