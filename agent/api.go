package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
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
}

// Answer is the agent's reply to a Request.
type Answer struct {
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// servers are the listeners of one agent.
type servers struct {
	unix    *http.Server
	metrics *http.Server
}

func (s *servers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, srv := range []*http.Server{s.unix, s.metrics} {
		if srv != nil {
			_ = srv.Shutdown(ctx) // after a second the process ends anyway
		}
	}
}

// serve opens the operators' socket and, where one is configured, the metrics port.
func (a *Agent) serve(ctx context.Context) (*servers, error) {
	l, err := a.listen()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", a.handleStatus)
	mux.HandleFunc("POST /v1/command", a.handleCommand)
	s := &servers{unix: &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, peer(c))
		},
	}}
	go a.run(s.unix, l)
	if addr := a.cfg.Agent.MetricsListen; addr != "" {
		ml, err := net.Listen("tcp", addr)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("agent: metrics: %w", err)
		}
		s.metrics = &http.Server{Handler: a.metricsHandler(), ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
		go a.run(s.metrics, ml)
	}
	return s, nil
}

func (a *Agent) run(s *http.Server, l net.Listener) {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("a server of the agent has stopped: it answers no more", "listen", l.Addr().String(), "error", err)
	}
}

// listen makes the socket, which only root and the configured group may open.
func (a *Agent) listen() (net.Listener, error) {
	path := a.cfg.Agent.Socket
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	// We hold the agent's lock: a socket that is there belongs to nobody.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("agent: %w", err)
	}
	// From its first moment on the socket is closed to others.
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	g, err := user.LookupGroup(a.cfg.Agent.SocketGroup)
	if err != nil {
		a.log.Info("only root can use the operators' socket: its group is not known here", "group", a.cfg.Agent.SocketGroup, "why", err)
		return l, nil
	}
	gid, err := strconv.Atoi(g.Gid)
	if err == nil {
		err = os.Chown(path, 0, gid)
	}
	if err == nil {
		err = os.Chmod(path, 0o660)
	}
	if err != nil {
		a.log.Warn("only root can use the operators' socket: it could not be given to its group", "group", a.cfg.Agent.SocketGroup, "why", err)
	}
	return l, nil
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

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the operator went away
}
