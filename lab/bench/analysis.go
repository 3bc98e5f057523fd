package bench

import (
	"math/rand/v2"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// suspects is the number that CPI² gives with its own figure: "about 100 µs"
// (CPI² §4.2).
const suspects = 50

// Analysis is the time of one antagonist analysis.
type Analysis struct {
	Windows  int     `json:"windows"`
	Suspects int     `json:"suspects"`
	Usec     Spread  `json:"usec"`
	Allocs   float64 `json:"allocations"`
}

// analyse times one analysis over a full history of n windows, half of them bad.
func analyse(n int) Analysis {
	cfg, _ := config.Defaults(config.ProfileCPI2)
	hp := cfg.Params("bench").Hardcap
	params := hp.Antagonist[model.SourceSlowdown]
	rng := rand.New(rand.NewPCG(1, 0))
	const victim = model.TaskNum(0)
	h := antagonist.NewHistory(n)
	for num := range model.TaskNum(1 + suspects) {
		h.Ensure(num)
	}
	for k := range n {
		h.Begin(int64(k) * 1e9)
		h.Put(victim, 0.5, 1+3*rng.Float64())
		for num := range model.TaskNum(suspects) {
			h.Put(1+num, rng.Float64(), antagonist.NoEvidence)
		}
		h.End()
	}
	const threshold = 2.5
	var out antagonist.Analysis
	h.Correlate(&params, victim, threshold, &out) // its scratch space is made
	const rounds = 3000
	took := make([]float64, rounds)
	allocs := mallocs()
	for i := range took {
		begin := time.Now()
		h.Correlate(&params, victim, threshold, &out)
		took[i] = float64(time.Since(begin).Nanoseconds()) / 1e3
	}
	allocs = mallocs() - allocs
	return Analysis{Windows: n, Suspects: len(out.Scores), Usec: spread(took), Allocs: float64(allocs) / rounds}
}
