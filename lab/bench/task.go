package bench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/lab/stage"
)

// TaskCommand is the hidden command of the lab's binary that is one task: threads that
// wait most of the time, as those of most services do.
const TaskCommand = "bench-task"

// Each thread works for workTime every threadEvery, the threads one after the other: a
// process wakes up ten times a second, and 150 of them take about a fifth of a CPU.
const (
	threads     = 8
	workTime    = 100 * time.Microsecond
	threadEvery = 800 * time.Millisecond
)

// Task is the body of TaskCommand; it ends with a signal.
func Task() {
	for i := range threads {
		go func() {
			runtime.LockOSThread()
			time.Sleep(time.Duration(i) * threadEvery / threads)
			for {
				for end := time.Now().Add(workTime); time.Now().Before(end); {
				}
				time.Sleep(threadEvery - workTime)
			}
		}()
	}
	select {}
}

// groupNames are the kinds of task by the step with which they come on the stage, so that
// a glob a step says which of them are watched.
func groupName(step, i int) string {
	kind := "batch"
	if i%5 == 0 {
		kind = "serve"
	}
	return fmt.Sprintf("%s-%d-%d", kind, step, i)
}

// crowd is the tasks on the stage.
type crowd struct {
	stage  *stage.Stage
	groups []string
	steps  int
}

// grow adds tasks until there are n.
func (c *crowd) grow(ctx context.Context, n int) error {
	for i := len(c.groups); i < n; i++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		name := groupName(c.steps, i)
		g, err := c.stage.Group(name)
		if err != nil {
			return err
		}
		c.groups = append(c.groups, g)
		if _, err := c.stage.Start(g, name, "/proc/self/exe", TaskCommand); err != nil {
			return err
		}
	}
	c.steps++
	return c.settle(ctx)
}

// settle waits until every task is where it belongs and what it will be: until then it is
// the lab's own binary on its way.
func (c *crowd) settle(ctx context.Context) error {
	for _, g := range c.groups {
		for tries := 0; ; tries++ {
			pids, err := c.stage.Cgroups().Procs(g)
			if err != nil {
				return err
			}
			if len(pids) > 0 {
				break
			}
			if tries == 100 {
				return errors.New("bench: a task does not start: " + path.Base(g))
			}
			if err := stage.Sleep(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return stage.Sleep(ctx, time.Second) // from the move to the program: two execs
}

// rules are the agent's rules for the tasks that are on the stage.
func (c *crowd) rules() string {
	text := ""
	for i := range c.steps {
		s := strconv.Itoa(i)
		text += "  - {match: \"" + c.stage.Root + "/serve-" + s + "-*\", job: serve-" + s + ", class: LC, production: true}\n" +
			"  - {match: \"" + c.stage.Root + "/batch-" + s + "-*\", job: batch-" + s + ", class: BE, importance: batch}\n"
	}
	return text
}
