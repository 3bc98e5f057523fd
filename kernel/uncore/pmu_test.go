package uncore

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
)

// What follows is written from the kernel's drivers (arch/x86/events/intel/uncore_snbep.c, arch/x86/events/amd/uncore.c), not taken
// from machines.
var (
	skylake = server{vendor: intel, family: 6, model: 0x55, pmu: cha, units: 12, formats: map[string]string{
		"event": "config:0-7", "umask": "config:8-15", "edge": "config:18", "tid_en": "config:19", "inv": "config:23", "thresh": "config:24-31",
		"filter_tid": "config1:0-8", "filter_state": "config1:17-26", "filter_rem": "config1:32", "filter_loc": "config1:33", "filter_nm": "config1:36",
		"filter_all_op": "config1:35", "filter_not_nm": "config1:37", "filter_opc0": "config1:41-50", "filter_opc1": "config1:51-60",
	}}
	iceLake  = server{vendor: intel, family: 6, model: 0x6a, pmu: cha, units: 40, formats: map[string]string{"event": "config:0-7", "umask": "config:8-15,32-57", "edge": "config:18"}}
	sapphire = server{vendor: intel, family: 6, model: 0x8f, pmu: cha, units: 60, formats: map[string]string{"event": "config:0-7", "umask": "config:8-15,32-63", "tid_en": "config:16"}}
	genoa    = server{vendor: amd, family: 25, model: 0x11, pmu: l3, formats: map[string]string{
		"event": "config:0-7", "umask": "config:8-15", "coreid": "config:42-44", "enallslices": "config:46", "enallcores": "config:47", "sliceid": "config:48-50", "threadmask": "config:56-57",
	}}
	turin = server{vendor: amd, family: 26, model: 0x02, pmu: l3, formats: genoa.formats}
)

// server is a machine of two sockets of two CPUs each.
type server struct {
	vendor        string
	family, model int
	pmu           string
	units         int // 0: one, without a number
	formats       map[string]string
}

// files are the machine's, by path.
func (s server) files() map[string]string {
	f := map[string]string{
		"/proc/cpuinfo":                  fmt.Sprintf("processor\t: 0\nvendor_id\t: %s\ncpu family\t: %d\nmodel\t\t: %d\n\n", s.vendor, s.family, s.model),
		"/sys/devices/system/cpu/online": "0-3\n",
		devices + "/software/type":       "1\n",
	}
	for cpu := range 4 {
		dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/", cpu)
		f[dir+"topology/physical_package_id"], f[dir+"cache/index3/level"], f[dir+"cache/index3/type"] = fmt.Sprintln(cpu/2), "3\n", "Unified\n"
		f[dir+"cache/index3/id"] = fmt.Sprintln(cpu / 2)
	}
	for i := range max(1, s.units) {
		dir := devices + "/" + s.pmu
		if s.units > 0 {
			dir += fmt.Sprintf("_%d", i)
		}
		f[dir+"/type"], f[dir+"/cpumask"] = fmt.Sprintln(20+i), "0,2\n"
		for name, format := range s.formats {
			f[dir+"/format/"+name] = format + "\n"
		}
	}
	return f
}

// tree writes files below a folder.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		write(t, dir, path, text)
	}
	return dir
}

func write(t testing.TB, dir, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir+path), 0o755), os.WriteFile(dir+path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// The right-hand sides are what perf(1) would open: of Intel event, umask and "filter1" of github.com/intel/perfmon in the bits
// that its registers have, of AMD "amd_l3/event=0xac,umask=0x01,enallcores=0x1,enallslices=0x1,sliceid=0x3,threadmask=0x3/".
func TestEvents(t *testing.T) {
	const nearDRAM = 1<<46 | 1<<47 | 3<<48 | 3<<56
	for _, c := range []struct {
		server server
		units  []string
		want   []perf.Raw
	}{
		{skylake, []string{"uncore_cha_0", "uncore_cha_3", "uncore_cha_6", "uncore_cha_9"}, []perf.Raw{
			{Type: 20, Config: 0x2136, Config1: 0x40432 << 32}, {Type: 20, Config: 0x2135, Config1: 0x40432 << 32}, {Type: 20},
		}},
		{iceLake, []string{"uncore_cha_0", "uncore_cha_10", "uncore_cha_20", "uncore_cha_30"}, []perf.Raw{
			{Type: 20, Config: 0xc816fe<<32 | 0x0136}, {Type: 20, Config: 0xc816fe<<32 | 0x0135}, {Type: 20},
		}},
		{sapphire, []string{"uncore_cha_0", "uncore_cha_15", "uncore_cha_30", "uncore_cha_45"}, []perf.Raw{
			{Type: 20, Config: 0xc816fe<<32 | 0x0136}, {Type: 20, Config: 0xc816fe<<32 | 0x0135}, {Type: 20, Config: 1},
		}},
		{genoa, []string{"amd_l3"}, []perf.Raw{{Type: 20, Config: nearDRAM | 0x01ac}, {Type: 20, Config: nearDRAM | 0x01ad}}},
		{turin, []string{"amd_l3"}, []perf.Raw{{Type: 20, Config: nearDRAM | 0x01ac}, {Type: 20, Config: nearDRAM | 0x01ad}}},
	} {
		m, err := NewMeter(hostfs.NewRoot(tree(t, c.server.files())), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(m)
		var units []string
		for _, u := range m.units {
			units = append(units, u.pmu.Name)
		}
		got := slices.Clone(m.units[0].events)
		for i := range got {
			got[i].Name = ""
		}
		if diff := cmp.Diff(c.want, got) + cmp.Diff(c.units, units); diff != "" {
			t.Errorf("%s: %s", m, diff)
		}
	}
}

func TestWhyNot(t *testing.T) {
	for name, c := range map[string]struct {
		from   server
		change map[string]string // "": removed
		want   error
	}{
		"an unknown CPU":              {server{vendor: intel, family: 6, model: 0x4f, pmu: cha, units: 1}, nil, ErrUnknownCPU},
		"Zen 3, of another unit":      {server{vendor: amd, family: 25, model: 1, pmu: l3}, nil, ErrUnknownCPU},
		"no CPU type":                 {iceLake, map[string]string{"/proc/cpuinfo": "CPU implementer: 0x41\n"}, ErrUnknownCPU},
		"a virtual machine":           {server{vendor: intel, family: 6, model: 0x6a, pmu: "cpu"}, nil, ErrNoPMU},
		"no numbers of PMUs":          {skylake, map[string]string{devices + "/uncore_cha_0/type": "x\n"}, ErrMalformed},
		"a negative number":           {skylake, map[string]string{devices + "/uncore_cha_0/type": "-1\n"}, ErrMalformed},
		"a malformed list of CPUs":    {skylake, map[string]string{devices + "/uncore_cha_0/cpumask": "0-\n"}, ErrMalformed},
		"no list of CPUs":             {skylake, map[string]string{devices + "/uncore_cha_0/cpumask": ""}, fs.ErrNotExist},
		"a field the kernel lacks":    {genoa, map[string]string{devices + "/amd_l3/format/sliceid": ""}, fs.ErrNotExist},
		"a field that is too small":   {iceLake, map[string]string{devices + "/uncore_cha_0/format/umask": "config:8-15\n"}, ErrMalformed},
		"a format of another grammar": {iceLake, map[string]string{devices + "/uncore_cha_0/format/umask": "config9:0-63\n"}, ErrMalformed},
	} {
		files := c.from.files()
		maps.Copy(files, c.change)
		maps.DeleteFunc(files, func(_, text string) bool { return text == "" })
		_, err := NewMeter(hostfs.NewRoot(tree(t, files)), nil)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		t.Logf("%s: %v", name, err)
	}
	if _, err := NewMeter(hostfs.NewRoot(tree(t, map[string]string{"/proc/cpuinfo": iceLake.files()["/proc/cpuinfo"]})), nil); !errors.Is(err, ErrNoPMU) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without perf in the kernel: %v", err)
	}
}

func TestNames(t *testing.T) {
	files := map[string]string{}
	for _, name := range []string{"uncore_cha_10", "uncore_cha_9", "uncore_cha", "uncore_cha_", "uncore_cha_x", "uncore_chap_1", "uncore_cha1", "uncore_cha_99999999999", "amd_l3"} {
		files[devices+"/"+name+"/type"] = "1"
	}
	got, err := Names(hostfs.NewRoot(tree(t, files)), cha)
	if diff := cmp.Diff([]string{"uncore_cha", "uncore_cha_9", "uncore_cha_10"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestTerms(t *testing.T) {
	files := skylake.files()
	files[devices+"/uncore_cha_0/events/clockticks"] = "event=0x01,umask=0x2,inv\n"
	p, err := ReadPMU(hostfs.NewRoot(tree(t, files)), "uncore_cha_0")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := p.Event("clockticks"); err != nil || e.Config != 1<<23|0x0201 || e.Name != "uncore_cha_0/event=0x01,umask=0x2,inv/" {
		t.Errorf("%+v, %v", e, err)
	}
	for terms, want := range map[string]error{
		"": ErrMalformed, "event": nil, "event=": ErrMalformed, "event=0x100": ErrMalformed, "event=-1": ErrMalformed, "event=?": ErrMalformed,
		"event=1,": ErrMalformed, "../type=1": ErrMalformed, "none=1": fs.ErrNotExist, "filter_opc0=0x3ff": nil, "filter_opc0=0x400": ErrMalformed,
	} {
		if _, err := p.Encode(terms); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%q: %v, want %v", terms, err, want)
		}
	}
	if _, err := p.Event("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an event without a name: %v", err)
	}
}

// What a field is given can be read back from its bits, and nothing else is set.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{
		"config:0-7,32-35", "config1:0-25", "config:8-15,32-43,45-55", "config2:63", "config:0-63", "config:", "config", "config3:0", ":1", "config:7-0", "config:0,0", "config:64",
		"config:1-", "config:-1", "config:0x1", "config: 1", "config:1 ", "config:0-7,,8", "config:+1", "config:1:2", "config:99999999999999999999",
	} {
		f.Add(s, uint64(0xdeadbeefcafe0123))
	}
	f.Fuzz(func(t *testing.T, text string, v uint64) {
		field, err := parseFormat(text)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		var config [3]uint64
		at := [3]*uint64{&config[0], &config[1], &config[2]}
		n := len(field.bits)
		if n == 0 || n > 64 {
			t.Fatalf("%q has %d bits", text, n)
		}
		if n < 64 {
			if field.put(v|1<<n, at) || config != [3]uint64{} {
				t.Fatalf("%q has room for bit %d", text, n)
			}
			v &= 1<<n - 1
		}
		if !field.put(v, at) {
			t.Fatalf("%q has no room for %#x", text, v)
		}
		back := uint64(0)
		for i, bit := range field.bits {
			back |= config[field.word] >> bit & 1 << i
			config[field.word] &^= 1 << bit
		}
		if back != v || config != [3]uint64{} {
			t.Fatalf("%q of %#x: %#x, and %#x elsewhere", text, v, back, config)
		}
	})
}
