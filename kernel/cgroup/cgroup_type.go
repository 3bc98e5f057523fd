package cgroup

// cgroup.type: whether a v2 group holds processes or only threads of them.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#threads
//
//	domain            an ordinary group
//	domain threaded   the root of a threaded subtree: it lists all processes of that
//	domain invalid    a group below a threaded one that was not made threaded: it takes
//	                  no processes and hands no controllers on
//	threaded          a member of a threaded subtree: it has threads and no processes
//
// The root group has no such file. In a threaded group cgroup.procs does not read and
// cgroup.kill does not write (EOPNOTSUPP), and only threaded controllers (cpu, cpuset,
// perf_event, pids) are to be had.

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrThreaded: the operation is about processes, and the group is threaded or invalid.
var ErrThreaded = errors.New("cgroup is no domain of processes")

// Type is what cgroup.type reads.
type Type string

// The types.
const (
	Domain         Type = "domain"
	DomainThreaded Type = "domain threaded"
	DomainInvalid  Type = "domain invalid"
	Threaded       Type = "threaded"
)

// ReadType returns a group's type; the root group's is Domain. Before Linux 4.14 there is
// no such file: ErrUnsupported.
func (d *V2) ReadType(path string) (Type, error) {
	if path == "/" && !d.partial {
		return Domain, nil
	}
	data, err := d.read(path, "cgroup.type")
	return parsed(data, err, path, "cgroup.type", parseType)
}

func parseType(data []byte) (Type, error) {
	switch t := Type(bytes.TrimSuffix(data, []byte("\n"))); t {
	case Domain, DomainThreaded, DomainInvalid, Threaded:
		return t, nil
	}
	return "", fmt.Errorf("%w cgroup.type %q", ErrMalformed, clip(data))
}

// whyThreaded returns ErrThreaded with the group's type.
func (d *V2) whyThreaded(path string) error {
	t, err := d.ReadType(path)
	if err != nil {
		return ErrThreaded
	}
	return fmt.Errorf("%w: cgroup.type of %s is %q", ErrThreaded, path, string(t))
}
