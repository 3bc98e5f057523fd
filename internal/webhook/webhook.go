// Package webhook tells somebody else something over HTTP: one POST of JSON, bounded in time, of which only the status counts.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Timeout bounds one post.
const Timeout = 10 * time.Second

const maxRead = 1 << 10 // bytes of an answer, so that the connection can be used again

// Post sends a document. Anything but a status of 200 to 299 is an error, and so is to be sent elsewhere.
func Post(ctx context.Context, url string, doc []byte) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(doc))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it sends us elsewhere") }}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // reading is over
	_, _ = io.CopyN(io.Discard, res.Body, maxRead)
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %s", res.Status)
	}
	return nil
}
