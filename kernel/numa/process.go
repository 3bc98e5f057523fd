package numa

// /proc/PID: one process, held by a descriptor of its folder.
//
// https://docs.kernel.org/filesystems/proc.html
//
// A number may be given to another process as soon as its process is gone. The folder's
// descriptor stays with the process it was opened on: opening a file through it fails
// then (ESRCH), whoever has the number. The kernel calls that move pages take the number
// all the same; before each of them a file of the process is read, so that what remains
// is the time of one call.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Process is an open process. It holds one descriptor, and is not safe for concurrent use.
type Process struct {
	pid        int32
	startTicks uint64
	dir        hostfs.Folder
}

// OpenProcess opens a process by its thread-group id. ErrVanished: there is none.
func OpenProcess(root hostfs.FS, pid int32) (*Process, error) {
	path := "/proc/" + strconv.Itoa(int(pid))
	dir, err := hostfs.OpenFolder(root, path)
	if err != nil {
		return nil, wrapFile("open process", err, ErrVanished)
	}
	p := &Process{pid: pid, dir: dir}
	data, err := p.readFile("stat")
	if err == nil {
		p.startTicks, err = parseStartTicks(data)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return p, nil
}

// PID returns the thread-group id that the process was opened by.
func (p *Process) PID() int32 { return p.pid }

// StartTicks returns when the process started, in clock ticks since boot. With the boot
// and the thread-group id it names a process for ever.
func (p *Process) StartTicks() uint64 { return p.startTicks }

// Close lets go of the descriptor.
func (p *Process) Close() error { return p.dir.Close() }

// open opens one of the process's files for reading.
func (p *Process) open(name string) (*procFile, error) {
	file, err := p.dir.OpenAt(name)
	if err != nil {
		return nil, wrapFile("process", err, ErrVanished)
	}
	return &procFile{file: file, path: fmt.Sprintf("/proc/%d/%s", p.pid, name)}, nil
}

// readFile reads a small file whole.
func (p *Process) readFile(name string) ([]byte, error) {
	f, err := p.open(name)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	n := 0
	for n < len(buf) {
		got, err := f.readAt(buf[n:], int64(n))
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		if got == 0 {
			break
		}
		n += got
	}
	return buf[:n], f.close()
}

// memoryUse is what /proc/PID/status says of a process's memory.
type memoryUse struct {
	lockedBytes uint64 // VmLck
	anonBytes   uint64 // RssAnon: resident anonymous memory
}

// memory reads how much memory the process has. ErrVanished: none at all.
func (p *Process) memory() (memoryUse, error) {
	data, err := p.readFile("status")
	if err != nil {
		return memoryUse{}, err
	}
	m, found, err := parseMemoryUse(data)
	if err == nil && !found {
		err = fmt.Errorf("%w: it has no memory", ErrVanished)
	}
	if err != nil {
		return memoryUse{}, fmt.Errorf("read /proc/%d/status: %w", p.pid, err)
	}
	return m, nil
}

// parseStartTicks reads field 22 of /proc/PID/stat. The second field, the name in
// parentheses, may hold spaces and parentheses itself.
func parseStartTicks(data []byte) (uint64, error) {
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return 0, fmt.Errorf("%w stat: %q", ErrMalformed, clip(data))
	}
	fields := bytes.Fields(data[i+1:])
	const startTime = 22 - 3 // the first field after the name is the third
	if len(fields) > startTime {
		if v, ok := parseUint(fields[startTime]); ok {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w stat: no start time in %q", ErrMalformed, clip(data))
}

// parseMemoryUse reads "VmLck:	     0 kB" and "RssAnon:	    1024 kB" of /proc/PID/status. A
// kernel thread and a process that is ending have no such lines.
func parseMemoryUse(data []byte) (m memoryUse, found bool, err error) {
	seen := 0
	for line := range bytes.Lines(data) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		var dst *uint64
		bit := 1
		switch string(name) {
		case "VmLck":
			dst = &m.lockedBytes
		case "RssAnon":
			dst, bit = &m.anonBytes, 2
		default:
			continue
		}
		rest, ok := bytes.CutSuffix(bytes.TrimSpace(rest), []byte(" kB"))
		v, isNumber := parseUint(rest)
		if !ok || !isNumber || v > 1<<53 {
			return memoryUse{}, false, fmt.Errorf("%w status: line %q", ErrMalformed, clip(line))
		}
		*dst = v << 10
		seen |= bit
	}
	if seen == 1 || seen == 2 {
		return memoryUse{}, false, fmt.Errorf("%w status: VmLck or RssAnon is missing", ErrMalformed)
	}
	return m, seen > 0, nil
}

// procFile is an open file of a process.
type procFile struct {
	file hostfs.FileAt
	path string
}

// readAt is pread(2). 0 is the end of the file, and for the files of an address space
// also that the address space is gone.
func (f *procFile) readAt(buf []byte, off int64) (int, error) {
	n, err := f.file.Pread(buf, off)
	if err != nil {
		return 0, wrapFile("process", err, ErrVanished)
	}
	return n, nil
}

func (f *procFile) close() error { return f.file.Close() }

// lineBuffer holds the longest line of a process's files: a path of 4096 bytes, each
// written as four (\040), and a number for each node.
const lineBuffer = 40 << 10

// lines reads a file of a process line by line, in reads of any size, holding no more
// than one buffer. The kernel keeps the place by address, so that mappings that come and
// go meanwhile spoil nothing but themselves.
type lines struct {
	file *procFile
	buf  []byte
	r, w int // buf[r:w] was read and not handed out
	off  int64
	end  bool
}

// next returns the next line without its newline, nil at the end. It is valid until the
// following call.
func (l *lines) next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.r:l.w], '\n'); i >= 0 {
			line := l.buf[l.r : l.r+i]
			l.r += i + 1
			return line, nil
		}
		if l.end {
			if l.r < l.w {
				return nil, fmt.Errorf("read %s: %w: no newline at the end", l.file.path, ErrMalformed)
			}
			return nil, nil
		}
		l.w = copy(l.buf, l.buf[l.r:l.w])
		l.r = 0
		if l.w == len(l.buf) {
			return nil, fmt.Errorf("read %s: %w: a line of more than %d bytes", l.file.path, ErrMalformed, len(l.buf))
		}
		n, err := l.file.readAt(l.buf[l.w:], l.off)
		if err != nil {
			return nil, err
		}
		l.off += int64(n)
		l.w += n
		l.end = n == 0
	}
}
