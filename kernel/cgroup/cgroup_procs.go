package cgroup

// cgroup.procs: the thread-group ids with a thread in the group itself, one a line; a
// write of one id moves that process.
//
// https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html#basic-usage
//
//	13136
//	13137
//
// On v1 this file cannot be read through a kept descriptor: the kernel makes a list at
// the first read after open, and a descriptor goes on serving that list until nobody has
// read it for a second (CGROUP_PIDLIST_DESTROY_DELAY). Read once a second or faster, it
// never changes again; measured on 6.18, a process that joined was not seen at all. So
// each reading opens the file anew.
//
// On v2 a kept descriptor would serve; one more for each group is not worth the few
// microseconds. There a threaded group refuses the reading (EOPNOTSUPP): the root of its
// threaded subtree lists the processes.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// parseOwnProcs is parseProcs for one reading.
func parseOwnProcs(data []byte) ([]int32, error) { return parseProcs(nil, data) }

// parseProcs appends the ids in data to dst. It does not allocate when dst is large
// enough, unless it fails.
func parseProcs(dst []int32, data []byte) ([]int32, error) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		pid, err := strconv.ParseInt(string(line), 10, 32)
		if err != nil || pid < 0 {
			return dst, fmt.Errorf("%w cgroup.procs: line %q", ErrMalformed, clip(line))
		}
		dst = append(dst, int32(pid))
	}
	return dst, nil
}

// isThreaded says whether err is how a v2 kernel refuses the processes of a threaded group.
func isThreaded(err error) bool { return errors.Is(err, unix.EOPNOTSUPP) }
