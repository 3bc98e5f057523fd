package reclaim

// memory.stat of a group: what its memory is, and what reclaim did to it. The figures
// include the group's descendants: v2's by themselves, v1's in the lines "total_".
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
// https://docs.kernel.org/admin-guide/cgroup-v1/memory.html#stat-file
//
//	anon 33722368                     (v2; bytes, or events since the group was made)
//	file 16781312
//	inactive_anon 33701888
//	workingset_refault_file 0
//	pgsteal 8192
//	total_rss 33722368                (v1; the same as anon)
//	total_cache 16781312              (the same as file: page cache with shmem)
//
// Which lines there are differs by kernel: none is taken for zero. Gauges are bytes,
// counters pages or faults. Before Linux 6.15 no counter tells proactive reclaim from the
// rest; pgsteal counts all of it.
//
// What is read may be old: the kernel gathers the figures of its CPUs when it thinks that
// they changed by enough (64 pages a CPU, summed over the machine in 6.1, by group since
// 6.8), and every two seconds. After a reclaim of a few megabytes the counters can lag by
// that much; memory.current (memory_current.go) cannot.

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// Stat is one reading of memory.stat.
type Stat struct {
	Anon            Gauge // anonymous memory, without swap cache on v1
	File            Gauge // page cache, with Shmem
	Shmem           Gauge // memory that only swap can take back, although it is File
	Kernel          Gauge
	SlabReclaimable Gauge
	FileMapped      Gauge
	FileDirty       Gauge
	FileWriteback   Gauge
	SwapCached      Gauge
	Zswap           Gauge // what the compressed memory takes
	Zswapped        Gauge // what it was before it was compressed
	Swap            Gauge // v1 only; on v2 it is Meter.Swap

	// The lists that reclaim works on. With the multi-generational LRU "active" is
	// the two youngest generations.
	InactiveAnon, ActiveAnon Gauge
	InactiveFile, ActiveFile Gauge
	Unevictable              Gauge

	// Pages that came back after they had been reclaimed: the price of reclaim.
	RefaultAnon, RefaultFile   Counter
	ActivateAnon, ActivateFile Counter // of these, those that were active
	RestoreAnon, RestoreFile   Counter // of these, those that had been in use until then

	PgScan, PgSteal                   Counter // pages looked at, pages taken back, by anyone
	PgScanKswapd, PgStealKswapd       Counter
	PgScanDirect, PgStealDirect       Counter // before Linux 6.15, with memory.reclaim's
	PgScanProactive, PgStealProactive Counter // since Linux 6.15
	PgFault, PgMajFault               Counter
	ZswpIn, ZswpOut, ZswpWb           Counter // pages to and from zswap; written from it to disk
}

// parseStat reads memory.stat into s. Of v1's lines those without "total_" leave out descendants,
// and are passed over; the others are named as on v2, or nearly. It does not allocate unless it
// fails. (A function as an argument would move the caller's Stat to the heap.)
func parseStat(data []byte, v2 bool, s *Stat) error {
	*s = Stat{}
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		key, value, _ := bytes.Cut(line, []byte(" "))
		if !v2 {
			var total bool
			if key, total = bytes.CutPrefix(key, []byte("total_")); !total {
				continue
			}
		}
		n, ok := s.figure(key)
		if n == nil && v2 {
			n, ok = s.counterV2(key)
		}
		if n == nil {
			continue
		}
		v, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return fmt.Errorf("%w memory.stat: line %q", cgroup.ErrMalformed, clip(line))
		}
		*n, *ok = v, true
	}
	switch {
	case s.Anon.OK && s.File.OK:
		return nil
	case v2:
		return fmt.Errorf("%w memory.stat: no line anon or file", cgroup.ErrMalformed)
	}
	return fmt.Errorf("%w memory.stat: no line total_rss or total_cache", cgroup.ErrMalformed)
}

func (g *Gauge) cell() (*uint64, *bool)   { return &g.Bytes, &g.OK }
func (c *Counter) cell() (*uint64, *bool) { return &c.N, &c.OK }

// figure returns where the figure of a key goes that both versions may have, nil for others. Of
// two names the second is v1's.
func (s *Stat) figure(key []byte) (*uint64, *bool) {
	switch string(key) {
	case "anon", "rss":
		return s.Anon.cell()
	case "file", "cache":
		return s.File.cell()
	case "shmem":
		return s.Shmem.cell()
	case "kernel":
		return s.Kernel.cell()
	case "slab_reclaimable":
		return s.SlabReclaimable.cell()
	case "file_mapped", "mapped_file":
		return s.FileMapped.cell()
	case "file_dirty", "dirty":
		return s.FileDirty.cell()
	case "file_writeback", "writeback":
		return s.FileWriteback.cell()
	case "swapcached":
		return s.SwapCached.cell()
	case "swap": // v1 alone
		return s.Swap.cell()
	case "zswap":
		return s.Zswap.cell()
	case "zswapped":
		return s.Zswapped.cell()
	case "inactive_anon":
		return s.InactiveAnon.cell()
	case "active_anon":
		return s.ActiveAnon.cell()
	case "inactive_file":
		return s.InactiveFile.cell()
	case "active_file":
		return s.ActiveFile.cell()
	case "unevictable":
		return s.Unevictable.cell()
	case "pgmajfault":
		return s.PgMajFault.cell()
	case "pgfault":
		return s.PgFault.cell()
	case "workingset_refault_file":
		return s.RefaultFile.cell()
	case "workingset_refault_anon":
		return s.RefaultAnon.cell()
	}
	return nil, nil
}

// counterV2 is figure for the counters of v2.
func (s *Stat) counterV2(key []byte) (*uint64, *bool) {
	switch string(key) {
	case "workingset_activate_anon":
		return s.ActivateAnon.cell()
	case "workingset_activate_file":
		return s.ActivateFile.cell()
	case "workingset_restore_anon":
		return s.RestoreAnon.cell()
	case "workingset_restore_file":
		return s.RestoreFile.cell()
	case "pgscan":
		return s.PgScan.cell()
	case "pgsteal":
		return s.PgSteal.cell()
	case "pgscan_kswapd":
		return s.PgScanKswapd.cell()
	case "pgsteal_kswapd":
		return s.PgStealKswapd.cell()
	case "pgscan_direct":
		return s.PgScanDirect.cell()
	case "pgsteal_direct":
		return s.PgStealDirect.cell()
	case "pgscan_proactive":
		return s.PgScanProactive.cell()
	case "pgsteal_proactive":
		return s.PgStealProactive.cell()
	case "zswpin":
		return s.ZswpIn.cell()
	case "zswpout":
		return s.ZswpOut.cell()
	case "zswpwb":
		return s.ZswpWb.cell()
	}
	return nil, nil
}
