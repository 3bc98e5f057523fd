package parallel

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
)

// Results come in the order of the parts, however many are played at once.
func TestMapOrder(t *testing.T) {
	want := []int{0, 1, 4, 9, 16, 25, 36}
	for _, workers := range []int{0, 1, 2, 50} {
		got, err := Map(t.Context(), workers, len(want), func(i int) (int, error) { return i * i, nil })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d workers: %v, %v", workers, got, err)
		}
	}
	if got, err := Map(t.Context(), 3, 0, func(int) (int, error) { return 0, nil }); err != nil || len(got) != 0 {
		t.Errorf("nothing to do: %v, %v", got, err)
	}
}

// An error ends it, and so does the context, whatever was done by then.
func TestMapEnds(t *testing.T) {
	broken := errors.New("broken")
	var calls atomic.Int64
	_, err := Map(t.Context(), 2, 1000, func(i int) (int, error) {
		calls.Add(1)
		if i == 3 {
			return 0, broken
		}
		return i, nil
	})
	if !errors.Is(err, broken) || calls.Load() == 1000 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	ctx, stop := context.WithCancel(t.Context())
	calls.Store(0)
	_, err = Map(ctx, 2, 1000, func(i int) (int, error) {
		calls.Add(1)
		stop()
		return i, nil
	})
	if !errors.Is(err, context.Canceled) || calls.Load() > 4 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}
