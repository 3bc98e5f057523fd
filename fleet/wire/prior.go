package wire

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// PriorBucket has under SpecKey the PriorSheet of a job on a platform.
const PriorBucket = "commensal-priors"

// PriorSheet is what the fleet has seen of who hurts a job on a platform. Whom it does not name it says nothing of.
type PriorSheet struct {
	Version  int    `json:"version"` // of this document: 1
	Platform string `json:"platform"`
	WallNsec int64  `json:"wall_nsec"`
	model.Priors
}

// PriorVersion is of PriorSheet.
const PriorVersion = 1

// MaxPriors and MaxPriorBytes bound a sheet.
const (
	MaxPriors     = 64
	MaxPriorBytes = 64 << 10
)

// LeastPriorNodes is how many nodes have to have seen a pair: three of them, whichever one is left out.
const LeastPriorNodes = 4

// Check says what is wrong with a sheet that should be of a job on a platform; nil: nothing. One bad pair spoils it.
func (s *PriorSheet) Check(job, platform string) error {
	switch {
	case s.Version > PriorVersion:
		return fmt.Errorf("%w: %d, known here: %d", ErrNewer, s.Version, PriorVersion)
	case s.Job != job || s.Platform != platform:
		return fmt.Errorf("it is of job %.70q on platform %.70q", s.Job, s.Platform)
	case len(s.Pairs) > MaxPriors:
		return fmt.Errorf("it has %d pairs; expected at most %d", len(s.Pairs), MaxPriors)
	}
	named := map[string]bool{}
	for i := range s.Pairs {
		p := &s.Pairs[i]
		if err := errors.Join(plain(p.Antagonist), p.Check()); err != nil {
			return err
		}
		if p.Nodes < LeastPriorNodes {
			return fmt.Errorf("prior of %.70q: seen on %d nodes; expected at least %d", p.Antagonist, p.Nodes, LeastPriorNodes)
		}
		if named[p.Antagonist] {
			return fmt.Errorf("it names %.70q twice", p.Antagonist)
		}
		named[p.Antagonist] = true
	}
	return nil
}
