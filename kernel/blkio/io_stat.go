package blkio

// What a group and those below it have done on each device since the group was made.
//
// io.stat (v2): a line a device; other keys follow where other mechanisms count.
//
//	254:0 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0
//
// blkio.throttle.io_service_bytes_recursive and io_serviced_recursive (v1): a line a device and kind of request; before Linux 4.12
// there are only the ones of the group alone, without _recursive.
//
//	254:0 Read 1459200
//	254:0 Write 314773504
//	254:0 Sync 1476608
//	254:0 Total 316232704
//	Total 316232704

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Stat is what was done on one device.
type Stat struct {
	Device
	ReadBytes, WrittenBytes uint64
	Reads, Writes           uint64 // operations, as they were sent to the device
}

// Reader reads one group again and again on kept descriptors: one, on v1 two. It stays bound to the group it was opened on: when
// that is gone Read says cgroup.ErrVanished.
type Reader struct {
	c     *Controller
	path  string
	files [2]hostfs.File // bytes, operations; on v2 both are in the first
	buf   []byte
}

// OpenStat opens a group for repeated reading.
func (c *Controller) OpenStat(path string) (*Reader, error) {
	if err := cgroup.CheckPath(path); err != nil {
		return nil, err
	}
	r := &Reader{c: c, path: path, buf: make([]byte, 0, 1024)}
	names := [][]string{{"io.stat"}}
	if !c.v2 {
		names = [][]string{
			{"blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"},
			{"blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced"},
		}
	}
	for i, any := range names {
		var err error
		for _, name := range any {
			if r.files[i], err = c.fs.Open(c.mount + path + "/" + name); err == nil {
				break
			}
			r.files[i], err = nil, c.wrap("open", path, name, err)
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// Read appends what was done on each device that lies on no other one, by device. Once dst has grown it does not allocate.
func (r *Reader) Read(dst []Stat) ([]Stat, error) {
	from := len(dst)
	for i, f := range r.files {
		if f == nil {
			continue
		}
		var err error
		if r.buf, err = f.ReadAll(r.buf); err != nil {
			return dst[:from], r.c.wrap("read", r.path, "the I/O", err)
		}
		if r.c.v2 {
			dst, err = parseStat(r.buf, dst)
		} else {
			dst, err = parseServiced(r.buf, i == 1, dst, from)
		}
		if err != nil {
			return dst[:from], fmt.Errorf("read the I/O of cgroup %s: %w", r.path, err)
		}
	}
	kept := dst[:from]
	for _, s := range dst[from:] {
		if r.c.lower(s.Device) {
			kept = append(kept, s)
		}
	}
	slices.SortFunc(kept[from:], func(a, b Stat) int { return a.compare(b.Device) })
	return kept, nil
}

// Close lets go of the descriptors.
func (r *Reader) Close() error {
	var errs []error
	for i, f := range r.files {
		if f != nil {
			errs = append(errs, f.Close())
			r.files[i] = nil
		}
	}
	return errors.Join(errs...)
}

// parseStat appends the devices of an io.stat. Keys that are not ours are passed over; a device without any of ours, which
// kernels list before it is used, is left out.
func parseStat(data []byte, dst []Stat) ([]Stat, error) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		d, rest, err := device(line)
		if err != nil {
			return dst, err
		}
		s, any := Stat{Device: d}, false
		for len(rest) > 0 {
			var field []byte
			field, rest, _ = bytes.Cut(rest, []byte(" "))
			key, text, _ := bytes.Cut(field, []byte("="))
			var to *uint64
			switch string(key) {
			case "rbytes":
				to = &s.ReadBytes
			case "wbytes":
				to = &s.WrittenBytes
			case "rios":
				to = &s.Reads
			case "wios":
				to = &s.Writes
			default:
				continue
			}
			if *to, err = number(text, 64); err != nil {
				return dst, fmt.Errorf("%w: io.stat %q", cgroup.ErrMalformed, clip(line))
			}
			any = true
		}
		if any {
			dst = append(dst, s)
		}
	}
	return dst, nil
}

// parseServiced adds a file of v1 to what stands in dst from the index on.
func parseServiced(data []byte, operations bool, dst []Stat, from int) ([]Stat, error) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 || bytes.HasPrefix(line, []byte("Total ")) {
			continue
		}
		d, rest, err := device(line)
		if err != nil {
			return dst, err
		}
		kind, text, _ := bytes.Cut(rest, []byte(" "))
		n, err := number(text, 64)
		if err != nil {
			return dst, fmt.Errorf("%w: %q", cgroup.ErrMalformed, clip(line))
		}
		i := from
		for i < len(dst) && dst[i].Device != d {
			i++
		}
		if i == len(dst) {
			dst = append(dst, Stat{Device: d})
		}
		s := &dst[i]
		switch read, write := string(kind) == "Read", string(kind) == "Write"; {
		case read && operations:
			s.Reads = n
		case read:
			s.ReadBytes = n
		case write && operations:
			s.Writes = n
		case write:
			s.WrittenBytes = n
		}
	}
	return dst, nil
}
