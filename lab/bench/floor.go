package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// floor is the calls without which no reading can be had, and nothing else: for each task
// one pread of cpuacct.usage and one of cpu.stat (on cgroup v2 of cpu.stat alone, which has
// both) on kept descriptors into one buffer, and taskstats requests made beforehand, 64 a datagram, whose replies are received and not
// looked at. No membership is read: in steady state it need not be (node/linux/observe.go).
type floor struct {
	files   []int
	buf     []byte
	sock    int
	batches [][]byte // datagrams
	sizes   []int    // requests in each
	vector  [batch]mmsghdr
	iovecs  [batch]unix.Iovec
	replies []byte
	calls   uint64 // system calls so far
}

const (
	batch     = 64
	replySize = 2048
)

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	_   uint64 // msg_len and its padding
}

// newFloor opens what the floor reads for these groups.
func newFloor(cg cgroup.Driver, groups []string) (*floor, error) {
	f := &floor{buf: make([]byte, 4096), replies: make([]byte, batch*replySize), sock: -1}
	m, err := cgroup.Discover(hostfs.NewRoot("/"))
	if err != nil {
		return nil, err
	}
	var tgids []int32
	for _, g := range groups {
		for _, name := range files(m, g) {
			fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("bench: floor: open %s: %w", name, err), f.close())
			}
			f.files = append(f.files, fd)
		}
		pids, err := cg.Procs(g)
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		tgids = append(tgids, pids...)
	}
	if err := f.dial(tgids); err != nil {
		return nil, errors.Join(fmt.Errorf("bench: floor: %w", err), f.close())
	}
	return f, nil
}

// files are where a task's CPU time and throttling are.
func files(m *cgroup.Mounts, group string) []string {
	if m.Layout == cgroup.LayoutV2 {
		return []string{m.Unified + group + "/cpu.stat"}
	}
	return []string{m.V1[cgroup.CPUAcct] + group + "/cpuacct.usage", m.V1[cgroup.CPU] + group + "/cpu.stat"}
}

// dial opens a netlink socket and makes the requests.
func (f *floor) dial(tgids []int32) error {
	var err error
	if f.sock, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC); err != nil {
		return err
	}
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := errors.Join(unix.Bind(f.sock, kernel), unix.Connect(f.sock, kernel)); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(f.sock, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<19) // as the driver has it
	for i := range f.vector {
		f.iovecs[i].Base = &f.replies[i*replySize]
		f.iovecs[i].SetLen(replySize)
		f.vector[i].hdr.Iov = &f.iovecs[i]
		f.vector[i].hdr.SetIovlen(1)
	}
	name := append([]byte(unix.TASKSTATS_GENL_NAME), 0)
	if _, err := unix.Write(f.sock, request(nil, unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, unix.CTRL_ATTR_FAMILY_NAME, name)); err != nil {
		return err
	}
	n, err := unix.Read(f.sock, f.replies)
	if err != nil {
		return err
	}
	// The attribute of the family's number: length 6, kind 1, two bytes.
	at := bytes.Index(f.replies[:n], []byte{6, 0, unix.CTRL_ATTR_FAMILY_ID, 0})
	if at < 0 || at+6 > n {
		return errors.New("the taskstats family has no number")
	}
	family := binary.NativeEndian.Uint16(f.replies[at+4:])
	for ; len(tgids) > 0; tgids = tgids[min(batch, len(tgids)):] {
		var b []byte
		size := min(batch, len(tgids))
		for _, id := range tgids[:size] {
			b = request(b, family, unix.TASKSTATS_CMD_GET, unix.TASKSTATS_CMD_ATTR_TGID, binary.NativeEndian.AppendUint32(nil, uint32(id)))
		}
		f.batches, f.sizes = append(f.batches, b), append(f.sizes, size)
	}
	return nil
}

// request appends a generic netlink request with one attribute.
func request(b []byte, family uint16, cmd byte, attr uint16, value []byte) []byte {
	padded := (len(value) + 3) &^ 3
	b = binary.NativeEndian.AppendUint32(b, uint32(16+4+4+padded))
	b = binary.NativeEndian.AppendUint16(b, family)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, 1, 0, 0, 0, 0, 0, 0, 0, cmd, 1, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, attr)
	b = append(b, value...)
	return append(b, make([]byte, padded-len(value))...)
}

// read makes the calls once.
func (f *floor) read() error {
	for _, fd := range f.files {
		if _, err := unix.Pread(fd, f.buf, 0); err != nil {
			return fmt.Errorf("bench: floor: %w", err)
		}
	}
	f.calls += uint64(len(f.files))
	for i, b := range f.batches {
		if _, err := unix.Write(f.sock, b); err != nil {
			return fmt.Errorf("bench: floor: send: %w", err)
		}
		f.calls++
		for got := 0; got < f.sizes[i]; {
			n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(f.sock), uintptr(unsafe.Pointer(&f.vector[0])), batch, unix.MSG_WAITFORONE, 0, 0)
			f.calls++
			if errno != 0 {
				return fmt.Errorf("bench: floor: receive: %w", errno)
			}
			got += int(n)
		}
	}
	return nil
}

func (f *floor) close() error {
	var errs []error
	for _, fd := range f.files {
		errs = append(errs, unix.Close(fd))
	}
	if f.sock >= 0 {
		errs = append(errs, unix.Close(f.sock))
	}
	return errors.Join(errs...)
}
