package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
)

// The configuration that `make install` puts down is right, and changes nothing on the
// machine of somebody who starts the agent before reading it.
func TestExampleConfig(t *testing.T) {
	t.Parallel()
	c, err := config.Load("../../deploy/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c.Policies.Mode != model.ModeObserve {
		t.Errorf("mode is %q; the example must only observe", c.Policies.Mode)
	}
	classes := map[string]bool{}
	for _, rule := range c.Tasks {
		classes[rule.Class] = true
	}
	for _, class := range []string{"LC", "BE", "system"} {
		if !classes[class] {
			t.Errorf("no example rule of class %s", class)
		}
	}
}

// What the unit bounds, and how systemd ends it, is what docs/RELIABILITY.md promises.
func TestUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/commensal.service")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{
		"Type=notify", "WatchdogSec=30s", "WatchdogSignal=SIGKILL", "Restart=always", "KillMode=process", "RuntimeDirectoryPreserve=yes",
		"ExecStopPost=/usr/local/bin/commensal restore --config /etc/commensal/config.yaml",
		"LimitNOFILE=65536", "TasksMax=512", "Environment=GOMAXPROCS=4",
		"MemoryMax=512M", "MemorySwapMax=0", "Environment=GOMEMLIMIT=384MiB", "OOMPolicy=continue", "OOMScoreAdjust=-900",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit does not say %s", want)
		}
	}
}

// Links between the documents lead to files that are there.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = append(append(files, more...), "../../README.md", "../../SCOPE.md", "../../CHANGELOG.md")
	link := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	n := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			if _, err := os.Stat(filepath.Join(filepath.Dir(f), m[1])); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d links in %d files: the test looked in the wrong place", n, len(files))
	}
}
