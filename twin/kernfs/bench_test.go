package kernfs_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
)

// BenchmarkObserve is what a reading of 20 tasks costs, without the physics.
func BenchmarkObserve(b *testing.B) {
	for _, layout := range layouts {
		b.Run(layout.String(), func(b *testing.B) {
			h, advance := twenty(b, layout)
			var snap model.Snapshot
			observe := func() {
				if err := h.Observe(model.WindowStart|model.WindowEnd, &snap); err != nil {
					b.Fatal(err)
				}
			}
			observe()
			advance()
			b.ReportAllocs()
			for b.Loop() {
				observe()
			}
		})
	}
}

// BenchmarkLife is a second of 20 tasks with a reading of all: it prints how many times
// faster than life that is.
func BenchmarkLife(b *testing.B) {
	for _, layout := range layouts {
		b.Run(layout.String(), func(b *testing.B) {
			h, advance := twenty(b, layout)
			var snap model.Snapshot
			for b.Loop() {
				advance()
				if err := h.Observe(model.WindowStart|model.WindowEnd, &snap); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "x-life")
		})
	}
}

// twenty is a kernel with twenty tasks that a node watches, which lists groups every ten
// seconds.
func twenty(b *testing.B, layout cgroup.Layout) (h *linux.Host, advance func()) {
	b.Helper()
	k := newKernel(b, newMachine(b, 1), layout)
	for i := range 20 {
		cfg := bystander()
		if i%2 == 0 {
			cfg = service()
			cfg.Requests.PerSecond = 500
		}
		if _, err := k.Start(fmt.Sprintf("/a-web-%02d", i), cfg); err != nil {
			b.Fatal(err)
		}
	}
	compiled, err := match.Compile(rules)
	if err != nil {
		b.Fatal(err)
	}
	h, err = linux.Open(linux.Options{
		FS: k, Rules: compiled, DiscoverEvery: 10e9, Counters: true, Log: slog.New(slog.DiscardHandler),
		Delay: k.Taskstats(), Opener: k.Counters(), Clock: k,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	return h, func() { k.Advance(1e9) }
}
