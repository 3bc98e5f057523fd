// Package coldpages gives memory back that nobody uses, before anybody needs it (Alibaba §3.2): anonymous pages that lay idle for six
// hours go to swap, clean file pages that did for one and a half are dropped. Services keep most of their memory for what they
// hardly ever touch; batch work can use it.
//
// Intuition. A page that was not used for hours will hardly be used in the next minutes, and if it is, one fault brings it back. So what is
// taken is chosen by age, a bounded amount at a time, and what it cost is watched before more is asked: pages that come back beyond
// the usual, and time that the task waits for memory. The other way (by: pressure) knows no ages: it asks of each task for a little all the
// time, less the more the task waits for memory, and lets the kernel choose (Meta's TMO, its program senpai).
//
// Hard cases. Age is the past: a service that collects its garbage once a day uses all of its memory at once, old pages first. Then
// the first refaults stop us, and the task rests, longer each time. Ages are read rarely, since reading them walks page tables: what was
// taken since counts off. The kernel may find less than it counted (locked pages, dirty ones): then the task has nothing more to give until it is read
// again, or, where no ages are known, until it has rested. Without swap, or with it full, only file pages are asked for. One action at a time and task: while policy pressure takes
// memory of a batch task, ours waits in the ledger. And who is on trial, or suffers meanwhile, is not asked: that would make the trial say nothing, each time anew.
package coldpages

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

const (
	mib       = 1 << 20
	pageBytes = 4096
	leastAsk  = mib       // less is not worth asking for
	mostAsk   = 512 * mib // one action stays short
	leastSwap = 64 * mib  // of swap is left to the kernel
	// Two may be on their way, and one is begun in four seconds: half of what the ledger lets all policies do (engine: 30 a minute).
	mostAsked  = 2
	apartNsec  = 4e9
	claimNsec  = 120e9 // after so long without an answer an ask is forgotten
	mostRests  = 6     // doublings
	senpaiNsec = 6e9   // TMO's interval
	// patienceNsec is how long the first ages may take.
	patienceNsec = 900e9
	leastFree    = 0.1   // of what is taken is to come free; else it is all cost
	mostIdle     = 300e9 // of ByPressure: what was missed for longer is not made up for
)

// Task is what is known of one task.
type Task struct {
	Num  model.TaskNum  `json:"num"`
	Ages model.PageAges `json:"ages,omitzero"` // as last read
	// AgesInUse is what it had of memory then, bytes; 0: not known.
	AgesInUse float64 `json:"ages_in_use,omitempty"`
	// Taken is what was taken since, by kind of page, in bytes of pages: whether or not it came free.
	Taken [3]int64 `json:"taken"`
	// Kept is the share of the anonymous pages taken at the last ask that did not come free: their compressed copies stay (zswap, zram).
	Kept float64 `json:"kept,omitempty"`

	AskedNsec int64   `json:"asked_nsec,omitempty"` // when it was last asked, monotonic; 0: never
	UntilNsec int64   `json:"until_nsec,omitempty"` // it rests until then
	Rests     int     `json:"rests,omitempty"`
	InUse     float64 `json:"in_use,omitempty"` // bytes, in the last window
	// Refaults is what came back in the last window, Usual that while nothing had been taken, in pages a second; below 0: not known.
	Refaults float64     `json:"refaults"`
	Usual    float64     `json:"usual"`
	Stalled  model.Value `json:"stalled,omitzero"`
	Suffers  bool        `json:"suffers,omitempty"`
	Watch    Watch       `json:"watch,omitzero"`
	// Reclaimed is what pages had that were taken of it, Given what came free by that, and Back what of the pages came back while it was watched, in bytes.
	Reclaimed float64 `json:"reclaimed,omitempty"`
	Given     float64 `json:"given,omitempty"`
	Back      float64 `json:"back,omitempty"`
}

// Watch is what a reclaim cost so far.
type Watch struct {
	FromNsec  int64   `json:"from_nsec,omitempty"` // 0: nothing is watched
	OlderNsec int64   `json:"older_nsec,omitempty"`
	Bytes     float64 `json:"bytes,omitempty"` // of pages that were taken
	Kept      float64 `json:"kept,omitempty"`  // of these, that did not come free
	Back      float64 `json:"back,omitempty"`  // bytes that came back beyond the usual
	StallNsec float64 `json:"stall_nsec,omitempty"`
	TookNsec  int64   `json:"took_nsec,omitempty"`
}

// Asked is an ask that is not answered yet.
type Asked struct {
	Num    model.TaskNum  `json:"task"`
	What   model.PageKind `json:"what"`
	Older  int64          `json:"older_nsec,omitempty"`
	Bytes  int64          `json:"bytes"`
	AtNsec int64          `json:"at_nsec"`
}

func (a *Asked) setting() model.Setting { return model.ReclaimCold(a.Bytes, a.What, a.Older) }

// State is what the policy remembers. Times are monotonic, 0: never.
type State struct {
	Tasks     []Task  `json:"tasks,omitempty"` // LC and BE, ordered by number
	Asked     []Asked `json:"asked,omitempty"`
	AskedNsec int64   `json:"asked_nsec,omitempty"`
	BeganNsec int64   `json:"began_nsec,omitempty"` // the first window's end
	AtNsec    int64   `json:"at_nsec,omitempty"`    // the last window's end
	Told      bool    `json:"told,omitempty"`       // somebody told ages
	// Tokens are bytes that may be asked for now, and FilledNsec until when they were counted.
	Tokens     float64 `json:"tokens,omitempty"`
	FilledNsec int64   `json:"filled_nsec,omitempty"`
	// SwapFree is what there is of swap, bytes; below 0: nobody tells. Some is the machine's stall. While it is too much nobody is asked until UntilNsec.
	SwapFree  float64     `json:"swap_free"`
	Some      model.Value `json:"some,omitzero"`
	UntilNsec int64       `json:"until_nsec,omitempty"`
	Rests     int         `json:"rests,omitempty"`

	spare []Task
}

// Step takes in what became of asks and what the window that closed says, and asks the next task.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	if v.Changed || s.Tasks == nil {
		s.match(v)
	}
	news := s.answers(p, v, w)
	if v.Window.Closed {
		s.look(p, v, w)
	}
	asked := s.ask(p, v, w)
	w.AsBefore = !news && !asked && !v.Changed && !s.waits(v)
	if w.AsBefore || !v.Enforced() {
		return
	}
	for i := range s.Asked {
		a := &s.Asked[i]
		w.Claims = append(w.Claims, model.Claim{Target: model.OfTask(a.Num), Kind: model.ClaimRun, Value: a.setting(), Reason: "idle memory is given back", HoldNsec: claimNsec})
	}
	w.Why = "it is not asked for any more"
}

// match keeps one entry for each LC and BE task.
func (s *State) match(v *policy.View) {
	s.Tasks, s.spare = policy.Match(v, s.Tasks, s.spare, func(t *Task) model.TaskNum { return t.Num }, func(t *policy.TaskView, had *Task, _ int) (Task, bool) {
		switch {
		case t.Task.Class != model.LC && t.Task.Class != model.BE:
			return Task{}, false
		case had != nil:
			return *had, true
		}
		return Task{Num: t.Task.Num, Usual: -1}, true
	})
	s.Asked = slices.DeleteFunc(s.Asked, func(a Asked) bool { return s.task(a.Num) == nil })
}

func (s *State) task(num model.TaskNum) *Task {
	i, ok := slices.BinarySearchFunc(s.Tasks, num, func(t Task, n model.TaskNum) int { return cmp.Compare(t.Num, n) })
	if !ok {
		return nil
	}
	return &s.Tasks[i]
}

// waits reports whether an ask is not on its way yet: the ledger had no room, and is asked again.
func (s *State) waits(v *policy.View) bool {
	return slices.ContainsFunc(s.Asked, func(a Asked) bool { return !v.Pending(a.Num, model.MemoryReclaim) })
}

// answers takes in what became of what was asked, and reports whether anything was.
func (s *State) answers(p *Params, v *policy.View, w *policy.Wishes) (news bool) {
	had := len(s.Asked)
	for i := range v.Results {
		r := &v.Results[i]
		if r.Now.Knob != model.MemoryReclaim || r.Scope != model.ScopeTask {
			continue
		}
		at := slices.IndexFunc(s.Asked, func(a Asked) bool { return a.Num == r.Num && a.What == r.Now.Pages && a.Older == r.Now.OlderNsec })
		if at >= 0 {
			a := s.Asked[at]
			s.Asked = slices.Delete(s.Asked, at, at+1)
			s.answered(p, v, w, &a, r)
		}
	}
	s.Asked = slices.DeleteFunc(s.Asked, func(a Asked) bool { // what is on its way is answered, whatever the mode is now
		return !v.Pending(a.Num, model.MemoryReclaim) && (v.NowNsec-a.AtNsec >= claimNsec || !v.Enforced())
	})
	return len(s.Asked) != had
}

// answered takes in what became of one ask.
func (s *State) answered(p *Params, v *policy.View, w *policy.Wishes, a *Asked, r *model.Result) {
	t := s.task(a.Num)
	if t == nil {
		return
	}
	const fruitless = 0.1 // of what was asked for
	got := max(0, r.Now.Amount)
	kept := min(got, max(0, r.Now.Kept))
	switch {
	case r.Kind != model.Applied:
		got, kept = 0, 0
		s.rest(p, v, w, t, "the kernel took nothing back: "+r.Error)
	case a.Older == 0 && float64(got) < fruitless*float64(a.Bytes): // it would be asked again at once, and no ages say better
		s.rest(p, v, w, t, fmt.Sprintf("asked for %.0f MiB the kernel found hardly anything to take (%.1f MiB): its pages are locked, or have nowhere to go", float64(a.Bytes)/mib, float64(got)/mib))
	}
	t.Taken[a.What] += got
	if a.Older > 0 && got < a.Bytes/2 { // there is no more, whatever was counted: it is locked, or dirty
		t.Taken[a.What] = maxInt64
	}
	if got == 0 {
		return
	}
	t.Reclaimed, t.Given = t.Reclaimed+float64(got), t.Given+float64(got-kept)
	if t.Watch.FromNsec == 0 {
		t.Watch = Watch{FromNsec: v.NowNsec, OlderNsec: a.Older}
	}
	t.Watch.Bytes, t.Watch.Kept = t.Watch.Bytes+float64(got), t.Watch.Kept+float64(kept)
	t.Watch.TookNsec += max(0, r.MonoNsec-a.AtNsec)
	if a.What == model.AnonPages {
		t.Kept = float64(kept) / float64(got)
	}
	if got >= leastAsk && float64(got-kept) < leastFree*float64(got) {
		s.rest(p, v, w, t, fmt.Sprintf("%.0f MiB of its %s pages were taken, and %.0f MiB came free: compressed, they take nearly as much", float64(got)/mib, a.What, float64(got-kept)/mib))
	}
}

const maxInt64 = 1<<63 - 1

// cold returns what of a task's memory of a kind may be taken back by its age, in bytes.
func (s *State) cold(p *Params, c model.Class, t *Task, kind model.PageKind) int64 {
	age := p.age(c, kind)
	edge := model.AgeEdge(age)
	if age == 0 || edge == model.NumAgeEdges || t.Ages.MonoNsec == 0 {
		return 0
	}
	all := int64(t.Ages.Of(kind)[edge])
	return all - min(all, t.Taken[kind])
}

// swap returns how much of a task's anonymous memory swap has room for, in bytes: the machine's, as far as the task's own limits leave it, or a guest's own.
func (s *State) swap(t *Task) int64 {
	if t.Ages.Guest {
		return max(0, int64(t.Ages.AnonRoom)-min(maxInt64/2, t.Taken[model.AnonPages])-leastSwap)
	}
	room := max(0, int64(s.SwapFree)-leastSwap)
	if t.Ages.Limited {
		room = min(room, max(0, int64(min(maxInt64/2, t.Ages.AnonRoom))-min(maxInt64/2, t.Taken[model.AnonPages])))
	}
	return room
}

// ask asks the next task, if one may be, and reports whether it did.
func (s *State) ask(p *Params, v *policy.View, w *policy.Wishes) bool {
	rate := float64(p.MachineBytes)
	s.Tokens = min(60*rate, s.Tokens+rate*float64(v.NowNsec-s.FilledNsec)/1e9)
	s.FilledNsec = v.NowNsec
	if s.AtNsec == 0 || v.NowNsec < s.UntilNsec || len(s.Asked) >= mostAsked || v.NowNsec-s.AskedNsec < apartNsec || s.Tokens < leastAsk || !v.Enforced() {
		return false
	}
	var best *Task
	var what Asked
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if best != nil && t.AskedNsec >= best.AskedNsec {
			continue
		}
		if a := s.wants(p, v, w, t); a.Bytes >= leastAsk {
			best, what = t, a
		}
	}
	if best == nil {
		return false
	}
	since := float64(v.NowNsec - best.AskedNsec)
	best.AskedNsec, s.AskedNsec = v.NowNsec, v.NowNsec
	s.Tokens -= float64(what.Bytes)
	s.Asked = append(s.Asked, what)
	w.Decide(s.decision(p, v, best, &what, since))
	return true
}

// wants returns what a task may be asked for now.
func (s *State) wants(p *Params, v *policy.View, w *policy.Wishes, t *Task) Asked {
	if v.NowNsec < t.UntilNsec || p.By == ByAge && t.Watch.FromNsec != 0 || slices.ContainsFunc(s.Asked, func(a Asked) bool { return a.Num == t.Num }) {
		return Asked{}
	}
	tv := v.Task(t.Num)
	if tv == nil || v.Judged(t.Num) {
		return Asked{}
	}
	a := Asked{Num: t.Num, AtNsec: v.NowNsec}
	if p.By == ByPressure {
		a.What, a.Bytes = s.little(p, tv.Task.Class, t, v.NowNsec)
	} else {
		a.What, a.Bytes = model.FilePages, s.cold(p, tv.Task.Class, t, model.FilePages)
		if anon := min(s.swap(t), s.cold(p, tv.Task.Class, t, model.AnonPages)); float64(anon)*max(leastFree, 1-t.Kept) > float64(a.Bytes) { // the one must not keep the other waiting
			a.What, a.Bytes = model.AnonPages, anon
		}
		a.Older = p.age(tv.Task.Class, a.What)
	}
	since := min(v.NowNsec-t.AskedNsec, max(p.WatchNsec, 60e9))
	a.Bytes = min(a.Bytes, mostAsk, int64(s.Tokens), int64(float64(p.TaskBytes)*float64(since)/1e9))
	if a.Bytes < leastAsk {
		return Asked{}
	}
	if word, why := tv.Closed(model.MemoryReclaim); word != "" {
		w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Num, Path: tv.Task.Path, Reason: why})
		return Asked{}
	}
	return a
}

// little is what a task is asked for by pressure (TMO §3.3): a share of what it has for each six seconds, the less the more it waits for memory.
func (s *State) little(p *Params, c model.Class, t *Task, nowNsec int64) (model.PageKind, int64) {
	anon, file := p.age(c, model.AnonPages) > 0 && s.swap(t) > 0, p.age(c, model.FilePages) > 0
	stall := s.stall(t)
	since := float64(nowNsec - t.AskedNsec)
	if t.AskedNsec == 0 {
		since = senpaiNsec
	}
	if !anon && !file || since < senpaiNsec || stall.Outcome != model.OK {
		return model.AnyPages, 0
	}
	share := p.Ratio * min(since, mostIdle) / senpaiNsec * max(0, 1-stall.V/p.Target)
	bytes := int64(t.InUse * min(share, 0.01)) // TMO's own bound
	switch {
	case !anon:
		return model.FilePages, bytes
	case !file:
		return model.AnonPages, min(bytes, s.swap(t))
	}
	return model.AnyPages, bytes
}

// stall is for how long a task waits for memory: its group's, where groups have it, else the machine's.
func (s *State) stall(t *Task) model.Value {
	if t.Stalled.Outcome == model.OK {
		return t.Stalled
	}
	return s.Some
}

// decision says what is asked of a task, and why.
func (s *State) decision(p *Params, v *policy.View, t *Task, a *Asked, sinceNsec float64) model.Decision {
	tv := v.Task(t.Num)
	d := model.Decision{Kind: model.DecideReclaim, Task: t.Num, Path: tv.Task.Path, Facts: s.facts(t)}
	d.Facts = append(d.Facts, model.FactBytes.Is(float64(a.Bytes)))
	if p.By == ByPressure {
		d.Reason = fmt.Sprintf("it waits for memory %.2f %% of the time, and has %.0f MiB: up to %.0f MiB are given back, a share for the %.0f s since it was last asked",
			100*s.stall(t).V, t.InUse/mib, float64(a.Bytes)/mib, min(sinceNsec, mostIdle)/1e9)
		return d
	}
	cold := s.cold(p, tv.Task.Class, t, a.What)
	d.Facts = append(d.Facts, model.FactCold.Is(float64(cold)), model.FactAge.Is(float64(a.Older)/1e9))
	d.Reason = fmt.Sprintf("%.0f MiB of its %s pages were not used for %s (%s): up to %.0f MiB are given back", float64(cold)/mib, a.What, time.Duration(a.Older), t.Ages.Source, float64(a.Bytes)/mib)
	return d
}

// facts are what is known of a task.
func (s *State) facts(t *Task) []model.Fact {
	list := []model.Fact{model.FactHeld.Is(t.InUse), model.FactRefaults.Is(t.Refaults)}
	if t.Usual >= 0 {
		list = append(list, model.FactRefaultsUsual.Is(t.Usual))
	}
	if stall := s.stall(t); stall.Outcome == model.OK {
		list = append(list, model.FactStalled.Is(stall.V))
	}
	return list
}

// Idle is what is known of a task's idle memory, in bytes.
type Idle struct {
	Ages  model.PageAges `json:"ages"`             // as last read
	InUse float64        `json:"in_use,omitempty"` // what the task had of memory then, or else has now; 0: not known
	Anon  int64          `json:"anon"`             // that could be given back now, by the configured ages, and had swap room for all of it
	File  int64          `json:"file"`
	// Reclaimed is what pages had that were taken, Given what came free by that, less where compressed copies stay, and CameBack what of the pages
	// came back while it was watched.
	Reclaimed float64 `json:"reclaimed"`
	Given     float64 `json:"given"`
	CameBack  float64 `json:"came_back"`
	Resting   bool    `json:"resting"`
}

// Idle says what is known of a task's idle memory; nil: its ages were not read yet.
func (s *State) Idle(p *Params, of *model.Task) *Idle {
	t := s.task(of.Num)
	if t == nil || t.Ages.MonoNsec == 0 {
		return nil
	}
	return &Idle{
		Ages: t.Ages, InUse: cmp.Or(t.AgesInUse, t.InUse), Anon: s.cold(p, of.Class, t, model.AnonPages), File: s.cold(p, of.Class, t, model.FilePages),
		Reclaimed: t.Reclaimed, Given: t.Given, CameBack: t.Back, Resting: t.UntilNsec > s.AtNsec,
	}
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	var taken, given, back float64
	resting := 0
	for i := range s.Tasks {
		taken, given, back = taken+s.Tasks[i].Reclaimed, given+s.Tasks[i].Given, back+s.Tasks[i].Back
		if s.Tasks[i].UntilNsec > s.AtNsec {
			resting++
		}
	}
	switch {
	case s.AtNsec == 0:
		return "no window has closed yet"
	case s.UntilNsec > s.AtNsec:
		return "all rest: programs wait for memory"
	case now == model.ModeEnforce && taken-given >= mib:
		return fmt.Sprintf("%.2f GiB taken, %.2f GiB of it came free, %.2f GiB came back soon; %d tasks rest", taken/(1<<30), given/(1<<30), back/(1<<30), resting)
	case now == model.ModeEnforce:
		return fmt.Sprintf("%.2f GiB given back, %.2f GiB of it came back soon; %d tasks rest", given/(1<<30), back/(1<<30), resting)
	case !s.Told:
		return "nobody has told ages of pages yet"
	}
	return "says what each task would give"
}
