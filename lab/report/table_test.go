package report

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read golden (run with -rewrite to make it): %v", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

// wideTable needs wrapping of heads, words and a path.
func wideTable() Table {
	return Table{
		Title: "Suspects of a crowded node",
		Columns: []Column{
			{Name: "Task"}, {Name: "Scheduler delay before", Unit: "ms/s", Align: Right},
			{Name: "Scheduler delay capped", Unit: "ms/s", Align: Right}, {Name: "Why"},
		},
		Rows: [][]Cell{
			Cells("/kubepods/burstable/pod5b3e0e3c-0b0e-4c9a-9d5c-1d2f3a4b5c6d/video-encode", "812.4", "31.0",
				"capped: correlation 0.62 is above 0.35, the job is best-effort, and the victim is eligible for protection"),
			Cells("/漢字/批处理", "3.1", "absent", "left alone"),
			Cells("evil\x1b[2J\u202eeman", "0.0"),
			Cells("longer than the columns", "1", "2", "3", "and more"),
		},
	}
}

func TestTableWriteTextGolden(t *testing.T) {
	for _, c := range []struct {
		file  string
		table Table
	}{
		{"suspects.txt", sampleSuspects()},
		{"arms.txt", sampleArms()},
		{"wide.txt", wideTable()},
		{"empty.txt", Table{Title: "Incidents", Columns: []Column{{Name: "Time", Unit: "s", Align: Right}, {Name: "Victim"}}}},
	} {
		t.Run(c.file, func(t *testing.T) {
			var out bytes.Buffer
			if err := c.table.WriteText(&out); err != nil {
				t.Fatal(err)
			}
			checkGolden(t, c.file, out.Bytes())
			for line := range strings.Lines(out.String()) {
				if width := cellWidth(strings.TrimSuffix(line, "\n")); width > textWidth {
					t.Errorf("line of %d columns: %q", width, line)
				}
			}
		})
	}
}

// Numbers are never wrapped, though the table gets too wide by it.
func TestTableKeepsNumbersWhole(t *testing.T) {
	number := strings.Repeat("9", 120)
	table := Table{Columns: []Column{{Name: "n", Align: Right}}, Rows: [][]Cell{Cells(number)}}
	var out strings.Builder
	if err := table.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), number) {
		t.Errorf("number was broken:\n%s", out.String())
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken pipe")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteErrorsAreReported(t *testing.T) {
	for name, err := range map[string]error{
		"Table.WriteText":  sampleArms().WriteText(brokenWriter{}),
		"Chart.WriteSVG":   sampleLatency().WriteSVG(brokenWriter{}),
		"Report.WriteHTML": sampleReport().WriteHTML(brokenWriter{}),
		"Report.WriteText": sampleReport().WriteText(brokenWriter{}),
	} {
		if !errors.Is(err, errBroken) {
			t.Errorf("%s: error %v, want %v", name, err, errBroken)
		}
	}
}

func FuzzTableWriteText(f *testing.F) {
	f.Add("task", "ms", "cell", "other", true)
	f.Add("", "", "", "", false)
	f.Add("head with words", "req/s", "a/b/c\x1b[1m", "\u202e\xff", true)
	f.Fuzz(func(t *testing.T, name, unit, a, b string, right bool) {
		align := Left
		if right {
			align = Right
		}
		table := Table{
			Title: name, Columns: []Column{{Name: name, Unit: unit, Align: align}, {Name: b}},
			Rows: [][]Cell{Cells(a, b, name), Cells(b), nil}, Notes: []string{a},
		}
		var out strings.Builder
		if err := table.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\x00\r\u202e") {
			t.Fatalf("control characters reach the terminal: %q", out.String())
		}
		if text := squeeze(visible(a)); !right && len(text) > 0 && cellWidth(text) < 14 && !strings.Contains(squeeze(out.String()), text) {
			t.Fatalf("cell %q is missing:\n%s", a, out.String())
		}
	})
}
