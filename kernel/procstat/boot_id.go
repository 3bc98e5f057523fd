package procstat

// /proc/sys/kernel/random/boot_id: a random UUID that the kernel draws once per boot.
//
// https://docs.kernel.org/admin-guide/sysctl/kernel.html#random
//
//	42a8d51d-5c61-4721-94ca-436f427d9a7d

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const bootIDPath = "/proc/sys/kernel/random/boot_id"

// ReadBootID returns the boot id in the kernel's spelling (36 characters, lower case).
func ReadBootID(fs hostfs.FS) (string, error) {
	return hostfs.ReadAs(fs, "read boot id", bootIDPath, parseBootID)
}

// parseBootID checks the form: what is restored after a crash depends on this id, so a
// cut or empty one must not pass for equal to another.
func parseBootID(data []byte) (string, error) {
	id := bytes.TrimSuffix(data, []byte("\n"))
	ok := len(id) == 36
	for i, c := range id {
		switch {
		case !ok:
		case i == 8 || i == 13 || i == 18 || i == 23:
			ok = c == '-'
		default:
			ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		}
	}
	if !ok {
		return "", fmt.Errorf("%w: boot id %q", ErrMalformed, id[:min(len(id), 64)])
	}
	return string(id), nil
}
