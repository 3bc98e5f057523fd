package reclaim

// memory.high: above it the kernel takes a v2 group's memory back, descendants included, and puts threads that
// allocate more to sleep. Nobody is killed for it.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
//
//	max               (or bytes, in whole pages: rounded down)
//
// v1 has nothing like it: memory.soft_limit_in_bytes counts only while the machine itself is short.

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// NoHigh is memory.high of a group without a limit.
const NoHigh = math.MaxInt64

const highFile = "memory.high"

// highPatience is how long a write may take back memory. The limit stands before that begins (mm/memcontrol.c,
// memory_high_write), so that what is cut short is left to the group's own allocations.
const highPatience = 20 * time.Millisecond

// highLeft is how much longer a round of reclaim is waited for that was told to end, before it is left to end by itself.
const highLeft = 80 * time.Millisecond

// ReadHigh returns a group's memory.high in bytes, NoHigh where it has no limit. On v1 the error wraps cgroup.ErrUnsupported.
func (m *Memory) ReadHigh(path string) (int64, error) {
	d, err := m.high(path)
	if err != nil {
		return 0, err
	}
	data, err := m.fs.ReadFile(d.abs+"/"+highFile, nil)
	if err != nil {
		return 0, d.wrap("read", highFile, err)
	}
	l, err := parseLimit(data)
	switch {
	case err != nil:
		return 0, d.wrap("read", highFile, err)
	case l.Max || l.Bytes > NoHigh:
		return NoHigh, nil
	}
	return int64(l.Bytes), nil
}

// WriteHigh sets a group's memory.high in bytes, NoHigh: none. A kernel takes back what is above it within the write, for
// seconds where there is much; after highPatience it is told to stop, and the limit stands all the same.
func (m *Memory) WriteHigh(path string, bytes int64) error {
	d, err := m.high(path)
	if err != nil {
		return err
	}
	text := "max"
	if bytes != NoHigh {
		text = strconv.FormatInt(bytes, 10)
	}
	opener, ok := m.fs.(hostfs.WriteOpener)
	if !ok { // a simulated kernel
		if err := m.fs.WriteFile(d.abs+"/"+highFile, []byte(text)); err != nil {
			return d.wrap("write", highFile, err)
		}
		return nil
	}
	fd, closeFD, err := opener.OpenReadWrite(d.abs + "/" + highFile)
	if err != nil {
		return d.wrap("open", highFile, err)
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), highPatience)
		defer cancel()
		_, err := writeOnce(ctx, fd, []byte(text))
		if ctx.Err() != nil { // the limit stood before it was interrupted
			err = nil
		}
		_ = closeFD() // nothing is kept back for it to write
		done <- err
	}()
	select {
	case err = <-done:
	case <-time.After(highPatience + highLeft):
	}
	if err != nil {
		return d.wrap("write", highFile, err)
	}
	return nil
}

// high looks at a group that may have the file.
func (m *Memory) high(path string) (dir, error) {
	if !m.v2 {
		return dir{}, fmt.Errorf("memory.high of cgroup %s: %w: the memory controller is on cgroup v1", path, cgroup.ErrUnsupported)
	}
	return m.open(path)
}
