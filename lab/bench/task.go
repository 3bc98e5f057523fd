package bench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/stage"
)

// taskCommand is the hidden word of the lab's binary with which it is one task: threads that
// wait most of the time, as those of most services do.
const taskCommand = "bench-task"

// Each thread works for workTime every threadEvery, the threads one after the other: a
// process wakes up ten times a second, and 150 of them take about a fifth of a CPU. More of them
// wake up as much less often, so that all together take no more.
const (
	threads     = 8
	workTime    = 100 * time.Microsecond
	threadEvery = 800 * time.Millisecond
)

// Play is one task, when that is what a process's arguments say; it then ends with a signal.
func Play(args []string) {
	if len(args) == 2 && args[0] == idleCommand {
		beIdle(args[1])
	}
	if len(args) != 2 || args[0] != taskCommand {
		return
	}
	slower, err := strconv.Atoi(args[1])
	if err != nil {
		return
	}
	every := threadEvery * time.Duration(slower)
	for i := range threads {
		go func() {
			runtime.LockOSThread()
			time.Sleep(time.Duration(i) * every / threads)
			for {
				for end := time.Now().Add(workTime); time.Now().Before(end); {
				}
				time.Sleep(every - workTime)
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
	slower := strconv.Itoa(max(1, n/goalTasks))
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
		if _, err := c.stage.Start(g, name, "/proc/self/exe", taskCommand, slower); err != nil {
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
func (c *crowd) rules() []config.Task {
	var list []config.Task
	for i := range c.steps {
		list = append(list,
			config.Task{Match: fmt.Sprintf("%s/serve-%d-*", c.stage.Root, i), Job: fmt.Sprintf("serve-%d", i), Class: "LC", Production: true},
			config.Task{Match: fmt.Sprintf("%s/batch-%d-*", c.stage.Root, i), Job: fmt.Sprintf("batch-%d", i), Class: "BE", Importance: "batch"})
	}
	return list
}
