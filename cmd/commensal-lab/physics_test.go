package main

import "testing"

// A physics is one of two; another is refused and not taken for the usual one.
func TestPhysicsOf(t *testing.T) {
	for name, want := range map[string]bool{"usual": false, "published": true} {
		if got, err := physicsOf(name); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "Published", "publish"} {
		if _, err := physicsOf(name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
