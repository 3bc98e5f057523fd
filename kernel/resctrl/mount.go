package resctrl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Mount mounts resctrl on the live host at point, which must exist (the kernel makes
// /sys/fs/resctrl). Nothing in this package calls it: whether a machine's resctrl is
// mounted, and how, is its owner's choice, and is seen by every tool on it.
//
// The kernel has one instance. EBUSY: it is mounted already, maybe in another mount
// namespace. EINVAL: the CPU or the kernel lacks what an option asks for (mba_MBps takes
// MBM, debug Linux 6.7). ENODEV: the kernel has no resctrl.
func Mount(point string, o MountOptions) error {
	err := unix.Mount(fsType, point, fsType, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, o.String())
	if err == nil {
		return nil
	}
	what := fmt.Sprintf("mount resctrl at %s", point)
	if s := o.String(); s != "" {
		what += " with " + s
	}
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%s: %w: %w", what, ErrUnsupported, err)
	case errors.Is(err, unix.EINVAL) && o != (MountOptions{}):
		return fmt.Errorf("%s: %w (the kernel or the CPU lacks an option): %w", what, ErrUnsupported, err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s: it is mounted already, here or in another mount namespace: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Unmount unmounts resctrl on the live host. All groups go with it, whoever made them:
// it is for the one who mounted it. EBUSY: a file in it is open, such as a Monitor's.
func Unmount(point string) error {
	if err := unix.Unmount(point, 0); err != nil {
		return fmt.Errorf("unmount resctrl at %s: %w", point, err)
	}
	return nil
}
