package config

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A roll-out changes policies and limits, and nothing that the agent was started with; the configuration itself stays as it is.
func TestOverlaid(t *testing.T) {
	c, err := Parse("f", []byte("profile: single-node\nmode: enforce\ntasks: [{match: /a, job: a, class: LC}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Overlaid("hard_cap: {mode: observe, cpi2: {antagonist_correlation_threshold: 0.5}}\nlimits: {max_held_tasks: 1}\n")
	if err != nil || n.Policies.Mode != model.ModeObserve || n.Policies.Limits.MaxHeldTasks != 1 || c.Policies.Mode != model.ModeEnforce {
		t.Errorf("%v %+v", err, n)
	}
	for text, want := range map[string]string{
		"agent: {pulse: 20ms}":         "only policies and limits",
		"tasks: []":                    "",
		"fleet: {hub: \"nats://x:1\"}": "",
		"sampling_frequency: 5s":       "",
		"cpuset: {mode: enforce}":      "restart",
		"cache: {mode: observe}":       "restart",
		"hard_cap: {nonsense: 1}":      "nonsense",
		"limits: {max_held_tasks: -1}": "max_held_tasks",
		"hard_cap: [":                  "roll-out",
		"record: {enabled: false}":     "only policies and limits",
	} {
		if _, err := c.Overlaid(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
