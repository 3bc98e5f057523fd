package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
)

const hosts = "../../node/source/testdata/"

// configMatch runs the command and returns what it prints, and its exit code.
func configMatch(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	p := &cli.Printer{}
	root := &cobra.Command{Use: "commensal"}
	root.AddCommand(configCommand(p))
	var b bytes.Buffer
	root.SetOut(&b)
	root.SetArgs(append([]string{"config", "match"}, args...))
	code = cli.Execute(root, p)
	return b.String(), code
}

// TestMatchGoldens: one configuration for every kind of host, against some of them.
func TestMatchGoldens(t *testing.T) {
	for host, want := range map[string]int{
		"systemd-v2": cli.CodeDone, "systemd-v1": cli.CodeDone, "docker-v2-systemd": cli.CodeFailed, "docker-v1-cgroupfs": cli.CodeDone,
		"kubernetes-v2-systemd-containerd": cli.CodeDone, "kubernetes-v1-cgroupfs-crio": cli.CodeDone, "unknown-v2": cli.CodeDone, "ecs-v1": cli.CodeUnknown,
	} {
		t.Run(host, func(t *testing.T) {
			got, code := configMatch(t, "testdata/match/config.yaml", "--tree", hosts+host+".txt")
			if code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			golden := filepath.Join("testdata", "match", host+".txt")
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMatchJSON(t *testing.T) {
	p := &cli.Printer{}
	root := &cobra.Command{Use: "commensal"}
	root.AddCommand(configCommand(p))
	var b bytes.Buffer
	root.SetOut(&b)
	root.SetArgs([]string{"config", "match", "--json", "testdata/match/config.yaml", "--tree", hosts + "docker-v2-systemd.txt"})
	if code := cli.Execute(root, p); code != cli.CodeFailed {
		t.Errorf("exit code %d", code)
	}
	var m matching
	if err := json.Unmarshal(b.Bytes(), &m); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if m.Layout != "v2" || len(m.Tasks) != 3 || len(m.Nested) != 1 || m.Nested[0].Inside != "/batch.slice" || m.Tasks[1].Is.Runtime != "docker" {
		t.Errorf("%+v", m)
	}
}

// TestMatchNames: rules that name pods are judged by a list of names, and say so without.
func TestMatchNames(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	tree := write("tree", "/kubepods\n/kubepods/pod1\n/kubepods/pod2\n")
	file := write("config", "tasks:\n  - {pods: {namespace: prod, name: web-*}, job: web, class: LC}\n")
	out, code := configMatch(t, file, "--tree", tree, "--pods", write("pods", "prod_web-7_1\nprod_db-0_2\n"))
	if code != cli.CodeDone || !strings.Contains(out, "prod/web-7: pod 1 (guaranteed)  /kubepods/pod1\n1 of 3") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, code = configMatch(t, file, "--tree", tree)
	if code != cli.CodeUnknown || !strings.Contains(out, "no names of pods are known") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for _, args := range [][]string{{file, "--pods", tree}, {file, "--tree", tree, "--pods", dir + "/none"}} {
		if out, code := configMatch(t, args...); code != cli.CodeBadInput {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
}

func TestMatchRefuses(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("tasks:\n  - {pods: {}, job: a, class: BE}\n  - {pods: {}, job: b, class: BE}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.txt")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{broken}, {"no/such/file"}, {}, {"testdata/match/config.yaml", "--tree", "no/such/file"}, {"testdata/match/config.yaml", "--tree", empty},
	} {
		if out, code := configMatch(t, args...); code != cli.CodeBadInput || out != "" {
			t.Errorf("%q: exit code %d, %q", args, code, out)
		}
	}
}
