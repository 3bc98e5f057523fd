package taskstats

// Generic netlink controller, CTRL_CMD_GETFAMILY: include/uapi/linux/genetlink.h,
// Documentation/networking/generic_netlink.rst. Family ids above 16 are given out at boot and differ between machines.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// resolve asks the controller for the id of a family. ErrNotSupported: the kernel has none of that name
// (CONFIG_TASKSTATS is off), or shows none in this network namespace.
func (n *Netlink) resolve(name string) (uint16, error) {
	n.seq++
	if err := n.send(encodeGetFamily(name, n.seq)); err != nil {
		return 0, err
	}
	for range maxStrays {
		got, err := n.receive(unix.MSG_WAITFORONE)
		if err != nil {
			return 0, fmt.Errorf("receive: %w", err)
		}
		for i := range got {
			m, _, err := nextMessage(n.replies[i*replySize:][:min(n.vector[i].len, replySize)])
			if err != nil {
				return 0, err
			}
			if m.seq != n.seq {
				continue
			}
			return familyOf(m)
		}
	}
	return 0, errors.New("no answer from the controller")
}

// encodeGetFamily builds the request for one family by name.
func encodeGetFamily(name string, seq uint32) []byte {
	payload := attrHeader + len(name) + 1
	b := make([]byte, nlHeader+genlHeader+align4(payload))
	putHeaders(b, unix.GENL_ID_CTRL, seq, unix.CTRL_CMD_GETFAMILY, 1)
	binary.NativeEndian.PutUint16(b[20:], uint16(payload))
	binary.NativeEndian.PutUint16(b[22:], unix.CTRL_ATTR_FAMILY_NAME)
	copy(b[24:], name)
	return b
}

// familyOf reads the controller's answer.
func familyOf(m message) (uint16, error) {
	switch m.kind {
	case unix.NLMSG_ERROR:
		errno, err := parseErrno(m.payload)
		if err != nil {
			return 0, err
		}
		if errno == unix.ENOENT {
			return 0, fmt.Errorf("%w: %w", ErrNotSupported, errno)
		}
		return 0, fmt.Errorf("kernel refused: %w", errno)
	case unix.GENL_ID_CTRL:
		if len(m.payload) < genlHeader {
			return 0, errTruncated
		}
		id, err := attr(m.payload[genlHeader:], unix.CTRL_ATTR_FAMILY_ID)
		if err != nil {
			return 0, err
		}
		if len(id) < 2 {
			return 0, errTruncated
		}
		return binary.NativeEndian.Uint16(id), nil
	default:
		return 0, fmt.Errorf("unexpected netlink message type %d", m.kind)
	}
}
