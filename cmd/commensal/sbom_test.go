package main

import (
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"
)

// The bill names each module that was linked, once, and the standard library.
func TestBillOfMaterials(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/Prog"},
		Deps: []*debug.Module{
			{Path: "github.com/A/b", Version: "v1.2.3+incompatible", Sum: "h1:x"},
			{Path: "c.org/d", Version: "v1.0.0", Replace: &debug.Module{Path: "c.org/e", Version: "v1.0.1"}},
		},
		Settings: []debug.BuildSetting{{Key: "GOARCH", Value: "arm64"}, {Key: "-ldflags", Value: "-X secret"}},
	}
	b := billOf(info, "v9")
	var names []string
	for i := range b.Components {
		names = append(names, b.Components[i].PURL)
	}
	want := "pkg:golang/stdlib@1.26.8 pkg:golang/github.com/a/b@v1.2.3%2Bincompatible pkg:golang/c.org/e@v1.0.1"
	if got := strings.Join(names, " "); got != want || strings.Join(b.Dependencies[0].On, " ") != want {
		t.Errorf("%s", got)
	}
	text, err := json.Marshal(b)
	if err != nil || strings.Contains(string(text), "secret") || b.Components[1].Properties[0].Value != "h1:x" {
		t.Errorf("%s, %v", text, err)
	}
	if b.Metadata.Component.Version != "v9" || b.Metadata.Component.Type != "application" {
		t.Errorf("%+v", b.Metadata)
	}
	if !strings.Contains(notice, "the Go standard library") || !strings.Contains(notice, "github.com/spf13/cobra v") {
		t.Error("the notice is not in the binary")
	}
}
