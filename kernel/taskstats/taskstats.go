package taskstats

// struct taskstats: include/uapi/linux/taskstats.h, Documentation/accounting/taskstats-struct.rst
//
// The reply to TASKSTATS_CMD_ATTR_TGID carries, inside TASKSTATS_TYPE_AGGR_TGID, the thread group id
// (TASKSTATS_TYPE_TGID) and the structure (TASKSTATS_TYPE_STATS). We read five fields of its head:
//
//	offset  field                   unit
//	     0  version            u16
//	    16  cpu_count          u64  times a thread was given a CPU
//	    24  cpu_delay_total    u64  ns runnable, without a CPU
//	    40  blkio_delay_total  u64  ns waiting for a block device
//	    64  cpu_run_real_total u64  ns, sampled by ticks: not used
//	    72  cpu_run_virtual_total   ns, sum_exec_runtime
//
// A structure from Linux 6.18 (version 16, 560 bytes): 43 passages, 1.0 ms of delay, no block or
// swap delay, 3.97 ms by ticks, 3.61 ms by the scheduler:
//
//	00: 10 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	10: 2b 00 00 00 00 00 00 00 9c e5 0f 00 00 00 00 00
//	20: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	30: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	40: 15 95 3c 00 00 00 00 00 bb 19 37 00 00 00 00 00
//
// The structure only ever grows at its end, with one exception that reached users. Linux 6.14 put
// the delay maxima and minima in the middle while it still called itself version 14; 6.15 called the same layout 15;
// version 16 (6.16, and stable kernels after the fix "taskstats: fix struct taskstats breaks backward compatibility
// since version 15") moved them to the end and so brought the old head back. Size tells the two
// versions 14 apart. A layout that is none of these is refused rather than guessed: a wrong offset would read a
// block I/O delay as run time, and every slowdown from it would be believed.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Offsets and sizes of struct taskstats in bytes; see the table above.
const (
	offVersion         = 0
	offCPUCount        = 16
	offCPUDelayTotal   = 24
	offIODelayTotal    = 40 // of the second of three blocks: what the first and the second grew by lies before it
	offRunVirtual      = 72
	offRunVirtualMax   = 96  // one delay maximum added to each of three blocks before it
	offRunVirtualMinUp = 120 // a maximum and a minimum added to each of three blocks before it

	sizeVersion14       = 432
	sizeVersion14Max    = sizeVersion14 + 8*8  // eight maxima more
	sizeVersion14MinMax = sizeVersion14 + 16*8 // and eight minima
)

// errLayout means a structure whose version and size are none that we know how to read.
var errLayout = errors.New("unknown layout of struct taskstats")

// runVirtualOffset returns where cpu_run_virtual_total lies in a structure of that version and size.
func runVirtualOffset(version uint16, size int) (int, error) {
	switch {
	case version == 0 || size < offRunVirtual+8:
	case version < 14, version >= 16:
		return offRunVirtual, nil
	case version == 14 && size == sizeVersion14:
		return offRunVirtual, nil
	case size == sizeVersion14Max:
		return offRunVirtualMax, nil
	case size == sizeVersion14MinMax:
		return offRunVirtualMinUp, nil
	}
	return 0, fmt.Errorf("version %d, %d bytes: %w", version, size, errLayout)
}

// parseStats reads the counters of one struct taskstats.
//
// A structure with neither run time nor a run-queue passage is Unavailable, not a measured zero: the kernel
// answers so for a zombie that had one thread only (its counters are added to the group's when threads
// of a group exit, and a lone thread is no group), and for a process that was never scheduled.
func parseStats(b []byte) (Stats, error) {
	if len(b) < offRunVirtual+8 {
		return Stats{}, fmt.Errorf("%d bytes: %w", len(b), errLayout)
	}
	off, err := runVirtualOffset(binary.NativeEndian.Uint16(b[offVersion:]), len(b))
	if err != nil {
		return Stats{}, err
	}
	s := Stats{
		IODelayNsec: binary.NativeEndian.Uint64(b[offIODelayTotal+(off-offRunVirtual)/3:]),
		RunNsec:     binary.NativeEndian.Uint64(b[off:]),
		DelayNsec:   binary.NativeEndian.Uint64(b[offCPUDelayTotal:]),
		DelayCount:  binary.NativeEndian.Uint64(b[offCPUCount:]),
		Status:      OK,
	}
	if s.RunNsec == 0 && s.DelayCount == 0 {
		return Stats{Status: Unavailable}, nil
	}
	return s, nil
}

// Sizes of the netlink headers in bytes, and the mask that leaves an attribute's type (include/uapi/linux/netlink.h).
const (
	nlHeader    = unix.SizeofNlMsghdr
	genlHeader  = 4 // cmd u8, version u8, reserved u16
	attrHeader  = unix.SizeofNlAttr
	attrTypeMax = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// errTruncated means a netlink message or attribute that says it is longer than what was received.
var errTruncated = errors.New("truncated netlink message")

// attr returns the payload of the first attribute of the wanted type in a run of attributes.
func attr(b []byte, want uint16) ([]byte, error) {
	for len(b) >= attrHeader {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrHeader || n > len(b) {
			return nil, errTruncated
		}
		if binary.NativeEndian.Uint16(b[2:])&attrTypeMax == want {
			return b[attrHeader:n], nil
		}
		b = b[min(align4(n), len(b)):]
	}
	return nil, errTruncated
}

// align4 rounds up to the alignment of netlink headers and attributes (NLMSG_ALIGNTO, NLA_ALIGNTO).
func align4(n int) int { return (n + 3) &^ 3 }

// message is one netlink message of a reply.
type message struct {
	kind    uint16
	seq     uint32
	payload []byte // after struct nlmsghdr
}

// nextMessage splits the first message off a datagram.
func nextMessage(b []byte) (message, []byte, error) {
	if len(b) < nlHeader {
		return message{}, nil, errTruncated
	}
	n := int(binary.NativeEndian.Uint32(b))
	if n < nlHeader || n > len(b) {
		return message{}, nil, errTruncated
	}
	m := message{
		kind:    binary.NativeEndian.Uint16(b[4:]),
		seq:     binary.NativeEndian.Uint32(b[8:]),
		payload: b[nlHeader:n],
	}
	return m, b[min(align4(n), len(b)):], nil
}

// parseErrno reads the errno of an NLMSG_ERROR payload (struct nlmsgerr: a negative errno, then the request).
func parseErrno(payload []byte) (unix.Errno, error) {
	if len(payload) < 4 {
		return 0, errTruncated
	}
	code := int32(binary.NativeEndian.Uint32(payload))
	if code > 0 || code < -4095 { // MAX_ERRNO
		return 0, fmt.Errorf("error code %d: %w", code, errTruncated)
	}
	return unix.Errno(-code), nil
}

// parseReply reads a TASKSTATS_CMD_NEW payload: which thread group it is about, and its counters.
func parseReply(payload []byte) (int32, Stats, error) {
	if len(payload) < genlHeader {
		return 0, Stats{}, errTruncated
	}
	group, err := attr(payload[genlHeader:], unix.TASKSTATS_TYPE_AGGR_TGID)
	if err != nil {
		return 0, Stats{}, err
	}
	id, err := attr(group, unix.TASKSTATS_TYPE_TGID)
	if err != nil {
		return 0, Stats{}, err
	}
	if len(id) < 4 {
		return 0, Stats{}, errTruncated
	}
	raw, err := attr(group, unix.TASKSTATS_TYPE_STATS)
	if err != nil {
		return 0, Stats{}, err
	}
	s, err := parseStats(raw)
	return int32(binary.NativeEndian.Uint32(id)), s, err
}
