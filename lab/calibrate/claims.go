package calibrate

import "fmt"

func claims() ([]Claim, error) {
	var out []Claim
	for _, claim := range []func() (Claim, error){everyNode, below} {
		c, err := claim()
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// everyNode: MBA holds back what goes to another socket's memory as well.
func everyNode() (Claim, error) {
	var kept [2]float64
	for node := range kept {
		all, err := streaming("stream", 4, 100, node)
		if err != nil {
			return Claim{}, err
		}
		low, err := streaming("stream", 4, 10, node)
		if err != nil {
			return Claim{}, err
		}
		kept[node] = low / all
	}
	return Claim{
		Finding:   "MBA delays all of a CLOS's requests, to every memory node (BALM)",
		Criterion: "under half of the bandwidth is left to its own node, under 60 % to the other",
		Twin:      fmt.Sprintf("STREAM on 4 cores keeps %.0f %% of its bandwidth to its own node at 10 %%, %.0f %% to the other", 100*kept[0], 100*kept[1]),
		Holds:     kept[0] < 0.5 && kept[1] < 0.6,
	}, nil
}

// below: a core that asks for less than its gate lets through does not feel it.
func below() (Claim, error) {
	all, err := streaming("npb-mg", 10, 100, 0)
	if err != nil {
		return Claim{}, err
	}
	low, err := streaming("npb-mg", 10, 10, 0)
	if err != nil {
		return Claim{}, err
	}
	return Claim{
		Finding:   "10 cores that move 20 GB/s in all are not held back at 10 % (intel-cmt-cat issue 185)",
		Criterion: "less than a fifth is lost: the gate is smoothed, and this is close to it",
		Twin:      fmt.Sprintf("10 threads of npb-mg move %.1f GB/s at 100 %%, %.1f at 10 %%", all, low),
		Holds:     low > 0.8*all,
	}, nil
}
