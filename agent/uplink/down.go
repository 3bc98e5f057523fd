package uplink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/commensal-io/commensal/fleet/wire"
)

// What comes down: sheets of specs and of priors, the kill switch, commands. A node may do no more with the transport's key-value store than
// read: it listens where changes are published, and asks for the last value after it began to listen, whenever the connection
// was lost, and once in a while.

const (
	refreshEvery = 5 * time.Minute
	getTimeout   = 5 * time.Second
	maxJobs      = 4096 // of a node
	maxSheet     = 64 << 10
	// retellEvery is how often the agent is told again of a sheet that the hub still has: far more often than it gives one up
	// of which it hears no more (localspec.State.Teach), and so seldom that it costs nothing.
	retellEvery = 6 * time.Hour
)

// sheets are the specs that this node wants and has.
type sheets struct {
	mu   sync.Mutex
	jobs map[sheetKey]*sheet
}

// sheetKey is a job on this node's platform, or its tasks of one size.
type sheetKey struct{ job, size string }

func (k sheetKey) String() string {
	if k.size == "" {
		return k.job
	}
	return k.job + " of size " + k.size
}

type sheet struct {
	keys     []*key // under which the hub has it
	revision uint64 // of what the agent was told; 0: nothing yet
	wall     int64
	told     time.Time // when that was
	priors   int64     // time of the fleet's word on who hurts the job
	stale    bool
}

func (s *sheets) known() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.revision != 0 {
			n++
		}
	}
	return n
}

func (s *sheets) stale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		j.stale = true
	}
}

// key is one key of a bucket, whose values come in two ways: pushed when it changes, and as answers to a question. Both come in goroutines of
// their own, so an answer may be taken after a push that is newer than it.
type key struct {
	bucket, name string
	take         func(data []byte)

	mu     sync.Mutex
	pushed uint64 // values
}

// listen takes each value that is published from now on.
func (u *Uplink) listen(k *key) error {
	_, err := u.nc.Subscribe(wire.KV(k.bucket, k.name), func(m *nats.Msg) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.pushed++
		k.take(m.Data)
	})
	return err
}

// ask takes the last value, unless one was pushed since it was asked for: that one is newer, or the same.
func (u *Uplink) ask(k *key) error {
	k.mu.Lock()
	before := k.pushed
	k.mu.Unlock()
	data, err := u.get(k.bucket, k.name)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(data) > 0 && k.pushed == before {
		k.take(data)
	}
	return nil
}

// want listens for the specs and priors of a batch's jobs that are new here.
func (s *sheets) want(u *Uplink, b *wire.Batch) {
	for i := range b.Tasks {
		k := sheetKey{job: b.Tasks[i].Job}
		s.listen(u, k, true)
		if sized := (sheetKey{b.Tasks[i].Job, b.Tasks[i].Size}); sized != k {
			s.listen(u, sized, false)
		}
	}
}

// listen listens for a sheet of specs, and of priors, if nobody does yet.
func (s *sheets) listen(u *Uplink, k sheetKey, priors bool) {
	if !s.wants(k) {
		return
	}
	keys := []*key{{bucket: wire.SpecBucket, name: wire.SizedKey(u.node.Platform, k.job, k.size), take: func(data []byte) { u.takeSheet(k, data) }}}
	if priors {
		keys = append(keys, &key{bucket: wire.PriorBucket, name: wire.SpecKey(u.node.Platform, k.job), take: func(data []byte) { u.takePriors(k.job, data) }})
	}
	for _, key := range keys {
		if err := u.listen(key); err != nil {
			u.hooks.Log.Error("what the fleet knows of a job does not come down", "job", k, "bucket", key.bucket, "error", err)
		}
	}
	s.mu.Lock()
	s.jobs[k].keys = keys
	s.mu.Unlock()
}

// wants notes that a sheet is wanted; false: it was, or there are too many.
func (s *sheets) wants(k sheetKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs == nil {
		s.jobs = map[sheetKey]*sheet{}
	}
	_, there := s.jobs[k]
	if there = there || len(s.jobs) >= maxJobs; !there {
		s.jobs[k] = &sheet{stale: true}
	}
	return !there
}

// fetch asks for the sheets that may have changed unheard, specs first. Without priors, which an older hub has none of, a node goes on until the next time.
func (u *Uplink) fetch() {
	u.sheets.mu.Lock()
	var jobs []*sheet
	for _, j := range u.sheets.jobs {
		if j.stale {
			jobs = append(jobs, j)
		}
	}
	u.sheets.mu.Unlock()
	for _, j := range jobs {
		if err := u.ask(j.keys[0]); err != nil {
			return // the next time
		}
		u.sheets.mu.Lock()
		j.stale = false
		u.sheets.mu.Unlock()
	}
	for _, j := range jobs {
		for _, key := range j.keys[1:] {
			if err := u.ask(key); err != nil {
				return
			}
		}
	}
}

// get returns the last value of a key; nil: there is none.
func (u *Uplink) get(bucket, key string) ([]byte, error) {
	var m *nats.Msg
	err := u.waitFor(func() (err error) {
		m, err = u.nc.Request(wire.KVGet(bucket, key), nil, getTimeout)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case m.Header.Get("Status") == "404":
		return nil, nil
	case m.Header.Get("Status") != "":
		return nil, fmt.Errorf("the hub answers %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
	}
	return m.Data, nil
}

// takeSheet hands a sheet's specs to the agent when it is a newer one than before, and once in a while when it is the same. Of a newer one the revision is
// higher, or the time is later: another hub's clock may be behind, and a hub that lost its folder counts anew. A cluster's member that lags answers with one
// that is older by both.
func (u *Uplink) takeSheet(k sheetKey, data []byte) {
	if len(data) == 0 {
		return
	}
	var s wire.SpecSheet
	err := json.Unmarshal(data, &s)
	switch {
	case len(data) > maxSheet:
		err = fmt.Errorf("it has %d bytes", len(data))
	case s.Version > wire.SheetVersion: // whatever else there is of it
		err = fmt.Errorf("%w: %d, known here: %d", wire.ErrNewer, s.Version, wire.SheetVersion)
	case err == nil && (s.Job != k.job || s.Platform != u.node.Platform || s.Size != k.size):
		err = fmt.Errorf("it is of job %q on platform %q, size %.70q", s.Job, s.Platform, s.Size)
	}
	if err != nil {
		u.hooks.Log.Warn("a sheet of specs from the hub is left aside", "job", k, "error", err)
		return
	}
	u.sheets.mu.Lock()
	j := u.sheets.jobs[k]
	now := time.Now()
	same := j != nil && s.Revision == j.revision && s.WallNsec == j.wall
	fresh := j != nil && (s.Revision > j.revision || s.WallNsec > j.wall || same && now.Sub(j.told) >= retellEvery)
	if fresh {
		j.revision, j.wall, j.told = s.Revision, s.WallNsec, now
	}
	u.sheets.mu.Unlock()
	if j != nil && !fresh && !same {
		u.hooks.Log.Info("a sheet of specs is older than the one in force, and is left aside", "job", k, "revision", s.Revision, "time", time.Unix(0, s.WallNsec))
	}
	if fresh {
		for i := range s.Specs {
			s.Specs[i].Job, s.Specs[i].Platform, s.Specs[i].Size, s.Specs[i].Sheet = s.Job, s.Platform, s.Size, s.Revision
		}
		u.hooks.Specs(s.Specs)
	}
}

// takePriors hands the fleet's word on who hurts a job to the agent when it is another one than before. That its time is later is not asked for: another
// hub's clock may be behind.
func (u *Uplink) takePriors(job string, data []byte) {
	if len(data) == 0 || u.hooks.Priors == nil {
		return
	}
	var s wire.PriorSheet
	err := fmt.Errorf("it has %d bytes", len(data))
	if len(data) <= wire.MaxPriorBytes {
		if err = json.Unmarshal(data, &s); err == nil {
			err = s.Check(job, u.node.Platform)
		}
	}
	if err != nil {
		u.hooks.Log.Warn("a sheet of priors from the hub is left aside", "job", job, "error", err)
		return
	}
	u.sheets.mu.Lock()
	j := u.sheets.jobs[sheetKey{job: job}]
	fresh := j != nil && s.WallNsec != j.priors
	if fresh {
		j.priors = s.WallNsec
	}
	u.sheets.mu.Unlock()
	if fresh {
		u.hooks.Priors(s.Priors)
	}
}

// controls are the keys that all nodes listen to, the kill switch first.
func (u *Uplink) controls() []*key {
	return []*key{
		{bucket: wire.ControlBucket, name: wire.KeyOff, take: u.takeOff},
		{bucket: wire.ControlBucket, name: wire.KeyProtection, take: u.takeProtection},
		{bucket: wire.ControlBucket, name: wire.KeyRollout, take: u.takeRollout},
		{bucket: wire.ControlBucket, name: wire.KeyLayout, take: u.takeLayout},
	}
}

// askControl asks for what may have changed unheard.
func (u *Uplink) askControl() {
	for _, k := range u.control {
		_ = u.ask(k) // the next time
	}
}

// takeLayout divides the next batches as the hubs want them.
func (u *Uplink) takeLayout(data []byte) {
	var l wire.Layout
	err := json.Unmarshal(data, &l)
	switch {
	case l.Version > wire.LayoutVersion:
		err = fmt.Errorf("%w: %d, known here: %d", wire.ErrNewer, l.Version, wire.LayoutVersion)
	case err == nil && (l.Partitions < 1 || l.Partitions > wire.MaxParts):
		err = fmt.Errorf("%d parts; expected 1 to %d", l.Partitions, wire.MaxParts)
	}
	if err != nil {
		u.hooks.Log.Error("how the hubs want batches divided cannot be read: it stays as it was", "error", err)
		return
	}
	if u.parts.Swap(int64(l.Partitions)) != int64(l.Partitions) {
		u.hooks.Log.Info("batches are divided by job", "parts", l.Partitions, "by", l.By)
	}
}

// takeRollout takes a change over, or goes back from one.
func (u *Uplink) takeRollout(data []byte) {
	var r wire.Rollout
	err := json.Unmarshal(data, &r)
	switch {
	case len(data) > maxSheet:
		err = fmt.Errorf("it has %d bytes", len(data))
	case r.Version > wire.RolloutVersion:
		err = fmt.Errorf("%w: %d, known here: %d", wire.ErrNewer, r.Version, wire.RolloutVersion)
	}
	if err != nil {
		u.hooks.Log.Error("a roll-out from the hub cannot be read: all stays as it is", "error", err)
		return
	}
	u.rolling.Lock()
	defer u.rolling.Unlock()
	was, is := u.rollout.Takes(u.cfg.Node), r.Takes(u.cfg.Node)
	same := was == is && (!is || u.rollout.ID == r.ID && u.rollout.Overlay == r.Overlay)
	u.rollout = r
	if same || u.hooks.Rollout == nil {
		return
	}
	said := ""
	if is {
		said = r.ID
	}
	if err := u.hooks.Rollout(r.Overlay, is); err != nil {
		u.hooks.Log.Error("a roll-out is refused", "id", r.ID, "by", r.By, "error", err)
		said = "!" + r.ID + ": " + strings.Join(strings.Fields(err.Error()), " ")
		u.goBack(was)
	} else {
		u.hooks.Log.Warn("parameters change by roll-out", "id", r.ID, "on", is, "by", r.By, "why", r.Why, "halted", r.Halted)
	}
	u.mu.Lock()
	u.status.Rollout = said[:min(len(said), maxSaid)]
	u.mu.Unlock()
}

// goBack takes off the roll-out before one that is refused: nobody says any more that it is to be. had: there was one.
func (u *Uplink) goBack(had bool) {
	if !had {
		return
	}
	if err := u.hooks.Rollout("", false); err != nil {
		u.hooks.Log.Error("the roll-out before it stays", "error", err)
	}
}

// maxSaid bounds what a batch says of a roll-out.
const maxSaid = 300

func (u *Uplink) takeOff(data []byte) {
	var o wire.Off
	if err := json.Unmarshal(data, &o); err != nil {
		u.hooks.Log.Error("the fleet's kill switch cannot be read: it stays as it was", "error", err)
		return
	}
	if u.setOff(&o) {
		u.notes.note(func(h *heard) { h.Off = o })
	}
}

// setOff sets the kill switch, and says whether it was otherwise.
func (u *Uplink) setOff(o *wire.Off) (changed bool) {
	if changed = u.off.Swap(o.Off) != o.Off; changed {
		u.hooks.Log.Warn("the fleet's kill switch", "off", o.Off, "by", o.By, "why", o.Why)
	}
	u.mu.Lock()
	u.status.OffWhy = ""
	if o.Off {
		u.status.OffWhy = o.By + ": " + o.Why
	}
	u.mu.Unlock()
	return changed
}

// takeProtection takes over of which jobs protection is off in the whole fleet.
func (u *Uplink) takeProtection(data []byte) {
	p := &wire.Protection{}
	err := fmt.Errorf("it has %d bytes", len(data))
	if len(data) <= wire.MaxProtectionBytes {
		if err = json.Unmarshal(data, p); p.Version > wire.ProtectionVersion || err == nil { // of a newer one whatever it has else
			err = p.Check()
		}
	}
	if err != nil {
		u.hooks.Log.Error("of which jobs protection is off in the whole fleet cannot be read: it stays as it was", "error", err)
		return
	}
	if was := u.protection.Swap(p); was == nil || !slices.Equal(was.Off, p.Off) {
		u.hooks.Log.Warn("protection in the whole fleet", "off", p.Jobs(), "by", p.By, "why", p.Why)
		u.notes.note(func(h *heard) { h.Protection = p })
	}
}

// commands remembers which were done: one that comes again is not done again.
type commands struct {
	ids map[string]time.Time
}

// commandAge is how old a command may be, by the clocks of two machines.
const commandAge = 10 * time.Minute

// admit says why a command is not done; "" where it is.
func (c *commands) admit(cmd *wire.Command, now time.Time) string {
	age := now.Sub(time.Unix(0, cmd.WallNsec))
	switch {
	case cmd.ID == "" || len(cmd.ID) > 64 || cmd.By == "":
		return "a command without a name, or without a person"
	case age > commandAge || age < -commandAge:
		return fmt.Sprintf("the command is %s old by this node's clock; at most %s is done", age.Round(time.Second), commandAge)
	}
	for id, at := range c.ids {
		if now.Sub(at) > 2*commandAge {
			delete(c.ids, id)
		}
	}
	if _, done := c.ids[cmd.ID]; done {
		return "the command was done already"
	}
	if c.ids == nil {
		c.ids = map[string]time.Time{}
	}
	c.ids[cmd.ID] = now
	return ""
}

// command does what an operator asks. The subscription calls it for one at a time.
func (u *Uplink) command(m *nats.Msg) {
	var cmd wire.Command
	dec := json.NewDecoder(bytes.NewReader(m.Data))
	dec.DisallowUnknownFields()
	ans := wire.Answer{}
	if err := dec.Decode(&cmd); err != nil {
		ans.Error = "request: " + err.Error()
	} else if ans.Error = u.seen.admit(&cmd, time.Now()); ans.Error == "" {
		u.notes.note(func(h *heard) { h.Done = maps.Clone(u.seen.ids) })
		ctx, cancel := context.WithTimeout(context.Background(), getTimeout)
		ans = u.hooks.Command(ctx, &cmd)
		cancel()
	}
	data, err := json.Marshal(ans)
	if err != nil {
		return
	}
	if err := m.Respond(data); err != nil {
		u.hooks.Log.Warn("an operator was not answered", "error", err)
	}
}
