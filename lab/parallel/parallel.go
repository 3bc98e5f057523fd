// Package parallel plays the independent parts of an experiment on several CPUs.
package parallel

import (
	"context"
	"errors"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Map calls f for 0 to n-1, so many at a time (0: one on each CPU), and returns the results in
// that order, so that they do not depend on how many there are. An error of f, or the context's
// end, keeps further calls from being made and is returned once those under way have ended.
func Map[T any](ctx context.Context, workers, n int, f func(i int) (T, error)) ([]T, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	out := make([]T, n)
	g, playing := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := 0; i < n && playing.Err() == nil; i++ {
		g.Go(func() (err error) {
			out[i], err = f(i)
			return err
		})
	}
	if err := errors.Join(g.Wait(), ctx.Err()); err != nil {
		return nil, err
	}
	return out, nil
}
