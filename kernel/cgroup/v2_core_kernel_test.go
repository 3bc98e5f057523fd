package cgroup

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What every v2 hierarchy does, also one without controllers: these run on a hybrid host's
// cgroup2 mount as well.

// TestKernelV2Threaded: what a threaded subtree refuses has a name.
func TestKernelV2Threaded(t *testing.T) {
	d := liveV2(t)
	top := ownGroup(t, d, "threaded")
	leaf, below := top+"/leaf", top+"/leaf/below"
	must(t, d.Mkdir(leaf))
	t.Cleanup(func() { removeGroup(t, d, leaf) })
	on, err := d.ReadSubtreeControl(top)
	must(t, err)
	if len(on) > 0 {
		must(t, d.Disable(top, on...)) // domain controllers do not go with threads
	}
	must(t, d.MakeThreaded(leaf))
	must(t, d.tree.fs.(interface {
		Mkdir(string, uint32) error
	}).Mkdir(d.top+below, groupPerm))
	t.Cleanup(func() { removeGroup(t, d, below) })
	for path, want := range map[string]Type{"/": Domain, top: DomainThreaded, leaf: Threaded, below: DomainInvalid} {
		if got, err := d.ReadType(path); err != nil || got != want {
			t.Errorf("type of %s = %q, %v; want %q", path, got, err, want)
		}
	}
	// The whole process joins the subtree by its root; then its threads may move.
	pid, _ := start(t, d, top, "sleep")
	must(t, d.write(leaf, "cgroup.threads", itoa(pid)))
	if _, err := d.Procs(leaf); !errors.Is(err, ErrThreaded) || !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), `"threaded"`) {
		t.Errorf("processes of a threaded group: %v", err)
	}
	if got, err := d.Procs(top); err != nil || !slices.Equal(got, []int32{pid}) {
		t.Errorf("processes of the threaded subtree: %v, %v", got, err)
	}
	g := open(t, d, top)
	if got := procs(t, g); !slices.Equal(got, []int32{pid}) {
		t.Errorf("Procs over a threaded descendant = %v", got)
	}
	threaded := open(t, d, leaf)
	if _, err := threaded.Procs(nil); !errors.Is(err, ErrThreaded) {
		t.Errorf("Procs of an open threaded group: %v", err)
	}
	if _, err := threaded.UsageNsec(); err != nil {
		t.Errorf("usage of a threaded group: %v", err)
	}
	if err := d.Kill(leaf, 0); !errors.Is(err, ErrThreaded) {
		t.Errorf("killing a threaded group: %v", err)
	}
	other, _ := startTask(t, "sleep")
	if err := d.MovePID(below, other); !errors.Is(err, ErrThreaded) || !strings.Contains(err.Error(), `"domain invalid"`) {
		t.Errorf("moving into an invalid domain: %v", err)
	}
}

// TestKernelV2Root: what the root group has not is named, and it is never written.
func TestKernelV2Root(t *testing.T) {
	d := liveV2(t)
	if d.partial {
		t.Skip("the true root of the hierarchy cannot be seen from this cgroup namespace")
	}
	for name, err := range map[string]error{
		"events": second(d.ReadEvents("/")), "limit": second(d.ReadCPUMax("/")), "cpus": second(d.ReadCPUs("/")),
		"partition": second(d.ReadPartition("/")),
	} {
		if !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrNoController) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"enable": d.Enable("/", CPU), "disable": d.Disable("/", CPU),
		"partition": d.WritePartition("/", Member), "threaded": d.MakeThreaded("/"), "weight": d.WriteWeight("/", 100),
	} {
		if !errors.Is(err, ErrRootGroup) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if data, err := d.read("/", "cpu.stat"); err != nil || len(data) == 0 {
		t.Errorf("cpu.stat = %q, %v", data, err)
	}
}

func second[T any](_ T, err error) error { return err }
