package model

// Room is what one window, or the time until a look, says of the machine's memory: what there is at its end, and how long
// programs waited for some meanwhile. Everything is missing while no policy asks.
type Room struct {
	Total     Value `json:"total"`     // bytes
	Available Value `json:"available"` // bytes that programs could have without swapping (MemAvailable)
	SwapFree  Value `json:"swap_free"` // bytes
	Some      Value `json:"some"`      // share of the time in which a task waited for memory (PSI)
	Full      Value `json:"full"`      // share in which all that had work did
}

// ObserveRoom derives it from the node's counters in two readings, so many nanoseconds apart.
func ObserveRoom(prev, cur *NodeSample, elapsed int64) Room {
	return Room{
		Total: cur.C[CountMemoryTotal].gauge(), Available: cur.C[CountMemoryAvailable].gauge(), SwapFree: cur.C[CountSwapFree].gauge(),
		Some: rate(prev.C[CountMemorySome], cur.C[CountMemorySome], elapsed), Full: rate(prev.C[CountMemoryFull], cur.C[CountMemoryFull], elapsed),
	}
}

// gauge is a counter that counts nothing: its value is what there is at the reading.
func (c Counter) gauge() Value {
	if c.Outcome != OK {
		return Missing(c.Outcome)
	}
	return Known(float64(c.Value))
}
