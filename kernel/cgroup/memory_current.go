package cgroup

// memory.current and memory.swap.current: what a v2 group and its descendants hold, in
// bytes (v1: memory.usage_in_bytes, which this package does not read).
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
//
//	memory.current       68157440
//	memory.swap.current  0         (a kernel without swap has no such file)
//
// memory.current counts anonymous memory, page cache, kernel memory and sockets that were
// charged to the group: who touches a page first pays for it. The kernel's counter lags
// by up to 64 pages per CPU. The root group has none of these files.

// ReadMemoryCurrent returns the memory that the group holds, in bytes.
func (d *V2) ReadMemoryCurrent(path string) (uint64, error) {
	return d.readUint(path, "memory.current")
}

// ReadSwapCurrent returns the swap space that the group holds, in bytes.
func (d *V2) ReadSwapCurrent(path string) (uint64, error) {
	return d.readUint(path, "memory.swap.current")
}
