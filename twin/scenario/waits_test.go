package scenario_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/scenarios"
	"github.com/commensal-io/commensal/twin/scenario"
)

var (
	rewrite  = flag.Bool("rewrite", false, "write the goldens anew")
	table    = flag.String("table", "", "first..last: print who is held in the scenes of waiting on these seeds, as docs/WAITS.md has it")
	tableSet = flag.String("table-set", "", "and with these settings, each as key=value")
	tableBy  = flag.String("table-blame", "true false", "of these: with blame, without")
)

// targetScenes are the scenes in which a service has a target for its latency.
func targetScenes() []string {
	return slices.DeleteFunc(scenarios.Names(), func(name string) bool { return !strings.HasPrefix(name, "target-") })
}

// What is decided in the scenes of waiting and of targets, and what explain has to show of it: the decisions with
// their reasons, and each round's suspects with their shares.
func TestWaitScenes(t *testing.T) {
	for _, name := range slices.Concat(scenarios.Waits(), targetScenes()) {
		t.Run(name, func(t *testing.T) {
			res, err := load(t, name, scenario.Options{}).PlayAll(scenario.Typed, false)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			tell(&text, &res.Runs[0])
			golden := filepath.Join("testdata", "waits", name+".txt")
			if *rewrite {
				if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text.String()); diff != "" {
				t.Errorf("-want +got (go test -rewrite writes it anew):\n%s", diff)
			}
		})
	}
}

// What nobody may hold, a hypervisor or a network card, is told by status as where the service's harm comes from.
func TestWaitsForTakersAreTold(t *testing.T) {
	for name, want := range map[string]string{"wait-steal": "(steal", "wait-softirq": "(unmanaged CPU"} {
		res, err := load(t, name, scenario.Options{}).PlayAll(scenario.Typed, false)
		if err != nil {
			t.Fatal(err)
		}
		list := res.Runs[0].Incidents
		if told := agent.Untouchable(list[:len(list)-1]); len(told) != 1 || !strings.HasPrefix(told[0], "/web: ") || !strings.Contains(told[0], want) {
			t.Errorf("%s: status says %q", name, told)
		}
	}
}

func tell(w io.Writer, run *scenario.Run) {
	for i := range run.Decisions {
		d := &run.Decisions[i]
		fmt.Fprintf(w, "%4.0f s  %-10s  %-10s  %s\n", float64(d.MonoNsec)/1e9, d.Kind, d.Path, d.Reason)
	}
	for _, inc := range run.Incidents {
		fmt.Fprintf(w, "\n%s, %s of %s: %s\n", inc.ID, inc.Source, inc.VictimPath, inc.State)
		for i := range inc.Rounds {
			r := &inc.Rounds[i]
			by := "correlation"
			if r.ByBlame {
				by = fmt.Sprintf("blame of %.0f ms a second, usually %.0f", r.WaitedNsec/1e6, r.UsualNsec/1e6)
			}
			fmt.Fprintf(w, "  round %d at %.0f s, by %s: %s\n", i+1, float64(r.MonoNsec)/1e9, by, r.Verdict)
			for _, s := range r.Suspects {
				name := s.Path
				if s.Kind != model.SuspectTask {
					name = s.Kind.String()
				}
				fmt.Fprintf(w, "    %.2f  %-14s %s\n", s.Score, name, s.Verdict)
			}
		}
	}
}

// TestWaitTable plays the scenes on seeds, with blame and without, and prints who was held.
func TestWaitTable(t *testing.T) {
	var first, last uint64
	if _, err := fmt.Sscanf(*table, "%d..%d", &first, &last); err != nil {
		t.Skip("asked for with -table FIRST..LAST")
	}
	fmt.Println("| scene | by | right | wrong | nobody | named after | slowdown |\n|---|---|---|---|---|---|---|")
	for _, name := range scenarios.Waits() {
		for _, on := range strings.Fields(*tableBy) {
			var c counted
			for seed := first; seed <= last; seed++ {
				o := scenario.Options{Seed: &seed, Switches: []scenario.Setting{{Key: "hard_cap.blame.enabled", Value: on}}}
				for _, set := range strings.Fields(*tableSet) {
					key, value, _ := strings.Cut(set, "=")
					o.Switches = append(o.Switches, scenario.Setting{Key: key, Value: value})
				}
				text, _ := scenarios.Vary(name, seed)
				f, err := scenario.Parse(name+".yaml", text, o)
				if err != nil {
					t.Fatal(err)
				}
				res, err := f.PlayAll(scenario.Typed, false)
				if err != nil {
					t.Fatal(err)
				}
				c.count(&res.Runs[0], scenarios.Guilty(name))
			}
			by := map[string]string{"true": "blame", "false": "correlation"}[on]
			fmt.Printf("| `%s` | %s | %d | %d | %d | %s | %s |\n", name, by, c.right, c.wrong, c.nobody, median(c.after, "%.0f s"), median(c.slow, "%.2f"))
		}
	}
}

type counted struct {
	right, wrong, nobody int
	after, slow          []float64
}

// count takes a run in: wrong, somebody innocent was demoted or capped, whoever else was; right, only the guilty
// were, or nobody where there is none; nobody, none of the guilty.
func (c *counted) count(run *scenario.Run, guilty []string) {
	w := &run.Windows[len(run.Windows)-1]
	innocent, held := false, false
	for i := range w.Tasks {
		x := &w.Tasks[i]
		if slices.ContainsFunc(run.Decisions, func(d model.Decision) bool {
			return (d.Kind == model.DecideCap || d.Kind == model.DecideDemote) && d.Path == x.Path
		}) {
			is := slices.Contains(guilty, x.Entry)
			held, innocent = held || is, innocent || !is
		}
		if x.Entry == "web" {
			c.slow = append(c.slow, float64(x.Slowdown))
		}
	}
	if len(run.Named) > 0 {
		c.after = append(c.after, run.Named[0].AtSec-w.FromSec)
	}
	switch {
	case innocent:
		c.wrong++
	case held == (len(guilty) > 0):
		c.right++
	default:
		c.nobody++
	}
}

func median(list []float64, format string) string {
	if len(list) == 0 {
		return "–"
	}
	slices.Sort(list)
	return fmt.Sprintf(format, list[len(list)/2])
}
