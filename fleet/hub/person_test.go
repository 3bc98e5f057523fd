package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/client"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "people"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	der, a.key = a.sign(template, template, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

// sign makes a certificate with a new key; by nil: it signs itself.
func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

func (a *authority) write(name, kind string, b []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// person makes a certificate for somebody, good until then, and what asks with it.
func (a *authority) person(b *bed, ca, name string, until time.Time, use x509.ExtKeyUsage) *client.Client {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	der, key := a.sign(template, a.cert, a.key)
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	file := fmt.Sprintf("%d-%d", template.SerialNumber, use)
	return &client.Client{URL: b.URL(), CAFile: ca, CertFile: a.write(file+".pem", "CERTIFICATE", der), KeyFile: a.write(file+".key", "EC PRIVATE KEY", secret)}
}

// People enter by a certificate as by a token, and as far as their role goes; whose is of another authority, over, of somebody unknown or for servers is
// told so; and who is removed is out at once, on a connection that stands, too.
func TestPeopleEnterByCertificate(t *testing.T) {
	cert, key := certificate(t)
	people, strangers := newAuthority(t), newAuthority(t)
	cfg := testConfig(t.TempDir())
	cfg.TLSCert, cfg.TLSKey, cfg.ClientCA = cert, key, people.file
	b := startHub(t, cfg)
	for name, role := range map[string]Role{"ann": Admin, "vic": Viewer, "bob": Operator} {
		if err := AddCertified(b.dir, name, role, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	soon := time.Now().Add(time.Hour)
	ann, vic, bob := people.person(b, cert, "ann", soon, x509.ExtKeyUsageClientAuth), people.person(b, cert, "vic", soon, x509.ExtKeyUsageClientAuth), people.person(b, cert, "bob", soon, x509.ExtKeyUsageClientAuth)
	look := func(c *client.Client) error {
		var st Status
		return c.Do(t.Context(), "/v1/fleet", nil, &st)
	}
	off := func(c *client.Client) error {
		return c.Do(t.Context(), "/v1/off", map[string]any{"off": true, "why": "a test"}, &map[string]any{})
	}
	if err := errors.Join(look(ann), look(vic), look(bob), off(ann)); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error, code int, want string) {
		t.Helper()
		var r *client.Refused
		if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Text, want) {
			t.Errorf("%s: %v; want %d %s", what, err, code, want)
		}
	}
	refused("a viewer", off(vic), http.StatusForbidden, "vic is viewer; this takes admin")
	refused("another authority", look(strangers.person(b, cert, "ann", soon, x509.ExtKeyUsageClientAuth)), http.StatusUnauthorized, `the certificate of "ann" is refused: it is not signed by --client-ca`)
	refused("over", look(people.person(b, cert, "ann", time.Now().Add(-time.Minute), x509.ExtKeyUsageClientAuth)), http.StatusUnauthorized, `the certificate of "ann" is refused: it is good from`)
	refused("a server's", look(people.person(b, cert, "ann", soon, x509.ExtKeyUsageServerAuth)), http.StatusUnauthorized, "it is not for clients")
	refused("unknown", look(people.person(b, cert, "eve", soon, x509.ExtKeyUsageClientAuth)), http.StatusUnauthorized, `the certificate of "eve" is good, but nobody of that name may enter`)
	refused("no name", look(people.person(b, cert, "", soon, x509.ExtKeyUsageClientAuth)), http.StatusUnauthorized, "nobody of that name")
	if err := look(&client.Client{URL: b.URL(), CAFile: cert, TokenFile: AdminToken(b.dir)}); err != nil {
		t.Errorf("a token: %v", err)
	}
	if err := look(&client.Client{URL: b.URL(), CAFile: cert, CertFile: ann.CertFile}); err == nil || !strings.Contains(err.Error(), "--cert and --key go together") {
		t.Errorf("a certificate without its key: %v", err)
	}
	if err := look(&client.Client{URL: b.URL(), CAFile: cert, CertFile: ann.CertFile, KeyFile: bob.KeyFile}); err == nil || !strings.Contains(err.Error(), "private key") {
		t.Errorf("a certificate with another's key: %v", err)
	}
	keepsOpen(t, b, cert, bob)
	audit, err := os.ReadFile(filepath.Join(b.dir, "store", "audit.jsonl"))
	if err != nil || !strings.Contains(string(audit), `"who":"ann","role":"admin","what":"kill-switch"`) || strings.Contains(string(audit), `"vic"`) {
		t.Errorf("%v: the audit has %s", err, audit)
	}
}

// keepsOpen removes somebody who has a connection, asks on it as before and after, and lets another site's page ask with the certificate.
func keepsOpen(t *testing.T, b *bed, ca string, who *client.Client) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(who.CertFile, who.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}}
	defer web.CloseIdleConnections()
	ask := func(method, path, site string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, b.URL()+path, strings.NewReader(`{"node": "n", "kind": "cap", "why": "a test"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", site)
		res, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close() //nolint:errcheck // nothing is read
		return res.StatusCode
	}
	if code := ask("GET", "/v1/fleet", "same-origin"); code != http.StatusOK {
		t.Errorf("before: %d", code)
	}
	if code := ask("POST", "/v1/command", "cross-site"); code != http.StatusForbidden {
		t.Errorf("another site's page operates with the browser's certificate: %d", code)
	}
	if code := ask("POST", "/v1/command", "same-origin"); code != http.StatusBadGateway { // no such node
		t.Errorf("the hub's own page: %d", code)
	}
	if ok, err := RemovePerson(b.dir, "bob"); !ok || err != nil {
		t.Errorf("%t %v", ok, err)
	}
	if ok, err := RemovePerson(b.dir, "bob"); ok || err != nil {
		t.Errorf("removed twice: %t %v", ok, err)
	}
	if code := ask("GET", "/v1/fleet", "same-origin"); code != http.StatusUnauthorized {
		t.Errorf("who was removed is in: %d", code)
	}
}

// A certificate is no way in where the hub was not told whose count, and one without a name in the list, an empty list of authorities or no TLS is refused.
func TestCertificatesAreAsked(t *testing.T) {
	cert, key := certificate(t)
	people := newAuthority(t)
	cfg := testConfig(t.TempDir())
	cfg.ClientCA = people.file
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "--client-ca needs --tls-cert") {
		t.Errorf("without TLS: %v", err)
	}
	if _, err := openDoor(t.TempDir(), key); err == nil || !strings.Contains(err.Error(), "has no certificate") {
		t.Errorf("a file without certificates: %v", err)
	}
	if _, err := openDoor(t.TempDir(), "/nonexistent"); err == nil {
		t.Error("a file that is not there")
	}
	cfg.ClientCA, cfg.TLSCert, cfg.TLSKey = "", cert, key
	b := startHub(t, cfg)
	if err := AddCertified(b.dir, "ann", Admin, time.Now()); err != nil {
		t.Fatal(err)
	}
	var st Status
	err := people.person(b, cert, "ann", time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth).Do(t.Context(), "/v1/fleet", nil, &st)
	if err == nil || !strings.Contains(err.Error(), "expected the header Authorization") {
		t.Errorf("a certificate where none counts: %v", err)
	}
}
