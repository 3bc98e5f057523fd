package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Result is what a run came to.
type Result struct {
	Seed        uint64          `json:"seed"`
	Nodes       int             `json:"nodes"`
	Real        int             `json:"real_agents"`
	Hosts       []Host          `json:"hosts"`        // what became of these
	NodeSec     float64         `json:"node_seconds"` // of the nodes' time, together
	Seconds     float64         `json:"seconds"`      // that it took
	Jobs        []hub.JobStatus `json:"jobs"`
	Unheard     int             `json:"unheard"` // nodes that a job's spec did not reach
	Antagonists int             `json:"antagonists"`
	Held        int             `json:"held"`  // of them
	Wrong       int             `json:"wrong"` // nodes that held somebody else
	Incidents   uint64          `json:"incidents"`
	Capped      bool            `json:"capped"` // the operator's command was in force
	RollWant    int             `json:"roll_want"`
	Rolled      int             `json:"rolled"` // nodes that had a roll-out in force, of so many that should
	OffSeconds  float64         `json:"off_seconds"`
	StillHeld   int             `json:"still_held"` // nodes that held something after that
	Samples     uint64          `json:"samples"`
	Lost        uint64          `json:"lost"`
	Doubles     uint64          `json:"doubles"`
	Refused     uint64          `json:"refused"`
	Bytes       int64           `json:"bytes"` // of samples in the store
	Query       string          `json:"query"` // what the hub answers to who hurts whom
	Pairs       int             `json:"pairs"` // of jobs in that answer
	Pages       string          `json:"pages"`
	Page        string          `json:"page"`          // what is wrong with the page; "": nothing
	Incident    string          `json:"incident"`      // and with the answer for one incident
	Shown       string          `json:"pages_shown"`   // which were opened in a browser, or why none was
	Unshown     string          `json:"pages_unshown"` // what is wrong with these; "": nothing
	Failed      []string        `json:"failed"`

	cappedOn string // node on which an operator capped a task
}

// Run plays a fleet.
func Run(ctx context.Context, o Options) (res *Result, err error) {
	res = &Result{Seed: o.Seed, Nodes: o.Nodes, Antagonists: (o.Nodes + share - 1) / share}
	dir, err := os.MkdirTemp("", "commensal-fleet-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of /tmp
	f := &field{dir: dir, begun: time.Now().Add(-(quietSec + harmSec) * time.Second)}
	if err := f.enrol(o.Nodes); err != nil {
		return nil, err
	}
	p := spec.Defaults()
	p.PeriodNsec, p.MinSamplesPerTask = hubPeriod.Nanoseconds(), minSamples
	if f.hub, err = hub.New(hub.Config{Dir: dir, Listen: "127.0.0.1:0", NATSListen: "127.0.0.1:0", Keep: 24 * time.Hour, Spec: p, Version: "demo"}); err != nil {
		return nil, err
	}
	hubCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.hub.Run(hubCtx) }()
	defer func() {
		stop()
		if e := <-ended; e != nil {
			err = errors.Join(err, e)
		}
	}()
	select {
	case <-f.hub.Ready():
	case e := <-ended:
		ended <- nil
		return nil, fmt.Errorf("the hub does not start: %w", e)
	}
	res.Pages = f.hub.URL()
	o.Log("hub: %s (token in %s); nodes connect to %s", f.hub.URL(), hub.AdminToken(dir), f.hub.NodesURL())
	return res, res.play(ctx, &o, f)
}

// play is the course of a run.
func (r *Result) play(ctx context.Context, o *Options, f *field) error {
	begin := time.Now()
	var nodes []*node
	for i := range o.Nodes {
		n, err := newNode(ctx, i, o, f)
		if err != nil {
			return err
		}
		defer n.up.Close()
		nodes = append(nodes, n)
	}
	var hosts *real
	if o.Agent != "" {
		var err error
		if hosts, err = startReal(ctx, o, f); err != nil {
			return err
		}
		r.Real = len(hosts.hosts)
		defer hosts.close()
	}
	c := &client.Client{URL: f.hub.URL(), TokenFile: hub.AdminToken(f.dir)}
	o.Log("%d nodes of %d platforms, and %d real agents: %d s in which nothing happens", len(nodes), len(platforms), r.Real, quietSec)
	if err := pass(ctx, nodes, 0, quietSec); err != nil {
		return err
	}
	if err := r.formed(ctx, c, nodes); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(o.Seed, 1))
	for _, i := range rng.Perm(len(nodes))[:r.Antagonists] {
		if err := nodes[i].arrive(rng); err != nil {
			return err
		}
	}
	o.Log("an antagonist arrives on %d nodes: %d s", r.Antagonists, harmSec)
	if err := pass(ctx, nodes, quietSec, harmSec); err != nil {
		return err
	}
	r.judge(nodes)
	if err := r.operate(ctx, c, o, nodes, hosts); err != nil {
		return err
	}
	r.NodeSec, r.Seconds = float64(len(nodes))*float64(nodes[0].host.MonoNsec())/1e9, time.Since(begin).Seconds()
	if err := r.count(ctx, c, nodes); err != nil {
		return err
	}
	var err error
	if r.Hosts, err = hosts.count(ctx, c); err != nil {
		return err
	}
	if err := r.look(ctx, c, o, f, nodes); err != nil {
		return err
	}
	r.verdict()
	if o.Stay {
		o.Log("the pages stay until Ctrl-C: %s", f.hub.URL())
		<-ctx.Done()
	}
	return nil
}

// settle waits until the hub has all that the nodes sent so far.
func settle(ctx context.Context, nodes []*node) error {
	err := until(ctx, 50*time.Millisecond, time.Minute, func() (bool, error) {
		return !slices.ContainsFunc(nodes, func(n *node) bool {
			handed, st := n.up.Handed(), n.up.Status() // in this order: what gets to disk meanwhile waits
			return handed > 0 || st.Waiting > 0 || !st.Connected
		}), nil
	})
	if errors.Is(err, errLate) {
		return errors.New("nodes do not get rid of their batches within a minute")
	}
	return err
}

// formed waits until every job has a spec on every platform, and every node knows it.
func (r *Result) formed(ctx context.Context, c *client.Client, nodes []*node) error {
	if err := settle(ctx, nodes); err != nil {
		return err
	}
	want := len(jobs) * len(platforms)
	sheets := func(n *node) int {
		count := 0
		for i := range n.loop.Engine.State.Specs.Entries {
			if sp := n.loop.Engine.State.Specs.Entries[i].Spec; sp != nil && sp.Sheet > 0 {
				count++
			}
		}
		return count
	}
	hear := func() {
		for _, n := range nodes { // no time passes; what came down is taken at the next turn
			n.answer()
			n.loop.Hear()
		}
	}
	// A busy machine takes its time; what is not there after that is counted.
	err := until(ctx, 200*time.Millisecond, time.Minute, func() (bool, error) {
		hear()
		if err := r.jobs(ctx, c); err != nil {
			return false, err
		}
		published := 0
		for _, j := range r.Jobs {
			if slices.ContainsFunc(j.Signals, func(s hub.SignalStatus) bool { return s.Published }) && simulated(j.Platform) {
				published++
			}
		}
		return published == want, nil
	})
	if err != nil && !errors.Is(err, errLate) {
		return err
	}
	for at := int64(quietSec - 1); at < quietSec+10; at++ { // the turns in which they take what came down
		hear()
		if err := pass(ctx, nodes, at, 1); err != nil {
			return err
		}
		r.Unheard = 0
		for _, n := range nodes {
			if sheets(n) < len(jobs) {
				r.Unheard++
			}
		}
		if r.Unheard == 0 {
			break
		}
		time.Sleep(time.Second)
	}
	return nil
}

// holding reports whether a node holds a task, of which paths; "": any.
func holding(n *node, path string) bool {
	s := n.loop.Engine.State
	for i := range s.Ledger.Knobs {
		k := &s.Ledger.Knobs[i]
		t := s.Tasks.Get(k.Task())
		if k.State == engine.KnobHeld && t != nil && (path == "" || t.Path == path) {
			return true
		}
	}
	return false
}

// judge looks who was held.
func (r *Result) judge(nodes []*node) {
	for _, n := range nodes {
		if n.antagonist != 0 && n.held[n.path] {
			r.Held++
		}
		for path := range n.held {
			if path != n.path {
				r.Wrong++
				break
			}
		}
	}
}

// operate caps a task on one node, and on the real ones, and pulls the kill switch.
func (r *Result) operate(ctx context.Context, c *client.Client, o *Options, nodes []*node, hosts *real) error {
	n := nodes[slices.IndexFunc(nodes, func(n *node) bool { return n.antagonist == 0 })]
	o.Log("an operator caps /compile on %s", n.name)
	r.cappedOn = n.name
	done := make(chan error, 1)
	go func() {
		done <- c.Do(ctx, "/v1/command", map[string]any{"node": n.name, "kind": "cap", "task": "/compile", "cap": 0.2, "duration_seconds": 600, "why": "the demo"}, &wire.Answer{})
	}()
	at := nodes[0].host.MonoNsec() / 1e9
	for answered := false; !answered; {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			answered = true
		case <-time.After(20 * time.Millisecond):
			n.answer()
		}
	}
	if err := pass(ctx, nodes, at, 2); err != nil {
		return err
	}
	r.Capped = holding(n, "/compile")
	if err := hosts.capped(ctx, c); err != nil {
		return err
	}
	if err := r.rollOut(ctx, c, o, nodes, at+2); err != nil {
		return err
	}
	at += rollSec
	o.Log("the kill switch is pulled")
	pulled := time.Now()
	if err := c.Do(ctx, "/v1/off", map[string]any{"off": true, "why": "the demo"}, &wire.Off{}); err != nil {
		return err
	}
	for end := pulled.Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !slices.ContainsFunc(nodes, func(n *node) bool { return !n.up.Off() }) {
			break
		}
	}
	r.OffSeconds = time.Since(pulled).Seconds()
	if err := pass(ctx, nodes, at+2, 2); err != nil {
		return err
	}
	for _, n := range nodes {
		if holding(n, "") {
			r.StillHeld++
		}
	}
	if err := hosts.freed(ctx); err != nil {
		return err
	}
	if err := c.Do(ctx, "/v1/off", map[string]any{"off": false, "why": "the demo"}, &wire.Off{}); err != nil {
		return err
	}
	if err := hosts.on(ctx); err != nil {
		return err
	}
	return pass(ctx, nodes, at+4, 12) // so that the last batches are full
}

// rollSec is for how long a roll-out is looked at: batches go up every ten seconds.
const rollSec = 24

// rollHeld is how many tasks a node may hold at once by the roll-out: so many are never held here, and so no node has more incidents by it, for which
// the hub would halt it.
const rollHeld = 77

// rollOut changes a limit on a part of the nodes, and looks whether these and no others have it.
func (r *Result) rollOut(ctx context.Context, c *client.Client, o *Options, nodes []*node, at int64) error {
	o.Log("a tenth of the nodes is to hold at most %d tasks", rollHeld)
	var st hub.RolloutStatus
	if err := c.Do(ctx, "/v1/rollout", map[string]any{"percent": 10, "overlay": fmt.Sprintf("limits: {max_held_tasks: %d}", rollHeld), "why": "the demo"}, &st); err != nil {
		return err
	}
	for _, n := range nodes {
		if st.Takes(n.name) {
			r.RollWant++
		}
	}
	if err := pass(ctx, nodes, at, rollSec); err != nil {
		return err
	}
	if err := settle(ctx, nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.loop.Engine.Params.Limits.MaxHeldTasks == rollHeld {
			r.Rolled++
		}
	}
	var now hub.RolloutStatus
	if err := c.Do(ctx, "/v1/rollout", nil, &now); err != nil {
		return err
	}
	if now.Halted != "" {
		r.Failed = append(r.Failed, "the hub halted the roll-out: "+now.Halted)
	}
	for node, why := range now.Refused {
		r.Failed = append(r.Failed, fmt.Sprintf("%s refuses the roll-out: %s", node, why))
		break // one says it
	}
	return c.Do(ctx, "/v1/rollout", map[string]any{"percent": 0, "why": "the demo"}, &st)
}

// jobs asks the hub for its jobs, which are few here.
func (r *Result) jobs(ctx context.Context, c *client.Client) error {
	var page hub.JobPage
	err := c.Do(ctx, "/v1/jobs?limit=1000", nil, &page)
	r.Jobs = page.Jobs
	return err
}

// count asks the hub what it has.
func (r *Result) count(ctx context.Context, c *client.Client, nodes []*node) error {
	if err := settle(ctx, nodes); err != nil {
		return err
	}
	var st hub.Status
	for range 40 {
		if err := c.Do(ctx, "/v1/fleet", nil, &st); err != nil {
			return err
		}
		if st.Waiting == 0 {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	all := &st.Nodes
	r.Samples, r.Incidents, r.Lost, r.Doubles, r.Refused = all.Samples, all.Incidents, all.Lost, all.Doubles, all.Refused
	for _, u := range st.Store {
		if u.Table == "samples" {
			r.Bytes = u.Bytes
		}
	}
	if err := r.jobs(ctx, c); err != nil {
		return err
	}
	var answer hub.Result
	err := c.Do(ctx, "/v1/query", map[string]any{"sql": "SELECT victim_job, antagonist_job, count(DISTINCT node) AS nodes FROM incidents WHERE antagonist_job <> '' GROUP BY ALL ORDER BY nodes DESC, victim_job LIMIT 5"}, &answer)
	var refused *client.Refused
	switch {
	case errors.As(err, &refused) && refused.Code == http.StatusUnprocessableEntity:
		r.Query = refused.Text
	case err != nil:
		return err
	default:
		r.Query, r.Pairs = "", len(answer.Rows)
		for _, row := range answer.Rows {
			r.Query += fmt.Sprintf("%v by %v on %v nodes; ", row[0], row[1], row[2])
		}
	}
	return nil
}

// verdict holds the run against what was written down before.
func (r *Result) verdict() {
	missing := len(jobs) * len(platforms)
	for _, j := range r.Jobs {
		for _, s := range j.Signals {
			if s.Published && s.Signal == model.SourceCPI.String() && simulated(j.Platform) && j.Job != "scan" {
				missing--
			}
		}
	}
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{missing > 0, fmt.Sprintf("%d jobs have no spec on a platform", missing)},
		{r.Unheard > 0, fmt.Sprintf("%d nodes did not hear of their jobs' specs", r.Unheard)},
		{20*r.Wrong > r.Nodes, fmt.Sprintf("%d of %d nodes held somebody who is no antagonist", r.Wrong, r.Nodes)},
		{2*r.Held < r.Antagonists, fmt.Sprintf("%d of %d antagonists are held", r.Held, r.Antagonists)},
		{!r.Capped, "the operator's cap is not in force"},
		{r.Rolled != r.RollWant, fmt.Sprintf("a roll-out is in force on %d nodes in place of %d", r.Rolled, r.RollWant)},
		{r.OffSeconds >= 10 || r.StillHeld > 0, fmt.Sprintf("%d nodes hold something after the kill switch", r.StillHeld)},
		{r.Lost+r.Doubles+r.Refused > 0, fmt.Sprintf("batches: %d lost, %d doubled, %d refused", r.Lost, r.Doubles, r.Refused)},
		{r.Real != len(r.Hosts), fmt.Sprintf("the hub says nothing of %d real agents", r.Real)},
		{r.Page != "", "the page: " + r.Page},
		{r.Incident != "", "an incident's answer: " + r.Incident},
		{r.Unshown != "", "a page in the browser: " + r.Unshown},
		{r.Pairs == 0 && len(r.Hosts) > 0, "asked in SQL who hurts whom the hub says: " + r.Query},
	} {
		if c.bad {
			r.Failed = append(r.Failed, c.text)
		}
	}
	for i := range r.Hosts {
		if why := r.Hosts[i].why(); why != "" {
			r.Failed = append(r.Failed, why)
		}
	}
}

// seedFile is where a real agent's seed is.
func (f *field) seedFile(name string) string { return filepath.Join(f.dir, name+".seed") }

// simulated reports whether a platform is one of the simulated nodes'.
func simulated(platform string) bool {
	for _, p := range platforms {
		if p.name == platform {
			return true
		}
	}
	return false
}
