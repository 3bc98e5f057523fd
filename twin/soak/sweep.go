package soak

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"
)

// Summary is what became of a range of seeds.
type Summary struct {
	First     uint64         `json:"first"`
	Last      uint64         `json:"last"`
	Minutes   float64        `json:"minutes"` // simulated, of each
	Seeds     int            `json:"seeds"`
	Failed    int            `json:"failed"`
	Faults    map[string]int `json:"faults"`
	Turns     int            `json:"turns"`
	Lives     int            `json:"lives"`
	Kills     int            `json:"kills"`
	Restores  int            `json:"restores"`
	Restored  int            `json:"restored"`
	Incidents int            `json:"incidents"`
	Late      int            `json:"late"`
	Caps      int            `json:"caps"`
	Raises    int            `json:"raises"`
	Places    int            `json:"places"`
	Writes    int            `json:"writes"`
	Reclaims  int            `json:"reclaims"`
	Aged      int            `json:"aged"`
	Freezes   int            `json:"freezes"`
	DiskCaps  int            `json:"disk_caps"`
	MemCaps   int            `json:"memory_caps"`
	Ends      int            `json:"ends"`
	Moves     int            `json:"moves"`
	Homeward  int            `json:"homeward"`
	Ended     int            `json:"ended"`
	Classes   int            `json:"classes"`
	L2s       int            `json:"l2s"`
	Parted    int            `json:"parted"`
	Apart     int            `json:"apart"`
	Alone     int            `json:"alone"`
	Counted   int            `json:"counted"`
	Renewals  int            `json:"renewals"`
	Pulls     int            `json:"pulls"`
	Voids     int            `json:"voids"`
	Moved     int            `json:"moved"`
	Renewed   int            `json:"renewed"` // seeds in which there was one
	Checks    int            `json:"checks"`
	// Failures are the runs in which a checker found something, by seed, at most
	// maxFailures of them.
	Failures []*Result `json:"failures"`
}

// maxFailures is how many failures are kept whole: one bug fails many seeds.
const maxFailures = 10

// MaxSeeds bounds a range.
const MaxSeeds = 10_000_000

// Sweep plays the seeds first to last on so many workers and sums them up. What comes out
// does not depend on the workers. done is told of each run as it ends, in any order, one
// at a time. An error means that a run could not be played.
func Sweep(first, last uint64, o Options, workers int, done func(r *Result)) (*Summary, error) {
	if last < first || last-first >= MaxSeeds {
		return nil, fmt.Errorf("soak: seeds %d to %d: expected at least 1, at most %d", first, last, MaxSeeds)
	}
	sum := &Summary{First: first, Last: last, Minutes: o.Minutes, Faults: map[string]int{}, Failures: []*Result{}}
	if sum.Minutes == 0 {
		sum.Minutes = DefaultMinutes
	}
	var g errgroup.Group
	g.SetLimit(max(1, workers))
	var mu sync.Mutex
	for seed := first; ; seed++ {
		g.Go(func() error {
			r, err := Run(seed, o)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			sum.add(r)
			if done != nil {
				done(r)
			}
			return nil
		})
		if seed == last {
			break
		}
	}
	return sum, g.Wait()
}

func (s *Summary) add(r *Result) {
	s.Seeds++
	for name, n := range r.Faults {
		s.Faults[name] += n
	}
	s.Turns += r.Turns
	s.Lives += r.Lives
	s.Kills += r.Kills
	s.Restores += r.Restores
	s.Restored += r.Restored
	s.Incidents += r.Incidents
	s.Late += r.Late
	s.Caps += r.Caps
	s.Raises += r.Raises
	s.Places += r.Places
	s.Writes += r.Writes
	s.Reclaims += r.Reclaims
	s.Aged += r.Aged
	s.Freezes += r.Freezes
	s.DiskCaps += r.DiskCaps
	s.MemCaps += r.MemCaps
	s.Ends += r.Ends
	s.Moves, s.Homeward, s.Ended = s.Moves+r.Moves, s.Homeward+r.Homeward, s.Ended+r.Ended
	s.Classes += r.Classes
	s.L2s += r.L2s
	s.Parted += r.Parted
	s.Apart += r.Apart
	s.Alone += r.Alone
	s.Counted += r.Counted
	s.Renewals += r.Renewals
	s.Pulls, s.Voids, s.Moved = s.Pulls+r.Pulls, s.Voids+r.Voids, s.Moved+r.Moved
	s.Renewed += bit(r.Renewals > 0)
	s.Checks += r.Checks
	if r.Failure == nil {
		return
	}
	s.Failed++
	i, _ := slices.BinarySearchFunc(s.Failures, r.Seed, func(a *Result, seed uint64) int {
		if a.Seed < seed {
			return -1
		}
		return 1
	})
	s.Failures = slices.Insert(s.Failures, i, r)
	if len(s.Failures) > maxFailures {
		s.Failures = s.Failures[:maxFailures]
	}
}

// Print writes the summary as a table, and each failure with the command that plays it
// again.
func (s *Summary) Print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, v any) { fmt.Fprintf(t, "%s\t%v\n", name, v) } //nolint:errcheck // Flush tells
	row("seeds", fmt.Sprintf("%d..%d (%d), %g simulated minutes each", s.First, s.Last, s.Seeds, s.Minutes))
	row("turns", s.Turns)
	row("starts of the agent", s.Lives)
	row("kills", s.Kills)
	row("restores", fmt.Sprintf("%d, which put %d limits back", s.Restores, s.Restored))
	row("incidents", s.Incidents)
	row("of missed targets", s.Late)
	row("caps asked for", s.Caps)
	row("raises asked for", s.Raises)
	row("places asked for", s.Places)
	row("writes to the kernel", s.Writes)
	row("writes that took memory back", s.Reclaims)
	row("writes that moved ages of pages on", s.Aged)
	row("tasks frozen", s.Freezes)
	row("limits on the disk asked for", s.DiskCaps)
	row("limits on memory asked for", s.MemCaps)
	row("tasks and processes ended", s.Ends)
	row("calls that moved pages", fmt.Sprintf("%d, %d to bring them home; %d moves were ended before they were done", s.Moves, s.Homeward, s.Ended))
	row("turns with a class of service", fmt.Sprint(s.Classes))
	row("turns with a part of the L2s", fmt.Sprint(s.L2s))
	row("turns with one of services", fmt.Sprint(s.Apart))
	row("turns with one of a part of them", fmt.Sprint(s.Parted))
	row("turns with one of a task alone", fmt.Sprint(s.Alone))
	row("writes to groups that count tasks", fmt.Sprint(s.Counted))
	row("remedies begun, or given back by a step", fmt.Sprintf("%d, %d trials disturbed", s.Pulls, s.Voids))
	row("turns with a task off its CPUs for a service", s.Moved)
	row("journals written anew", fmt.Sprintf("%d, in %d seeds", s.Renewals, s.Renewed))
	row("looks of checkers", s.Checks)
	for _, name := range slices.Sorted(maps.Keys(s.Faults)) {
		row("  "+name, s.Faults[name])
	}
	row("failed seeds", s.Failed)
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range s.Failures {
		if err := r.Print(out); err != nil {
			return err
		}
	}
	return nil
}

// Print writes a failure with what came before it.
func (r *Result) Print(out io.Writer) error {
	f := r.Failure
	if f == nil {
		_, err := fmt.Fprintf(out, "seed %d: clean\n", r.Seed)
		return err
	}
	if _, err := fmt.Fprintf(out, "\nseed %d: %s, at %.3f s: %s\n  %s\n", r.Seed, f.Check, float64(f.AtNsec)/1e9, f.What, r.Setting); err != nil {
		return err
	}
	for _, line := range f.Log {
		if _, err := fmt.Fprintf(out, "  %s\n", line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "  again: %s\n", r.Replay())
	return err
}
