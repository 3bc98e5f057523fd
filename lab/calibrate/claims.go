package calibrate

import "fmt"

func claims() ([]Claim, error) {
	var out []Claim
	for _, claim := range []func() (Claim, error){steps, oneWay, everyNode, below} {
		c, err := claim()
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// steps: what MBA does to the co-runner of a STREAM is done by 40 %.
func steps() (Claim, error) {
	cpi := map[int]float64{}
	for _, percent := range []int{10, 40, 100} {
		o, err := (beside{service: "web-search-leaf", batch: "stream", percent: percent}).play()
		if err != nil {
			return Claim{}, err
		}
		cpi[percent] = o.cpi
	}
	part := (cpi[40] - cpi[10]) / (cpi[100] - cpi[10])
	return Claim{
		Finding:   "Under STREAM the step from MBA 10 to 40 % does most of the damage to a co-runner, 40 to 100 % almost none (Skylake-SP)",
		Criterion: "at least 80 % of the damage by 40 %",
		Twin:      fmt.Sprintf("CPI %.2f, %.2f, %.2f at 10, 40, 100 %%: %.0f %% of the damage by 40", cpi[10], cpi[40], cpi[100], 100*part),
		Holds:     cpi[100] > 1.02*cpi[10] && part > 0.8 && part < 1.05,
	}, nil
}

// oneWay: one way for a streaming BE may be worse for the LC than two.
func oneWay() (Claim, error) {
	c := Claim{
		Finding:   "Squeezing a streaming BE into one way can make a co-runner markedly worse than two ways do: its misses, and with them bandwidth, rise",
		Criterion: "the direction alone, as no size is published: memory latency higher by 2 % or more, and the CPI higher",
		Holds:     true,
	}
	for i, x := range []beside{
		{service: "web-search-leaf", batch: "stream", threads: 16},
		{service: "web-search-leaf", batch: "stream", threads: 6},
		{service: "omnetpp", batch: "stream", threads: 16},
	} {
		var o [3]outcome
		for ways := 1; ways <= 2; ways++ {
			x.ways = 1<<ways - 1
			var err error
			if o[ways], err = x.play(); err != nil {
				return Claim{}, err
			}
		}
		if i > 0 {
			c.Twin += "; "
		}
		c.Twin += fmt.Sprintf("%s beside %d threads of %s: CPI %.2f at one way (%.0f GB/s, %.0f ns), %.2f at two (%.0f GB/s, %.0f ns)",
			x.service, x.threads, x.batch, o[1].cpi, o[1].gb, o[1].nsec, o[2].cpi, o[2].gb, o[2].nsec)
		c.Holds = c.Holds && o[1].nsec > 1.02*o[2].nsec && o[1].cpi > o[2].cpi
	}
	return c, nil
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
