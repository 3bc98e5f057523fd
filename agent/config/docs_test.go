package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

var update = flag.Bool("update", false, "write the tables of parameters in docs/ anew")

// pages are the documents with tables of parameters, and how many each has.
var pages = map[string]int{"CONFIG.md": 6, "policies/cpuset.md": 1, "policies/cpu-pool.md": 1, "policies/burst.md": 1, "policies/demote.md": 1, "policies/cache.md": 1, "policies/bandwidth.md": 1, "policies/balm.md": 1, "policies/remedy.md": 1, "policies/headroom.md": 1, "policies/pressure.md": 1, "policies/coldpages.md": 1, "policies/io.md": 1, "policies/memory.md": 1}

// TestDocs holds the tables of parameters in the documents against the rows. A table stands
// between the lines "<!-- parameters: SECTION -->" and "<!-- end of parameters -->";
// `make docs` writes them.
func TestDocs(t *testing.T) {
	for page, want := range pages {
		path := "../../docs/" + page
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		const begin, end = "<!-- parameters: ", "<!-- end of parameters -->"
		parts := strings.Split(string(old), begin)
		text := parts[0]
		for _, part := range parts[1:] {
			section, rest, ok1 := strings.Cut(part, " -->\n")
			_, rest, ok2 := strings.Cut(rest, end)
			if !ok1 || !ok2 {
				t.Fatalf("%s: the table of %q has no end", page, section)
			}
			text += begin + section + " -->\n" + parameters(section) + end + rest
		}
		if len(parts)-1 != want {
			t.Errorf("%s: %d tables, not %d", page, len(parts)-1, want)
		}
		if text == string(old) {
			continue
		}
		if !*update {
			t.Errorf("%s: the tables of parameters are not as the program has them; `make docs` writes them", page)
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// parameters is the table of a section: with a column for each profile where they differ.
func parameters(section string) string {
	one, _ := Defaults(ProfileCPI2)
	two, _ := Defaults(ProfileSingleNode)
	rows, other, differ := below(one.Rows(), section), below(two.Rows(), section), false
	for i := range rows {
		differ = differ || rows[i].Text() != other[i].Text()
	}
	var b strings.Builder
	if differ {
		fmt.Fprintf(&b, "| key in `%s` | `cpi2` | `single-node` | may be | what it is, and where its default is from |\n|---|---|---|---|---|\n", section)
	} else {
		fmt.Fprintf(&b, "| key in `%s` | default | may be | what it is, and where its default is from |\n|---|---|---|---|\n", section)
	}
	for i, row := range rows {
		fmt.Fprintf(&b, "| `%s` | %s |", row.Key, row.Text())
		if differ {
			second := other[i].Text()
			if second == row.Text() {
				second = "the same"
			}
			fmt.Fprintf(&b, " %s |", second)
		}
		bounds := row.Bounds()
		if row.Unit != "" {
			bounds += " (" + row.Unit + ")"
		}
		fmt.Fprintf(&b, " %s | %s |\n", bounds, row.Why)
	}
	return b.String()
}

// below returns the rows of a section, without its name.
func below(rows []model.Param, section string) []model.Param {
	var in []model.Param
	for _, row := range rows {
		if rest, ok := strings.CutPrefix(row.Key, section+"."); ok {
			row.Key = rest
			in = append(in, row)
		}
	}
	return in
}

// TestRows: every key has one row, every row says what it is for, a number's default lies
// within its bounds and so does what random runs draw.
func TestRows(t *testing.T) {
	for _, name := range Profiles() {
		c, _ := Defaults(name)
		seen := map[string]bool{}
		for _, row := range c.Rows() {
			if seen[row.Key] {
				t.Errorf("%s has two rows", row.Key)
			}
			seen[row.Key] = true
			if row.Why == "" && strings.Contains(row.Key, ".") {
				t.Errorf("%s does not say what it is for", row.Key)
			}
			if why := row.Check(); why != "" {
				t.Errorf("profile %s: %s: %s", name, row.Key, why)
			}
			if _, ok := row.Number(); !ok || row.Soak == [2]float64{} {
				continue
			}
			for _, v := range row.Soak {
				if row.Set(v); row.Check() != "" {
					t.Errorf("%s: random runs draw %s; it may be %s", row.Key, row.Text(), row.Bounds())
				}
			}
		}
	}
}

// TestPace: fast readings are taken for those who act within a tenth of a second, no
// readings where nobody looks.
func TestPace(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"", "1s"},
		{"cpuset: {mode: enforce}\n", "50ms"},
		{"burst: {mode: enforce}\n", "50ms"},
		{"burst: {mode: enforce, user_space: false}\n", "1s"},
		{"cpu_pool: {mode: enforce}\nagent: {pulse: 20ms}\n", "1s"},
		{"cpuset: {mode: enforce}\nagent: {pulse: 20ms}\n", "20ms"},
		{"mode: enforce\ncpuset: {mode: off}\ncpu_pool: {mode: off}\nburst: {mode: off}\n", "0s"},
	} {
		cfg, err := Parse("f", []byte(c.file+"tasks: [{match: /a, job: a, class: LC}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		if p := cfg.Pace(); p.Pulse.String() != c.want {
			t.Errorf("%s: a reading every %s, not %s", c.file, p.Pulse, c.want)
		}
	}
}
