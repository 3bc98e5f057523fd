package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// process is a program of this run's, which ends with it.
type process struct {
	*exec.Cmd
	says bytes.Buffer
}

// spawn starts one in a folder, with no environment.
func spawn(ctx context.Context, program, dir string, args ...string) (*process, error) {
	p := &process{Cmd: exec.CommandContext(ctx, program, args...)}
	p.Stdout, p.Stderr, p.Env, p.Dir = &p.says, &p.says, []string{}, dir
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p, p.Start()
}

// end ends it, and puts what it said beside what went wrong.
func (p *process) end(err error) error {
	_ = p.Process.Kill()
	_ = p.Wait()
	if err != nil {
		says := p.says.String()
		err = fmt.Errorf("%w; it says %s", err, says[max(0, len(says)-500):])
	}
	return err
}

// freeAddr is an address on which nobody listens yet.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// until looks again and again whether something is so.
func until(ctx context.Context, every, most time.Duration, so func() (bool, error)) error {
	for begin := time.Now(); time.Since(begin) < most; time.Sleep(every) {
		if ok, err := so(); ok || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("not within %s", most)
}

// sizeOf is what the files below a folder hold, in bytes. Files that go meanwhile count nothing.
func sizeOf(dir string) (sum int64, err error) {
	return sum, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				sum += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
}

// usage is a process's: CPU time in seconds, memory that is resident and was at most, in bytes.
type usage struct{ cpu, resident, peak float64 }

var resident = regexp.MustCompile(`(?s)VmHWM:\s+(\d+) kB.*VmRSS:\s+(\d+) kB`)

func usageOf(pid int) (u usage, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	memory := resident.FindSubmatch(status)
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // from the third field on
	words := bytes.Fields(rest)
	if len(words) < 13 || memory == nil {
		return u, fmt.Errorf("%s has no CPU time, or no memory", dir)
	}
	var v [4]float64
	for i, text := range [][]byte{words[11], words[12], memory[2], memory[1]} {
		if v[i], err = strconv.ParseFloat(string(text), 64); err != nil {
			return u, fmt.Errorf("%s: %w", dir, err)
		}
	}
	return usage{(v[0] + v[1]) / 100, v[2] * 1024, v[3] * 1024}, nil
}
