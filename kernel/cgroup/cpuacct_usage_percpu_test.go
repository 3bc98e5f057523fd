package cgroup

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestParseUsagePerCPU(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []uint64
	}{
		{"two CPUs", "1046385113204 983467120934 \n", []uint64{1046385113204, 983467120934}},
		{"one CPU", "7\n", []uint64{7}},
		{"largest", "18446744073709551615 0", []uint64{1<<64 - 1, 0}},
		{"empty", "", nil},
		{"a hole", "1  2\n", nil},
		{"no number", "1 x\n", nil},
		{"negative", "-1 2\n", nil},
		{"too large", "18446744073709551616\n", nil},
	} {
		got, err := parseUsagePerCPU(nil, []byte(c.text))
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) || (err != nil && !errors.Is(err, ErrMalformed)) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

func FuzzParseUsagePerCPU(f *testing.F) {
	f.Add([]byte("1046385113204 983467120934 \n"))
	f.Add([]byte("0\n"))
	f.Add([]byte(" 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseUsagePerCPU(nil, data)
		if (err == nil) != (len(got) > 0) || (err != nil && !errors.Is(err, ErrMalformed)) {
			t.Errorf("%v beside %v", got, err)
		}
	})
}

func TestUsagePerCPUOfAFixture(t *testing.T) {
	dir := copyFixture(t)
	name := dir + "/sys/fs/cgroup/cpuacct/batch/cpuacct.usage_percpu"
	if err := os.WriteFile(name, []byte("12 30 \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := fixtureDriver(t, hostfs.NewRoot(dir))
	u, err := d.OpenUsagePerCPU("/batch")
	must(t, err)
	defer func() { _ = u.Close() }()
	list := make([]uint64, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		if list, err = u.UsageNsec(list); err != nil || !slices.Equal(list, []uint64{12, 30}) {
			t.Fatal(list, err)
		}
	}); n != 0 {
		t.Errorf("a reading allocates %v times", n)
	}
	if _, err := d.OpenUsagePerCPU("/service"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a group without the file: %v", err)
	}
	if _, err := d.OpenUsagePerCPU("/gone"); !errors.Is(err, ErrVanished) {
		t.Errorf("no such group: %v", err)
	}
}

// The CPUs' times add up to the group's, and a group that is removed is gone.
func TestKernelUsagePerCPU(t *testing.T) {
	d := liveV1(t)
	path := ownGroup(t, d, "percpu")
	u, err := d.OpenUsagePerCPU(path)
	must(t, err)
	defer func() { _ = u.Close() }()
	g := open(t, d, path)
	_, kill := start(t, d, path, "spin")
	var list []uint64
	eventually(t, "CPU time of a spinner", func() bool {
		list, err = u.UsageNsec(list)
		must(t, err)
		total, err := g.UsageNsec()
		must(t, err)
		sum := uint64(0)
		for _, v := range list {
			sum += v
		}
		return sum > 50e6 && sum <= total
	})
	kill()
	removeGroup(t, d, path)
	if _, err := u.UsageNsec(list); !errors.Is(err, ErrVanished) {
		t.Errorf("after its group was removed: %v", err)
	}
}
