package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/commensal-io/commensal/fleet/bucket"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// described is openapi.json as its readers have it, but that an object with a property that is not described is wrong: the schemas leave that open, since a
// later hub may answer more.
type described struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	seen     map[string]int // answers that were looked at, by method, path and code
}

var theDescribed = sync.OnceValue(func() *described {
	d := &described{compiler: jsonschema.NewCompiler(), seen: map[string]int{}}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(openapi))
	if err == nil {
		d.doc = v.(map[string]any)
		closed(v)
		d.compiler.DefaultDraft(jsonschema.Draft2020)
		d.compiler.AssertFormat()
		err = d.compiler.AddResource("openapi.json", v)
	}
	if err != nil {
		panic(err)
	}
	return d
})

// closed lets no object have more than its properties.
func closed(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, object := v["properties"].(map[string]any); object {
			v["additionalProperties"] = false
		}
		for _, x := range v {
			closed(x)
		}
	case []any:
		for _, x := range v {
			closed(x)
		}
	}
}

// at goes down a document.
func at(v any, way ...string) any {
	for _, name := range way {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// check says what is wrong with a text by the schema that lies at a way in the document; nil where the way leads nowhere, and is false then.
func (d *described) check(text []byte, way ...string) (there bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at(d.doc, way...) == nil {
		return false, nil
	}
	pointer := ""
	for _, name := range way {
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	schema, err := d.compiler.Compile("openapi.json#" + pointer)
	if err != nil {
		return true, err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return true, err
	}
	return true, schema.Validate(v)
}

// looksAt bounds answers that are looked at: to validate one takes many times its size, and tests measure the memory of large ones.
const looksAt = 64 << 10

// answered looks at what was asked of a hub and what it answered. Every test that asks over HTTP does so.
func (d *described) answered(t *testing.T, method, path, body string, code int, text []byte) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	operation := []string{"paths", path, strings.ToLower(method)}
	if at(d.doc, operation...) == nil || len(text) > looksAt {
		return // the pages, what is no path, and thousands of the same
	}
	content := []string{"content", "application/json", "schema"}
	which := append(append(slices.Clone(operation), "responses", fmt.Sprint(code)), content...)
	there, err := d.check(text, which...)
	if !there {
		there, err = d.check(text, append([]string{"components", "responses", "Failure"}, content...)...)
		there = there && code != http.StatusOK
	}
	if !there || err != nil {
		t.Errorf("%s %s: the answer %d is not as openapi.json describes it (described: %t): %v\n%.2000s", method, path, code, there, err, text)
	}
	if code == http.StatusOK && method == http.MethodPost {
		if there, err := d.check([]byte(body), append(append(slices.Clone(operation), "requestBody"), content...)...); !there || err != nil {
			t.Errorf("%s %s: the hub takes what openapi.json does not describe (described: %t): %v\n%s", method, path, there, err, body)
		}
	}
	d.mu.Lock()
	d.seen[fmt.Sprintf("%s %s %d", method, path, code)]++
	d.mu.Unlock()
}

// Each path's answer, of a hub that has something to say, is as it is described. (callAt looks at each.)
func TestAnswersAreAsDescribed(t *testing.T) {
	needSQL(t)
	cfg := testConfig(t.TempDir())
	cfg.Spec.Fit = true
	b := startHub(t, cfg)
	admin, nodes := b.token("ann", Admin), startNodes(t, b, 3)
	k := 0
	feed := func() {
		k++
		for _, n := range nodes {
			n.window(2 + 0.02*float64(k%7))
		}
		time.Sleep(3 * time.Millisecond)
	}
	eventually(t, "there are two sheets", func() bool { feed(); s := nodes[0].heard(); return len(s) > 0 && s[0].Sheet > 1 })
	twoRounds(nodes[0])
	eventually(t, "incidents are there", func() bool { feed(); return b.totals().Incidents == 2 })
	for _, body := range []string{
		`/v1/command {"node": "node-1", "kind": "cap", "task": "/be", "cap": 0.1, "duration_seconds": 60, "why": "a test"}`,
		`/v1/command {"node": "*", "kind": "protect-off", "job": "web", "why": "a test"}`,
		`/v1/spec {"job": "web", "platform": "cpu", "what": "rollback", "why": "a test"}`,
		`/v1/spec {"job": "web", "platform": "cpu", "what": "unpin", "why": "a test"}`,
		`/v1/rollout {"overlay": "io: {mode: enforce}", "percent": 50, "why": "a test", "observe": true}`,
		`/v1/off {"off": true, "why": "a test"}`,
		`/v1/query {"sql": "SELECT * FROM samples, incidents WHERE job = ? LIMIT 3", "args": ["web"]}`,
	} {
		path, body, _ := strings.Cut(body, " ")
		if code, m := b.call(admin, "POST", path, body); code != http.StatusOK {
			t.Errorf("%s %s: %d %v", path, body, code, m)
		}
	}
	eventually(t, "the roll-out is there", func() bool {
		feed()
		_, m := b.call(admin, "GET", "/v1/rollout", "")
		return m["in_force"] == m["nodes_meant"]
	})
	if err := b.exportOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/healthz", "/openapi.json", "/v1/fleet", "/v1/nodes", "/v1/jobs?limit=1", "/v1/jobs", "/v1/incidents", "/v1/search?match=we", "/v1/search?match=task", "/v1/audit", "/v1/questions", "/v1/interference"} {
		if code, m := b.call(admin, "GET", path, ""); code != http.StatusOK || strings.HasPrefix(path, "/v1/search") && m["store"] != "" {
			t.Errorf("%s: %d %v", path, code, m)
		}
	}
	_, m := b.call(admin, "GET", "/v1/jobs", "")
	if !strings.Contains(fmt.Sprint(m), "fit:map[") {
		t.Errorf("no job has a fit: %v", m)
	}
	for path, methods := range theDescribed().doc["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			if which := fmt.Sprintf("%s %s 200", strings.ToUpper(method), path); theDescribed().seen[which] == 0 {
				t.Errorf("nobody has looked at %s", which)
			}
		}
	}
}

// Each schema has the fields of what is answered, also those that a test's hub leaves out, and says of each what it is.
func TestSchemasHaveAllFields(t *testing.T) {
	schemas := theDescribed().doc["components"].(map[string]any)["schemas"].(map[string]any)
	answers := map[string]any{
		"Failure": failure{}, "Status": Status{}, "Usage": store.Usage{}, "BucketStatus": bucket.Status{}, "KillSwitch": offStatus{}, "RolloutStatus": RolloutStatus{}, "NodeTotals": NodeTotals{}, "NodeStatus": NodeStatus{}, "NodePage": NodePage{},
		"JobStatus": JobStatus{}, "SignalStatus": SignalStatus{}, "GEV": spec.GEV{}, "JobPage": JobPage{}, "Found": Found{}, "FoundTask": FoundTask{}, "FoundIncident": FoundIncident{}, "NodeIncident": NodeIncident{}, "Round": model.Round{}, "Suspect": model.Suspect{},
		"Member": model.Member{}, "Spec": model.Spec{}, "Act": wire.Act{}, "Question": Question{}, "Interference": Interference{}, "InterferencePair": InterferencePair{}, "Result": Result{}, "Answer": wire.Answer{}, "Protection": wire.Protection{}, "Unprotected": wire.Unprotected{}, "SpecSheet": wire.SpecSheet{},
	}
	requests := map[string]any{"Query": Query{}, "RolloutChange": RolloutChange{}, "Command": commandBody{}, "SpecAct": specBody{}, "KillSwitchChange": offBody{}}
	for name, v := range answers {
		all, always := fieldsOf(reflect.TypeOf(v))
		properties, required := propertiesOf(schemas[name])
		if !slices.Equal(all, properties) || !slices.Equal(always, required) {
			t.Errorf("%s has %q, always %q\ndescribed %q, always %q", name, all, always, properties, required)
		}
	}
	for name, v := range requests {
		all, _ := fieldsOf(reflect.TypeOf(v))
		all = slices.DeleteFunc(all, func(field string) bool { return slices.Contains([]string{"by", "wall_nsec"}, field) }) // which the hub fills in
		if properties, _ := propertiesOf(schemas[name]); !slices.Equal(all, properties) {
			t.Errorf("%s takes %q, described %q", name, all, properties)
		}
	}
	for name, schema := range schemas {
		_, request := requests[name]
		if _, answer := answers[name]; !answer && !request && !slices.Contains([]string{"Health", "Why", "Next"}, name) {
			t.Errorf("%s is compared with nothing", name)
		}
		properties, _ := at(schema, "properties").(map[string]any)
		for property, p := range properties {
			text, _ := at(p, "description").(string)
			if ref, ok := at(p, "$ref").(string); ok && text == "" {
				text, _ = at(schemas[strings.TrimPrefix(ref, "#/components/schemas/")], "description").(string)
			}
			if len(text) < 3 {
				t.Errorf("%s.%s is not explained", name, property)
			}
		}
	}
}

// fieldsOf lists the names that a type has as JSON, and those that are always there.
func fieldsOf(t reflect.Type) (all, always []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			a, b := fieldsOf(inner)
			all, always = append(all, a...), append(always, b...)
			continue
		case !f.IsExported() || name == "-":
			continue
		case !strings.Contains(options, "omit"):
			always = append(always, name)
		}
		all = append(all, name)
	}
	slices.Sort(all)
	slices.Sort(always)
	return slices.Compact(all), slices.Compact(always)
}

func propertiesOf(schema any) (all, required []string) {
	properties, _ := at(schema, "properties").(map[string]any)
	for name := range properties {
		all = append(all, name)
	}
	list, _ := at(schema, "required").([]any)
	for _, name := range list {
		required = append(required, name.(string))
	}
	slices.Sort(all)
	slices.Sort(required)
	return all, required
}

// A field that is not described is found.
func TestWhatIsNotDescribedIsFound(t *testing.T) {
	good := map[string]any{"off": true, "by": "ann", "wall_nsec": 1, "at": time.Now()}
	for change, ok := range map[string]bool{"": true, "new": false, "off": false, "at": false} {
		v := map[string]any{}
		for name, x := range good {
			v[name] = x
		}
		if change != "" {
			v[change] = "text"
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if there, err := theDescribed().check(text, "components", "schemas", "KillSwitch"); !there || (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
