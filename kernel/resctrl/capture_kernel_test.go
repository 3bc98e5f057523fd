package resctrl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/mountinfo"
)

// printCapture is for a rig that brings no files out of the guest.
var printCapture = flag.Bool("resctrl.print", false, "print captured trees on standard output, base64 of a gzipped tar")

// TestKernelCapture saves the trees that are fixtures elsewhere (testdata/README.md), and
// holds the driver to seeing the same in a copy as in the kernel.
func TestKernelCapture(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     MountOptions
		setUp func(t *testing.T, d *Driver)
	}{
		{"", MountOptions{}, func(t *testing.T, d *Driver) {
			be := ctrlGroup(t, d, "be")
			monGroup(t, d, be.Name, "m")
			stranger(t, d, Name{Mon: "cadvisor-app"})
			theirs := stranger(t, d, Name{Ctrl: "COS1"})
			rest := must[*Info](t)(d.Info()).Cache(L3).FullMask &^ 0xf
			put(t, d.path(Name{})+"/schemata", fmt.Sprintf("L3:0=%s;1=%s\n", rest, rest))
			put(t, d.path(be.Name)+"/schemata", "L3:0=30;1=60\nMB:0=20;1=50\n")
			put(t, d.path(theirs.Name)+"/schemata", "L3:0=f;1=f\n")
			put(t, d.path(theirs.Name)+"/mode", "exclusive\n")
			put(t, d.path(be.Name)+"/cpus_list", "3\n")
			must[Moved](t)(d.MoveThreads(be.Identity, []int32{1}))
		}},
		{"-cdp-mbps", MountOptions{CDP: true, MBps: true, Debug: newest()}, func(t *testing.T, d *Driver) {
			be := ctrlGroup(t, d, "be")
			put(t, d.path(be.Name)+"/schemata", "L3CODE:0=3\nL3DATA:0=30\nMB:0=300\n")
			_ = d.writeSchemata(be.Name, "L3:0=3\n") // for a status to be read
		}},
	} {
		t.Run("qemu-rdt"+c.name, func(t *testing.T) {
			d := mounted(t, c.o)
			c.setUp(t, d)
			dir := t.TempDir()
			for _, path := range []string{DefaultPoint, mountinfo.Path, filesystemsPath} {
				copyTree(t, path, dir)
			}
			save(t, dir, "qemu-rdt-"+rigtest.Kernel()+c.name)
			compare(t, d, hostfs.NewRoot(dir))
		})
	}
}

// copyTree copies a file, or a directory with all in it, to the same place below dir.
func copyTree(t *testing.T, path, dir string) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		to := filepath.Join(dir, p)
		if err != nil || e.IsDir() {
			return errorsOr(err, os.MkdirAll(to, 0o755))
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return errorsOr(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func errorsOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// save writes a tree as name.tar where the rig looks for it.
func save(t *testing.T, dir, name string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rigtest.Out(t, "resctrl/"+name+".tar"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if !*printCapture {
		return
	}
	var z bytes.Buffer
	gz := gzip.NewWriter(&z)
	if _, err := io.Copy(gz, &b); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("capture %s begins\n", name)
	for text := base64.StdEncoding.EncodeToString(z.Bytes()); text != ""; {
		n := min(len(text), 100)
		fmt.Println("capture:", text[:n])
		text = text[n:]
	}
	fmt.Println("capture ends")
}

// compare reads the same through the kernel and through the copy.
func compare(t *testing.T, d *Driver, root *hostfs.Root) {
	t.Helper()
	at, err := Discover(root)
	if err != nil || at != d.Mounted() {
		t.Fatalf("Discover = %+v, %v, want %+v", at, err, d.Mounted())
	}
	dup, err := Open(root, at, d.opt)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(must[*Info](t)(d.Info()), must[*Info](t)(dup.Info())); diff != "" {
		t.Errorf("info (-kernel +copy):\n%s", diff)
	}
	live, dead := must[[]Group](t)(d.Groups(ListOptions{})), must[[]Group](t)(dup.Groups(ListOptions{}))
	for i := range live {
		live[i].Inode = 0
	}
	for i := range dead {
		dead[i].Inode = 0
	}
	if diff := cmp.Diff(live, dead); diff != "" || len(live) < 2 {
		t.Errorf("groups (-kernel +copy):\n%s", diff)
	}
	a, b := must[Budget](t)(d.Budget()), must[Budget](t)(dup.Budget())
	a.RMIDs.Limbo, b.RMIDs.Limbo = 0, 0
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("budget (-kernel +copy):\n%s", diff)
	}
	if a, b := d.status(), dup.status(); a != b {
		t.Errorf("status %q, copy %q", a, b)
	}
}
