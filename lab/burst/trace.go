package burst

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxTrace bounds a recorded trace: an hour.
const maxTrace = 3_600_000

// ReadTrace reads CPU use by the millisecond: a number a line, in milliseconds of CPU time
// used in that millisecond (2.5 is two and a half CPUs); lines that begin with "#" and
// empty ones are left out. Errors name the line.
func ReadTrace(name string, r io.Reader) (Trace, error) {
	var t Trace
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		text := strings.TrimSpace(in.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s:%d: %q: expected CPU time in milliseconds, as 2.5", name, n, text)
		}
		if len(t) == maxTrace {
			return nil, fmt.Errorf("%s:%d: more than %d lines", name, n, maxTrace)
		}
		t = append(t, v)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, v := range t {
		if v > 0 {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%s: no CPU use in %d lines", name, len(t))
}
