package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/demo"
	"github.com/commensal-io/commensal/lab/scene"
)

func demoExperiment() experiment {
	var page, record string
	var rate, repeat int
	favour := weight(1)
	harm := string(scene.Fork)
	brief := false
	return experiment{
		name: "demo", short: "First light on this host: name the noisy neighbour, hold it back, verify, put everything back",
		long: "Run memcached under load beside six bystanders and one bursty antagonist, with the agent's policies off and\non in turn and against simple baselines. Exit 0 when the antagonist, and nobody else, was held and p99 fell\nbelow half; 1 when not; 3 when what else the host does hides it (docs/FIRST-LIGHT.md has the rules).",
		host: true, seed: "chooses rhythms and which task is the antagonist", svg: "also write the picture of the first cap here",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&repeat, "repeat", 1, "play so many demos, with seeds drawn from --seed, and print their verdicts in one table")
			cmd.Flags().BoolVar(&brief, "brief", false, "of the simple remedies play cpu.idle only: the same verdict in a minute less")
			cmd.Flags().StringVar(&page, "report", "commensal-demo.html", "where to write the report")
			cmd.Flags().IntVar(&rate, "rate", scene.Rate, "requests per second that memcached has to serve; fewer on a machine as slow as an emulated one")
			cmd.Flags().Var(&favour, "antagonist-weight", "how many times everybody else's weight the antagonist has, as one that asks for as many CPUs has where weights follow requests")
			cmd.Flags().StringVar(&harm, "antagonist", harm, fmt.Sprintf("what the antagonist does: one of %v", scene.Harms()))
			cmd.Flags().StringVar(&record, "record", "", "folder to keep the agent's record in, for explain and replay")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			if rate < 1 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--rate %d: expected at least 1", rate))
			}
			if repeat < 1 || repeat > demo.MaxRepeat {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--repeat %d: expected 1 to %d", repeat, demo.MaxRepeat))
			}
			opt := demo.Options{Seed: o.Seed, Agent: o.Agent, Report: page, Record: record, Rate: rate, Harm: scene.Harm(harm), Favour: uint64(favour), Brief: brief, Log: os.Stderr}
			if repeat > 1 {
				return demo.Repeat(ctx, opt, repeat)
			}
			return demo.Run(ctx, opt)
		},
	}
}

// weight is how many times everybody else's weight a scene's antagonist has.
type weight uint64

// mostWeight times the default is the greatest weight that cgroups take.
const mostWeight = 100

func (w *weight) String() string { return strconv.FormatUint(uint64(*w), 10) }

// Type is what a flag's help calls it.
func (w *weight) Type() string { return "times" }

// Set takes a flag's text.
func (w *weight) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > mostWeight {
		return fmt.Errorf("expected 1 to %d", mostWeight)
	}
	*w = weight(n)
	return nil
}
