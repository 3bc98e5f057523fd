package load

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/commensal-io/commensal/slo/memcached"
)

// populateBatch is how many sets are sent before their replies are read: few enough that
// the replies fit any socket buffer, so that neither side can block the other.
const populateBatch = 128

// populateTimeout is how long one batch may take.
const populateTimeout = 10 * time.Second

// ErrNotStored is returned when the server refuses a key.
var ErrNotStored = errors.New("load: the server did not store a key")

// Populate sets every key of c, so that gets hit. It is no part of a run's figures.
func Populate(ctx context.Context, c Config) error {
	if c.RatePerSec == 0 && len(c.Rates) == 0 {
		c.RatePerSec = 1 // does not matter here
	}
	c.Duration = cmp.Or(c.Duration, time.Second)
	c, _, err := c.withDefaults()
	if err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	nc, err := dialer.DialContext(ctx, c.Network, c.Address)
	if err != nil {
		return fmt.Errorf("load: populate: %w", err)
	}
	defer func() { _ = nc.Close() }()
	// A context that ends in the middle makes the pending read or write fail.
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	if err := populate(nc, &c); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("load: populate: %w", err))
	}
	return nil
}

func populate(nc net.Conn, c *Config) error {
	form := newConn(0, c)
	out := bufio.NewWriter(nc)
	in := bufio.NewReader(nc)
	var buf []byte
	for first := 0; first < c.KeyCount; first += populateBatch {
		n := min(populateBatch, c.KeyCount-first)
		if err := nc.SetDeadline(time.Now().Add(populateTimeout)); err != nil {
			return err
		}
		for i := range n {
			buf = form.appendRequest(buf[:0], request{key: uint32(first + i), set: true})
			if _, err := out.Write(buf); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		for i := range n {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			reply, _, err := memcached.ParseReply(line, memcached.CommandSet)
			if err != nil {
				return err
			}
			if reply.Outcome != memcached.Stored {
				return fmt.Errorf("%w: key %d: %q", ErrNotStored, first+i, line)
			}
		}
	}
	return nil
}
