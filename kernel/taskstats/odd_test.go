package taskstats

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// odd is a kernel of which each reply may be something else than it should: reply makes the
// one about a thread group, nil: as it should be, without any counters.
func odd(t *testing.T, reply func(tgid int32, seq uint32) []byte) *Netlink {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := newNetlink(fds[0])
	n.family = 99
	go func() {
		request := make([]byte, batchSize*requestSize)
		for {
			size, err := unix.Read(fds[1], request)
			if err != nil || size == 0 {
				_ = unix.Close(fds[1])
				return
			}
			for b := request[:size]; len(b) > 0; b = b[requestSize:] {
				seq, tgid := binary.NativeEndian.Uint32(b[8:]), int32(binary.NativeEndian.Uint32(b[24:]))
				answer := reply(tgid, seq)
				if answer == nil {
					answer = refusal(seq, unix.ESRCH)
				}
				_, _ = unix.Write(fds[1], answer)
			}
		}
	}()
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// refusal is an NLMSG_ERROR.
func refusal(seq uint32, errno unix.Errno) []byte {
	b := make([]byte, nlHeader+4)
	putHeaders(b, unix.NLMSG_ERROR, seq, 0, 0)
	binary.NativeEndian.PutUint32(b[nlHeader:], uint32(-int32(errno)))
	return b
}

// An odd reply about one thread group takes nothing from the others; where all are odd the
// source has failed.
func TestOneOddReplySpoilsNoOther(t *testing.T) {
	for name, reply := range map[string]func(seq uint32) []byte{
		"an unknown errno": func(seq uint32) []byte { return refusal(seq, unix.EDOM) },
		"too long": func(seq uint32) []byte {
			b := make([]byte, replySize+100)
			putHeaders(b, 99, seq, 0, 0)
			return b
		},
		"of another family": func(seq uint32) []byte {
			b := refusal(seq, 0)
			binary.NativeEndian.PutUint16(b[4:], 77)
			return b
		},
		"longer by its own word": func(seq uint32) []byte {
			b := refusal(seq, 0)
			binary.NativeEndian.PutUint32(b, 500)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := odd(t, func(tgid int32, seq uint32) []byte {
				if tgid == 3 {
					return reply(seq)
				}
				return nil
			})
			out := make([]Stats, 4)
			if err := n.Query([]int32{1, 2, 3, 4}, out); err != nil || out[0].Status != Gone || out[1].Status != Gone || out[2].Status != Unavailable || out[3].Status != Gone {
				t.Errorf("%+v, %v", out, err)
			}
			if err := n.Query([]int32{3}, out); err == nil {
				t.Error("every reply was odd, and nobody says so")
			}
			if err := n.Query([]int32{1}, out); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
	n := odd(t, func(_ int32, seq uint32) []byte { return refusal(seq, unix.EPERM) })
	if err := n.Query([]int32{1, 2}, make([]Stats, 2)); !errors.Is(err, ErrPermission) {
		t.Errorf("refused: %v", err)
	}
}
