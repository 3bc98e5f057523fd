package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/node/linux"
)

// Moves is what the requests of a service take while another process's memory is moved between two nodes, beside what they take while nothing is done, and while a thread
// only computes as long as the mover would: windows by turns in one run, the mover as the agent has it, with its rests.
//
// Written down before the first run: it fails where any of the service's p50, p95 and p99 is by more than 2 % higher than with nothing done, in the geometric mean over rounds of windows, with an interval that
// leaves 0 out; and likewise beside the thread that computes, which tells what moving does from the CPU that it takes.
type Moves struct {
	// Why says why nothing was measured; "": it was.
	Why      string  `json:"why,omitempty"`
	MiB      int     `json:"mib"` // of the process whose pages move
	MovedMiB float64 `json:"moved_mib"`
	Rounds   int     `json:"rounds"` // of a window of each kind
	// Requests and Msec, what they took by percentile, are by kind of window; Higher by how much more while pages move than in windows of the other kinds, over rounds.
	Requests [moveKinds]int                                   `json:"requests"`
	Msec     [len(moveQuantiles)][moveKinds]float64           `json:"ms"`
	Higher   [len(moveQuantiles)][moveKinds - 1]stat.Interval `json:"higher"`

	step, rest time.Duration // that the last step took, and the rest after it
}

// The kinds of windows.
const (
	still = iota
	computing
	moving
	moveKinds
)

var moveQuantiles = [...]float64{0.5, 0.95, 0.99}

const (
	// PartMoves is a service while pages move (Options.Only).
	PartMoves = "moves"

	movesMiB                = 256 // Moves.MiB if nothing else is asked for: a node of the rig's guests has 1 GiB
	moveRounds, quickRounds = 14, 2
	moveWindow              = 10 * time.Second
	moveRate                = 50 // requests a second
	moveWork                = 500 * time.Microsecond
	mostHigher              = 2 // percent
)

// moveGap is left out at the beginning of each window: what came before it is over then.
const moveGap = time.Second

// measureMoves plays all windows.
func measureMoves(ctx context.Context, fsys hostfs.FS, st *stage.Stage, o *Options) (*Moves, error) {
	m := &Moves{MiB: cmp.Or(o.MiB, movesMiB), Rounds: moveRounds, step: time.Second, rest: time.Second}
	if o.Quick {
		m.Rounds = quickRounds
	}
	top, err := numa.ReadTopology(fsys)
	if err != nil || len(top.MemoryNodes()) < 2 {
		m.Why = "this machine has no two memory nodes"
		return m, nil //nolint:nilerr // that there are none is what was found
	}
	_, pids, err := startIdle(st, 1, m.MiB)
	if err != nil {
		return nil, err
	}
	if err := filled(ctx, pids, m.MiB); err != nil {
		return nil, err
	}
	g, err := st.Group("moves-service")
	if err != nil {
		return nil, err
	}
	begin := linux.MonotonicNsec() + 2e9
	service, err := openloop.Start(st, g, "moves-service", m.order(begin))
	if err != nil {
		return nil, err
	}
	to := 0
	for w := range moveKinds * m.Rounds {
		fmt.Fprintf(o.Log, "window %d of %d\n", w+1, moveKinds*m.Rounds)
		end := begin + int64(w+1)*moveWindow.Nanoseconds()
		if err := stage.Sleep(ctx, time.Duration(end-moveWindow.Nanoseconds()-linux.MonotonicNsec())); err != nil {
			return nil, err
		}
		for kindOf(w) != still && linux.MonotonicNsec() < end {
			if kindOf(w) == computing {
				err = m.compute(ctx, end)
			} else {
				to++
				err = m.moveAll(ctx, fsys, pids[0], top.MemoryNodes()[to%2], end)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	log, err := service.Finish(ctx)
	if err != nil {
		return nil, err
	}
	return m, m.take(log, begin)
}

// kindOf is the kind of a window: each round has one of each, and begins with another one than the last, so that what drifts falls on all.
func kindOf(window int) int { return (window + window/moveKinds) % moveKinds }

// compute has a thread compute as long as the last step of a move took, and rest as long as after that.
func (m *Moves) compute(ctx context.Context, end int64) error {
	for until := time.Now().Add(m.step); time.Now().Before(until) && linux.MonotonicNsec() < end; {
	}
	return stage.Sleep(ctx, m.rest)
}

// order is what is asked of the service: requests that come at random, over all windows.
func (m *Moves) order(begin int64) *openloop.Order {
	rng, all := rand.New(rand.NewPCG(1, 2)), time.Duration(moveKinds*m.Rounds)*moveWindow
	o := &openloop.Order{Threads: 2, StartNsec: begin, EndNsec: begin + (all + 10*time.Second).Nanoseconds()}
	for at := time.Duration(0); at < all; at += time.Duration(rng.ExpFloat64() / moveRate * 1e9) {
		o.Requests = append(o.Requests, openloop.Request{At: at, CPU: moveWork})
	}
	return o
}

// moveAll moves a process's pages to a node until they are there, or the time is over, as the agent does.
func (m *Moves) moveAll(ctx context.Context, fsys hostfs.FS, pid, node int, end int64) (err error) {
	mover := numa.NewMover(fsys, numa.Live{}, numa.MoverConfig{})
	defer func() { err = errors.Join(err, mover.Close()) }()
	if err := mover.Start([]numa.Target{{PID: int32(pid), Shares: []numa.Share{{Node: node, Parts: 1}}}}); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	for linux.MonotonicNsec() < end {
		began := time.Now()
		r, err := mover.Step(ctx)
		m.MovedMiB += float64(r.MovedPages()) * float64(os.Getpagesize()) / (1 << 20)
		switch {
		case err != nil:
			return fmt.Errorf("bench: %w", err)
		case r.Stop == numa.StopDone:
			return nil
		case r.Stop == numa.StopRoom:
			return fmt.Errorf("bench: no room on nodes %v for the pages", r.FullNodes)
		}
		took := time.Since(began)
		if r.Stop == numa.StopPages {
			m.step, m.rest = took, r.Rest(took)
		}
		if err := stage.Sleep(ctx, r.Rest(took)); err != nil {
			return err
		}
	}
	return nil
}

// take takes in what became of the requests, by window.
func (m *Moves) take(log *openloop.Log, begin int64) error {
	windows, all := make([][]float64, moveKinds*m.Rounds), [moveKinds][]float64{}
	for i := range log.Answers {
		a := &log.Answers[i]
		w, in := int((a.AtNsec-begin)/moveWindow.Nanoseconds()), time.Duration((a.AtNsec-begin)%moveWindow.Nanoseconds())
		if w < 0 || w >= len(windows) || in < moveGap {
			continue
		}
		took := float64(a.DoneNsec-a.AtNsec) / 1e6
		windows[w], all[kindOf(w)] = append(windows[w], took), append(all[kindOf(w)], took)
	}
	if m.MovedMiB < float64(m.MiB) || slices.ContainsFunc(windows, func(w []float64) bool { return len(w) == 0 }) {
		return fmt.Errorf("bench: %.0f MiB were moved, and a window may be without requests", m.MovedMiB)
	}
	for q, at := range moveQuantiles {
		var of [moveKinds - 1][]float64
		for round := range m.Rounds {
			var took [moveKinds]float64
			for w := moveKinds * round; w < moveKinds*(round+1); w++ {
				took[kindOf(w)] = stat.Quantile(at, windows[w])
			}
			for k := range of {
				of[k] = append(of[k], math.Log(took[moving]/took[k]))
			}
		}
		for k := range of {
			in := stat.IntervalOf(of[k])
			in.Mean, in.Low, in.High = math.Expm1(in.Mean), math.Expm1(in.Low), math.Expm1(in.High)
			m.Higher[q][k] = in
		}
		for k := range all {
			m.Msec[q][k], m.Requests[k] = stat.Quantile(at, all[k]), len(all[k])
		}
	}
	return nil
}

// worst is the greatest rise of any percentile beside a kind of windows, in percent, and whether it fails.
func (m *Moves) worst(kind int) (most float64, fails bool) {
	most = 100 * m.Higher[0][kind].Mean
	for q := range m.Higher {
		h := &m.Higher[q][kind]
		most = max(most, 100*h.Mean)
		fails = fails || 100*h.Mean > mostHigher && h.Low > 0
	}
	return most, fails
}

func (r *Result) movesTable() report.Table {
	m := r.Moves
	t := report.Table{
		Title: "A service's requests while another process's pages move",
		Columns: []report.Column{
			{Name: "percentile"}, report.Figures("nothing done", "ms"), report.Figures("a thread computes", "ms"), report.Figures("pages move", "ms"),
			report.Figures("times nothing done", ""), report.Figures("times computing", ""),
		},
	}
	if m.Why != "" {
		t.Notes = []string{"NOT MEASURED HERE: " + m.Why + "."}
		return t
	}
	times := func(h stat.Interval) string {
		h.Mean, h.Low, h.High = 1+h.Mean, 1+h.Low, 1+h.High
		return h.Text(1, 2)
	}
	for q, at := range moveQuantiles {
		ms, h := &m.Msec[q], &m.Higher[q]
		t.Rows = append(t.Rows, report.Cells("p"+strconv.Itoa(int(100*at)), num(ms[still], 2), num(ms[computing], 2), num(ms[moving], 2), times(h[still]), times(h[computing])))
	}
	t.Notes = []string{fmt.Sprintf("%.0f MiB were moved, of a process of %d MiB to and fro; %v requests of %s of CPU time each, in %d rounds of windows of %s. Times: geometric means over rounds.", m.MovedMiB, m.MiB, m.Requests, moveWork, m.Rounds, moveWindow)}
	return t
}
