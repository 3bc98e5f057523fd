package uplink

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// A sheet of a size is taken where that size is wanted, and is none of the job's; the reverse likewise. A version that knows no sizes refuses it by name, since
// it is of a version that it does not know.
func TestSheetsOfASize(t *testing.T) {
	var heard []model.Spec
	var log strings.Builder
	u := &Uplink{node: Node{Platform: "cpu"}, hooks: Hooks{Log: slog.New(slog.NewTextHandler(&log, nil)), Specs: func(s []model.Spec) { heard = append(heard, s...) }}}
	all, large := sheetKey{job: "web"}, sheetKey{"web", "large"}
	for range 2 {
		u.sheets.wants(all)
		u.sheets.wants(large)
	}
	if len(u.sheets.jobs) != 2 || u.sheets.wants(large) {
		t.Fatalf("%+v", u.sheets.jobs)
	}
	of := func(version int, size string) []byte {
		return fmt.Appendf(nil, `{"version": %d, "job": "web", "platform": "cpu", "size": %q, "revision": 4, "wall_nsec": 10, "specs": [{"source": "cpi", "num_samples": 500, "mean": 2}]}`, version, size)
	}
	u.takeSheet(all, of(2, "large"))
	u.takeSheet(large, of(1, ""))
	u.takeSheet(large, of(2, "small"))
	if len(heard) != 0 || strings.Count(log.String(), "left aside") != 3 {
		t.Fatalf("%+v %s", heard, log.String())
	}
	u.takeSheet(large, of(2, "large"))
	u.takeSheet(all, of(1, ""))
	if len(heard) != 2 || heard[0].Size != "large" || heard[0].Sheet != 4 || heard[1].Size != "" || u.sheets.known() != 2 {
		t.Errorf("%+v", heard)
	}
	if wire.SizedKey("cpu", "web", "") != wire.SpecKey("cpu", "web") || wire.SizedKey("cpu", "web", "large") == wire.SpecKey("cpu", "web") || strings.Count(wire.SizedKey("cpu", "web", "large"), ".") != 1 {
		t.Error("a key that nodes of older hubs may not read, or that of another sheet")
	}
}
