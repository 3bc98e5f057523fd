package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What one server of the agent bears. Whoever can connect could else use up the descriptors
// and the memory of a process that the kernel's out-of-memory killer spares.
const (
	maxConns = 16               // connections at once; the one that has been idle longest gives way
	inOut    = 10 * time.Second // for one request, and for one answer
	idleFor  = 30 * time.Second
)

// servers are the listeners of one agent.
type servers []*http.Server

func (s servers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, srv := range s {
		_ = srv.Shutdown(ctx) // after a second the process ends anyway
	}
}

// serve opens the operators' socket and, where one is configured, that of the metrics.
func (a *Agent) serve(ctx context.Context) (servers, error) {
	l, err := a.listenUnix(a.cfg.Agent.Socket)
	if err != nil {
		return nil, err
	}
	operators, limit := a.newServer(ctx, a.socketHandler())
	s := servers{operators}
	go a.run(operators, &lending{l, limit, a.fs.Lend})
	if addr := a.cfg.Agent.MetricsListen; addr != "" {
		if path, ok := strings.CutPrefix(addr, "unix:"); ok {
			l, err = a.listenUnix(path)
		} else {
			l, err = net.Listen("tcp", addr)
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("agent: metrics: %w", err)
		}
		metrics, limit := a.newServer(ctx, a.metricsHandler(processMetrics()))
		s = append(s, metrics)
		go a.run(metrics, &lending{l, limit, a.fs.Lend})
	}
	return s, nil
}

func (a *Agent) newServer(ctx context.Context, h http.Handler) (*http.Server, *connLimit) {
	limit := &connLimit{}
	return &http.Server{
		Handler: limit.answering(h), BaseContext: func(net.Listener) context.Context { return ctx }, ConnState: limit.watch,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(context.WithValue(ctx, connKey{}, c), peerKey{}, peer(c))
		},
		ReadHeaderTimeout: inOut / 2, ReadTimeout: inOut, WriteTimeout: inOut, IdleTimeout: idleFor, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(io.Discard, "", 0), // what strangers send is no matter of the log's
	}, limit
}

func (a *Agent) run(s *http.Server, l net.Listener) {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("a server of the agent has stopped: it answers no more", "listen", l.Addr().String(), "error", err)
	}
}

// lending is a listener that an operator gets through also where there is no descriptor left:
// a connection that has asked nothing yet gives way, or else a spare one is lent. To return the
// error would be to wait: a server tries again after up to a second, for each that waits before him.
type lending struct {
	net.Listener
	limit *connLimit
	lend  func() bool
}

func (l *lending) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if full := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE); !full || !l.limit.giveWay() && !l.lend() {
			return c, err
		}
	}
}

// connLimit bounds a server's connections. A newcomer is never turned away, so that idle ones and
// halves of requests keep nobody out: the one whose request has been missing longest is closed,
// or the oldest.
type connLimit struct {
	mu   sync.Mutex
	open []limited // the first without a request longest
}

type limited struct {
	conn     net.Conn
	answered bool // its request is whole, but for its body, and the answer is being made
}

type connKey struct{}

// watch is a server's ConnState.
func (l *connLimit) watch(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.open)
	l.open = slices.DeleteFunc(l.open, func(o limited) bool { return o.conn == c })
	if state == http.StateClosed || state == http.StateHijacked || state != http.StateNew && len(l.open) == before {
		return // the last: it was closed here, and its server does not know yet
	}
	if len(l.open) >= maxConns {
		l.close(max(0, l.unanswered()))
	}
	l.open = append(l.open, limited{conn: c})
}

// answering marks a connection whose request is being answered.
func (l *connLimit) answering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		if i := slices.IndexFunc(l.open, func(o limited) bool { return o.conn == r.Context().Value(connKey{}) }); i >= 0 {
			l.open[i].answered = true // until its server says that it is idle or closed
		}
		l.mu.Unlock()
		h.ServeHTTP(w, r)
	})
}

// giveWay closes a connection that is not being answered; false: there is none. The newest stays:
// the kernel says that there is no descriptor also when nobody waits, and its request is on its way.
func (l *connLimit) giveWay() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.unanswered()
	if i < 0 || i == len(l.open)-1 {
		return false
	}
	l.close(i)
	return true
}

func (l *connLimit) unanswered() int {
	return slices.IndexFunc(l.open, func(o limited) bool { return !o.answered })
}

func (l *connLimit) close(i int) {
	_ = l.open[i].conn.Close() // its server says that it is closed
	l.open = slices.Delete(l.open, i, i+1)
}

// listenUnix makes a socket, which only root and the configured group may open.
func (a *Agent) listenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if err := clearSocket(path); err != nil {
		return nil, fmt.Errorf("agent: socket %s: %w", path, err)
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
		a.log.Info("only root can use a socket of the agent: its group is not known here", "socket", path, "group", a.cfg.Agent.SocketGroup, "why", err)
		return l, nil
	}
	gid, err := strconv.Atoi(g.Gid)
	if err == nil {
		err = os.Lchown(path, 0, gid)
	}
	if err == nil {
		err = os.Chmod(path, 0o660) // nobody can have put a link there: clearSocket looked at the folder
	}
	if err != nil {
		a.log.Warn("only root can use a socket of the agent: it could not be given to its group", "socket", path, "group", a.cfg.Agent.SocketGroup, "why", err)
	}
	return l, nil
}

// clearSocket makes room for a socket: it removes what an earlier agent left, and nothing
// that is no socket. In a folder in which others could put something else in its place it
// makes none.
func clearSocket(path string) error {
	var dir, at unix.Stat_t
	if err := unix.Stat(filepath.Dir(path), &dir); err != nil {
		return err
	}
	if dir.Uid != uint32(os.Geteuid()) && dir.Uid != 0 || dir.Mode&0o022 != 0 && dir.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("others may change its folder (owner %d, mode %04o): expected one that only root may write to", dir.Uid, dir.Mode&0o7777)
	}
	switch err := unix.Lstat(path, &at); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case at.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return errors.New("something else is there, which is left as it is: expected a socket or nothing")
	}
	// We hold the agent's lock: a socket that is there belongs to nobody.
	return os.Remove(path)
}
