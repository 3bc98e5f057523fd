package cpi2

import (
	"context"
	"sync"
)

// pool runs independent parts of an experiment on so many CPUs. Each part has a seed of its
// own and results come in the order of the parts, so that they do not depend on how many
// there are.
type pool struct {
	ctx     context.Context
	workers int
}

// each calls f for 0 ... n-1 and returns the results in that order, or the error of the
// first part that failed.
func each[T any](p pool, n int, f func(i int) (T, error)) ([]T, error) {
	out := make([]T, n)
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range max(1, p.workers) {
		wg.Go(func() {
			for i := range next {
				out[i], errs[i] = f(i)
			}
		})
	}
	var stopped error
feed:
	for i := range n {
		select {
		case next <- i:
		case <-p.ctx.Done():
			stopped = p.ctx.Err()
			break feed
		}
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, stopped
}
