// Package client asks a hub over HTTP: what operators' programs share.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Client is one way to a hub.
type Client struct {
	URL       string
	TokenFile string
	CAFile    string
}

// Flags adds the flags that say which hub it is.
func (c *Client) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.URL, "hub", "http://127.0.0.1:8469", "the hub's pages")
	f.StringVar(&c.TokenFile, "token-file", "/var/lib/commensal-hub/admin.token", "file with the token to enter by")
	f.StringVar(&c.CAFile, "ca-file", "", "certificates that the hub's is signed by (default: the system's)")
}

// Refused is what a hub answers when it does not do something.
type Refused struct {
	Code int
	Text string
}

func (r *Refused) Error() string { return r.Text }

// Do asks; a nil body is a GET. What is answered goes into v.
func (c *Client) Do(ctx context.Context, path string, body, v any) error {
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return fmt.Errorf("the token to enter by: %w", err)
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
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
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

func (c *Client) web() (*http.Client, error) {
	web := &http.Client{Timeout: time.Minute}
	if c.CAFile == "" {
		return web, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", c.CAFile)
	}
	web.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return web, nil
}
