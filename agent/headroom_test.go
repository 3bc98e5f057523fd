package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
)

// What the socket says and what the file says is the same; the file is there as long as the agent is, and is not written twice
// of one forecast.
func TestHeadroomIsPublished(t *testing.T) {
	a, dir := statusAgent(t), t.TempDir()
	a.log = slog.New(slog.DiscardHandler)
	a.cfg.Agent.HeadroomFile = "headroom.json"
	w := httptest.NewRecorder()
	a.socketHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/headroom", nil))
	var said, written Headroom
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	// A first window: nobody is known for a day, and no quota bounds anybody.
	if said.Mode != model.ModeObserve || len(said.Horizons) != 4 || said.Horizons[0].BE != 0 || said.Horizons[3].Cold == 0 || said.CPUs != 4 || said.GPU == "" {
		t.Errorf("%s", w.Body)
	}
	p := a.publish(dir)
	p.wallNsec = -1 // the forecast is of time 0
	p.look()
	p.look()
	path := filepath.Join(dir, "headroom.json")
	for end := time.Now().Add(time.Minute); ; {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil || json.Unmarshal(b, &written) != nil || written.WallNsec != said.WallNsec || written.Horizons[3] != said.Horizons[3] {
			t.Fatalf("%s, %v", b, err)
		}
		break
	}
	if len(p.in) != 0 {
		t.Error("it is handed in twice")
	}
	p.close()
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	a.cfg.Agent.HeadroomFile = ""
	if a.publish(dir) != nil {
		t.Error("it writes although no file is named")
	}
	(*publisher)(nil).look()
	(*publisher)(nil).close()
	if c, _ := config.Defaults(config.ProfileCPI2); c.Agent.HeadroomFile == "" {
		t.Error("no file by default")
	}
}

// GPUs are named absent where no driver's device file is, and not read where one is.
func TestGPUs(t *testing.T) {
	for want, files := range map[string][]string{
		"not known": nil, "absent": {"dev/null", "dev/dri/card0", "dev/nvidia-caps/x"}, "not read: /dev/nvidia0": {"dev/nvidiactl", "dev/nvidia0"},
		"not read: /dev/kfd": {"dev/kfd"}, "not read: /dev/dri/renderD128": {"dev/dri/renderD128"},
	} {
		dir := t.TempDir()
		for _, f := range files {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755), os.WriteFile(filepath.Join(dir, f), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := gpus(hostfs.NewRoot(dir)); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s", files, got)
		}
	}
}
