package rig

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/rig/wire"
)

// entry is what an archive has under a name.
type entry struct {
	Kind cpio.FileMode
	Perm cpio.FileMode
	Data string // of a file; of a link its target
}

// readArchive reads an archive back, and the order of its names.
func readArchive(t *testing.T, name string) (map[string]entry, []string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries := map[string]entry{}
	var order []string
	r := cpio.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, order
		}
		if err != nil {
			t.Fatal(err)
		}
		e := entry{Kind: h.Mode &^ cpio.ModePerm, Perm: h.Mode & cpio.ModePerm, Data: h.Linkname}
		if h.Mode.IsRegular() {
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			e.Data = string(data)
		}
		if _, twice := entries[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		entries[h.Name] = e
		order = append(order, h.Name)
	}
}

func TestInitramfs(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	writeFile(t, in("init"), "the init")
	writeFile(t, in("tree/b"), "of b")
	writeFile(t, in("tree/sub/a"), strings.Repeat("x", 5000))
	writeFile(t, in("tree/empty"), "")
	if err := errors.Join(
		os.Chmod(in("init"), 0o755),
		os.Chmod(in("tree/b"), 0o640),
		os.Mkdir(in("tree/hollow"), 0o700),
		os.Symlink("../sub/none", in("tree/sub/link")),
		os.Symlink("init", in("alias")), // as a checkout shares what is large with another
	); err != nil {
		t.Fatal(err)
	}
	plan := wire.Plan{
		Modules: []string{"/lib/earlier.ko"}[:0:1], // with room for more
		Disk:    "/dev/vda",
		Env:     []string{"A=b"},
		Steps:   []wire.Step{{Name: "one", Dir: "/src", Argv: []string{"/bin/true", "x"}, TimeoutSec: 3}},
	}
	i := &Initramfs{
		Init:    in("init"),
		Files:   map[string]string{"/src/pkg/testdata": in("tree"), "/bin/x": in("alias"), "/proc/y": in("init")},
		Modules: []Module{{Name: "jbd2", Data: []byte("first")}, {Name: "ext4", Data: []byte("then")}},
		Plan:    plan,
	}
	if err := i.Write(in("archive")); err != nil {
		t.Fatal(err)
	}
	got, order := readArchive(t, in("archive"))
	seen := map[string]bool{".": true}
	for _, name := range order {
		if path.IsAbs(name) || !seen[path.Dir(name)] {
			t.Errorf("%s comes before its folder, or is no path in the guest", name)
		}
		seen[name] = got[name].Kind == cpio.TypeDir
	}
	want := map[string]entry{
		"init":                      {Kind: cpio.TypeReg, Perm: 0o755, Data: "the init"},
		"bin/x":                     {Kind: cpio.TypeReg, Perm: 0o755, Data: "the init"},
		"proc/y":                    {Kind: cpio.TypeReg, Perm: 0o755, Data: "the init"},
		"rig/modules/jbd2.ko":       {Kind: cpio.TypeReg, Perm: 0o644, Data: "first"},
		"rig/modules/ext4.ko":       {Kind: cpio.TypeReg, Perm: 0o644, Data: "then"},
		"src/pkg/testdata/b":        {Kind: cpio.TypeReg, Perm: 0o640, Data: "of b"},
		"src/pkg/testdata/empty":    {Kind: cpio.TypeReg, Perm: 0o644},
		"src/pkg/testdata/sub/a":    {Kind: cpio.TypeReg, Perm: 0o644, Data: strings.Repeat("x", 5000)},
		"src/pkg/testdata/sub/link": {Kind: cpio.TypeSymlink, Perm: 0o777, Data: "../sub/none"},
		strings.TrimPrefix(wire.PlanPath, "/"): {
			Kind: cpio.TypeReg, Perm: 0o644, Data: got[strings.TrimPrefix(wire.PlanPath, "/")].Data, // below
		},
	}
	for _, name := range []string{
		"proc", "sys", "dev", "tmp", "run", "mnt", "var", "var/lock", "var/log", "var/tmp", "rig", "rig/modules", "bin", "src", "src/pkg", "src/pkg/testdata",
		"src/pkg/testdata/sub", "src/pkg/testdata/hollow",
	} {
		want[name] = entry{Kind: cpio.TypeDir, Perm: 0o755}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var read wire.Plan
	if err := json.Unmarshal([]byte(got[strings.TrimPrefix(wire.PlanPath, "/")].Data), &read); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/rig/modules/jbd2.ko", "/rig/modules/ext4.ko"}; !slices.Equal(read.Modules, want) {
		t.Errorf("modules %q, want %q", read.Modules, want)
	}
	read.Modules = plan.Modules
	if diff := cmp.Diff(plan, read); diff != "" {
		t.Errorf("plan: -want +got:\n%s", diff)
	}
	// One plan gives one archive.
	again := in("again")
	if err := i.Write(again); err != nil {
		t.Fatal(err)
	}
	if a, b := contents(t, in("archive")), contents(t, again); a != b {
		t.Error("written twice, they differ")
	}
}

func contents(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestInitramfsThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "init"), "")
	for name, i := range map[string]*Initramfs{
		"no init":   {Init: filepath.Join(dir, "none")},
		"no file":   {Init: filepath.Join(dir, "init"), Files: map[string]string{"/x": filepath.Join(dir, "none")}},
		"no folder": {Init: filepath.Join(dir, "init")},
	} {
		to := filepath.Join(dir, "archive")
		if name == "no folder" {
			to = filepath.Join(dir, "none", "archive")
		}
		if err := i.Write(to); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), filepath.Join(dir, "none")) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
