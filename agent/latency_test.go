package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
)

// Uncore counters are opened, or said to be missing, only where policy bandwidth would go by them.
func TestLatencyByNeed(t *testing.T) {
	c, ok := config.Defaults(config.DefaultProfile)
	if !ok {
		t.Fatal("no defaults")
	}
	var log bytes.Buffer
	a := &Agent{cfg: &c, fs: hostfs.NewRoot(t.TempDir()), log: slog.New(slog.NewTextHandler(&log, nil))}
	for mode, want := range map[model.Mode]string{model.ModeOff: "", model.ModeObserve: "how long memory takes to answer: ", model.ModeEnforce: "how long memory takes to answer: "} {
		log.Reset()
		c.Policies.CPU.BandwidthMode = mode
		if l := a.openLatency(); l != nil || (log.Len() > 0) != (want != "") || !strings.Contains(log.String(), want) {
			t.Errorf("%s: %v, %s", mode, l, &log)
		}
	}
}
