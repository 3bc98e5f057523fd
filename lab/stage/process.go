package stage

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// FreeAddress returns an address of this machine, host:port, on which nobody listens yet, for a program that has to be told one.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("stage: a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// Memory returns what of a process is resident and what was at most (VmRSS and VmHWM of /proc/PID/status), in MiB.
func Memory(pid int) (rss, peak float64, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0, fmt.Errorf("stage: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "VmRSS:" && f[0] != "VmHWM:" {
			continue
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("stage: %s: %w", f[0], err)
		}
		if f[0] == "VmRSS:" {
			rss = v / 1024
		} else {
			peak = v / 1024
		}
	}
	return rss, peak, nil
}
