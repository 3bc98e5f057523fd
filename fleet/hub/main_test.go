package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/model"
)

func TestMain(m *testing.M) {
	testchild.Play(map[string]testchild.Role{"hub": hubChild, "node": nodeChild, "nats": natsChild, "shard": shardChild})
	code := m.Run()
	if sqlDir != "" {
		_ = os.RemoveAll(sqlDir) // 70 MB of /tmp
	}
	os.Exit(code)
}

// quick are parameters under which a spec forms within a test.
func quick() spec.Params {
	p := spec.Defaults()
	p.PeriodNsec, p.MinTasks, p.MinSamplesPerTask = 200e6, 2, 20
	return p
}

func testConfig(dir string) Config {
	return Config{Dir: dir, Listen: "127.0.0.1:0", NATSListen: "127.0.0.1:0", Keep: 24 * time.Hour, Spec: quick(), Version: "test", SQL: sqlProgram, QuerySeconds: 3, CommitEvery: 300 * time.Millisecond, RolloutLook: 200 * time.Millisecond, ObserveFor: 700 * time.Millisecond}
}

// sqlProgram is set by needSQL, and sqlDir is where it was built; "": nowhere.
var sqlProgram, sqlDir = "/nonexistent/commensal-sql", ""

var buildSQL = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "commensal-sql-")
	if err != nil {
		return "", err
	}
	sqlDir = dir
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "commensal-sql"), ".")
	cmd.Dir, cmd.Env = "../../sql", append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(dir, "commensal-sql"), nil
})

// needSQL builds the engine, or skips where this machine cannot.
func needSQL(t *testing.T) {
	t.Helper()
	for _, program := range []string{"go", "g++"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the engine cannot be built here: %v", err)
		}
	}
	var err error
	if sqlProgram, err = buildSQL(); err != nil {
		t.Fatal(err)
	}
}

// bed is a hub that runs in this process.
type bed struct {
	*Hub
	t    *testing.T
	dir  string
	stop func()
}

func startHub(t *testing.T, cfg Config) *bed {
	t.Helper()
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return runHub(t, h)
}

// runHub runs it until the test ends.
func runHub(t *testing.T, h *Hub) *bed {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	select {
	case <-h.Ready():
	case err := <-done:
		t.Fatal(err)
	case <-time.After(30 * time.Second):
		t.Fatal("the hub does not start")
	}
	b := &bed{Hub: h, t: t, dir: h.cfg.Dir}
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("hub: %v", err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

// enrol lets a node in and returns the file with its seed.
func enrol(t *testing.T, dir, node string) string {
	t.Helper()
	seed, err := Enrol(dir, node, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), node+".seed")
	if err := os.WriteFile(path, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// node is an agent's end of the fleet, and what it was told.
type testNode struct {
	*uplink.Uplink
	name string
	run  string // in the path of a task
	mono int64
	wall time.Time

	mu       sync.Mutex
	specs    []model.Spec
	sizes    map[string]model.Spec // the last of each size
	priors   []model.Priors
	commands []wire.Command
	overlay  string // in force
}

func (n *testNode) heard() []model.Spec {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]model.Spec(nil), n.specs...)
}

func (n *testNode) told() []model.Priors {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]model.Priors(nil), n.priors...)
}

func startNode(t testing.TB, ctx context.Context, url, name, seed, dir string) *testNode {
	t.Helper()
	n := &testNode{name: name, sizes: map[string]model.Spec{}, wall: time.Now().Add(-time.Hour)}
	cfg := uplink.Config{URL: url, Node: name, SeedFile: seed, Dir: dir, MaxBytes: 64 << 20}
	if strings.HasSuffix(seed, ".creds") {
		cfg.SeedFile, cfg.Creds = "", seed
	}
	var err error
	n.Uplink, err = uplink.Start(ctx, cfg,
		uplink.Node{Boot: "boot", Platform: "cpu", Program: "test"}, uplink.NewGather(1),
		uplink.Hooks{
			Log: slog.New(slog.DiscardHandler),
			Specs: func(s []model.Spec) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.specs = s
				for _, sp := range s {
					n.sizes[sp.Size] = sp
				}
			},
			Priors: func(p model.Priors) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.priors = append(n.priors, p)
			},
			Rollout: func(overlay string, on bool) error {
				n.mu.Lock()
				defer n.mu.Unlock()
				if overlay == "bad: 1" && on {
					return errors.New("no such key")
				}
				if n.overlay = ""; on {
					n.overlay = overlay
				}
				return nil
			},
			Command: func(_ context.Context, c *wire.Command) wire.Answer {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.commands = append(n.commands, *c)
				if c.Task == "/gone" {
					return wire.Answer{Error: "no task"}
				}
				return wire.Answer{Done: c.Kind}
			},
		})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// window hands in a window of two tasks, and the batch that it fills.
func (n *testNode) window(cpi float64) {
	n.mono += 1e9
	n.wall = n.wall.Add(time.Second)
	w := uplink.Window{
		MonoNsec: n.mono, WallNsec: n.wall.UnixNano(), Flags: []uint32{wire.Usable, wire.Usable | wire.Stopped},
		Tasks: []model.Task{{Num: 1, Path: "/web", Job: "web", Class: model.LC}, {Num: 2, Path: "/be <b>x</b>" + n.run, Job: "batch", Class: model.BE}},
	}
	for i := range w.Tasks {
		o := model.TaskObservation{Num: model.TaskNum(i + 1), CPU: model.Known(0.5)}
		for src := range model.NumSources {
			o.Signals[src] = model.Missing(model.Absent)
		}
		o.Signals[model.SourceCPI] = model.Known(cpi)
		w.Observed = append(w.Observed, o)
	}
	n.Gather.Add(&w)
	n.Turn(n.mono + 1)
}

// onDisk does what fills a batch, and waits until the batch is in the spool or sent: of those between the loop and the disk too many are lost.
func (n *testNode) onDisk(fill func()) bool {
	before := n.Status()
	fill()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if kept(n.Status()) > kept(before) {
			return true
		}
	}
	return false
}

// kept is how many batches came to the disk, those included that an earlier run left there.
func kept(st *uplink.Status) uint64 { return st.Sent + uint64(st.Waiting) } //nolint:gosec // not negative

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("not within 30 s: %s", what)
}

// call asks the hub over HTTP.
func (b *bed) call(token, method, path, body string) (int, map[string]any) {
	b.t.Helper()
	return callAt(b.t, b.URL(), token, method, path, body)
}

func callAt(t *testing.T, url, token, method, path, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	theDescribed().answered(t, method, path, body, res.StatusCode, text)
	m := map[string]any{}
	if bytes.HasPrefix(text, []byte("[")) {
		var list []any
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		m["list"] = list
	} else if err := json.Unmarshal(text, &m); err != nil {
		t.Fatalf("%s: %s", err, text)
	}
	return res.StatusCode, m
}

func (b *bed) token(name string, role Role) string {
	b.t.Helper()
	token, err := AddPerson(b.dir, name, role, time.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	return token
}

// stored counts the samples of each batch in a store.
func storedIn(s interface {
	Replay(after uint64, f func(b *wire.Batch)) error
}) (map[string]int, error) {
	count := map[string]int{}
	err := s.Replay(0, func(b *wire.Batch) {
		key := fmt.Sprintf("%s %s %d", b.Node, b.Spool, b.Seq)
		count[key] += b.Samples.Len()
	})
	return count, err
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func wireCommand(kind, task, why string) wire.Command {
	return wire.Command{Kind: kind, Task: task, Why: why}
}
