package main

import (
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/lab/cpi2"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/scenarios"
	"github.com/commensal-io/commensal/twin/scenario"
)

// seedCases are what section 6 of the paper says of its six cases.
var seedCases = []struct{ name, seed string }{
	{"case-1", "CPI 5.0 over 2.0, 57 tenants; video processing named with 0.46, four LC suspects at 0.39 to 0.44; well after it was killed"},
	{"case-2", "CPI 2.0 over 1.7, 42 tenants; a best-effort job named with 0.31 to 0.34; 1.0 while capped, up again after"},
	{"case-3", "CPI from 3 to 10 by the victim's own rhythm; highest score 0.07; nobody accused"},
	{"case-4", "over 1.05; nine suspects of 0.36 to 0.66, one may be held; no effect, then 1.6 to 1.3: migrate the victim"},
	{"case-5", "well while capped and for a while after: the antagonist is a lame duck for tens of minutes"},
	{"case-6", "the antagonist survives its first cap and exits during the second"},
}

// caseStudies plays the paper's cases from the library of scenarios.
func caseStudies() ([]cpi2.Case, error) {
	var list []cpi2.Case
	for _, c := range seedCases {
		study, err := caseStudy(c.name, c.seed)
		if err != nil {
			return nil, err
		}
		list = append(list, study)
	}
	return list, nil
}

func caseStudy(name, seed string) (cpi2.Case, error) {
	text, ok := scenarios.Find(name)
	if !ok {
		return cpi2.Case{}, fmt.Errorf("the library has no scenario %s", name)
	}
	f, err := scenario.Parse(name, text, scenario.Options{})
	if err != nil {
		return cpi2.Case{}, err
	}
	res, err := f.PlayAll(scenario.Typed, false)
	if err != nil {
		return cpi2.Case{}, err
	}
	return cpi2.Case{Name: name, Seed: seed, Ours: told(&res.Runs[0]), Agrees: res.Passed != nil && *res.Passed}, nil
}

// told says in a line what became of a scenario's incidents.
func told(r *scenario.Run) string {
	if len(r.Incidents) == 0 {
		return "nobody suffered"
	}
	inc := r.Incidents[0]
	parts := []string{fmt.Sprintf("%s %.2f over %.2f", inc.Source, inc.Signal, inc.Threshold)}
	named := false
	for _, inc := range r.Incidents {
		for i := range inc.Rounds {
			if said := round(&inc.Rounds[i]); said != "" {
				named = true
				if len(parts) <= maxTold {
					parts = append(parts, said)
				}
			}
		}
	}
	if !named {
		top := 0.0
		for _, round := range inc.Rounds {
			for _, s := range round.Suspects {
				top = max(top, s.Score)
			}
		}
		parts = append(parts, fmt.Sprintf("highest score %.2f; nobody accused", top))
	}
	met := 0
	for _, c := range r.Checks {
		if c.Passed {
			met++
		}
	}
	return strings.Join(parts, "; ") + fmt.Sprintf("; %d of %d expectations met", met, len(r.Checks))
}

// maxTold is how many rounds are told of.
const maxTold = 2

// round says who was named in a round and what followed, "" when nobody was.
func round(r *model.Round) string {
	if r.Chosen == nil {
		return ""
	}
	score := 0.0
	for i := range r.Suspects {
		if r.Suspects[i].Task == *r.Chosen {
			score = r.Suspects[i].Score
		}
	}
	return fmt.Sprintf("%s named with %.2f, then %.2f: %s", strings.TrimPrefix(r.ChosenPath, "/"), score, r.SignalAfter, r.Verdict)
}
