package model

// PageHomes is on which memory nodes a task's pages lie that it maps: anonymous ones, and those of files and shared memory (cgroup v1: all
// that it is charged for). The page cache of what it reads and writes is not meant.
type PageHomes struct {
	Num TaskNum `json:"num"`
	// Bytes are by the number of the memory node; one beyond the end has none.
	Bytes []uint64 `json:"bytes"`
}

// Away returns the share of the pages that lie on other than these nodes; ok is false of a task without pages.
func (h *PageHomes) Away(nodes CPUSet) (share float64, ok bool) {
	var sum, away float64
	for n, b := range h.Bytes {
		if sum += float64(b); !nodes.Has(n) {
			away += float64(b)
		}
	}
	if sum == 0 {
		return 0, false
	}
	return away / sum, true
}
