package uplink

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// A sheet of priors is taken when it is newer and as it should be. One that is too long, of a newer version, of somebody else, or that says what cannot
// be is left aside as a whole, with its reason, and what was heard before stands.
func TestPriorsAreChecked(t *testing.T) {
	var heard []model.Priors
	var log strings.Builder
	u := &Uplink{node: Node{Platform: "cpu"}, hooks: Hooks{Log: slog.New(slog.NewTextHandler(&log, nil)), Priors: func(p model.Priors) { heard = append(heard, p) }}}
	u.sheets.jobs = map[sheetKey]*sheet{{job: "web"}: {}}
	const pair = `{"antagonist": "grind", "incidents": 14, "nodes": 6, "degradation": 1.5, "low": 1.4, "high": 1.6, "confidence": 0.9}`
	sheetOf := func(wall int, pairs ...string) string {
		return fmt.Sprintf(`{"version": 1, "job": "web", "platform": "cpu", "wall_nsec": %d, "pairs": [%s]}`, wall, strings.Join(pairs, ", "))
	}
	u.takePriors("web", []byte(sheetOf(100, pair)))
	if len(heard) != 1 || heard[0].Job != "web" || len(heard[0].Pairs) != 1 || heard[0].Pairs[0].Incidents != 14 || heard[0].Pairs[0].Confidence != 0.9 {
		t.Fatalf("%+v %s", heard, log.String())
	}
	one := func(old, other string) string {
		changed := strings.Replace(pair, old, other, 1)
		if changed == pair {
			t.Fatalf("%q is not in it", old)
		}
		return sheetOf(200, changed)
	}
	many := make([]string, wire.MaxPriors+1)
	for i := range many {
		many[i] = strings.Replace(pair, "grind", fmt.Sprint("j", i), 1)
	}
	for doc, want := range map[string]string{
		"no document": "invalid character",
		`{"version": 2, "job": "web", "platform": "cpu", "wall_nsec": 200}`: "newer version",
		strings.Replace(sheetOf(200, pair), `"web"`, `"mail"`, 1):           "it is of job",
		strings.Replace(sheetOf(200, pair), `"cpu"`, `"other"`, 1):          "on platform",
		sheetOf(200, many...):                               "65 pairs; expected at most 64",
		sheetOf(200, pair, pair):                            "twice",
		sheetOf(200) + strings.Repeat(" ", 64<<10):          "bytes",
		one("0.9", "NaN"):                                   "invalid character",
		one("0.9", "1e999"):                                 "cannot unmarshal",
		one("0.9", "1.01"):                                  "confidence",
		one("0.9", "-0.1"):                                  "confidence",
		one("14", "-14"):                                    "incidents",
		one("14", "5"):                                      "incidents",
		one("14", "99999999999"):                            "incidents",
		one("14", "1e30"):                                   "cannot unmarshal",
		one(`"nodes": 6`, `"nodes": 3`):                     "seen on 3 nodes; expected at least 4",
		one(`"nodes": 6`, `"nodes": -6`):                    "on -6 nodes",
		one(`"degradation": 1.5`, `"degradation": -1.5`):    "degradation",
		one(`"high": 1.6`, `"high": 1e300`):                 "degradation",
		one(`"low": 1.4`, `"low": 1.55`):                    "within its interval",
		one("grind", ""):                                    "names no antagonist",
		one("grind", `\u001b[31m`):                          "no name",
		one("grind", strings.Repeat("x", 5000)):             "no name",
		strings.Replace(one("14", "14.5"), `200`, `201`, 1): "cannot unmarshal",
	} {
		log.Reset()
		u.takePriors("web", []byte(doc))
		if len(heard) != 1 || !strings.Contains(log.String(), want) {
			t.Errorf("%.200s: heard %d, %s; want %q", doc, len(heard), log.String(), want)
		}
	}
	log.Reset()
	for _, doc := range []string{"", sheetOf(100, pair), sheetOf(100)} { // gone, the same, of the same time
		u.takePriors("web", []byte(doc))
	}
	u.takePriors("mail", []byte(strings.Replace(sheetOf(300, pair), `"web"`, `"mail"`, 1))) // of a job that is not here
	if len(heard) != 1 || log.Len() > 0 {
		t.Errorf("%+v %s", heard, log.String())
	}
	u.takePriors("web", []byte(sheetOf(101)))
	if len(heard) != 2 || len(heard[1].Pairs) != 0 {
		t.Errorf("%+v", heard)
	}
	u.takePriors("web", []byte(sheetOf(40, pair))) // of a hub whose clock is behind
	if len(heard) != 3 || len(heard[2].Pairs) != 1 {
		t.Errorf("%+v", heard)
	}
}

// The longest sheet that may be is one that the hub can send.
func TestPriorSheetFits(t *testing.T) {
	s := wire.PriorSheet{Version: wire.PriorVersion, Platform: "cpu", Priors: model.Priors{Job: "web"}}
	for i := range wire.MaxPriors {
		s.Pairs = append(s.Pairs, model.Prior{Antagonist: fmt.Sprintf("%0200d", i), Incidents: 1e6, Nodes: 1e5, Degradation: 1.123, Low: 1.001, High: 1.234, Confidence: 0.987})
	}
	b, err := json.Marshal(&s)
	if err != nil || len(b) > wire.MaxPriorBytes || s.Check("web", "cpu") != nil {
		t.Errorf("%d bytes, %v, %v", len(b), err, s.Check("web", "cpu"))
	}
}
