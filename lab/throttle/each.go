package throttle

import (
	"context"
	"runtime"
	"sync"
)

func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// each calls f for 0 to n-1 on so many workers and returns what it returned, in order. The
// first error, in order, ends it.
func each[T any](ctx context.Context, workers, n int, f func(i int) (T, error)) ([]T, error) {
	out, errs := make([]T, n), make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				out[i], errs[i] = f(i)
			}
		})
	}
	var err error
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			break
		}
	}
	close(next)
	wg.Wait()
	for _, e := range errs {
		if e != nil {
			return nil, e
		}
	}
	return out, err
}
