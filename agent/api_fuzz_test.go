package agent

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// FuzzCommand: whatever an operator's program sends, the answer is a JSON document, and
// only a command that is within its bounds reaches the engine.
func FuzzCommand(f *testing.F) {
	for _, body := range []string{
		`{"kind":"cap","task":"/be","cap":0.1,"duration_seconds":60}`,
		`{"kind":"cap","task":"/lc","cap":0.1,"duration_seconds":60}`,
		`{"kind":"cap","task":"/be","cap":-1,"duration_seconds":1e300}`,
		`{"kind":"cap","task":"/be","cap":0.001,"duration_seconds":86400}`,
		`{"kind":"uncap","task":"/be"}`, `{"kind":"protect-off"}`, `{"kind":"protect-on","job":"service"}`,
		`{"kind":"protect-on","job":"x"}`, `{"kind":"","more":1}`, `{}`, `null`, `[`, ``,
	} {
		f.Add(body)
	}
	cfg := &config.Config{Tasks: []config.Task{{Job: "service"}, {Job: "batch"}}}
	a := New(cfg, "test", nil)
	a.core = &Core{Engine: engine.New(engine.Params{HistoryWindows: 1}), cfg: cfg}
	a.core.Engine.State.Tasks.Add(model.Task{Num: 1, Path: "/be", Job: "batch", Class: model.BE})
	a.core.Engine.State.Tasks.Add(model.Task{Num: 2, Path: "/lc", Job: "service", Class: model.LC})
	ctx, stop := context.WithCancel(context.Background())
	f.Cleanup(stop)
	go func() {
		for {
			select {
			case ask := <-a.asks:
				ask()
			case <-ctx.Done():
				return
			}
		}
	}()
	f.Fuzz(func(t *testing.T, body string) {
		a.core.commands = a.core.commands[:0]
		w := httptest.NewRecorder()
		a.handleCommand(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/command", strings.NewReader(body)))
		var ans Answer
		if err := json.Unmarshal(w.Body.Bytes(), &ans); err != nil {
			t.Fatalf("%q: answer %q: %v", body, w.Body, err)
		}
		if taken := w.Code == 200; taken != (len(a.core.commands) == 1) || taken != (ans.Error == "") {
			t.Fatalf("%q: code %d, answer %+v, %d commands", body, w.Code, ans, len(a.core.commands))
		}
		for _, c := range a.core.commands {
			bounded := c.Cap >= 0.001 && c.Cap <= 1024 && c.DurationNsec >= 0 && c.DurationNsec <= 86_400e9
			if c.Kind == model.CommandCap && (c.Task != 1 || !bounded) {
				t.Fatalf("%q: taken: %+v", body, c)
			}
		}
	})
}
