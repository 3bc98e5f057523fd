package rig

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module is an ELF file with a section .modinfo of these entries, and no more than that.
func module(entries ...string) []byte {
	const header, section = 64, 64
	info := []byte(strings.Join(entries, "\x00") + "\x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9)) // 64 bits, little endian
	put([]uint16{1, 62})                                             // relocatable, x86-64
	put(uint32(1))
	put([]uint64{0, 0, uint64(header + len(info) + len(names))}) // no entry, no segments, the sections
	put(uint32(0))
	put([]uint16{header, 0, 0, section, 3, 2})
	b.Write(info)
	b.Write(names)
	put(make([]uint64, section/8)) // the null section
	for _, s := range []struct{ name, kind, at, size int }{
		{1, 1, header, len(info)},
		{10, 3, header + len(info), len(names)},
	} {
		put([]uint32{uint32(s.name), uint32(s.kind)})
		put([]uint64{0, 0, uint64(s.at), uint64(s.size), 0, 1, 0})
	}
	return b.Bytes()
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// makeKernel lays a kernel out as rig/prepare does, with modules of these dependencies
// under names of files.
func makeKernel(t *testing.T, dir, series string) {
	t.Helper()
	base := filepath.Join(dir, "kernel", series)
	writeFile(t, filepath.Join(base, "release"), series+".0-amd64\n")
	writeFile(t, filepath.Join(base, "vmlinux"), "\x7fELF")
	modules := filepath.Join(base, "root", "lib", "modules", series+".0-amd64", "kernel")
	for name, info := range map[string][]string{
		"fs/ext4/ext4.ko":            {"license=GPL", "softdep=pre: crypto-crc32c", "depends=jbd2,crc16,mbcache"},
		"fs/jbd2/jbd2.ko":            {"depends=crc32c_generic"},
		"fs/mbcache.ko":              {"depends="},
		"lib/crc16.ko":               {"depends="},
		"crypto/crc32c_generic.ko":   {"alias=crypto-crc32c"},
		"drivers/zram/zram.ko":       {"softdep=post: late pre: lzo-rle", "depends="},
		"crypto/lzo-rle.ko":          {"softdep=pre: crc16 post: late", "depends=zram"},
		"drivers/block/late.ko":      {},
		"drivers/block/virtio-x.ko":  {"depends=late"},
		"drivers/block/README.korea": {},
	} {
		writeFile(t, filepath.Join(modules, name), string(module(info...)))
	}
}

func TestModules(t *testing.T) {
	dir := t.TempDir()
	makeKernel(t, dir, "6.12")
	k, err := OpenKernel(dir, "6.12")
	if err != nil {
		t.Fatal(err)
	}
	if k.Release != "6.12.0-amd64" || k.Series != "6.12" || k.Image != filepath.Join(dir, "kernel/6.12/vmlinux") {
		t.Errorf("got %+v", k)
	}
	for _, c := range []struct {
		names []string
		want  []string
	}{
		{},
		{[]string{"virtio_pci"}, nil}, // built in
		{[]string{"late"}, []string{"late"}},
		{[]string{"virtio_x"}, []string{"late", "virtio_x"}},
		{[]string{"virtio-x", "late"}, []string{"late", "virtio_x"}},
		{[]string{"ext4"}, []string{"crc32c_generic", "jbd2", "crc16", "mbcache", "ext4"}},
		{[]string{"mbcache", "ext4", "ext4"}, []string{"mbcache", "crc32c_generic", "jbd2", "crc16", "ext4"}},
		{[]string{"zram"}, []string{"crc16", "lzo_rle", "zram"}}, // a cycle, and what goes before and after
	} {
		list, err := k.Modules(c.names...)
		if err != nil {
			t.Errorf("%q: %v", c.names, err)
			continue
		}
		var got []string
		for _, m := range list {
			got = append(got, m.Name)
			if !bytes.HasPrefix(m.Data, []byte("\x7fELF")) {
				t.Errorf("%s: %.10q is no module", m.Name, m.Data)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: -want +got:\n%s", c.names, diff)
		}
	}
}

func TestModulesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	makeKernel(t, dir, "6.1")
	root := filepath.Join(dir, "kernel/6.1/root/lib/modules/6.1.0-amd64")
	writeFile(t, filepath.Join(root, "text.ko"), "not an ELF file")
	writeFile(t, filepath.Join(root, "packed.ko.xz"), "not an xz file")
	writeFile(t, filepath.Join(root, "bare.ko"), strings.Replace(string(module()), ".modinfo", ".comment", 1))
	k, err := OpenKernel(dir, "6.1")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"text": "text.ko: no ELF file", "packed": "xz -dc " + filepath.Join(root, "packed.ko.xz"), "bare": "bare.ko: no section .modinfo"} {
		if _, err := k.Modules(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestOpenKernelThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "kernel", "6.1")
	check := func(what string, prepared bool, texts ...string) {
		t.Helper()
		k, err := OpenKernel(dir, "6.1")
		if err == nil {
			t.Fatalf("%s: got %+v", what, k)
		}
		if errors.Is(err, ErrNotPrepared) == prepared {
			t.Errorf("%s: got %v", what, err)
		}
		for _, text := range append(texts, "kernel 6.1: ") {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: it does not say %q: %v", what, text, err)
			}
		}
	}
	check("nothing", false, "make rig")
	writeFile(t, filepath.Join(base, "release"), "6.1.0-amd64\n")
	check("no image", false, "vmlinux")
	writeFile(t, filepath.Join(base, "vmlinux"), "")
	check("no tree", true, "lib/modules/6.1.0-amd64")
	writeFile(t, filepath.Join(base, "root/lib/modules/6.1.0-amd64/modules.builtin"), "")
	check("no modules", true, "no modules below")
}

func FuzzDependencies(f *testing.F) {
	f.Add(module("depends=a,b", "softdep=pre: c d post: e"))
	f.Add(module("softdep=post: a pre:"))
	f.Add(module())
	f.Add([]byte("\x7fELF"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		names, err := dependencies(data)
		if err != nil && names != nil {
			t.Errorf("names %q with an error: %v", names, err)
		}
		for _, n := range names {
			if strings.ContainsAny(n, ",\x00") {
				t.Errorf("name %q", n)
			}
		}
	})
}
