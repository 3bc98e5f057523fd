package main

import (
	"context"
	"os"

	"github.com/commensal-io/commensal/lab/throttle"
)

func throttleExperiment() experiment {
	return experiment{
		name: "throttle", short: "Throttling of bursty services: Alibaba's figures 12, 13, 15 and 23, on this host and on the twin",
		listed: "Alibaba, figures 12, 13, 15 and 23: quotas, burst and the shared pool on this host and on the twin: half an hour, --quick 6 minutes",
		long: "Play bursty services in real cgroups with real quotas under four ways to run them (the kernel's default, burst,\n" +
			"AIMD, both), by turns and with the same requests, then the same on simulated machines, bucket sizes, and a\n" +
			"surge. Exit 0 when every goal is met, 1 when not, 3 when others used this host too much to tell, 4 without\n" +
			"root. About half an hour; --quick: six minutes.",
		host: true, twin: true, quick: "one round instead of three, shorter parts, fewer machines", seed: "of all instances and their requests",
		html: true, plots: "also write the policies' pictures into this folder",
		play: func(ctx context.Context, o *options) (result, error) {
			return throttle.Run(ctx, throttle.Options{
				Seed: o.Seed, Quick: o.Quick, Host: !o.TwinOnly, Twin: !o.HostOnly, Agent: o.Agent, Log: os.Stderr,
			})
		},
	}
}
