package blkio

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// fake is a host's files in a temporary folder. Writes of a test land in them as they would be handed to the kernel.
func fake(t *testing.T, v2 bool, files map[string]string) (*Controller, string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := &cgroup.Mounts{V1: map[cgroup.Controller]string{cgroup.BlkIO: "/cg"}}
	if v2 {
		m = &cgroup.Mounts{Unified: "/cg", UnifiedControllers: []cgroup.Controller{cgroup.CPU, cgroup.IO}}
	}
	c, err := Open(hostfs.NewRoot(root), m)
	if err != nil {
		t.Fatal(err)
	}
	return c, root
}

const (
	bytesV1 = "254:0 Read 1459200\n254:0 Write 314773504\n254:0 Sync 1476608\n254:0 Async 314756096\n254:0 Discard 0\n254:0 Total 316232704\n8:16 Read 512\n8:16 Write 0\nTotal 316233216\n"
	opsV1   = "254:0 Read 192\n254:0 Write 353\n8:16 Read 1\n8:16 Write 0\nTotal 546\n"
	statV2  = "254:0 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n7:0 \n253:1 rbytes=9 wbytes=9 rios=9 wios=9 dbytes=0 dios=0\n8:16 rbytes=512 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.usage=12\n"
)

// What was done reads the same of both versions, by device, without the devices that lie on others.
func TestStat(t *testing.T) {
	want := []Stat{{Device{8, 16}, 512, 0, 1, 0}, {Device{254, 0}, 1459200, 314773504, 192, 353}}
	for name, c := range map[string]*Controller{
		"v2": first(fake(t, true, map[string]string{"cg/g/io.stat": statV2, "sys/dev/block/253:1/slaves/sda/x": "", "sys/dev/block/254:0/size": "1"})),
		"v1": first(fake(t, false, map[string]string{
			"cg/" + v1Files[0]: "", "cg/g/blkio.throttle.io_service_bytes_recursive": bytesV1, "cg/g/blkio.throttle.io_serviced_recursive": opsV1,
		})),
		"v1 of old": first(fake(t, false, map[string]string{
			"cg/" + v1Files[0]: "", "cg/g/blkio.throttle.io_service_bytes": bytesV1, "cg/g/blkio.throttle.io_serviced": opsV1,
		})),
	} {
		r, err := c.OpenStat("/g")
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := r.Read(nil)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if n := testing.AllocsPerRun(20, func() { got, err = r.Read(got[:0]) }); n != 0 || err != nil {
			t.Errorf("%s: one reading allocates %v times, %v", name, n, err)
		}
		if err := r.Close(); err != nil {
			t.Error(name, err)
		}
		if _, err := c.OpenStat("/none"); !errors.Is(err, cgroup.ErrVanished) {
			t.Errorf("%s: of a group that is not there: %v", name, err)
		}
	}
}

func first(c *Controller, _ string) *Controller { return c }

func TestMalformed(t *testing.T) {
	for _, text := range []string{"x:0 rbytes=1\n", "8 rbytes=1\n", "8:0 rbytes=x\n", "8:0 rbytes=\n", "8:0 rios=99999999999999999999999\n", "4294967296:0 rios=1\n"} {
		if got, err := parseStat([]byte(text), nil); !errors.Is(err, cgroup.ErrMalformed) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := parseServiced([]byte("8:0 Read\n"), false, nil, 0); !errors.Is(err, cgroup.ErrMalformed) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(statV2))
	f.Add([]byte(bytesV1))
	f.Fuzz(func(_ *testing.T, data []byte) { // neither panics
		_, _ = parseStat(data, nil)
		_, _ = parseServiced(data, true, nil, 0)
	})
}

func TestLimitsV2(t *testing.T) {
	c, root := fake(t, true, map[string]string{
		"cg/g/io.max": "254:0 rbps=max wbps=max riops=120 wiops=max\n8:0 rbps=2097152 wbps=max riops=max wiops=max\n", "cg/h/cgroup.procs": "",
	})
	got, err := c.ReadLimits("/g")
	want := []Limit{{Device: Device{8, 0}, ReadBPS: 2 << 20}, {Device: Device{254, 0}, ReadIOPS: 120}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := c.WriteLimit("/g", Limit{Device: Device{8, 0}, WriteBPS: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(root + "/cg/g/io.max")
	if text := "8:0 rbps=max wbps=1048576 riops=max wiops=max"; err != nil || string(data[:len(text)]) != text {
		t.Errorf("written %q, %v", data, err)
	}
	if _, err := c.ReadLimits("/h"); !errors.Is(err, cgroup.ErrUnsupported) {
		t.Errorf("of a group to which the controller is not handed down: %v", err)
	}
}

func TestLimitsV1(t *testing.T) {
	files := map[string]string{"cg/" + v1Files[0]: ""}
	for _, name := range v1Files {
		files["cg/g/"+name], files["cg/above/"+name], files["cg/above/below/"+name] = "", "", ""
	}
	files["cg/g/"+v1Files[2]] = "8:0 16\n254:0 32\n"
	c, root := fake(t, false, files)
	if got, err := c.ReadLimits("/g"); err != nil || !slices.Equal(got, []Limit{{Device: Device{8, 0}, ReadIOPS: 16}, {Device: Device{254, 0}, ReadIOPS: 32}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := c.WriteLimit("/g", Limit{Device: Device{8, 0}, ReadBPS: 5, ReadIOPS: 16}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(root + "/cg/g/" + v1Files[0]); err != nil || string(data) != "8:0 5" {
		t.Errorf("written %q, %v", data, err)
	}
	if data, _ := os.ReadFile(root + "/cg/g/" + v1Files[2]); string(data) != "8:0 16\n254:0 32\n" {
		t.Errorf("what stood was written again: %q", data)
	}
	if err := c.WriteLimit("/above", Limit{Device: Device{8, 0}, ReadBPS: 5}); !errors.Is(err, ErrGroupsBelow) {
		t.Errorf("of a group with others inside: %v", err)
	}
	if groups, err := c.Groups(); err != nil || !slices.Equal(groups, []string{"/above", "/above/below", "/g"}) {
		t.Errorf("%q, %v", groups, err)
	}
}

func TestNoController(t *testing.T) {
	for _, m := range []*cgroup.Mounts{
		{}, {Unified: "/cg", UnifiedControllers: []cgroup.Controller{cgroup.CPU}}, {V1: map[cgroup.Controller]string{cgroup.BlkIO: "/cg"}},
	} {
		if _, err := Open(hostfs.NewRoot(t.TempDir()), m); !errors.Is(err, cgroup.ErrUnsupported) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	c, _ := fake(t, true, nil)
	if err := c.wrap("read", "/g", "io.stat", unix.ENODEV); !errors.Is(err, cgroup.ErrVanished) {
		t.Error(err)
	}
}
