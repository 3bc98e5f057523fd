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

// What wakes an agent when programs wait for memory is set up when it starts: a roll-out may do without, and no more.
func TestOverlaidStalls(t *testing.T) {
	for _, tc := range []struct{ had, text, want string }{
		{"off", "pressure: {mode: enforce}", "restart"},
		{"off", "pressure: {some: 0.3}", ""},
		{"enforce", "pressure: {mode: off}", ""},
		{"enforce", "pressure: {mode: observe}", ""},
		{"enforce", "pressure: {freeze: false}", ""},
		{"enforce", "pressure: {some: 0.3}", "restart"},
		{"enforce", "pressure: {full: 0.3}", "restart"},
	} {
		c, err := Parse("f", []byte("profile: single-node\nmode: enforce\ntasks: [{match: /a, job: a, class: LC}]\nmemory: {mode: observe}\npressure: {mode: "+tc.had+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		switch _, err := c.Overlaid(tc.text); {
		case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s over pressure %s: %v", tc.text, tc.had, err)
		}
	}
}
