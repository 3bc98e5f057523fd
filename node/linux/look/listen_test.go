package look

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/node/survey"
)

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2BCB 00000000:0000 0A 00000000:00000000 00:00000000 00000000   112        0 21234 1 0000000000000000 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21235 1 0000000000000000 100 0 0 10 0
   2: 0100007F:A0B2 0100007F:2BCB 01 00000000:00000000 00:00000000 00000000  1000        0 21236 1 0000000000000000 20 4 30 10 -1
   3: 00000000:zz50 00000000:0000 0A short
   4: 00000000:zz50 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21237 1
`

const table6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31 1 0000000000000000 100 0 0 10 0
   1: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 32 1 0000000000000000 100 0 0 10 0
   2: 0000000000000000FFFF00000100007F:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 33 1 0000000000000000 100 0 0 10 0
`

func TestParseSockets(t *testing.T) {
	got := map[string]survey.Port{}
	parseSockets(strings.NewReader(table), got)
	parseSockets(strings.NewReader(table6), got)
	want := map[string]survey.Port{
		"21234": {Number: 11211, Loopback: true}, "21235": {Number: 80},
		"31": {Number: 8080, Loopback: true}, "32": {Number: 443}, "33": {Number: 22, Loopback: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestProcesses: a process has the ports of its own descriptors in its own namespace, and two
// that share a socket have it once.
func TestProcesses(t *testing.T) {
	root := t.TempDir()
	process := func(pid, comm, namespace, table string, fds map[string]string) {
		dir := filepath.Join(root, "proc", pid)
		for _, sub := range []string{"fd", "ns", "net"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string]string{"comm": comm + "\n", "net/tcp": table} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		fds["../ns/net"] = namespace
		for name, to := range fds {
			if err := os.Symlink(to, filepath.Join(dir, "fd", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	process("10", "nginx", "net:[1]", table, map[string]string{"3": "socket:[21235]", "4": "socket:[21236]", "5": "/dev/null"})
	process("11", "nginx", "net:[1]", table, map[string]string{"3": "socket:[21235]"})
	process("12", "sidecar", "net:[2]", strings.ReplaceAll(table, "21234", "77"), map[string]string{"3": "socket:[77]", "4": "socket:[999]"})
	g := &survey.Group{}
	processes(g, root, []int32{10, 11, 12, 13})
	want := &survey.Group{
		Programs: []string{"nginx", "sidecar"},
		Ports:    []survey.Port{{Number: 80, Program: "nginx"}, {Number: 11211, Loopback: true, Program: "sidecar"}},
	}
	if d := cmp.Diff(want, g); d != "" {
		t.Error(d)
	}
}
