package kernfs_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/gpu"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/record"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// withDriver is a kernel on which a driver's device files are.
type withDriver struct {
	*kernfs.Kernel
	files []hostfs.DirEntry
}

func (w *withDriver) ReadDir(path string) ([]hostfs.DirEntry, error) {
	if path == "/dev" {
		return w.files, nil
	}
	return w.Kernel.ReadDir(path)
}

// TestGPUs goes the whole way with a command that is a shell script: what it prints of processes is of their tasks in the agent's forecast, what it
// does not print is said once and is no figure, and a replay of the record comes to the same.
func TestGPUs(t *testing.T) {
	for _, layout := range []cgroup.Layout{cgroup.LayoutV2, cgroup.LayoutV1} {
		k, err := kernfs.New(rigMachine(t, 1), kernfs.Options{Layout: layout})
		must(t, err)
		web, batch := started(t, k, "/a-web/inner", service()), started(t, k, "/c-batch", antagonist())
		stranger := started(t, k, "/stranger", antagonist())
		dir := t.TempDir()
		script, says := filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "says")
		must(t, os.WriteFile(script, []byte("#!/bin/sh\n. "+says+"\n"), 0o755))
		say := func(text string) { must(t, os.WriteFile(says, []byte(text), 0o600)) }
		say(fmt.Sprintf("case $1 in *mig*) printf 'GPU-b, [N/A], 40960, 40000, Enabled\nGPU-a, 37, 81920, 50000, Disabled\n' ;;\n*)"+
			" printf '%d, GPU-a, 20480\n%d, GPU-a, 1024\n%d, GPU-a, 4096\n%d, GPU-a, 2048\n999999, GPU-a, 1\n7, GPU-a, [N/A]\n' ;; esac", web, web, batch, stranger))
		cfg, _ := config.Defaults(config.ProfileSingleNode)
		cfg.Sampling.Duration, cfg.Sampling.Frequency = 1e9, 1e9
		cfg.Tasks = []config.Task{{Match: "/a-*", Job: "web", Class: "LC"}, {Match: "/c-*", Job: "c", Class: "BE", Importance: "batch"}}
		var log bytes.Buffer
		files := &withDriver{k, []hostfs.DirEntry{{Name: "null"}}}
		core, err := agent.Assemble(&cfg, agent.Deps{
			FS: files, Journal: t.TempDir() + "/journal", Disk: journal.RealDisk(), Clock: k, Platform: "twin", Delay: k.Taskstats(), Opener: k.Counters(),
			Beside: func(work func()) { work() }, GPUs: &gpu.Command{Path: script}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Record: func(h record.Header) agent.Recorder { return record.NewWriter(dir, 64<<20, h) },
		})
		must(t, err)
		l := agent.NewLoop(core)
		read := 0
		minutes := func(n int64) {
			for end := k.MonoNsec() + n*60e9; l.Due() < end; {
				k.Advance(max(0, l.Due()-k.MonoNsec()))
				l.Next()
				if in, _ := l.Last(); in.Snapshot != nil && in.Snapshot.GPUs != nil {
					read++
				}
			}
		}
		report := func() string { return core.Engine.State.CPU.Headroom.Report().GPU.Why }
		if minutes(3); !strings.HasPrefix(report(), "absent") || read != 1 {
			t.Errorf("%s: without a driver %q, said %d times", layout, report(), read)
		}
		files.files = append(files.files, hostfs.DirEntry{Name: "nvidia0"})
		minutes(3)
		got := core.Engine.State.CPU.Headroom.Report().Clone().GPU
		if got.Why != "" || len(got.GPUs) != 2 || read < 3 || read > 4 {
			t.Fatalf("%s: %+v, %d readings\n%s", layout, got, read, &log)
		}
		const mib = float64(1 << 20)
		one := &got.GPUs[0]
		var users []string
		for _, u := range one.Users {
			users = append(users, fmt.Sprintf("%s %s %.0f", u.Path, u.Class, u.Bytes/mib))
		}
		slices.Sort(users)
		if d := cmp.Diff([]string{"/a-web LC 21504", "/c-batch BE 4096"}, users); d != "" {
			t.Error(layout, d)
		}
		if m := &one.Memory; one.UUID != "GPU-a" || one.Untold != 1 || m.Total.V != 81920*mib || m.Tasks[0].Last.V != 21504*mib || m.Others.Last.V != (31920-21504-4096)*mib || one.Busy.Last != model.Known(0.37) {
			t.Errorf("%s: %+v", layout, one)
		}
		if two := &got.GPUs[1]; two.UUID != "GPU-b" || two.Busy.Last.Outcome == model.OK || len(two.Memory.Horizons) != 0 || !strings.Contains(two.Why, "MIG") {
			t.Errorf("%s: %+v", layout, two)
		}
		for said, want := range map[string]string{"echo 'NVIDIA-SMI has failed'; exit 9": "exit status 9", "case $1 in *mig*) echo 'GPU-a, 37, 81920, 50000, Disabled';; esac": "GPU-b was here"} {
			log.Reset()
			say(said)
			if minutes(3); !strings.HasPrefix(report(), "not read: ") || !strings.Contains(report(), want) || strings.Count(log.String(), "GPUs cannot be read") != 1 {
				t.Errorf("%s: %s: %q\n%s", layout, said, report(), &log)
			}
			say("case $1 in *mig*) printf 'GPU-b, 0, 40960, 40000, Disabled\nGPU-a, 37, 81920, 50000, Disabled\n' ;; esac")
			if minutes(2); report() != "" || !strings.Contains(log.String(), "this is over: GPUs") {
				t.Errorf("%s: it is well again: %q\n%s", layout, report(), &log)
			}
		}
		must(t, core.Close())
		res, err := record.Run(dir)
		must(t, err)
		if res.First != nil || res.Ticks < 900 {
			t.Errorf("%s: replayed %+v", layout, res)
		}
		again := engine.New(core.Engine.Params)
		must(t, record.Walk(dir, func(tick *record.Tick) { again.Step(&tick.Input) }))
		if d := cmp.Diff(core.Engine.State.CPU.Headroom.Report().Clone(), again.State.CPU.Headroom.Report().Clone()); d != "" {
			t.Error(layout, d)
		}
	}
}
