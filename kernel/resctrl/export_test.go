package resctrl

import "testing"

// Spawn starts the test binary again in a role of TestMain, for tests outside the package.
func Spawn(t testing.TB, role string) (pid int32) {
	t.Helper()
	pid, _ = spawn(t, role)
	return pid
}
