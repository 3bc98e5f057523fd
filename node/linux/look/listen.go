package look

// /proc/PID/net/tcp and tcp6 (Documentation/networking/proc_net_tcp.rst): the sockets of a
// process's network namespace, which is a pod's or a container's own as a rule. Ours are those
// of which a process has a descriptor: /proc/PID/fd/N is a link to socket:[INODE].
//
//	  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//	   0: 0100007F:2BCB 00000000:0000 0A 00000000:00000000 00:00000000 00000000   112        0 21234 1 0000000000000000 100 0 0 10 0

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/node/survey"
)

const stateListen = "0A" // TCP_LISTEN, include/net/tcp_states.h

// maxFDs bounds the descriptors that are looked at in one process: sockets that listen are
// opened early.
const maxFDs = 4096

// processes finds out which programs run in a group and where they listen.
func processes(g *survey.Group, root string, pids []int32) {
	listening := map[string]map[string]survey.Port{} // network namespace, inode
	for _, pid := range pids {
		dir := filepath.Join(root, "proc", strconv.Itoa(int(pid)))
		b, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			continue // it is gone
		}
		program := strings.TrimSpace(string(b))
		g.Programs = append(g.Programs, program)
		namespace, err := os.Readlink(filepath.Join(dir, "ns/net"))
		if err != nil {
			continue
		}
		if listening[namespace] == nil {
			listening[namespace] = sockets(dir)
		}
		listens(g, dir, program, listening[namespace])
	}
	slices.Sort(g.Programs)
	g.Programs = slices.Compact(g.Programs)
	slices.SortFunc(g.Ports, func(a, b survey.Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), strings.Compare(a.Program, b.Program))
	})
	g.Ports = slices.CompactFunc(g.Ports, func(a, b survey.Port) bool { return a.Number == b.Number })
}

// listens adds the ports that one process listens on.
func listens(g *survey.Group, dir, program string, of map[string]survey.Port) {
	if len(of) == 0 {
		return
	}
	f, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return
	}
	defer f.Close()                    //nolint:errcheck // read only
	names, _ := f.Readdirnames(maxFDs) // what was read before an error is good
	for _, n := range names {
		link, err := os.Readlink(filepath.Join(dir, "fd", n))
		if err != nil {
			continue
		}
		inode, ok := strings.CutPrefix(link, "socket:[")
		if p, found := of[strings.TrimSuffix(inode, "]")]; ok && found {
			p.Program = program
			g.Ports = append(g.Ports, p)
		}
	}
}

// sockets lists the TCP sockets that listen in a process's network namespace, by inode.
func sockets(dir string) map[string]survey.Port {
	list := map[string]survey.Port{}
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		parseSockets(f, list)
		_ = f.Close() // read only
	}
	return list
}

// parseSockets reads a table; lines of another form say nothing.
func parseSockets(r io.Reader, list map[string]survey.Port) {
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		f := strings.Fields(scan.Text())
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		address, port, ok := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if !ok || err != nil || n == 0 {
			continue
		}
		list[f[9]] = survey.Port{Number: int(n), Loopback: loopback(address)}
	}
}

// loopback takes an address as the kernel prints it: words of 32 bits in the machine's
// order of bytes, of which Linux's common machines have the least first.
func loopback(address string) bool {
	const v6, mapped = "00000000000000000000000001000000", "0000000000000000FFFF0000"
	if address == v6 {
		return true
	}
	v4 := strings.TrimPrefix(address, mapped)
	return len(v4) == 8 && strings.HasSuffix(v4, "7F")
}
