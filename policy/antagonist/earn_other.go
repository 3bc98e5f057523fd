//go:build !amd64

package antagonist

func earn(ws []weighted, usage *[lanes][]float64, out *earnings) { earnPortable(ws, usage, out) }
