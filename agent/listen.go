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
	operators := a.newServer(ctx, a.socketHandler())
	operators.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, peerKey{}, peer(c))
	}
	s := servers{operators}
	go a.run(operators, l)
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
		metrics := a.newServer(ctx, a.metricsHandler(processMetrics()))
		s = append(s, metrics)
		go a.run(metrics, l)
	}
	return s, nil
}

func (a *Agent) newServer(ctx context.Context, h http.Handler) *http.Server {
	limit := &connLimit{}
	return &http.Server{
		Handler: h, BaseContext: func(net.Listener) context.Context { return ctx }, ConnState: limit.watch,
		ReadHeaderTimeout: inOut / 2, ReadTimeout: inOut, WriteTimeout: inOut, IdleTimeout: idleFor, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(io.Discard, "", 0), // what strangers send is no matter of the log's
	}
}

func (a *Agent) run(s *http.Server, l net.Listener) {
	if err := s.Serve(&lending{l, a.fs.Lend}); !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("a server of the agent has stopped: it answers no more", "listen", l.Addr().String(), "error", err)
	}
}

// lending is a listener to which a spare descriptor is lent where there is no other: an
// operator gets through also then.
type lending struct {
	net.Listener
	lend func() bool
}

func (l *lending) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && l.lend() {
		return l.Listener.Accept()
	}
	return c, err
}

// connLimit bounds a server's connections. A newcomer is never turned away, so that idle ones
// keep nobody out: the one that has been without a request longest is closed, or the oldest.
type connLimit struct {
	mu   sync.Mutex
	open []limited // the first without a request longest
}

type limited struct {
	conn net.Conn
	busy bool
}

// watch is a server's ConnState.
func (l *connLimit) watch(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.open {
		if l.open[i].conn == c {
			l.open = append(l.open[:i], l.open[i+1:]...)
			break
		}
	}
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	if len(l.open) >= maxConns {
		victim := 0
		for i := range l.open {
			if !l.open[i].busy {
				victim = i
				break
			}
		}
		_ = l.open[victim].conn.Close() // its server says that it is closed
		l.open = append(l.open[:victim], l.open[victim+1:]...)
	}
	l.open = append(l.open, limited{c, state == http.StateActive})
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
