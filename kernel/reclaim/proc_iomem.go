package reclaim

// /proc/iomem: what is where in physical memory. Indented lines lie within the one above.
//
// https://docs.kernel.org/filesystems/proc.html (iomem)
//
//	00001000-0009fbff : System RAM
//	100000000-17fffffff : System RAM
//	  10a000000-10b1fffff : Kernel code
//
// Addresses are hexadecimal and inclusive. Without CAP_SYS_ADMIN all are zero.

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const iomemPath = "/proc/iomem"

// SystemRAM returns the ranges of physical memory, for a DAMONTarget without a process.
func SystemRAM(fs hostfs.FS) ([]Range, error) {
	data, err := fs.ReadFile(iomemPath, nil)
	if err != nil {
		return nil, fmt.Errorf("read physical memory map: %w", err)
	}
	list, err := parseIomem(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", iomemPath, err)
	}
	return list, nil
}

func parseIomem(data []byte) ([]Range, error) {
	var list []Range
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		span, name, _ := bytes.Cut(line, []byte(" : "))
		if string(name) != "System RAM" || bytes.HasPrefix(line, []byte(" ")) {
			continue
		}
		from, to, ok := bytes.Cut(span, []byte("-"))
		start, errStart := strconv.ParseUint(string(from), 16, 63)
		end, errEnd := strconv.ParseUint(string(to), 16, 63)
		if !ok || errStart != nil || errEnd != nil || end < start {
			return nil, fmt.Errorf("%w: line %q", cgroup.ErrMalformed, clip(line))
		}
		if end > 0 {
			list = append(list, Range{Start: start, End: end + 1})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no System RAM with an address (that takes CAP_SYS_ADMIN)", cgroup.ErrMalformed)
	}
	return list, nil
}
