package stage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
)

// What labs start from is a configuration that the agent takes, and what is written of it
// reads back as the same.
func TestAgentConfig(t *testing.T) {
	c := AgentConfig()
	c.Policies.Mode, c.Policies.CPU.CPUSetMode = model.ModeEnforce, model.ModeOff
	c.Tasks = []config.Task{{Match: "/lab/serve-*", Job: "serve", Class: "LC", Production: true}, {Match: "/lab/batch", Job: "batch", Class: "BE", Importance: "batch"}}
	c.SLO = []config.SLO{{Job: "serve", Kind: "memcached", Address: "127.0.0.1:11211"}}
	if key, why := c.Validate(); why != "" {
		t.Fatalf("%s: %s", key, why)
	}
	text, err := c.Print()
	if err != nil {
		t.Fatal(err)
	}
	back, err := config.Parse("lab", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	again, err := back.Print()
	if err != nil || string(again) != string(text) {
		t.Errorf("%v\nwritten:\n%s\nread:\n%s", err, text, again)
	}
}

// An agent that does not come up is told of with what it said, and nothing of it is left.
func TestAgentThatEnds(t *testing.T) {
	s := open(t, os.Stderr)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	binary := filepath.Join(s.Dir, "broken")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho no such tasks >&2\nexit 2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := s.StartAgent(t.Context(), binary, "agent", AgentConfig())
	if err == nil || a != nil {
		t.Fatal("it answers")
	}
	for _, want := range []string{"agent: ", "it ended", "no such tasks"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}
