package linux

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// sleeper is an action that takes the kernel long.
type sleeper struct {
	takes time.Duration
	does  int64
	err   error
}

func (s sleeper) run(ctx context.Context, _ model.Task, ask model.Setting) (model.Setting, bool, error) {
	select {
	case <-time.After(s.takes):
		return model.Setting{Knob: ask.Knob, Amount: s.does}, s.does != 0, s.err
	case <-ctx.Done():
		return model.Ask(ask.Knob), false, ctx.Err()
	}
}

// numbered has one inode for all groups.
type numbered uint64

func (n numbered) Inode(string) (uint64, error) { return uint64(n), nil }

// A knob that blocks for two seconds makes no pulse late: pulses of 50 ms come to their time
// while it does, and its result with the first one after it.
func TestSlowWorkDelaysNoPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pulse = 50 * time.Millisecond
		b := newBeside(nil, nil, &Options{Clock: RealClock{}}, nil)
		b.cg = numbered(0)
		b.actions[model.MemoryReclaim] = sleeper{takes: 2 * time.Second, does: 5 << 20}
		began, cameAt := time.Now(), time.Duration(0)
		b.start(model.Change{Seq: 7, Target: model.OfTask(3), Kind: model.Run, Value: model.Reclaim(8 << 20)}, model.Task{Num: 3})
		for n := 1; n <= 60; n++ {
			time.Sleep(pulse)
			synctest.Wait()
			got := b.take(nil)
			if late := time.Since(began) - time.Duration(n)*pulse; late != 0 {
				t.Fatalf("pulse %d is %s late", n, late)
			}
			if len(got) == 0 {
				continue
			}
			cameAt = time.Since(began)
			if len(got) != 1 || got[0].Seq != 7 || got[0].Task() != 3 || got[0].Kind != model.Applied || got[0].Now.Amount != 5<<20 {
				t.Fatalf("%+v", got)
			}
		}
		if cameAt != 2*time.Second {
			t.Errorf("the result came after %s", cameAt)
		}
		b.close()
	})
}

// Closing ends what is under way, what did nothing is refused, and what did a part counts.
func TestBesideEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeside(nil, nil, &Options{Clock: RealClock{}}, nil)
		b.cg = numbered(0)
		ask := model.Change{Seq: 1, Kind: model.Run, Value: model.Reclaim(1)}
		b.actions[model.MemoryReclaim] = sleeper{takes: time.Hour}
		b.start(ask, model.Task{})
		began := time.Now()
		b.close()
		if d := time.Since(began); d != 0 {
			t.Errorf("closed after %s", d)
		}
		if got := b.take(nil); len(got) != 1 || got[0].Kind != model.Refused || got[0].Error == "" {
			t.Errorf("what was ended: %+v", got)
		}
		b = newBeside(nil, nil, &Options{Clock: RealClock{}, Beside: func(work func()) { work() }}, nil)
		b.cg = numbered(0)
		b.actions[model.MemoryReclaim] = sleeper{does: 9, err: errors.New("less than asked for")}
		b.start(ask, model.Task{})
		if got := b.take(nil); len(got) != 1 || got[0].Kind != model.Applied || got[0].Now.Amount != 9 || got[0].Error == "" {
			t.Errorf("a part: %+v", got)
		}
		ask.Value = model.Ask(model.CPUPlace)
		b.start(ask, model.Task{})
		if got := b.take(nil); len(got) != 1 || got[0].Kind != model.Refused {
			t.Errorf("no driver: %+v", got)
		}
		b.close()
	})
}

// A group that was made anew under the old one's path is not who was meant.
func TestActionIsOfTheGroupThatWasMeant(t *testing.T) {
	for inode, want := range map[uint64]model.ResultKind{7: model.Applied, 8: model.Refused} {
		b := newBeside(nil, nil, &Options{Clock: RealClock{}, Beside: func(work func()) { work() }}, nil)
		b.cg = numbered(7)
		b.actions[model.MemoryReclaim] = sleeper{does: 9}
		b.start(model.Change{Kind: model.Run, Value: model.Reclaim(9)}, model.Task{Path: "/batch", Inode: inode})
		if got := b.take(nil); len(got) != 1 || got[0].Kind != want || (want == model.Refused) != (got[0].Now.Amount == 0) {
			t.Errorf("asked of %d: %+v", inode, got)
		}
	}
}

// crawler is an action that does one after the other, until it is ended.
type crawler struct{}

func (crawler) run(ctx context.Context, _ model.Task, ask model.Setting) (model.Setting, bool, error) {
	now := model.Ask(ask.Knob)
	for ; now.Amount < ask.Amount; now.Amount++ {
		rest(ctx, time.Second)
		if ctx.Err() != nil {
			return now, now.Amount > 0, ctx.Err()
		}
	}
	return now, true, nil
}

// One action is ended and no other: its result says how far it came, or that it had done nothing. To end what is not under way is nothing.
func TestOneActionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeside(nil, nil, &Options{Clock: RealClock{}}, nil)
		b.cg = numbered(0)
		b.actions[model.MemoryPages] = crawler{}
		start := func(task model.TaskNum) {
			b.start(model.Change{Seq: uint64(task), Target: model.OfTask(task), Kind: model.Run, Value: model.Pages(10, 0)}, model.Task{Num: task})
		}
		end := func(task model.TaskNum) []model.Result {
			b.end(&model.Change{Seq: 9, Target: model.OfTask(task), Kind: model.Stop, Value: model.Ask(model.MemoryPages)})
			synctest.Wait()
			return b.take(nil)
		}
		start(1)
		start(2)
		start(3)
		if got := end(3); len(got) != 1 || got[0].Kind != model.Refused || got[0].Error != node.ErrEnded.Error() {
			t.Errorf("before it did anything: %+v", got)
		}
		time.Sleep(3500 * time.Millisecond)
		if got := end(1); len(got) != 1 || got[0].Seq != 1 || got[0].Kind != model.Applied || got[0].Now.Amount != 3 || got[0].Error != node.ErrEnded.Error() {
			t.Errorf("after three seconds: %+v", got)
		}
		if got := end(1); len(got) != 0 {
			t.Errorf("once more: %+v", got)
		}
		time.Sleep(10 * time.Second)
		if got := end(4); len(got) != 1 || got[0].Seq != 2 || got[0].Now.Amount != 10 || got[0].Error != "" {
			t.Errorf("the other one: %+v", got)
		}
		start(1)
		time.Sleep(20 * time.Second)
		if got := end(1); len(got) != 1 || got[0].Now.Amount != 10 || got[0].Error != "" {
			t.Errorf("asked for anew: %+v", got)
		}
		b.close()
	})
}
