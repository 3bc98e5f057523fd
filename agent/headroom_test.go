package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
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
	if said.Mode != model.ModeObserve || len(said.Horizons) != 4 || said.Horizons[0].BE != 0 || said.Horizons[3].Cold == 0 || said.CPUs != 4 || said.NoGPU == "" {
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

// What GPUs say is in the document and in the metrics; where nobody looks that is said.
func TestHeadroomOfGPUs(t *testing.T) {
	a := statusAgent(t)
	if h := a.headroom(); !strings.HasPrefix(h.NoGPU, "not known: nobody looks") {
		t.Errorf("%q", h.NoGPU)
	}
	a.core.Host = &linux.Host{}
	if h := a.headroom(); h.NoGPU != "not read: nobody asks their driver" {
		t.Errorf("%q", h.NoGPU)
	}
	told := func(at int64, r *model.GPUReading) {
		s := &model.Snapshot{MonoNsec: at, Mark: model.WindowStart | model.WindowEnd, Node: model.NodeSample{CPUs: 4}, GPUs: r}
		a.core.Engine.Step(&engine.Input{MonoNsec: at, WallNsec: at, Snapshot: s})
	}
	told(100e9, &model.GPUReading{MonoNsec: 90e9, GPUs: []model.GPU{{UUID: "GPU-a", Busy: model.Known(0.5), Total: model.Known(80), Free: model.Known(40), Tasks: []model.GPUTask{{Num: 1, Bytes: 10}, {Num: 2, Bytes: 5}}}}})
	b, err := json.Marshal(a.headroom())
	if err != nil || !strings.Contains(string(b), `"gpu":"","`) || !strings.Contains(string(b), `"gpus":{"why":"","gpus":[{"uuid":"GPU-a"`) {
		t.Errorf("%s, %v", b, err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(gpuSeries{a.headroom()})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		got[f.GetName()] = len(f.GetMetric())
		if f.GetName() != "commensal_headroom_gpu_memory_task_bytes" {
			continue
		}
		for i, m := range f.GetMetric() { // ordered by their labels: class, gpu, job, task
			if want := []string{"BE GPU-a  /batch 5", "LC GPU-a  /web 10"}[i]; fmt.Sprintf("%s %s %s %s %g", m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetLabel()[2].GetValue(), m.GetLabel()[3].GetValue(), m.GetGauge().GetValue()) != want {
				t.Errorf("%v, want %s", m, want)
			}
		}
	}
	if d := cmp.Diff(map[string]int{"commensal_headroom_gpu_memory_bytes": 4, "commensal_headroom_gpu_memory_term_bytes": 12, "commensal_headroom_gpu_memory_task_bytes": 2, "commensal_headroom_gpu_busy_ratio": 4}, got); d != "" {
		t.Error(d)
	}
	told(200e9, &model.GPUReading{MonoNsec: 190e9, Why: "not read: x"})
	if h := a.headroom(); h.NoGPU != "not read: x" || len(h.GPU.GPUs) != 0 {
		t.Errorf("%q, %+v", h.NoGPU, h.GPU)
	}
}

// gpuSeries is a collector of what is told of GPUs.
type gpuSeries struct{ h *Headroom }

func (gpuSeries) Describe(chan<- *prometheus.Desc) {}

func (s gpuSeries) Collect(ch chan<- prometheus.Metric) {
	c := &collector{desc: describe()}
	c.gpus(s.h, func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- metric(d, prometheus.GaugeValue, v, labels)
	})
}
