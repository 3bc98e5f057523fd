// Package client asks a hub over HTTP: what operators' programs share.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/commensal-io/commensal/internal/guard"
)

// Client is one way to a hub.
type Client struct {
	URL       string
	TokenFile string
	CAFile    string
	CertFile  string // of whoever asks, in place of a token
	KeyFile   string
	Unguarded bool          // the hub may be another machine in plain text
	Timeout   time.Duration // of one answer; 0: a minute
}

// timeout is longer than the hub's own limits, of which a query's is the longest.
const timeout = time.Minute

// Flags adds the flags that say which hub it is.
func (c *Client) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.URL, "hub", "http://127.0.0.1:8469", "the hub's pages")
	f.StringVar(&c.TokenFile, "token-file", "/var/lib/commensal-hub/admin.token", "file with the token to enter by")
	f.StringVar(&c.CAFile, "ca-file", "", "certificates that the hub's is signed by (default: the system's)")
	f.StringVar(&c.CertFile, "cert", "", "your certificate, to enter by in place of a token, where the hub has --client-ca")
	f.StringVar(&c.KeyFile, "key", "", "its key")
	f.DurationVar(&c.Timeout, "timeout", timeout, "how long the hub may take to answer")
	f.BoolVar(&c.Unguarded, "hub-unguarded", false, "--hub may be another machine in plain text (http://): something else guards the way, as a tunnel")
}

// Refused is what a hub answers when it does not do something.
type Refused struct {
	Code int
	Text string
}

func (r *Refused) Error() string { return r.Text }

// Do asks; a nil body is a GET. What is answered goes into v.
func (c *Client) Do(ctx context.Context, path string, body, v any) error {
	var token []byte
	err := c.guarded()
	if err != nil {
		return err
	}
	if c.CertFile == "" {
		if token, err = os.ReadFile(c.TokenFile); err != nil {
			return fmt.Errorf("the token to enter by: %w", err)
		}
	}
	method, in := http.MethodGet, io.Reader(nil)
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		method, in = http.MethodPost, bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, in)
	if err != nil {
		return err
	}
	if c.CertFile == "" {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	web, err := c.web()
	if err != nil {
		return err
	}
	res, err := web.Do(req)
	if err != nil {
		return fmt.Errorf("the hub does not answer: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // reading is over
	b, err := io.ReadAll(io.LimitReader(res.Body, 128<<20))
	if err != nil {
		return fmt.Errorf("the hub's answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		var f struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(b, &f) != nil || f.Error == "" {
			f.Error = res.Status
		}
		return &Refused{res.StatusCode, f.Error}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("the hub's answer: %w", err)
	}
	return nil
}

// guarded refuses to send a token to another machine in plain text.
func (c *Client) guarded() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--hub is %q; expected https://host:port, or http://host:port on this machine", c.URL)
	}
	if u.Scheme == "https" || c.Unguarded || guard.Here(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%s is another machine, and who listens on the way would have the token; expected https://%s, or --hub-unguarded", u.Host, u.Host)
}

func (c *Client) web() (*http.Client, error) {
	web := &http.Client{Timeout: cmp.Or(c.Timeout, timeout)}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, errors.New("--cert and --key go together")
	}
	if c.CAFile == "" && c.CertFile == "" {
		return web, nil
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, err
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the certificate to enter by: %w", err)
		}
		// Shown also where the hub expects others: it then says what is wrong with this one.
		trust.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	web.Transport = &http.Transport{TLSClientConfig: trust}
	return web, nil
}
