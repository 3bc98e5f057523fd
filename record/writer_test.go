package record

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// life plays a random world through an engine and a writer, as the agent does.
type life struct {
	t      *testing.T
	w      *Writer
	e      *engine.Engine
	world  *world
	begins int
	errs   []error // of each tick
}

func newLife(t *testing.T, seed uint64, maxBytes int64) *life {
	return &life{
		t: t, w: NewWriter(t.TempDir(), maxBytes, Header{Program: "test", Params: quick()}),
		e: engine.New(quick()), world: newWorld(seed),
	}
}

func (l *life) dir() string { return l.w.disk.(*folder).dir }

func (l *life) tick() {
	in := l.world.input()
	if l.w.Due(in.MonoNsec) {
		l.begins++
		_ = l.w.Begin(l.e.State, in.MonoNsec, in.WallNsec) // the tick says what is wrong
	}
	out := l.e.Step(in)
	l.errs = append(l.errs, l.w.Tick(in, out))
	l.world.answer(out)
}

// replays checks that all that is recorded replays, and returns how many ticks that is.
func replays(t *testing.T, dir string) int {
	t.Helper()
	res, err := Run(dir)
	must(t, err)
	if res.First != nil || len(res.Torn) > 0 {
		t.Fatalf("%+v", res)
	}
	return res.Ticks
}

// full is a disk without room: /dev/full takes no byte.
func full(made *int) func(string) (io.WriteCloser, error) {
	return func(name string) (io.WriteCloser, error) {
		*made++
		if err := os.WriteFile(name, nil, 0o600); err != nil { // a name it still takes
			return nil, err
		}
		return os.OpenFile("/dev/full", os.O_WRONLY, 0)
	}
}

func TestFullDisk(t *testing.T) {
	for _, beside := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, made := newLife(t, 5, 1<<20), 0
			dir := l.dir()
			l.w.On(full(&made))
			if beside {
				l.w.Beside()
			}
			for range 1000 {
				l.tick()
				synctest.Wait()
			}
			files, err := Segments(dir)
			must(t, err)
			if made > 11 || l.begins != made || len(files) > 0 || l.w.Lost() < 999 {
				t.Errorf("beside %v: %d files made, %d stay; %d checkpoints; %d ticks lost", beside, made, len(files), l.begins, l.w.Lost())
			}
			for i, err := range l.errs[1:] {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("beside %v: tick %d: %v", beside, i+1, err)
				}
			}
			_ = l.w.Close() // says the same once more
		})
	}
}

// flaky is a file whose disk fills in the midst of a write.
type flaky struct {
	io.WriteCloser
	room *int
}

func (f *flaky) Write(b []byte) (int, error) {
	n := min(len(b), *f.room)
	*f.room -= n
	n, err := f.WriteCloser.Write(b[:n])
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// A disk that fills up in the midst of a frame and is emptied later: what was whole stays, what
// comes is lost until a new checkpoint, and the writer says so as long as it is so.
func TestDiskFillsUp(t *testing.T) {
	for _, beside := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, room := newLife(t, 6, 1<<30), 40_000
			dir := l.dir()
			l.w.On(func(name string) (io.WriteCloser, error) {
				f, err := createFile(name)
				return &flaky{f, &room}, err
			})
			if beside {
				l.w.Beside()
			}
			for range 200 {
				l.tick()
				synctest.Wait()
			}
			if err := l.errs[199]; !errors.Is(err, syscall.ENOSPC) || l.w.Lost() == 0 {
				t.Fatalf("%v, %d lost", err, l.w.Lost())
			}
			room = 1 << 30
			for range 400 {
				l.tick()
				synctest.Wait()
			}
			must(t, l.errs[599])
			must(t, l.w.Close())
			if n := replays(t, dir); n+int(l.w.Lost()) != 600 || n < 300 {
				t.Errorf("beside %v: %d ticks recorded, %d lost, of 600", beside, n, l.w.Lost())
			}
		})
	}
}

// stuck is a file of a disk that does not answer while it is locked.
type stuck struct {
	io.WriteCloser
	answers chan struct{} // closed: it answers
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.answers
	return s.WriteCloser.Write(b)
}

// A disk that does not answer: nobody waits, memory is bounded, and once it answers the record
// goes on with a new segment; all that is in it replays.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, answers := newLife(t, 7, 1<<40), make(chan struct{})
		dir := l.dir()
		l.w.On(func(name string) (io.WriteCloser, error) {
			f, err := createFile(name)
			return &stuck{f, answers}, err
		})
		l.w.Beside()
		q := l.w.disk.(*queue)
		for l.w.Lost() < 500 {
			l.tick()
			q.mu.Lock()
			bytes := q.bytes
			q.mu.Unlock()
			if bytes > maxWaiting+1<<20 {
				t.Fatalf("%d bytes wait", bytes)
			}
			if len(l.errs) > 50_000 {
				t.Fatal("nothing is dropped")
			}
		}
		if err := l.errs[len(l.errs)-1]; !errors.Is(err, ErrSlow) || l.begins != 1 {
			t.Errorf("%v; %d checkpoints", err, l.begins)
		}
		close(answers)
		synctest.Wait()
		for range 400 {
			l.tick()
			synctest.Wait()
		}
		must(t, l.errs[len(l.errs)-1])
		must(t, l.w.Close())
		if n := replays(t, dir); n+int(l.w.Lost()) != len(l.errs) || l.begins != 2 {
			t.Errorf("%d recorded, %d lost, of %d; %d checkpoints", n, l.w.Lost(), len(l.errs), l.begins)
		}
	})
}

// A disk that never answers again does not keep the agent from ending.
func TestCloseWaitsNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, answers := newLife(t, 7, 1<<30), make(chan struct{})
		l.w.On(func(name string) (io.WriteCloser, error) {
			f, err := createFile(name)
			return &stuck{f, answers}, err
		})
		l.w.Beside()
		l.tick()
		if err := l.w.Close(); !errors.Is(err, ErrSlow) {
			t.Error(err)
		}
		close(answers)
	})
}

// manyTasks are an engine's that has a full history of n tasks.
func manyTasks(n int) *engine.Engine {
	e := engine.New(quick())
	snap := &model.Snapshot{Mark: model.WindowStart}
	for i := range n {
		task := model.Task{Num: model.TaskNum(i + 1), Path: fmt.Sprintf("/batch/%d", i), Job: "batch", Class: model.BE}
		snap.Added, snap.Tasks = append(snap.Added, task), append(snap.Tasks, model.TaskSample{Num: task.Num})
	}
	e.Step(&engine.Input{Seq: 1, Snapshot: snap})
	return e
}

// A checkpoint that is larger than a segment's share of max_bytes is not due at every tick.
func TestLargeCheckpoint(t *testing.T) {
	l := newLife(t, 8, 1<<20)
	l.e = manyTasks(200)
	l.world.next = 1000
	for range 60 {
		l.tick()
	}
	must(t, errors.Join(l.errs...))
	must(t, l.w.Close())
	files, err := Segments(l.dir())
	must(t, err)
	st, err := os.Stat(files[0])
	must(t, err)
	if len(files) != 1 || st.Size() < 1<<20/segments {
		t.Errorf("%d segments, the first of %d bytes", len(files), st.Size())
	}
	// And one that would take more than its share of the record is refused, with what would help.
	l = newLife(t, 8, 1<<20)
	l.e = manyTasks(1000)
	err = l.w.Begin(l.e.State, 1, 1)
	if !errors.Is(err, ErrCheckpoint) || !strings.Contains(err.Error(), "max_bytes 1048576") || l.w.Due(2) {
		t.Error(err)
	}
}

// What cannot be written as JSON ends the segment: the reader's differences would be to another
// tick than the writer's.
func TestMarshalFails(t *testing.T) {
	l := newLife(t, 9, 1<<30)
	for range 20 {
		l.tick()
	}
	in := l.world.input()
	for in.Snapshot == nil {
		in = l.world.input()
	}
	out := &engine.Output{Decisions: []model.Decision{{Facts: []model.Fact{{Value: math.NaN()}}}}}
	if err := l.w.Tick(in, out); err == nil || l.w.Lost() == 0 {
		t.Fatalf("%v, %d lost", err, l.w.Lost())
	}
	for range 20 {
		l.tick()
	}
	must(t, l.w.Close())
	if n := replays(t, l.dir()); n < 35 || l.begins != 2 {
		t.Errorf("%d ticks, %d segments", n, l.begins)
	}

	l = newLife(t, 9, 1<<30)
	l.w.header.Params.Outlier.Sigmas = math.Inf(1)
	l.tick()
	if files, err := Segments(l.dir()); err != nil || len(files) > 0 || l.errs[0] == nil {
		t.Errorf("%v, %v, %v", files, err, l.errs[0])
	}
}

func TestTickWithoutASegment(t *testing.T) {
	w := NewWriter(t.TempDir(), 1<<20, Header{})
	if !w.Due(0) {
		t.Error("a new writer wants no segment")
	}
	if err := w.Tick(&engine.Input{}, &engine.Output{}); !errors.Is(err, errNoSegment) || w.Lost() != 1 {
		t.Error(err, w.Lost())
	}
}

// A folder that is removed while the agent runs is made anew.
func TestFolderRemoved(t *testing.T) {
	l := newLife(t, 10, 150_000)
	l.tick()
	must(t, os.RemoveAll(l.dir()))
	for l.begins < 2 {
		l.tick()
	}
	must(t, l.w.Close())
	if replays(t, l.dir()) == 0 {
		t.Error("nothing was recorded")
	}
}

func TestSegmentsAreBoundedByNumber(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 5 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%019d%s", dir, i, Suffix), nil, 0o600))
	}
	w := NewWriter(dir, 1<<40, Header{Params: quick()})
	must(t, w.Begin(engine.New(quick()).State, 0, 1))
	must(t, w.Close())
	if files, err := Segments(dir); err != nil || len(files) != maxFiles || !strings.HasSuffix(files[len(files)-1], "1005"+Suffix) {
		t.Errorf("%d files, %v", len(files), err)
	}
}
