package reliability

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTwin: a round of each fault is played, nothing is wrong, and the table stands in a document
// in place of the one before.
func TestTwin(t *testing.T) {
	told := 0
	table, err := Twin(2, 2, func(*Row) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	for i := range table {
		if r := &table[i]; r.Rounds != 2 || r.Knobs == 0 || r.Wrong != 0 || r.Worst < r.Median {
			t.Errorf("%+v", r)
		}
	}
	if told != len(table) || len(table) < 12 || table.Wrong() != 0 {
		t.Errorf("%d rows, %d told", len(table), told)
	}
	path := filepath.Join(t.TempDir(), "doc.md")
	doc := "before\n<!-- make reliability: twin -->\nold\n<!-- end of make reliability: twin -->\nafter\n"
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	table = append(table, Row{Fault: "flood", Where: "twin", NotPlayed: "no river", Failed: []string{"seed 7"}, Wrong: 3})
	for range 2 { // the second time in place of the first
		if err := table.WriteInto(path, "twin"); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	if !strings.HasPrefix(got, "before\n<!-- make") || !strings.HasSuffix(got, "-->\nafter\n") || strings.Contains(got, "old") ||
		strings.Count(got, "| agent hung | twin | 2 |") != 1 || !strings.Contains(got, "- flood, twin: not played: no river\n- flood, twin: seed 7\n") {
		t.Error(got)
	}
	if table.Wrong() != 3 {
		t.Errorf("%d wrong", table.Wrong())
	}
	if table.WriteInto(path, "host") == nil {
		t.Error("a table without a place was written")
	}
}
