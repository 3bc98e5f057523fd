package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/jsonreply"
)

// maxRequest bounds what an operator can send.
const maxRequest = 64 << 10

// Request is what an operator asks the agent to do.
type Request struct {
	Kind     string  `json:"kind"` // a model.Command's kind
	Task     string  `json:"task,omitempty"`
	Job      string  `json:"job,omitempty"`
	Cap      float64 `json:"cap,omitempty"`
	Duration float64 `json:"duration_seconds,omitempty"`
	Bytes    int64   `json:"bytes,omitempty"` // of reclaim
	Node     int     `json:"node,omitempty"`  // of move-pages, with Keep, as in model.Command
	Keep     float64 `json:"keep,omitempty"`
}

// Answer is the agent's reply to a Request.
type Answer struct {
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

type peerKey struct{}

// peer names who is at the other end of a Unix connection, from the kernel.
func peer(c net.Conn) string {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return "unknown"
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return "unknown"
	}
	name := "unknown"
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		name = fmt.Sprintf("uid %d", cred.Uid)
		if u, err := user.LookupId(strconv.Itoa(int(cred.Uid))); err == nil {
			name = u.Username
		}
	})
	return name
}

// socketHandler answers operators.
func (a *Agent) socketHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", a.handleStatus)
	mux.HandleFunc("GET /v1/headroom", a.handleHeadroom)
	mux.HandleFunc("POST /v1/command", a.handleCommand)
	return mux
}

func (a *Agent) handleStatus(w http.ResponseWriter, r *http.Request) {
	var st *Status
	if err := a.ask(r.Context(), func() { st = a.status() }); err != nil {
		reply(w, http.StatusServiceUnavailable, Answer{Error: err.Error()})
		return
	}
	if r.URL.Query().Has("brief") {
		st.shorten()
	}
	reply(w, http.StatusOK, st)
}

func (a *Agent) handleCommand(w http.ResponseWriter, r *http.Request) {
	var req Request
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		reply(w, http.StatusBadRequest, Answer{Error: "request: " + err.Error()})
		return
	}
	by, _ := r.Context().Value(peerKey{}).(string)
	var ans Answer
	if err := a.ask(r.Context(), func() { ans = a.core.Take(req, by) }); err != nil {
		reply(w, http.StatusServiceUnavailable, Answer{Error: err.Error()})
		return
	}
	code := http.StatusOK
	if ans.Error != "" {
		code = http.StatusUnprocessableEntity
	}
	reply(w, code, ans)
}

func reply(w http.ResponseWriter, code int, v any) { jsonreply.Write(w, code, v) }
