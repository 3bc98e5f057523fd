package numa

import "testing"

// SpawnPages starts a child with pages of anonymous memory on a node, for tests outside the
// package.
func SpawnPages(t testing.TB, group string, pages, node int) (pid int32, anon uint64, end func()) {
	t.Helper()
	c := spawn(t, group, childSpec{Pages: pages, Node: node})
	return c.pid, c.Anon, c.end
}

// MemoryGroup makes a cgroup for memory.
func MemoryGroup(t testing.TB, name string) (dir string, v2 bool) {
	t.Helper()
	return memoryGroup(t, name)
}
