package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/lab/cpi2"
)

func cpi2Experiment() experiment {
	relief, fit, terms := false, false, ""
	return experiment{
		name: "cpi2", short: "The evaluation of CPI2 (EuroSys'13) on simulated machines, beside its figures",
		listed: "the evaluation of CPI2 (EuroSys'13) on simulated machines, beside its figures: an hour, --quick some minutes",
		long:   "Learn specs from a simulated fleet, draw random machines, let the policies find out who hurts whom, cap and judge\nas the paper does, and compare with what really happened. Exit 0 when the combination that was\nsettled on beforehand meets every goal on production victims, 1 when it does not, 3 when no production victim was tried. --quick: three minutes; in full: forty on\ntwo CPUs.",
		quick:  "fewer machines", seed: "of the catalogue and of all machines", html: true,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&relief, "relief", false, "only how much relief each arm brings, over ten catalogues of jobs: a quarter of an hour on two quiet CPUs")
			physicsFlag(cmd, &terms)
			cmd.Flags().BoolVar(&fit, "fit", false, "only fit how often something happens to the paper's rate of identifications, on development catalogues: five minutes")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			published, err := physicsOf(terms)
			if err != nil {
				return nil, err
			}
			var cases []cpi2.Case
			if !relief && !fit {
				if cases, err = caseStudies(); err != nil {
					return nil, err
				}
			}
			return cpi2.Run(ctx, cpi2.Options{Quick: o.Quick, Seed: o.Seed, Cases: cases, Relief: relief, Fit: fit, Published: published, Log: os.Stderr})
		},
	}
}
