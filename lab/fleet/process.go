package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/commensal-io/commensal/lab/stage"
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

// errLate: what was waited for did not come.
var errLate = errors.New("not within")

// until looks again and again whether something is so. errLate: it was not.
func until(ctx context.Context, every, most time.Duration, so func() (bool, error)) error {
	for begin := time.Now(); time.Since(begin) < most; time.Sleep(every) {
		if ok, err := so(); ok || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%w %s", errLate, most)
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

// usage is a process's: CPU time in seconds, memory that is resident and was at most, in MiB.
type usage struct{ cpu, resident, peak float64 }

func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return u, err
	}
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // from the third field on
	words := bytes.Fields(rest)
	if len(words) < 13 {
		return u, fmt.Errorf("process %d has no CPU time", pid)
	}
	for _, text := range words[11:13] {
		v, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return u, fmt.Errorf("process %d: %w", pid, err)
		}
		u.cpu += v / 100
	}
	u.resident, u.peak, err = stage.Memory(pid)
	return u, err
}

// call asks over HTTP, and returns the text of an answer that is none of an error.
func call(ctx context.Context, method, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	text, _, err := answer(http.DefaultClient, req)
	return text, err
}

// answer is call of a request that is made already; kind is the type of the content.
func answer(client *http.Client, req *http.Request) (text, kind string, err error) {
	res, err := client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer res.Body.Close() //nolint:errcheck // reading only
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s: %.200s", req.URL.Path, res.Status, b)
	}
	return string(b), res.Header.Get("Content-Type"), err
}
