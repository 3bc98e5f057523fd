package main

import (
	"errors"
	"runtime/debug"
	"strings"

	"github.com/commensal-io/commensal/cmd/cli"
)

// bom is a bill of materials: CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json. It has no time and no
// serial number, so that equal programs have equal ones.
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component  component  `json:"component"`
	Properties []property `json:"properties,omitempty"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	// Properties has the checksum that go.sum has of a module, which is none of CycloneDX's kinds.
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn,omitempty"`
}

func newComponent(kind, path, version string) component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}

// billOf lists the modules that a program links, as its build wrote them into it.
func billOf(info *debug.BuildInfo, version string) *bom {
	program := newComponent("application", info.Main.Path, version)
	b := &bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{Component: program}}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED":
			b.Metadata.Properties = append(b.Metadata.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	all := dependency{Ref: program.Ref}
	add := func(c component) {
		b.Components = append(b.Components, c)
		all.On = append(all.On, c.Ref)
	}
	// Scanners know the standard library and the runtime by this name.
	add(newComponent("library", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := newComponent("library", m.Path, m.Version)
		if m.Sum != "" {
			c.Properties = []property{{"go:sum", m.Sum}}
		}
		add(c)
	}
	b.Dependencies = []dependency{all}
	return b
}

// ownBill is the bill of this program.
func ownBill() (*bom, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, cli.Fail(cli.CodeUnknown, errors.New("this program does not say of what it was built"))
	}
	return billOf(info, version), nil
}
