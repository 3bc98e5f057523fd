package scenario_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/scenarios"
	"github.com/commensal-io/commensal/twin/scenario"
)

func load(t *testing.T, name string, o scenario.Options) *scenario.File {
	t.Helper()
	b, ok := scenarios.Find(name)
	if !ok {
		t.Fatalf("no scenario %s in the library", name)
	}
	f, err := scenario.Parse(name+".yaml", b, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Every scenario of the library does what it says. Not verified: that what it says is
// what a real server would do.
func TestLibrary(t *testing.T) {
	for _, name := range scenarios.Names() {
		t.Run(name, func(t *testing.T) {
			res, err := load(t, name, scenario.Options{}).PlayAll(scenario.Typed, false)
			if err != nil {
				t.Fatal(err)
			}
			if res.Passed == nil {
				t.Error("expects nothing")
			}
			for i := range res.Runs {
				for _, c := range res.Runs[i].Checks {
					if !c.Passed {
						t.Errorf("%v: %s: got %s", res.Runs[i].Settings, c.What, c.Got)
					}
				}
			}
		})
	}
}

// One scenario and one seed give one result, byte for byte, however many processors play
// it; another seed gives another.
func TestDeterministic(t *testing.T) {
	play := func(procs int, seed uint64) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		res, err := load(t, "faults", scenario.Options{Seed: &seed}).PlayAll(scenario.Typed, true)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := play(1, 1)
	if !bytes.Equal(first, play(4, 1)) {
		t.Error("another result with 4 processors than with 1")
	}
	if !bytes.Equal(first, play(1, 1)) {
		t.Error("another result the second time")
	}
	if bytes.Equal(first, play(1, 2)) {
		t.Error("the seed changes nothing")
	}
}

// Every key of the format is explained in docs/SCENARIOS.md, and every figure.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/SCENARIOS.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, key := range strictyaml.Keys(reflect.TypeFor[scenario.Scenario]()) {
		last := key[strings.LastIndexByte(key, '.')+1:]
		if last = strings.TrimSuffix(last, "[]"); !strings.Contains(doc, "`"+last+"`") {
			t.Errorf("docs/SCENARIOS.md does not explain %s", key)
		}
	}
	for _, name := range append(scenario.FigureNames(), scenarios.Names()...) {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/SCENARIOS.md does not name %s", name)
		}
	}
	for _, field := range jsonFields(reflect.TypeFor[scenario.Result](), nil) {
		if !strings.Contains(doc, "`"+field+"`") {
			t.Errorf("docs/SCENARIOS.md does not explain the result's %s", field)
		}
	}
}

// jsonFields lists the fields of a result that are declared in this package.
func jsonFields(t reflect.Type, seen map[reflect.Type]bool) []string {
	if seen == nil {
		seen = map[reflect.Type]bool{}
	}
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] || !strings.HasSuffix(t.PkgPath(), "twin/scenario") {
		return nil
	}
	seen[t] = true
	var fields []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields = append(append(fields, name), jsonFields(t.Field(i).Type, seen)...)
	}
	return fields
}

// The document's example is a scenario.
func TestDocumentedExample(t *testing.T) {
	b, err := os.ReadFile("../../docs/SCENARIOS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```yaml\nversion: 1")
	text, _, end := strings.Cut(rest, "```")
	if !ok || !end {
		t.Fatal("docs/SCENARIOS.md has no example")
	}
	f, err := scenario.Parse("example.yaml", []byte("version: 1"+text), scenario.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.PlayAll(scenario.Typed, false)
	if err != nil {
		t.Fatal(err)
	}
	if res.Passed == nil || !*res.Passed {
		t.Errorf("%+v", res.Runs[0].Checks)
	}
}
