package reclaim

// /sys/block/zramN/mm_stat: what a compressed memory device holds, and what that takes.
//
// https://docs.kernel.org/admin-guide/blockdev/zram.html#stats
//
//	33787904  8470528  8761344        0  8761344        0        0        0        0
//
// Columns: data before compression, after, memory that holds it (with fragmentation and
// the allocator's own), limit (0: none), most memory ever used; then in pages: pages of
// one value (held without memory), pages compacted, pages that do not compress, and,
// since 5.12, those over the device's life. The first five are bytes. All are 0 before a
// size is set.

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Zram is a compressed memory device. Its memory is charged to nobody's group.
type Zram struct {
	OrigBytes       uint64 // data held, before compression
	CompressedBytes uint64 // after
	UsedBytes       uint64 // memory that it takes
	LimitBytes      uint64 // 0: no limit
	MaxUsedBytes    uint64
	SamePages       uint64 // of one value: held, without memory
	CompactedPages  uint64
	HugePages       uint64 // that do not compress
}

// zramUsed is what the compressed devices that are swap areas take of memory; not OK where one cannot be read.
func zramUsed(fs hostfs.FS) (g Gauge) {
	areas, err := ReadSwaps(fs)
	if err != nil {
		return Gauge{}
	}
	for i := range areas {
		name := areas[i].Zram()
		if name == "" {
			continue
		}
		z, err := ReadZram(fs, name)
		if err != nil {
			return Gauge{}
		}
		g.Bytes += z.UsedBytes
	}
	g.OK = true
	return g
}

// ReadZram reads a device ("zram0").
func ReadZram(fs hostfs.FS, name string) (Zram, error) {
	path := "/sys/block/" + name + "/mm_stat"
	return hostfs.ReadAs(fs, "read compressed memory", path, parseZram)
}

// parseZram needs the eight columns that there have been since 4.19.
func parseZram(data []byte) (Zram, error) {
	var z Zram
	columns := [...]*uint64{&z.OrigBytes, &z.CompressedBytes, &z.UsedBytes, &z.LimitBytes,
		&z.MaxUsedBytes, &z.SamePages, &z.CompactedPages, &z.HugePages}
	fields := bytes.Fields(data)
	if len(fields) < len(columns) {
		return Zram{}, fmt.Errorf("%w mm_stat: %q", cgroup.ErrMalformed, clip(data))
	}
	for i, dst := range columns {
		v, err := strconv.ParseUint(string(fields[i]), 10, 64)
		if err != nil {
			return Zram{}, fmt.Errorf("%w mm_stat: column %d of %q", cgroup.ErrMalformed, i+1, clip(data))
		}
		*dst = v
	}
	return z, nil
}
