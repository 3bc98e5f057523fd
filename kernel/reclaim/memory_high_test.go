package reclaim

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// folder is a memory controller of cgroup v2 in a folder of files, with one group.
func folder(t *testing.T, high string) (m *Memory, file string) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(root+"/cg/g", 0o755); err != nil {
		t.Fatal(err)
	}
	file = root + "/cg/g/memory.high"
	if err := os.WriteFile(file, []byte(high), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := Open(hostfs.NewRoot(root), &cgroup.Mounts{Unified: "/cg", UnifiedControllers: []cgroup.Controller{cgroup.Memory}})
	if err != nil {
		t.Fatal(err)
	}
	return m, file
}

// What stands is read, none included; what is no limit is refused; what is written is what the kernel's file says.
func TestHigh(t *testing.T) {
	for text, want := range map[string]int64{"max\n": NoHigh, "4096\n": 4096, "0\n": 0, "18446744073709551615\n": NoHigh} {
		m, _ := folder(t, text)
		if got, err := m.ReadHigh("/g"); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1\n", "much\n"} {
		m, _ := folder(t, text)
		if _, err := m.ReadHigh("/g"); !errors.Is(err, cgroup.ErrMalformed) {
			t.Errorf("%q: %v", text, err)
		}
	}
	m, file := folder(t, "")
	for bytes, want := range map[int64]string{1 << 20: "1048576", NoHigh: "max"} {
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		if err := m.WriteHigh("/g", bytes); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if _, err := m.ReadHigh("/gone"); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("a group that is gone: %v", err)
	}
	v1, err := Open(hostfs.NewRoot(t.TempDir()), &cgroup.Mounts{V1: map[cgroup.Controller]string{cgroup.Memory: "/memory"}})
	if err != nil {
		t.Fatal(err)
	}
	_, readErr := v1.ReadHigh("/g")
	if writeErr := v1.WriteHigh("/g", 1); !errors.Is(readErr, cgroup.ErrUnsupported) || !errors.Is(writeErr, cgroup.ErrUnsupported) {
		t.Errorf("on v1: %v, %v", readErr, writeErr)
	}
}

// A limit below what a group has stands at once, takes what is above it, and the write does not wait for all of that.
func TestHighOnTheKernel(t *testing.T) {
	h := live(t)
	if !h.m.V2() {
		t.Skip("the memory controller is on cgroup v1, which has no memory.high")
	}
	group := h.group(t, "high")
	mt := h.meter(t, group)
	w := h.worker(t, group)
	w.do("write %s 48", file(t))
	eventually(t, "40 MiB of page cache", func() bool { return stat(t, mt).File.Bytes >= 40*mib })
	began := time.Now()
	if err := h.m.WriteHigh(group, 16*mib); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the write took %v", took)
	}
	if got, err := h.m.ReadHigh(group); err != nil || got != 16*mib {
		t.Errorf("memory.high is %d, %v", got, err)
	}
	w.do("anon a 1") // what it asks for beyond has the kernel take the rest
	eventually(t, "less than 24 MiB", func() bool { return current(t, mt) < 24*mib })
	if err := h.m.WriteHigh(group, NoHigh); err != nil {
		t.Fatal(err)
	}
	if got, err := h.m.ReadHigh(group); err != nil || got != NoHigh {
		t.Errorf("memory.high is %d, %v", got, err)
	}
}
