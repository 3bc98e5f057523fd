package policy_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Pages and threads beside a machine of two sockets, each with two CPUs and two memory nodes, of which a socket's second has no CPU.
func TestPremises(t *testing.T) {
	machine := &model.Topology{CPUs: []model.CPU{{ID: 0}, {ID: 1, Node: 1}, {ID: 2, Socket: 1, Node: 2}, {ID: 3, Socket: 1, Node: 2}}}
	cpus := func(text string) model.CPUSet {
		set, err := model.ParseCPUSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	for name, c := range map[string]struct {
		cpus  string
		bytes []uint64
		want  policy.Premises
		holds bool
		says  string
	}{
		"local":                     {"0", []uint64{60, 40}, policy.Premises{Sockets: 1}, true, ""}, // the other node of its socket is near, too
		"a twentieth away":          {"0-1", []uint64{95, 0, 5}, policy.Premises{Sockets: 1, Far: 0.05}, true, ""},
		"a third away":              {"0-1", []uint64{2, 0, 1}, policy.Premises{Sockets: 1, Far: 0.33}, false, "33 % of its pages"},
		"both sockets":              {"1-2", []uint64{50, 0, 50}, policy.Premises{Sockets: 2}, false, "on 2 sockets"},
		"both, and on neither":      {"0-3", []uint64{50, 0, 0, 50}, policy.Premises{Sockets: 2, Far: 0.5}, false, "50 % of its pages lie on memory of none"},
		"no pages":                  {"0", []uint64{0, 0}, policy.Premises{Sockets: 1}, true, ""},
		"nobody tells of its pages": {"0", nil, policy.Premises{Sockets: 1}, true, ""},
		"nor of its CPUs":           {"", []uint64{0, 0, 1}, policy.Premises{}, true, ""},
	} {
		var at *model.PageHomes
		if c.bytes != nil {
			at = &model.PageHomes{Bytes: c.bytes}
		}
		got := policy.PremisesOf(machine, cpus(c.cpus), at)
		if says := got.String(); got != c.want || got.Hold() != c.holds || !strings.Contains(says, c.says) || c.says == "" && says != "" {
			t.Errorf("%s: %+v, %q", name, got, says)
		}
	}
}

// A memory is full of services where these draw nearly all that it delivers, and that is about the most that was seen.
func TestLoadAlone(t *testing.T) {
	for name, c := range map[string]struct {
		load policy.Load
		want bool
	}{
		"nothing known":               {policy.Load{}, false},
		"others draw a third":         {policy.Load{Own: 20, All: 30, Most: 30}, false},
		"alone, and it has done more": {policy.Load{Own: 29, All: 30, Most: 60}, false},
		"alone at its most":           {policy.Load{Own: 27, All: 30, Most: 32}, true},
	} {
		if got := c.load.Alone(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
