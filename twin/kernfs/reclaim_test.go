package kernfs_test

import (
	"errors"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// TestReclaim: the driver takes memory back from a group and those in it, the oldest first, and is told where
// the kernel comes up short, as by a real one. Where the controller is on v1 there is no such file.
func TestReclaim(t *testing.T) {
	const mib = 1 << 20
	each(t, func(t *testing.T, k *kernfs.Kernel, _ cgroup.Driver) {
		cold, hot := bystander(), bystander()
		cold.Memory = []machine.Heat{{Bytes: 64 * mib, EveryNsec: 3600e9, File: true}}
		hot.Memory = []machine.Heat{{Bytes: 64 * mib, File: true}}
		started(t, k, "/pod/cold", cold)
		started(t, k, "/pod/hot", hot)
		k.Advance(10e9)
		mounts, err := cgroup.Discover(k)
		must(t, err)
		mem, err := reclaim.Open(k, mounts)
		must(t, err)
		r, err := mem.OpenReclaimer("/pod")
		if !mem.V2() {
			if !errors.Is(err, reclaim.ErrNoReclaim) {
				t.Errorf("on v1: %v", err)
			}
			return
		}
		must(t, err)
		defer r.Close()
		of := func(path string) uint64 {
			t.Helper()
			m, err := mem.OpenMeter(path)
			must(t, err)
			defer m.Close()
			n, err := m.Current()
			must(t, err)
			return n
		}
		out, err := r.Reclaim(t.Context(), reclaim.Ask{Bytes: 48 * mib})
		must(t, err)
		if out.FellBytes < 47*mib || out.FellBytes > 49*mib || of("/pod/hot") < 63*mib {
			t.Errorf("%+v; the group in use has %d bytes left", out, of("/pod/hot"))
		}
		if out, err = r.Reclaim(t.Context(), reclaim.Ask{Bytes: 1 << 30}); !errors.Is(err, reclaim.ErrShort) || out.FellBytes <= 0 {
			t.Errorf("more than there is: %+v, %v", out, err)
		}
		must(t, k.Stop("/pod/cold"))
		must(t, k.Stop("/pod/hot"))
		must(t, k.Stop("/pod"))
		if _, err := r.Reclaim(t.Context(), reclaim.Ask{Bytes: mib}); !errors.Is(err, cgroup.ErrVanished) {
			t.Errorf("of a group that is gone: %v", err)
		}
	})
}
