package repository

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write cmd/commensal/NOTICE anew")

// linked is a package that the agent's binary links, as `go list` has it.
type linked struct {
	ImportPath string
	Dir        string
	Standard   bool
	Module     *struct{ Path, Version, Dir string }
}

// agentLinks lists what the agent's binary links on the machines that it is built for.
func agentLinks(t *testing.T) []linked {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command here")
	}
	var list []linked
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,Module", "./cmd/commensal")
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p linked
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
	}
	if len(list) < 200 {
		t.Fatalf("%d packages: the test looked in the wrong place", len(list))
	}
	return list
}

// What runs as root on people's servers has none of what only labs, tests and the rig need.
func TestAgentLinksNoLab(t *testing.T) {
	t.Parallel()
	never := []string{
		module + "/lab", module + "/rig", module + "/twin", module + "/scenarios", module + "/internal/testchild", module + "/internal/rigtest", module + "/internal/labtest", module + "/internal/chromium",
		"gonum.org", "github.com/HdrHistogram", "github.com/cavaliergopher/cpio", "github.com/google/go-cmp", "github.com/minio/minio-go", "go.etcd.io/bbolt", "testing", "net/http/pprof",
	}
	for _, p := range agentLinks(t) {
		for _, n := range never {
			if within(p.ImportPath, n) {
				t.Errorf("cmd/commensal links %s", p.ImportPath)
			}
		}
	}
}

// noticeFile is how files are called whose text goes with the code.
var noticeFile = regexp.MustCompile(`^(?i)(LICEN[CS]E|COPYING|NOTICE|PATENTS)([.-].*)?$`)

// notices returns each text with those whose it is, by the folders of what is linked and those above
// them in the module.
func notices(t *testing.T, list []linked) map[string][]string {
	t.Helper()
	texts := map[string][]string{}
	read := func(dir, whose string) (n int) {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.IsDir() || !noticeFile.MatchString(f.Name()) {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			n++
			if text := strings.TrimSpace(string(b)); !slices.Contains(texts[text], whose) {
				texts[text] = append(texts[text], whose)
			}
		}
		return n
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	if read(strings.TrimSpace(string(goroot)), "the Go standard library and runtime") == 0 {
		t.Skip("this Go has no LICENSE beside it")
	}
	done := map[string]bool{}
	for _, p := range list {
		if p.Module == nil || p.Module.Path == module {
			continue
		}
		whose := p.Module.Path + " " + p.Module.Version
		for dir := p.Dir; !done[dir]; dir = filepath.Dir(dir) {
			done[dir] = true
			if n := read(dir, whose); dir == p.Module.Dir {
				if n == 0 {
					t.Errorf("%s has no license in its folder: say in this test what it is", whose)
				}
				break
			}
		}
	}
	return texts
}

// TestNotice: what other people's licenses ask to be passed on is in the binary, for what it links
// and nothing else. `make notice` writes it.
func TestNotice(t *testing.T) {
	t.Parallel()
	texts := notices(t, agentLinks(t))
	var parts []string
	for text, whose := range texts {
		slices.Sort(whose)
		parts = append(parts, fmt.Sprintf("%s\n\n%s\n", strings.Join(whose, "\n"), text))
	}
	slices.Sort(parts)
	line := "\n" + strings.Repeat("=", 80) + "\n"
	want := "Commensal is licensed under the Apache License 2.0. The program `commensal` contains code of others,\n" +
		"under the licenses below, each with those whose it is.\n" + line + strings.Join(parts, line)
	const file = "../../cmd/commensal/NOTICE"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s has not the licenses of what the binary links: run make notice", file)
	}
}

// A finding fails the run; a database that is out of reach is said and does not; anything else that goes
// wrong does.
func TestVulncheck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		prints string
		exits  int
		says   string
		want   int
	}{
		{"No vulnerabilities found.", 0, "No vulnerabilities found.", 0},
		{"Vulnerability #1: GO-2026-0001", 3, "GO-2026-0001", 1},
		{"govulncheck: fetching vulnerabilities: Get \"https://vuln.go.dev\": no such host", 1, "NOT CHECKED", 0},
		{"govulncheck: loading packages: there are errors", 1, "loading packages", 1},
	} {
		tool := filepath.Join(t.TempDir(), "govulncheck")
		if err := os.WriteFile(tool, fmt.Appendf(nil, "#!/bin/sh\necho '%s'\nexit %d\n", tt.prints, tt.exits), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("../../scripts/vulncheck", tool, "./...")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != tt.want || !strings.Contains(string(out), tt.says) {
			t.Errorf("%q, exit %d: got exit %d (%v): %s", tt.prints, tt.exits, cmd.ProcessState.ExitCode(), err, out)
		}
	}
}
