package linux

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/commensal-io/commensal/kernel/gpu"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
)

// slowGPUs takes its time to tell of one GPU.
type slowGPUs struct {
	takes       time.Duration
	calls, most int
	now         int
}

func (s *slowGPUs) Read(ctx context.Context) (gpu.Reading, error) {
	s.calls++
	s.now++
	s.most = max(s.most, s.now)
	defer func() { s.now-- }()
	select {
	case <-time.After(s.takes):
		return gpu.Reading{GPUs: []gpu.GPU{{UUID: "GPU-a"}}}, nil
	case <-ctx.Done():
		return gpu.Reading{}, errors.New("killed")
	}
}

// bubbleClock is a synctest bubble's.
type bubbleClock struct {
	RealClock
	began time.Time
}

func (b bubbleClock) MonoNsec() int64 { return int64(time.Since(b.began)) + 1 }

// A driver that takes 150 s delays no window, is asked once at a time, and what it says comes once; who closes meanwhile does not wait.
func TestGPUsAreReadBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(dir+"/dev", 0o755), os.WriteFile(dir+"/dev/nvidia0", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		source := &slowGPUs{takes: 150 * time.Second}
		h := &Host{opt: Options{Log: slog.New(slog.DiscardHandler)}}
		g := &h.gpus
		g.source, g.every, g.fs, g.clock, g.seen = source, 60e9, hostfs.NewRoot(dir), bubbleClock{began: time.Now()}, map[string]bool{}
		g.ctx, g.cancel = context.WithCancel(t.Context())
		came := 0
		for range 70 {
			began := time.Now()
			var snap model.Snapshot
			g.observe(h, model.WindowStart, &snap) // no window ends: nothing is begun
			g.observe(h, model.WindowEnd, &snap)
			if snap.GPUs != nil {
				came++
			}
			if late := time.Since(began); late != 0 {
				t.Fatalf("a window is %s late", late)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		if source.calls != 5 || source.most != 1 || came != 4 {
			t.Errorf("in 700 s %d calls, %d at once, %d readings", source.calls, source.most, came)
		}
		began := time.Now()
		if g.close(); time.Since(began) != 0 || source.now != 0 {
			t.Errorf("to close took %s", time.Since(began))
		}
	})
}
