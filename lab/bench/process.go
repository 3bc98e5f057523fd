package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
)

// scrapeEvery is how often the agent's metrics are read meanwhile; Prometheus asks every
// 15 seconds to a minute.
const scrapeEvery = 5 * time.Second

// Process is what a real agent took.
type Process struct {
	Tasks       int     `json:"tasks"`
	Seconds     float64 `json:"seconds"`
	CorePercent float64 `json:"core_percent"` // CPU time of all its threads, of one core
	RSSMiB      float64 `json:"rss_mib"`      // VmRSS at the end
	PeakMiB     float64 `json:"peak_rss_mib"` // VmHWM
	Scrapes     int     `json:"scrapes"`
}

// agentConfig is the agent's configuration for the tasks on the stage: windows of a
// second, observing, with record, metrics and socket, and the policies of the CPU in a mode.
func agentConfig(dir string, tasks []config.Task, metrics string, cpu model.Mode) *config.Config {
	c, _ := config.Defaults(config.ProfileSingleNode) // which is there
	p := &c.Policies.CPU
	p.CPUSetMode, p.CPUPoolMode, p.BurstMode = cpu, cpu, cpu
	c.Tasks, c.Agent.MetricsListen, c.Agent.KillSwitch = tasks, metrics, filepath.Join(dir, "off")
	return &c
}

// runAgent runs the agent's own binary against the tasks on the stage.
func runAgent(ctx context.Context, o *Options, c *crowd, name string, change func(*config.Config), watch watcher) error {
	metrics, err := stage.FreeAddress()
	if err != nil {
		return err
	}
	config := agentConfig(c.stage.Dir, c.rules(), metrics, model.ModeObserve)
	change(config)
	a, err := c.stage.StartAgent(ctx, o.Agent, name, config)
	if err != nil {
		return err
	}
	return errors.Join(watch(a.Proc, metrics), a.Finish())
}

// watcher looks at a running agent, whose metrics are at an address.
type watcher func(p *stage.Proc, metrics string) error

// watch measures a running agent from outside, for so long.
func watch(ctx context.Context, length time.Duration, p *stage.Proc, metrics string, tasks int) (*Process, error) {
	if err := stage.Sleep(ctx, 3*time.Second); err != nil { // start, first discovery, first windows
		return nil, err
	}
	if p.Ended() {
		return nil, errors.New("bench: the agent ended")
	}
	source, err := taskstats.DialTaskstats()
	if err != nil {
		return nil, err
	}
	defer source.Close() //nolint:errcheck // reading only
	before, err := runNsec(source, p.Pid())
	if err != nil {
		return nil, err
	}
	res := &Process{Tasks: tasks}
	begin := time.Now()
	for time.Since(begin) < length {
		if err := stage.Sleep(ctx, min(scrapeEvery, length-time.Since(begin))); err != nil {
			return nil, err
		}
		if err := scrape(ctx, metrics, tasks); err != nil {
			return nil, err
		}
		res.Scrapes++
	}
	after, err := runNsec(source, p.Pid())
	if err != nil {
		return nil, err
	}
	res.Seconds = time.Since(begin).Seconds()
	res.CorePercent = float64(after-before) / 1e7 / res.Seconds
	res.RSSMiB, res.PeakMiB, err = stage.Memory(p.Pid())
	return res, err
}

// runNsec is the CPU time of a process, exact and with the threads that ended.
func runNsec(s taskstats.Source, pid int) (uint64, error) {
	var out [1]taskstats.Stats
	if err := s.Query([]int32{int32(pid)}, out[:]); err != nil {
		return 0, err
	}
	if out[0].Status != taskstats.OK {
		return 0, fmt.Errorf("bench: the agent's CPU time is %s", out[0].Status)
	}
	return out[0].RunNsec, nil
}

// scrape reads the metrics, and makes sure that the agent sees the tasks.
func scrape(ctx context.Context, addr string, tasks int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("bench: scrape: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // read whole
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("bench: scrape: %w", err)
	}
	if n := strings.Count(string(text), "\ncommensal_task_cpu_cores{"); n != tasks {
		return fmt.Errorf("bench: the agent reports %d tasks of %d", n, tasks)
	}
	return nil
}
