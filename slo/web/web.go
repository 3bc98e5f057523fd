// Package web measures the latency of an HTTP server with one request, again and again.
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/commensal-io/commensal/slo/probe"
)

// Limits on an answer: a larger one measures the network.
const (
	maxHeader = 64 << 10
	maxBody   = 8 << 20
)

// Request says what is asked, and what a proper answer is.
type Request struct {
	// Address is host:port, unix:/path, or either of them behind https://.
	Address string
	Method  string // GET or HEAD; "": GET
	Path    string // with its query; "": /
	Host    string // of the Host header, and of the certificate with https; "": the address
	Status  int    // of a proper answer; 0: 200
}

// New returns a source that asks one server. Connections are kept. Redirects are not followed, and no
// proxy is asked.
func New(c probe.Config, r Request) (*probe.Source, error) {
	call, release, err := r.call(c.MaxOutstanding)
	if err != nil {
		return nil, err
	}
	return probe.NewCalls(c, call, release)
}

// call returns the function that asks once.
func (r Request) call(connections int) (ask func(context.Context) error, release func(), err error) {
	r.Method = cmp.Or(r.Method, http.MethodGet)
	r.Status = cmp.Or(r.Status, http.StatusOK)
	connections = cmp.Or(connections, probe.DefaultMaxOutstanding)
	client, base, err := Client(r.Address, r.Host, connections)
	if err != nil {
		return nil, nil, err
	}
	at, err := url.Parse(base + "/" + strings.TrimPrefix(r.Path, "/"))
	if err != nil {
		return nil, nil, fmt.Errorf("path %q: %w", r.Path, err)
	}
	request := &http.Request{Method: r.Method, URL: at, Host: r.Host, Header: http.Header{"User-Agent": {"commensal"}}}
	return func(ctx context.Context) error {
		answer, err := client.Do(request.WithContext(ctx))
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		n, err := io.Copy(io.Discard, io.LimitReader(answer.Body, maxBody+1))
		switch {
		case err != nil:
			return fmt.Errorf("the answer broke off: %w", err)
		case n > maxBody:
			return probe.Refusal(fmt.Sprintf("an answer of more than %d bytes", maxBody))
		case answer.StatusCode != r.Status:
			return probe.Refusal(fmt.Sprintf("status %d, expected %d", answer.StatusCode, r.Status))
		}
		return nil
	}, client.CloseIdleConnections, nil
}

// Client returns a client for one address as in Request, and what its URLs begin with.
func Client(address, host string, connections int) (c *http.Client, base string, err error) {
	t := &http.Transport{
		DisableCompression: true, MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections,
		IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
	}
	scheme, rest := "http://", address
	if s, ok := strings.CutPrefix(address, "https://"); ok {
		scheme, rest = "https://", s
		name, _, _ := strings.Cut(host, ":")
		t.TLSClientConfig = &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
	}
	rest = strings.TrimPrefix(rest, "http://")
	if path, ok := strings.CutPrefix(rest, "unix:"); ok {
		if path == "" || len(path) > 107 {
			return nil, "", fmt.Errorf("address %q: a path takes 1 to 107 bytes", address)
		}
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		rest = "localhost"
	} else if _, port, err := net.SplitHostPort(rest); err != nil || port == "" {
		return nil, "", fmt.Errorf("address %q: expected host:port or unix:/path, behind https:// where it is that", address)
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, scheme + rest, nil
}
