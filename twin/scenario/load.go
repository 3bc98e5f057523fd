package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/model"
)

const (
	// maxFileBytes bounds a file: the largest of the library has 6 KB.
	maxFileBytes = 1 << 20
	// maxRuns bounds what sweeps multiply to, maxActors the tasks after counts.
	maxRuns   = 256
	maxActors = 512
	// maxDuration and maxRepeats bound what one file can make a machine do.
	maxDuration = 400 * 24 * time.Hour
	maxRepeats  = 100_000
)

// File is a scenario as it was read: one plan, or with sweeps one for each combination of
// values.
type File struct {
	Name  string
	Plans []*Plan
}

// Options change what a file says. The zero value changes nothing.
type Options struct {
	Seed    *uint64
	Profile string
	Mode    string
	// Switches turn further policies on or off: a key of the configuration, and what it
	// is to be.
	Switches []Setting
}

// Setting is the value of one key.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Load reads and checks a file. Every error is one line that begins with the file's name
// and, where there is one, the line.
func Load(path string, o Options) (*File, error) {
	b, err := strictyaml.ReadFile(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	return Parse(path, b, o)
}

// Parse checks a file's content; name stands in the errors.
func Parse(name string, b []byte, o Options) (*File, error) {
	doc, err := strictyaml.Parse(name, b)
	if err != nil {
		return nil, err
	}
	if err := doc.Version(Version); err != nil {
		return nil, err
	}
	first, err := decode(doc)
	if err != nil {
		return nil, err
	}
	variants, err := expand(doc, first.Sweep)
	if err != nil {
		return nil, err
	}
	f := &File{Name: name}
	for _, v := range variants {
		s, err := decode(v.doc)
		if err != nil {
			return nil, v.explain(err)
		}
		p, err := newPlan(v.doc, s, o)
		if err != nil {
			return nil, v.explain(err)
		}
		p.Settings = v.settings
		f.Plans = append(f.Plans, p)
	}
	return f, nil
}

// decode stores a document over the defaults.
func decode(doc *strictyaml.Doc) (*Scenario, error) {
	s := &Scenario{Version: Version, Seed: 1}
	preset := defaultPreset
	if text, ok := doc.Value("machine.preset"); ok {
		preset = text
	}
	var ok bool
	if s.Machine, ok = presetMachine(preset); !ok {
		return nil, doc.Errorf("machine.preset", "is %q; expected one of %s", short(preset), strings.Join(Presets(), ", "))
	}
	s.Policies = Policies{Profile: config.ProfileSingleNode, Mode: model.ModeEnforce.String()}
	if err := doc.Decode(s); err != nil {
		return nil, err
	}
	switch {
	case !doc.Has("version"):
		return nil, doc.Errorf("version", "is missing; expected %d", Version)
	case s.Version != Version:
		return nil, doc.Errorf("version", "is %d; expected %d", s.Version, Version)
	}
	return s, nil
}

// variant is a document with the values of one combination of the sweeps.
type variant struct {
	doc      *strictyaml.Doc
	settings []Setting
}

// explain says with which values an error came up.
func (v *variant) explain(err error) error {
	if len(v.settings) == 0 {
		return err
	}
	var text []string
	for _, s := range v.settings {
		text = append(text, s.Key+" = "+s.Value)
	}
	return fmt.Errorf("%w (in the sweep, with %s)", err, strings.Join(text, ", "))
}

// expand returns the document once for each combination of the sweeps' values, the last
// sweep's changing fastest.
func expand(doc *strictyaml.Doc, sweeps []Sweep) ([]variant, error) {
	all := []variant{{doc: doc}}
	for i, sw := range sweeps {
		at := fmt.Sprintf("sweep[%d]", i)
		top, _, _ := strings.Cut(sw.Key, ".")
		switch {
		case sw.Key == "":
			return nil, doc.Errorf(at+".key", "is missing; expected a key of this file such as control.be.ways")
		case top == "sweep" || strings.HasPrefix(top, "sweep["):
			return nil, doc.Errorf(at+".key", "is %q; a sweep cannot change itself", short(sw.Key))
		case !doc.Has(sw.Key):
			return nil, doc.Errorf(at+".key", "is %q, which is not written in this file", short(sw.Key))
		case len(sw.Values) == 0:
			return nil, doc.Errorf(at+".values", "is missing; expected a list of values")
		case len(all)*len(sw.Values) > maxRuns:
			return nil, doc.Errorf(at+".values", "makes %d runs; expected at most %d", len(all)*len(sw.Values), maxRuns)
		}
		var next []variant
		for _, v := range all {
			for j, value := range sw.Values {
				d, err := v.doc.Set(sw.Key, string(value))
				if err != nil {
					return nil, doc.Errorf(fmt.Sprintf("%s.values[%d]", at, j), "%v", err)
				}
				settings := append(append([]Setting(nil), v.settings...), Setting{sw.Key, string(value)})
				next = append(next, variant{d, settings})
			}
		}
		all = next
	}
	return all, nil
}
