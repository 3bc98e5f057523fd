package engine_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// TestNeeds: a host is asked for what the policies that are not off want, and for nothing else.
func TestNeeds(t *testing.T) {
	p := engine.Defaults()
	p.SetModes(model.ModeOff)
	if n := p.Needs(); n != (engine.Needs{}) {
		t.Errorf("all policies are off, and want %+v", n)
	}
	p.CPU.CPUSetMode = model.ModeObserve
	if n := p.Needs(); n != (engine.Needs{Places: true}) {
		t.Errorf("cpuset observes, and wants %+v", n)
	}
	p.CPU.CPUSetMode, p.CPU.CacheMode = model.ModeOff, model.ModeEnforce
	if n := p.Needs(); n != (engine.Needs{Classes: true}) {
		t.Errorf("cache enforces, and wants %+v", n)
	}
	p.CPU.CacheMode, p.Hardcap.Confirm.ByLack = model.ModeOff, true
	if n := p.Needs(); n != (engine.Needs{}) {
		t.Errorf("the hard cap is off, and wants %+v", n)
	}
	p.Mode = model.ModeObserve
	if n := p.Needs(); n != (engine.Needs{Classes: true, Domains: true}) {
		t.Errorf("the hard cap goes by what tasks take, and wants %+v", n)
	}
}
