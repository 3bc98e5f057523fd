package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/commensal-io/commensal/agent"
)

// Operators and those who look on speak through the handlers of the agent's sockets.

// answer is what a handler writes.
type answer struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (a *answer) Header() http.Header  { return a.header }
func (a *answer) WriteHeader(code int) { a.code = code }

// through asks a handler.
func (w *world) through(h http.Handler, method, path string, body []byte) *answer {
	a := &answer{header: http.Header{}, code: http.StatusOK}
	req, err := http.NewRequest(method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		w.fail("simulation", err.Error())
		return a
	}
	h.ServeHTTP(a, req)
	if w.mutate.answer != nil {
		w.mutate.answer(a)
	}
	return a
}

// ask hands a command in, and looks at status and metrics as they are then. It reports whether
// the command was taken.
func (w *world) ask(req agent.Request) (taken bool) {
	w.res.Checks++
	door := w.life.Door("soak")
	body, err := json.Marshal(req)
	if err != nil {
		w.fail("simulation", err.Error())
	}
	var said agent.Answer
	got := w.through(door.Socket, http.MethodPost, "/v1/command", body)
	if err := json.Unmarshal(got.Bytes(), &said); err != nil || (said.Error == "") != (got.code == http.StatusOK) || said.Error == "" && said.Done != req.Kind {
		w.fail(checkDoor, fmt.Sprintf("command %+v: %d %s (%v)", req, got.code, got, err))
	}
	var st agent.Status
	got = w.through(door.Socket, http.MethodGet, "/v1/status", nil)
	if err := json.Unmarshal(got.Bytes(), &st); err != nil || got.code != http.StatusOK || len(st.Tasks) != len(w.life.Engine.State.Tasks.Tasks) {
		w.fail(checkDoor, fmt.Sprintf("status: %d, %d tasks of %d (%v)", got.code, len(st.Tasks), len(w.life.Engine.State.Tasks.Tasks), err))
	}
	got = w.through(door.Metrics, http.MethodGet, "/metrics", nil)
	if text := got.String(); got.code != http.StatusOK || !strings.Contains(text, "\ncommensal_agent_cycles_total ") || strings.Contains(text, "NaN") {
		w.fail(checkDoor, fmt.Sprintf("metrics: %d %s", got.code, text))
	}
	return said.Error == ""
}
