package fleet

import (
	"os/exec"
	"strings"
	"testing"
)

// A rival that is installed has each value that was sent, in files, and says what it cost; one that is not has a row that says so, and ends no run.
func TestRivalsTakeTheSameSamples(t *testing.T) {
	c := &Cost{Ingest: Ingest{Samples: 1, Seconds: 1, CPU: 1, Stored: 1}}
	for i := range rivals {
		r := &rivals[i]
		t.Run(r.name, func(t *testing.T) {
			program, err := exec.LookPath(r.program)
			if err != nil {
				t.Skipf("%v; `scripts/setup rivals` installs it", err)
			}
			got := Rival{Name: r.name}
			load := minutesOf{nodes: 6, minutes: 2}
			if err := r.measure(t.Context(), &got, program, t.TempDir(), 1, load); err != nil { // which counts
				t.Fatal(err)
			}
			if got.Samples != 6*2*30*60 || got.Stored <= 0 || got.Wire <= 0 || got.Resident <= 0 || got.Seconds < got.Taken {
				t.Errorf("%+v", got)
			}
			c.Rivals = append(c.Rivals, got)
		})
	}
	t.Setenv("PATH", "")
	absent := &Cost{}
	if err := absent.compete(t.Context(), t.TempDir(), 1, true, t.Logf); err != nil || len(absent.Rivals) != len(rivals) {
		t.Fatalf("%v, %+v", err, absent.Rivals)
	}
	c.Rivals = append(c.Rivals, absent.Rivals...)
	var b strings.Builder
	if err := c.WriteText(&b); err != nil || strings.Count(b.String(), "not measured") != len(rivals) {
		t.Errorf("%v: %s", err, b.String())
	}
	t.Log(b.String())
}
