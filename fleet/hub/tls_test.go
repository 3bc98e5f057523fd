package hub

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// certificate makes a certificate for this machine that nobody else trusts.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", secret)
}

// With a certificate pages and transport are behind TLS, may be reached from elsewhere, and whoever does not trust it gets nowhere.
func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	cfg := testConfig(t.TempDir())
	cfg.TLSCert, cfg.TLSKey = cert, key
	b := startHub(t, cfg)
	if !strings.HasPrefix(b.URL(), "https://") || !strings.HasPrefix(b.NodesURL(), "tls://") {
		t.Errorf("%s %s", b.URL(), b.NodesURL())
	}
	ask := func(ca string) (st Status, err error) {
		c := &client.Client{URL: b.URL(), TokenFile: AdminToken(b.dir), CAFile: ca}
		return st, c.Do(t.Context(), "/v1/fleet", nil, &st)
	}
	if _, err := ask(""); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a stranger's certificate is trusted: %v", err)
	}
	if st, err := ask(cert); err != nil || st.NodesURL != b.NodesURL() {
		t.Errorf("%v", err)
	}
	seed := enrol(t, b.dir, "n")
	start := func(url, ca string) *uplink.Uplink {
		up, err := uplink.Start(context.Background(), uplink.Config{URL: url, Node: "n", SeedFile: seed, CAFile: ca, Dir: t.TempDir(), MaxBytes: 1 << 22}, uplink.Node{}, uplink.NewGather(1), uplink.Hooks{
			Log: slog.New(slog.DiscardHandler), Specs: func([]model.Spec) {}, Command: func(context.Context, *wire.Command) wire.Answer { return wire.Answer{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(up.Close)
		return up
	}
	// Pages are behind TLS, too, where the transport is somebody else's.
	_, url := newCluster(t, 1)
	cfg.Dir, cfg.NATS = t.TempDir(), url
	beside := startHub(t, cfg)
	c := &client.Client{URL: beside.URL(), TokenFile: AdminToken(beside.dir), CAFile: cert}
	if err := c.Do(t.Context(), "/v1/fleet", nil, &Status{}); err != nil || !strings.HasPrefix(beside.URL(), "https://") {
		t.Errorf("%s: %v", beside.URL(), err)
	}
	strange, good := start(b.NodesURL(), ""), start(b.NodesURL(), cert)
	eventually(t, "a node that trusts it connects", func() bool { return good.Status().Connected })
	if strange.Status().Connected {
		t.Error("a node that does not trust it connected")
	}
}
