package numa

import (
	"context"
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/cpus"
)

// work is the process that is being brought to its shares.
type work struct {
	proc  *Process // nil: none
	onto  []int    // the nodes that its shares name
	plan  plan
	spans []span
	batch []unit // what the pages of the batch stand for

	place place
	begin place      // of the batch
	nodes []planNode // the plan's, at begin

	passes       int
	tried, moved uint64 // pages, in this pass
	hidden       uint64 // pages, in this pass
	triedBefore  uint64 // in the passes before
	movedBefore  uint64
	large        bool // large pages were met
}

// place is how far a pass has come.
type place struct {
	span  int
	next  uint64 // the address in the span that comes next
	seen  uint64 // movable pages that were passed in the span
	along uint64 // pages below this address go with one that was taken
	large extent // the latest large page that was met
}

// extent is pages that move together.
type extent struct {
	low, high uint64 // addresses
	pages     uint64 // on the node of the page that was asked for
}

// unit is one page of the batch, with those that move along.
type unit struct {
	source, target int // indexes into the plan
	pages          uint64
}

// step is one call of Step while pages are moved.
type step struct {
	*Report
	pages uint64   // that may still be tried
	sent  Counts   // to each target node
	full  cpus.Set // targets that refused a page
}

// errHopeless: see hopeless.
var errHopeless = errors.New("its pages do not move: most of them are held by something (pinned)")

// moveAll moves pages of one process after another, until the step's bounds.
func (m *Mover) moveAll(ctx context.Context, r *Report) error {
	st := &step{Report: r, pages: m.cfg.MaxPages}
	if m.next < len(m.targets) {
		if err := m.room.Refresh(); err != nil {
			return fmt.Errorf("move pages: %w", err)
		}
	}
	for ; m.next < len(m.targets); m.next++ {
		t := &m.targets[m.next]
		if t.Status != Surveyed && t.Status != Moving {
			continue
		}
		stop, err := m.moveTarget(ctx, t, st)
		if ctx.Err() != nil {
			m.rewind()
			return ctx.Err()
		}
		if err != nil {
			t.fail(errors.Join(err, m.leave()))
			continue
		}
		if stop != StopDone {
			r.Stop = stop
			return nil
		}
	}
	r.Stop = StopDone
	return nil
}

// moveTarget works on one process until it is settled (StopDone) or a bound is reached.
func (m *Mover) moveTarget(ctx context.Context, t *target, st *step) (Stop, error) {
	if m.work.proc == nil {
		if st.ScannedPages >= m.cfg.MaxScan {
			return StopScan, nil
		}
		if err := m.enter(ctx, t, st.Report); err != nil {
			return 0, err
		}
		t.Status = Moving
	}
	for more := !m.enough(t) || m.work.tried > 0; more; {
		if stop, err := m.pass(ctx, t, st); err != nil || stop != StopDone {
			return stop, err
		}
		moved, failed := m.work.moved, m.work.tried > m.work.moved
		m.work.passes++
		t.HiddenPages = m.work.hidden
		// The look after a pass is part of it, whatever the bound: what is reported of a
		// process that was moved is what is there, not what we meant to do.
		if err := m.look(ctx, t, st.Report); err != nil {
			return 0, err
		}
		again := moved > 0 && m.work.passes < growthPasses || failed && m.work.passes < maxPasses
		more = again && !m.enough(t)
	}
	t.Status, t.ShortPages, t.RemainingPages = Settled, t.RemainingPages, 0
	return StopDone, m.leave()
}

// enough says whether the process has its shares, as nearly as its pages can be divided:
// of huge pages, to half of one.
func (m *Mover) enough(t *target) bool {
	if m.work.large {
		return t.RemainingPages <= uint64(len(m.scan.window.node)/2)
	}
	return t.RemainingPages == 0
}

// enter opens a process and looks at it for the first time.
func (m *Mover) enter(ctx context.Context, t *target, r *Report) error {
	p, err := m.openTarget(t)
	if err != nil {
		return err
	}
	w := &m.work
	*w = work{proc: p, onto: w.onto[:0], spans: w.spans, batch: w.batch[:0], nodes: w.nodes}
	for _, s := range t.shares {
		if s.Parts > 0 {
			w.onto = append(w.onto, s.Node)
		}
	}
	if err = m.scan.open(p); err == nil {
		err = m.look(ctx, t, r)
	}
	if err != nil {
		return errors.Join(err, m.leave())
	}
	return nil
}

// look surveys the process at work and plans a pass.
func (m *Mover) look(ctx context.Context, t *target, r *Report) error {
	w := &m.work
	m.survey.onto = w.onto
	err := m.survey.run(ctx, w.proc)
	r.ScannedPages += m.survey.looked
	if err != nil {
		return err
	}
	// The surveyor's spans are kept, and it gets ours to write into.
	w.spans, m.survey.spans = m.survey.spans, w.spans
	w.triedBefore, w.movedBefore = w.triedBefore+w.tried, w.movedBefore+w.moved
	w.place, w.tried, w.moved, w.hidden = place{}, 0, 0, 0
	t.After, t.Left = m.survey.found.movable, m.survey.found.left
	w.plan = newPlan(t.After, t.shares)
	w.plan.shift(w.passes)
	t.RemainingPages = w.plan.remaining()
	return nil
}

// leave lets go of the process at work.
func (m *Mover) leave() error {
	if m.work.proc == nil {
		return nil
	}
	err := errors.Join(m.scan.close(), m.work.proc.Close())
	m.work.proc = nil
	m.batch.Reset()
	return err
}

// pass goes on through the process's pages. StopDone: to the end, or nothing more is to
// move.
func (m *Mover) pass(ctx context.Context, t *target, st *step) (Stop, error) {
	w := &m.work
	m.remember()
	for w.place.span < len(w.spans) && w.plan.remaining() > 0 {
		s := &w.spans[w.place.span]
		w.place.next = max(w.place.next, s.start)
		if w.place.next >= s.end || m.sparse(s) {
			w.place = place{span: w.place.span + 1}
			continue
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		stop := StopScan
		if st.ScannedPages < m.cfg.MaxScan {
			var err error
			if stop, err = m.passWindow(ctx, t, st, s); err != nil {
				return 0, err
			}
		}
		if stop != StopDone {
			return stop, m.flush(t, st)
		}
	}
	return StopDone, m.flush(t, st)
}

// sparse says whether the rest of a mapping is long, and all that the survey found in it
// was passed: reserved address space, of which no page is to be expected.
func (m *Mover) sparse(s *span) bool {
	long := uint64(len(m.scan.chunk)/8) * m.scan.pageSize
	return m.work.place.seen >= s.pages && s.end-m.work.place.next > long
}

// passWindow passes the pages from the place on to the end of its window.
func (m *Mover) passWindow(ctx context.Context, t *target, st *step, s *span) (Stop, error) {
	w := &m.work
	end := min(m.scan.windowEnd(w.place.next), s.end)
	win, err := m.scan.load(w.place.next, end, s.end)
	if err != nil {
		return 0, err
	}
	if m.blind && uint64(win.usable) > st.pages {
		return StopPages, nil // one page may move all of them
	}
	blind := m.blind
	if blind {
		copy(m.before, win.node[:win.n])
	}
	for i := range win.n {
		if win.node[i] < 0 {
			continue
		}
		address := win.start + uint64(i)*m.scan.pageSize
		w.place.next = address
		if stop := m.passPage(st, win, i, address); stop != StopDone {
			if blind {
				err = m.measure(t, st, end, s.end)
			}
			return stop, err
		}
		if m.blind && !blind {
			// It has just turned out that large pages cannot be recognised: from this
			// page on, measure.
			return StopDone, m.flush(t, st)
		}
		w.place.next = address + m.scan.pageSize
		w.place.seen++
		st.ScannedPages++
		if m.batch.Full() {
			if err := m.flush(t, st); err != nil || ctx.Err() != nil {
				return 0, errors.Join(err, ctx.Err())
			}
		}
	}
	st.ScannedPages += uint64(win.n-win.usable) / 8 // absent pages cost little
	w.place.next = end
	w.place.seen += uint64(win.hidden)
	w.hidden += uint64(win.hidden)
	if blind {
		return StopDone, m.measure(t, st, end, s.end)
	}
	return StopDone, nil
}

// passPage decides about one page. When a bound stops it, the page is come to again.
func (m *Mover) passPage(st *step, win *window, i int, address uint64) Stop {
	w := &m.work
	from := w.plan.source(int(win.node[i]))
	if from < 0 {
		return StopDone
	}
	w.plan.pass(from)
	if address < w.place.along || !w.plan.due(from, 1) {
		return StopDone
	}
	e := m.together(win, i, address)
	if e.pages == 0 {
		m.blind = true
		w.plan.unpass(from)
		return StopDone
	}
	if !w.plan.due(from, e.pages) {
		return StopDone
	}
	to := w.plan.target(e.pages, func(node int) uint64 { return m.roomOn(st, node) })
	stop := StopDone
	switch {
	case to == noTarget:
		w.plan.unpass(from) // it stays due no more than it is
		return StopDone
	case to == noRoom:
		stop = StopRoom
		m.noteFull(st)
	case e.pages > st.pages:
		stop = StopPages
	}
	if stop != StopDone {
		w.plan.unpass(from)
		return stop
	}
	node := w.plan.nodes[to].node
	w.plan.take(from, to, e.pages)
	m.batch.Add(address, node)
	w.batch = append(w.batch, unit{source: from, target: to, pages: e.pages})
	st.pages -= e.pages
	st.sent = st.sent.Add(node, e.pages)
	w.place.along = e.high
	if m.blind {
		m.before[i] = -1
	}
	return StopDone
}

// together returns the pages that move with the one at position i; none when that cannot
// be told.
func (m *Mover) together(win *window, i int, address uint64) extent {
	if m.blind {
		return extent{low: address, high: address + m.scan.pageSize, pages: 1}
	}
	if e := m.work.place.large; address >= e.low && address < e.high {
		return e
	}
	low, high, ok := m.flags.extent(win, i)
	if !ok {
		return extent{}
	}
	e := extent{
		low:  win.start + uint64(low)*m.scan.pageSize,
		high: win.start + uint64(high)*m.scan.pageSize,
	}
	for _, node := range win.node[low:high] {
		if node == win.node[i] {
			e.pages++
		}
	}
	m.work.place.large = e
	m.work.large = m.work.large || e.pages > 1
	return e
}

// roomOn returns how many pages the node can still take in this step.
func (m *Mover) roomOn(st *step, node int) uint64 {
	if st.full.Has(node) {
		return 0
	}
	sent, _ := st.sent.Get(node)
	room := m.room.Pages(node, m.cfg.ReservePages)
	return room - min(room, sent)
}

// noteFull puts the targets that lack room into the report.
func (m *Mover) noteFull(st *step) {
	st.FullNodes = st.FullNodes[:0]
	for _, n := range m.work.plan.nodes {
		if n.come > 0 {
			st.FullNodes = append(st.FullNodes, n.node)
		}
	}
}

// flush sends the batch and accounts for what became of it.
func (m *Mover) flush(t *target, st *step) error {
	w := &m.work
	if m.batch.Len() == 0 {
		return nil
	}
	// The call takes a number: make sure that it is still the same process's.
	if err := m.scan.alive(); err != nil {
		return err
	}
	_, err := m.batch.Move(t.PID)
	for k, u := range w.batch {
		outcome := m.batch.Outcome(k)
		st.Outcomes[outcome] += u.pages
		w.tried += u.pages
		if outcome != Moved {
			w.plan.giveBack(u.source, u.target, u.pages)
			continue
		}
		m.credit(t, u)
	}
	t.RemainingPages = w.plan.remaining()
	if errors.Is(err, ErrNodeFull) {
		for _, u := range w.batch {
			st.full.Add(w.plan.nodes[u.target].node)
		}
		m.noteFull(st)
		err = nil
	}
	m.batch.Reset()
	w.batch = w.batch[:0]
	m.remember()
	tried, moved := w.triedBefore+w.tried, w.movedBefore+w.moved
	if err == nil && tried >= hopeless && moved < tried/8 {
		err = fmt.Errorf("move pages of process %d: %w: %d of %d moved", t.PID, errHopeless, moved, tried)
	}
	return err
}

// credit notes pages that moved.
func (m *Mover) credit(t *target, u unit) {
	m.work.moved += u.pages
	from, to := m.work.plan.nodes[u.source].node, m.work.plan.nodes[u.target].node
	for i := range t.After {
		if t.After[i].Node == from {
			t.After[i].Count -= min(t.After[i].Count, u.pages)
		}
	}
	t.After = t.After.Add(to, u.pages)
}

// measure sends the window's batch and finds out by asking again what moved along with
// its pages: without page frame numbers a large page looks like small ones. What moved
// too much is paid by the windows that follow.
func (m *Mover) measure(t *target, st *step, end, limit uint64) error {
	if m.batch.Len() == 0 {
		return nil
	}
	start := m.scan.window.start
	if err := m.flush(t, st); err != nil {
		return err
	}
	win, err := m.scan.load(start, end, limit)
	if err != nil {
		return err
	}
	w := &m.work
	for i := range win.n {
		if m.before[i] < 0 || win.node[i] < 0 || win.node[i] == m.before[i] {
			continue
		}
		from, to := w.plan.source(int(m.before[i])), w.plan.index(int(win.node[i]))
		if from < 0 || to < 0 {
			continue
		}
		w.plan.take(from, to, 1)
		w.large = true
		w.tried++
		m.credit(t, unit{source: from, target: to, pages: 1})
		st.Outcomes[Moved]++
		st.pages -= min(st.pages, 1)
		st.sent = st.sent.Add(int(win.node[i]), 1)
	}
	t.RemainingPages = w.plan.remaining()
	m.remember()
	return nil
}

// remember notes where the next batch begins.
func (m *Mover) remember() {
	m.work.begin = m.work.place
	m.work.nodes = append(m.work.nodes[:0], m.work.plan.nodes...)
}

// rewind undoes a batch that was not sent.
func (m *Mover) rewind() {
	w := &m.work
	if m.batch.Len() == 0 {
		return
	}
	w.place = w.begin
	copy(w.plan.nodes, w.nodes)
	m.batch.Reset()
	w.batch = w.batch[:0]
}
