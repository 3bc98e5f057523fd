package reclaim

// /proc/swaps: the machine's swap areas. Sizes are KiB.
//
// https://docs.kernel.org/filesystems/proc.html, swapon(8)
//
//	Filename				Type		Size		Used		Priority
//	/dev/zram0                              partition	262140		30976		-2
//	/swap\040file                           file		1048572		0		-3
//
// Space, tab, newline and backslash in a name stand as octal escapes. A used page may be in
// zswap and not on the device at all; it has its slot here nevertheless.

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const swapsPath = "/proc/swaps"

// SwapArea is one swap device or file.
type SwapArea struct {
	Path      string // "/dev/zram0"
	Type      string // "partition" or "file"
	SizeBytes uint64
	UsedBytes uint64
	Priority  int
}

// FreeBytes returns what the area still takes.
func (a SwapArea) FreeBytes() uint64 { return a.SizeBytes - min(a.SizeBytes, a.UsedBytes) }

// Zram returns the name of the area's compressed memory device ("zram0"), "" if it is
// another device or a file.
func (a SwapArea) Zram() string {
	name, ok := strings.CutPrefix(a.Path, "/dev/")
	if ok && strings.HasPrefix(name, "zram") && !strings.Contains(name, "/") {
		return name
	}
	return ""
}

// ReadSwaps reads the swap areas; a machine without swap has none. A kernel without swap
// (CONFIG_SWAP) has no such file: an error that wraps fs.ErrNotExist.
func ReadSwaps(fs hostfs.FS) ([]SwapArea, error) {
	return hostfs.ReadAs(fs, "read swap areas", swapsPath, parseSwaps)
}

func parseSwaps(data []byte) ([]SwapArea, error) {
	heading, data, _ := bytes.Cut(data, []byte("\n"))
	if !bytes.HasPrefix(heading, []byte("Filename")) {
		return nil, fmt.Errorf("%w: heading %q", cgroup.ErrMalformed, clip(heading))
	}
	var list []SwapArea
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		f := strings.Fields(string(line))
		// A deleted swap file's name ends in " (deleted)", with the space escaped.
		if len(f) != 5 {
			return nil, fmt.Errorf("%w: line %q", cgroup.ErrMalformed, clip(line))
		}
		size, errSize := strconv.ParseUint(f[2], 10, 53)
		used, errUsed := strconv.ParseUint(f[3], 10, 53)
		prio, errPrio := strconv.Atoi(f[4])
		if errSize != nil || errUsed != nil || errPrio != nil {
			return nil, fmt.Errorf("%w: line %q", cgroup.ErrMalformed, clip(line))
		}
		list = append(list, SwapArea{Path: hostfs.Unescape(f[0]), Type: f[1],
			SizeBytes: size << 10, UsedBytes: used << 10, Priority: prio})
	}
	return list, nil
}
