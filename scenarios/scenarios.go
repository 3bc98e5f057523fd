// Package scenarios is the library of scenarios: what the simulated server is judged by,
// and examples to begin with. docs/SCENARIOS.md explains the format.
package scenarios

import (
	"embed"
	"strings"
)

// files are the scenarios.
//
//go:embed *.yaml
var files embed.FS

// Names lists the scenarios of the library, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("the library is part of the program: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Find returns a scenario's text.
func Find(name string) ([]byte, bool) {
	b, err := files.ReadFile(name + ".yaml")
	return b, err == nil
}
