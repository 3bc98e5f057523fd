package antagonist

// earn is the hot loop with two suspects in a register (SSE2, which every amd64 has): of an
// analysis of 50 suspects in 600 windows nearly all is here, and Go's compiler has one
// suspect in a register. Every row of usage must be as long as the greatest window.
//
//go:noescape
func earn(ws []weighted, usage *[lanes][]float64, out *earnings)
