package strictyaml

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// odd is a type that reads itself.
type odd int

func (o *odd) UnmarshalYAML(n *yaml.Node) error {
	if n.Value != "odd" {
		return errors.New("expected odd")
	}
	*o = 1
	return nil
}

type inner struct {
	Share float64 `yaml:"share"`
}

type file struct {
	Version int           `yaml:"version"`
	Wait    time.Duration `yaml:"wait"`
	List    []struct {
		Name  string `yaml:"name"`
		inner `yaml:",inline"`
	} `yaml:"list"`
	Odd  odd   `yaml:"odd"`
	Flag *bool `yaml:"flag"`
}

const good = `version: 1
wait: 2s
list:
  - {name: a, share: 0.5}
  - name: b
    share: 1
odd: odd
flag: false
`

func TestDecode(t *testing.T) {
	d, err := Parse("f", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	v := file{Version: 7}
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if v.Version != 1 || v.Wait != 2*time.Second || len(v.List) != 2 || v.List[1].Share != 1 || v.Odd != 1 || v.Flag == nil || *v.Flag {
		t.Errorf("%+v", v)
	}
	if d.Line("list[1].share") != 6 || d.Line("list.b.share") != 6 || d.Line("list[1].nothing") != 5 || d.Line("nothing") != 1 {
		t.Errorf("lines %d %d %d %d", d.Line("list[1].share"), d.Line("list.b.share"), d.Line("list[1].nothing"), d.Line("nothing"))
	}
}

func TestSet(t *testing.T) {
	d, err := Parse("f", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	changed, err := d.Set("list.b.share", "0.25")
	if err != nil {
		t.Fatal(err)
	}
	var a, b file
	if err := errors.Join(d.Decode(&a), changed.Decode(&b)); err != nil {
		t.Fatal(err)
	}
	if a.List[1].Share != 1 || b.List[1].Share != 0.25 || changed.Line("list[1].share") != 6 {
		t.Errorf("%v, then %v in line %d", a.List, b.List, changed.Line("list[1].share"))
	}
	for _, bad := range [][2]string{{"nowhere", "1"}, {"wait", "["}, {"wait", "&a 1"}, {"wait", ""}} {
		if _, err := d.Set(bad[0], bad[1]); err == nil {
			t.Errorf("set %s to %q", bad[0], bad[1])
		}
	}
}

func TestBad(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"version: one\n", `f:1: version: is "one"; expected a whole number`},
		{"version: [1]\n", `f:1: version: is a list; expected a whole number`},
		{"wait: 5\n", `f:1: wait: is "5"; expected a duration`},
		{"wait: 5 apples\n", `f:1: wait: is "5 apples"; expected a duration`},
		{"flag: maybe\n", `f:1: flag: is "maybe"; expected true or false`},
		{"odd: even\n", `f:1: odd: expected odd`},
		{"list: 5\n", `f:1: list: expected a list`},
		{"list: [5]\n", `f:1: list[0]: expected keys of its own: name, share`},
		{"list:\n  - shar: 1\n", `f:2: unknown key "shar"; did you mean "share"?`},
		{"colour: 1\n", `f:1: unknown key "colour"; known here: version, wait, list, odd, flag`},
		{"list:\n  - {name: a, share: x}\n", `f:2: list[0].share: is "x"; expected a number`},
		{"odd: odd\nodd: odd\n", `f:2: odd: is given twice, first in line 1`},
		{"wait: ~\n", `f:1: a key without a value`},
		{"a: [\n", `f:1: `},
		{"a: 1\n---\nb: 1\n", `f: holds more than one`},
		{"5\n", `f:1: expected keys of its own`},
	} {
		d, err := Parse("f", []byte(c.text))
		if err == nil {
			err = d.Decode(&file{})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want %q on one line", c.text, err, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	d, _ := Parse("f", []byte("version: 3\n"))
	if err := d.Version(2); err == nil || !strings.Contains(err.Error(), "f:1: version: is 3, newer") {
		t.Error(err)
	}
	if err := d.Version(3); err != nil {
		t.Error(err)
	}
}

func TestKeys(t *testing.T) {
	got := strings.Join(Keys(reflect.TypeFor[file]()), " ")
	if want := "version wait list list[].name list[].share odd flag"; got != want {
		t.Errorf("keys %s, want %s", got, want)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"duration", "threads", "cpi"}
	for word, want := range map[string]string{"druation": "duration", "thread": "threads", "cip": "cpi", "colour": "", "": ""} {
		if got := Nearest(word, known); got != want {
			t.Errorf("near %q is %q, want %q", word, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("list: [{name: a}, {share: .nan}]\nwait: 1h\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Parse("f", b)
		if err == nil {
			err = d.Decode(&file{})
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("error of more than one line: %q", err)
		}
	})
}
