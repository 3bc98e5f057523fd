package repository

// The dashboards and the alert rules of deploy/ ask for what the programs export, and for nothing else. That the rules fire when they
// should is promtool's to say: `make boards-test`.
//
// Not verified: that a panel shows what its title says.

import (
	"encoding/json"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	promodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/slo"
)

// metrics are names with their labels, without those that Prometheus adds to all that it scrapes.
type metrics map[string][]string

var scraped = []string{"instance", "job"}

// exportedMetrics are those of the agent and of the hub: what their collectors describe, and the client library's of a process.
func exportedMetrics(t *testing.T) metrics {
	t.Helper()
	known := metrics{"up": nil} // Prometheus's own
	for _, name := range []string{"../../agent/metrics.go", "../../fleet/hub/metrics.go"} {
		file, err := goparser.ParseFile(token.NewFileSet(), name, nil, goparser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		before, prefix := len(known), ""
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if pkg, name := qualified(call.Fun); pkg == "prometheus" && name == "NewDesc" { // of a function d, before its calls
				prefix = literal(t, call.Args[0].(*ast.BinaryExpr).X)
			} else if pkg == "" && name == "d" {
				var labels []string
				for _, a := range call.Args[2:] {
					labels = append(labels, literal(t, a))
				}
				known[prefix+literal(t, call.Args[0])] = labels
			}
			return true
		})
		if len(known) < before+10 {
			t.Fatalf("%s: %d metrics: the test looked in the wrong place", name, len(known)-before)
		}
	}
	for _, program := range []string{"commensal", "commensal_hub"} {
		ch := make(chan *prometheus.Desc, 100)
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: program}).Describe(ch)
		close(ch)
		for d := range ch {
			known[regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]] = nil
		}
	}
	return known
}

func literal(t *testing.T, e ast.Expr) string {
	t.Helper()
	text, err := strconv.Unquote(e.(*ast.BasicLit).Value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// values are what the labels may say that are one of a few words, with those that the agent's golden has.
func (known metrics) values(t *testing.T) map[string][]string {
	t.Helper()
	values := map[string][]string{"source": model.SourceNames()}
	for c := slo.Grey; c <= slo.Red; c++ {
		values["state"] = append(values["state"], c.String())
	}
	text, err := os.ReadFile("../../agent/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(\{.*\})? V$`).FindAllStringSubmatch(string(text), -1) {
		labels, ok := known[m[1]]
		if !ok {
			t.Errorf("the agent exports %s, which exportedMetrics did not find", m[1])
		}
		for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) {
				t.Errorf("%s has the label %s, which exportedMetrics did not find", m[1], l[1])
			}
			if slices.Contains([]string{"kind", "policy", "horizon", "term"}, l[1]) {
				values[l[1]] = append(values[l[1]], l[2])
			}
		}
	}
	return values
}

// checkExpr says what is wrong with an expression, and with what its legend calls its series.
func (known metrics) checkExpr(values map[string][]string, text, legend string) (wrong []string) {
	text = strings.ReplaceAll(text, "$__rate_interval", "5m")
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return []string{err.Error()}
	}
	selectors := 0
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			selectors++
			wrong = append(wrong, known.checkSelector(values, n)...)
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !slices.Contains(known.labelsOf(n.Expr), label) {
					wrong = append(wrong, "no label "+label+" to group by")
				}
			}
		}
		return nil
	})
	if selectors == 0 {
		wrong = append(wrong, "it asks for no metric")
	}
	for _, m := range regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`).FindAllStringSubmatch(legend, -1) {
		if !slices.Contains(known.labelsOf(expr), m[1]) {
			wrong = append(wrong, "no label "+m[1]+" for the legend")
		}
	}
	return wrong
}

func (known metrics) checkSelector(values map[string][]string, s *parser.VectorSelector) (wrong []string) {
	if _, ok := known[s.Name]; !ok {
		return []string{"no metric " + s.Name}
	}
	for _, m := range s.LabelMatchers {
		if m.Name == promodel.MetricNameLabel {
			continue
		}
		if !slices.Contains(known.labelsOf(s), m.Name) {
			wrong = append(wrong, s.Name+" has no label "+m.Name)
		}
		for word := range strings.SplitSeq(m.Value, "|") {
			if allowed := values[m.Name]; allowed != nil && !slices.Contains(allowed, word) {
				wrong = append(wrong, m.Name+" is never "+word)
			}
		}
	}
	return wrong
}

// labelsOf are the labels that an expression's series may have.
func (known metrics) labelsOf(n parser.Node) []string {
	switch n := n.(type) {
	case *parser.VectorSelector:
		return append(slices.Clone(known[n.Name]), scraped...)
	case *parser.AggregateExpr:
		if !n.Without {
			return n.Grouping
		}
	}
	var all []string
	for c := range parser.ChildrenIter(n) {
		all = append(all, known.labelsOf(c)...)
	}
	return all
}

// The check finds what it is for.
func TestCheckExpr(t *testing.T) {
	t.Parallel()
	known := metrics{"a_total": {"kind"}, "b": {"task"}}
	for expr, want := range map[string]string{
		`sum by (kind) (rate(a_total{kind=~"x|y", instance=~"$i"}[$__rate_interval]))`: "",
		`b{job="j"} / on (task) b`: "",
		`c`:                        "no metric c",
		`a_total{task="/x"}`:       "a_total has no label task",
		`a_total{kind=~"x|z"}`:     "kind is never z",
		`sum by (task) (a_total)`:  "no label task to group by",
		`sum by (kind) (sum by (instance) (a_total))`: "no label kind to group by",
		`sum by (x`: "parse error",
		`vector(1)`: "it asks for no metric",
	} {
		if got := strings.Join(known.checkExpr(map[string][]string{"kind": {"x", "y"}}, expr, ""), "; "); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
	if got := known.checkExpr(nil, "sum by (task) (b)", "{{task}} {{instance}}"); len(got) != 1 || got[0] != "no label instance for the legend" {
		t.Errorf("%q", got)
	}
}

// board is what is checked of a dashboard beside its expressions.
type board struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  struct{ Type, UID string }
		Targets     []struct{ Expr, LegendFormat string }
	}
}

// TestDashboards: each is as Grafana has it, its panels ask for what is exported, of the one data source that its user chooses.
func TestDashboards(t *testing.T) {
	t.Parallel()
	plugins.RegisterDefaultPlugins()
	known := exportedMetrics(t)
	values := known.values(t)
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var theirs dashboard.Dashboard                                                //nolint:staticcheck // the newer model is of another document, which older Grafanas do not import
		if err := theirs.UnmarshalJSONStrict(text); err != nil && err.Error() != "" { // an empty list of errors is returned as one
			t.Errorf("%s: %v", file, err)
		}
		if err := theirs.Validate(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		var b board
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(err)
		}
		sources, asked := 0, 0
		for _, v := range b.Templating.List {
			if v.Type == "datasource" {
				sources++
			} else if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query); m == nil || len(known.checkExpr(values, m[1], "{{"+m[2]+"}}")) > 0 {
				t.Errorf("%s: the variable %s asks for %s", file, v.Name, v.Query)
			}
		}
		ids := map[int]bool{}
		for _, p := range b.Panels {
			if ids[p.ID] || p.Title == "" {
				t.Errorf("%s: panel %d %q: its number comes twice, or it has no title", file, p.ID, p.Title)
			}
			ids[p.ID] = true
			if p.Type == "row" {
				continue
			}
			if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
				t.Errorf("%s: %s asks nothing, or another than ${datasource}", file, p.Title)
			}
			for _, target := range p.Targets {
				asked++
				for _, wrong := range known.checkExpr(values, target.Expr, target.LegendFormat) {
					t.Errorf("%s: %s: %s: %s", file, p.Title, target.Expr, wrong)
				}
			}
		}
		if sources != 1 || asked < 10 || b.UID == "" {
			t.Errorf("%s: %d data sources, %d expressions", file, sources, asked)
		}
	}
}

// TestAlerts: each rule asks for what is exported, says how urgent it is, and is made to fire and not to fire in alerts_test.yaml.
func TestAlerts(t *testing.T) {
	t.Parallel()
	known := exportedMetrics(t)
	values := known.values(t)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	var tests struct {
		Tests []struct {
			Alerts []struct {
				Name     string `yaml:"alertname"`
				Expected []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	for name, into := range map[string]any{"alerts.yaml": &rules, "alerts_test.yaml": &tests} {
		text, err := os.ReadFile("../../deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, tt := range tests.Tests {
		for _, a := range tt.Alerts {
			if len(a.Expected) > 0 {
				fires[a.Name] = true
			} else {
				quiet[a.Name] = true
			}
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			for _, wrong := range known.checkExpr(values, r.Expr, "") {
				t.Errorf("%s: %s: %s", r.Alert, r.Expr, wrong)
			}
			if s := r.Labels["severity"]; s != "page" && s != "ticket" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: severity %q, annotations %v", r.Alert, s, slices.Sorted(maps.Keys(r.Annotations)))
			}
			if !fires[r.Alert] || !quiet[r.Alert] {
				t.Errorf("%s: alerts_test.yaml lets it fire: %v, and not fire: %v; expected both", r.Alert, fires[r.Alert], quiet[r.Alert])
			}
			delete(fires, r.Alert)
		}
	}
	if len(fires) > 0 || len(known) < 40 {
		t.Errorf("%s", fmt.Sprint("tested, and no rule: ", slices.Sorted(maps.Keys(fires)), len(known)))
	}
}
