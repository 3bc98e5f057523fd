package repository

import (
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
	if c.Mode != model.ModeObserve.String() {
		t.Errorf("mode is %q; the example must only observe", c.Mode)
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
