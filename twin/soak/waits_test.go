package soak

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/twin/fault"
)

// The soak draws windows in which waits are missing, in all the ways in which they can be.
func TestWindowsThatAreMissingAreDrawn(t *testing.T) {
	drawn := map[fault.Kind]int{}
	for seed := range uint64(200) {
		var p plan
		p.drawWaitFaults(source{rand.New(rand.NewPCG(seed, streamWaits))}, 300e9)
		for i := range p.rules {
			if r := &p.rules[i]; r.Ops == fault.Trace && r.From < r.To {
				drawn[r.Kind]++
			}
		}
	}
	for _, kind := range []fault.Kind{fault.Fail, fault.Short, fault.Vanish, fault.Back, fault.Jump} {
		if drawn[kind] < 5 {
			t.Errorf("%v is drawn %d times: %v", kind, drawn[kind], drawn)
		}
	}
}

// Whatever is missing of all windows, from the first to the last, the agent keeps its promises.
func TestWindowsThatAreMissing(t *testing.T) {
	for _, rule := range []fault.Rule{
		{Path: "waits open", Kind: fault.Fail, Errno: unix.EPERM}, {Path: "waits read", Kind: fault.Fail, Errno: unix.EIO},
		{Path: "waits start", Kind: fault.Fail, Errno: unix.ENOMEM}, {Path: "waits read", Kind: fault.Short}, {Path: "waits read", Kind: fault.Vanish},
		{Path: "waits read", Kind: fault.Back}, {Path: "waits read", Kind: fault.Jump},
	} {
		rule.Ops, rule.Share = fault.Trace, 1
		name, hit := rule.Kind.String(), 0
		if rule.Kind == fault.Fail {
			name = unix.ErrnoName(rule.Errno)
		}
		for seed := range uint64(3) {
			r, err := Run(seed, Options{Minutes: 2, only: func(p *plan) {
				p.rules, p.config.Agent.Waits = []fault.Rule{rule}, true
			}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Failure != nil {
				t.Errorf("%s, kind %v, seed %d: %s: %s", rule.Path, rule.Kind, seed, r.Failure.Check, r.Failure.What)
			}
			hit += r.Faults[name]
		}
		if hit == 0 {
			t.Errorf("%s, kind %v: nothing was missing", rule.Path, rule.Kind)
		}
	}
}
