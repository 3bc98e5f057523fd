package linux

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/uncore"
	"github.com/commensal-io/commensal/model"
)

// Latency is how long this machine's memories take to answer, by uncore counters.
type Latency struct {
	log   *slog.Logger
	mu    sync.Mutex // a reading that is under way as the agent ends
	meter *uncore.Meter
	said  map[int32]string // why there is none of a domain, as told last
}

// OpenLatency opens this machine's uncore counters, which go on counting until Close. Errors are those of uncore.NewMeter and
// perf.OpenRaw.
func OpenLatency(fs hostfs.FS, log *slog.Logger) (*Latency, error) {
	return openLatency(fs, uncore.Perf, log)
}

func openLatency(fs hostfs.FS, open uncore.Opener, log *slog.Logger) (*Latency, error) {
	m, err := uncore.NewMeter(fs, open)
	if err != nil {
		return nil, err
	}
	if err := m.Start(); err != nil {
		return nil, err
	}
	return &Latency{log: log, meter: m, said: map[int32]string{}}, nil
}

// String says what is counted, and where.
func (l *Latency) String() string { return l.meter.String() }

// Of is a MemoryLatency. Why there is none is told when it is another reason than before.
func (l *Latency) Of(domain int32) model.Counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meter == nil {
		return model.Counter{}
	}
	nsec, err := l.meter.Read(int(domain))
	l.tell(domain, err)
	switch {
	case err == nil:
		return model.Read(nsec)
	case errors.Is(err, uncore.ErrFresh):
		return model.Counter{Outcome: model.Fresh}
	case errors.Is(err, uncore.ErrBackwards):
		return model.Counter{Outcome: model.GoneBackwards}
	case errors.Is(err, uncore.ErrNoDie), errors.Is(err, perf.ErrOffline):
		return model.Counter{Outcome: model.Absent}
	}
	return model.Counter{Outcome: model.Unavailable}
}

// tell tells of what ought not to be: a memory that nobody reads, or whose counting has just begun, is as it should be.
func (l *Latency) tell(domain int32, err error) {
	if errors.Is(err, uncore.ErrFresh) || errors.Is(err, uncore.ErrIdle) {
		return
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	switch why {
	case l.said[domain]:
		return
	case "":
		l.log.Info("how long memory takes to answer is read again", "domain", domain)
	default:
		l.log.Warn("how long memory takes to answer cannot be read", "domain", domain, "error", why)
	}
	l.said[domain] = why
}

// Close closes the counters.
func (l *Latency) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meter.Close()
	l.meter = nil
}
