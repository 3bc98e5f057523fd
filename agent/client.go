package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// ErrNoAgent: nobody listens at the socket.
var ErrNoAgent = errors.New("no agent is listening")

// ErrRejected: the agent said no to the request, or it cannot even be sent.
var ErrRejected = errors.New("refused")

// Client speaks to an agent over its socket.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a client for a socket; nothing is dialled yet.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http.Timeout = 5 * time.Second
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	return c
}

// Status asks for the agent's status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var st Status
	return &st, c.call(ctx, http.MethodGet, "/v1/status", nil, &st)
}

// Brief asks for the status without specs and suspects, and with the latest incidents only:
// for who asks each second.
func (c *Client) Brief(ctx context.Context) (*Status, error) {
	var st Status
	return &st, c.call(ctx, http.MethodGet, "/v1/status?brief", nil, &st)
}

// Headroom asks for the last forecast of what best-effort work may use.
func (c *Client) Headroom(ctx context.Context) (*Headroom, error) {
	var h Headroom
	return &h, c.call(ctx, http.MethodGet, "/v1/headroom", nil, &h)
}

// Command asks the agent to do something.
func (c *Client) Command(ctx context.Context, req Request) error {
	b, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("%w: request: %w", ErrRejected, err) // NaN and the infinities
	}
	var ans Answer
	return c.call(ctx, http.MethodPost, "/v1/command", b, &ans)
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, v any) error {
	// The host is a placeholder: the transport dials the socket.
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return fmt.Errorf("%w at %s: %w", ErrNoAgent, c.socket, op.Err)
		}
		return fmt.Errorf("ask the agent at %s: %w", c.socket, err)
	}
	defer res.Body.Close() //nolint:errcheck // read only
	b, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("ask the agent at %s: %w", c.socket, err)
	}
	if res.StatusCode != http.StatusOK {
		var ans Answer
		if json.Unmarshal(b, &ans) == nil && ans.Error != "" {
			return fmt.Errorf("%w: %s", ErrRejected, ans.Error)
		}
		return fmt.Errorf("ask the agent at %s: %s", c.socket, res.Status)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("the agent at %s answered something else: %w", c.socket, err)
	}
	return nil
}
