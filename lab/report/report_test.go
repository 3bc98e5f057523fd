package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
)

// pageElements are all that page.html and the charts are made of. Anything else
// in the output came in through a text.
const pageElements = ` html head meta title style body header main section footer h1 h2 div p strong figure
 table caption thead tbody tr th td small bdi dl dt dd svg defs pattern rect line path circle text `

// checkPage parses a page and holds that it loads nothing: no element and no
// attribute that could, no url() but to its own hatching.
func checkPage(t *testing.T, page []byte) (ids map[string]int, text string) {
	t.Helper()
	ids = map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var all strings.Builder
	inStyle := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return ids, all.String()
		}
		if err != nil {
			t.Fatalf("page does not parse: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inStyle = token.Name.Local == "style"
			if !strings.Contains(pageElements, " "+token.Name.Local+" ") && !strings.Contains(pageElements, "\n "+token.Name.Local+" ") &&
				!strings.Contains(pageElements, " "+token.Name.Local+"\n") {
				t.Errorf("foreign element <%s>", token.Name.Local)
			}
			for _, a := range token.Attr {
				checkAttribute(t, token.Name.Local, a, ids)
			}
		case xml.CharData:
			if inStyle && regexp.MustCompile(`(?i)url\(|@import|@font-face|expression`).Match(token) {
				t.Errorf("the style sheet loads something: %s", token)
			}
			if !inStyle {
				all.Write(token)
			}
		case xml.EndElement:
			inStyle = false
		case xml.Comment:
			t.Errorf("comment %q", token)
		}
	}
}

func checkAttribute(t *testing.T, element string, a xml.Attr, ids map[string]int) {
	t.Helper()
	name := strings.ToLower(a.Name.Local)
	switch {
	case strings.HasPrefix(name, "on"), name == "src", name == "href", name == "srcset", name == "style", name == "action", name == "data":
		t.Errorf("<%s %s=%q>", element, name, a.Value)
	case name == "id":
		ids[a.Value]++
	case name == "aria-label": // text
	case strings.Contains(a.Value, "url(") && !strings.HasPrefix(a.Value, "url(#c"), strings.Contains(a.Value, "http"):
		if element != "meta" || name != "http-equiv" {
			t.Errorf("<%s %s=%q> points elsewhere", element, name, a.Value)
		}
	case strings.Contains(a.Value, "NaN"):
		t.Errorf("<%s %s=%q>", element, name, a.Value)
	}
}

func writePage(t *testing.T, r Report) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := r.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPageStandsAlone(t *testing.T) {
	r := sampleReport()
	r.Sections = append(r.Sections, Section{Title: "Again", Charts: []Chart{newSampleRun(4, 3).pair()}})
	page := writePage(t, r)
	ids, text := checkPage(t, page)
	if bytes.Contains(page, []byte("http://")) || bytes.Contains(page, []byte("https://")) {
		t.Error("the page names an address")
	}
	if bytes.Contains(page, []byte("NaN")) {
		t.Error("the page says NaN")
	}
	if len(ids) != 2 { // one hatching a chart with caps
		t.Errorf("ids %v, want two", ids)
	}
	for id, n := range ids {
		if n > 1 {
			t.Errorf("id %s is there %d times", id, n)
		}
		if !bytes.Contains(page, []byte("url(#"+id+")")) {
			t.Errorf("id %s is not used", id)
		}
	}
	for _, want := range []string{
		r.Title, "Passed.", r.Verdict.Text, r.Summary[1], "Suspects", "(CPUs)", "/lab/batch/video-encode", "0.62",
		r.Sections[0].Tables[0].Notes[0], "About this run", "single-node",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// The charts within the page are the charts that WriteSVG writes: well-formed
// XML, each by itself.
func TestChartsInThePageAreXML(t *testing.T) {
	page := writePage(t, sampleReport())
	found := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAll(page, -1)
	if len(found) != 2 {
		t.Fatalf("%d charts, want 2", len(found))
	}
	for _, svg := range found {
		checkPicture(t, parseSVG(t, svg))
	}
}

func hostileReport() Report {
	return Report{
		Title: hostile, Summary: []string{hostile, hostile}, Verdict: Verdict{Outcome(99), hostile},
		Sections: []Section{{
			Title: hostile, Text: []string{hostile}, Charts: []Chart{hostileChart()},
			Tables: []Table{{
				Title: hostile, Columns: []Column{{Name: hostile, Unit: hostile}}, Notes: []string{hostile},
				Rows: [][]Cell{{{Text: hostile, Emphasis: Emphasis(-7)}, {Text: hostile, Emphasis: Bad}}},
			}, {}},
		}, {}},
		Facts: [][2]string{{hostile, hostile}},
	}
}

func TestHostileNamesInPage(t *testing.T) {
	page := writePage(t, hostileReport())
	_, text := checkPage(t, page)
	if strings.ContainsAny(text, "\x00\x1b\u202e") {
		t.Error("control characters reach the page")
	}
	if !strings.Contains(text, visible(hostile)) {
		t.Error("the name does not read as it is")
	}
	for _, raw := range []string{"<script", "<img"} {
		if bytes.Contains(page, []byte(raw)) {
			t.Errorf("raw %q in the page", raw)
		}
	}
}

func TestEmptyReport(t *testing.T) {
	_, text := checkPage(t, writePage(t, Report{}))
	if !strings.Contains(text, "Could not tell.") {
		t.Error("an empty report claims an outcome")
	}
}

func TestVerdicts(t *testing.T) {
	for outcome, want := range map[Outcome][2]string{
		Pass: {`class="verdict pass"`, "Passed."}, Fail: {`class="verdict fail"`, "Failed."}, CouldNotTell: {`class="verdict unknown"`, "Could not tell."},
		Outcome(99): {`class="verdict unknown"`, "Could not tell."},
	} {
		page := string(writePage(t, Report{Verdict: Verdict{Outcome: outcome}}))
		if !strings.Contains(page, want[0]) || !strings.Contains(page, want[1]) {
			t.Errorf("page of %v lacks %q", outcome, want)
		}
	}
}

func TestReportWriteTextGolden(t *testing.T) {
	var out bytes.Buffer
	if err := sampleReport().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "report.txt", out.Bytes())
}

func TestHostileNamesInText(t *testing.T) {
	var out strings.Builder
	if err := hostileReport().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x00\x1b\u202e") {
		t.Error("control characters reach the terminal")
	}
}

func FuzzReportWriteHTML(f *testing.F) {
	f.Add("title", "text")
	f.Add(hostile, "{{.}}")
	f.Add("'\"><style>", "<!--")
	f.Add("<![CDATA[", "javascript:alert(1)")
	f.Fuzz(func(t *testing.T, a, b string) {
		r := Report{
			Title: a, Summary: []string{b}, Verdict: Verdict{Fail, a}, Facts: [][2]string{{a, b}},
			Sections: []Section{{
				Title: b, Text: []string{a}, Charts: []Chart{{Title: a, YLabel: b, Series: []Series{{Name: a, X: []float64{0, 1}, Y: []float64{0, 1}}}}},
				Tables: []Table{{Title: a, Columns: []Column{{Name: b, Unit: a}}, Rows: [][]Cell{Cells(a, b)}, Notes: []string{b}}},
			}},
		}
		checkPage(t, writePage(t, r))
	})
}
