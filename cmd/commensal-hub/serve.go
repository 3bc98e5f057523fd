package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/fleet/bucket/s3"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

func serveCommand() *cobra.Command {
	cfg := hub.Config{Spec: spec.Defaults()}
	var keepDays, keepLocal int
	var where s3.Config
	shard := "1/1"
	period := time.Duration(cfg.Spec.PeriodNsec)
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the hub", Args: cobra.NoArgs,
		Long: `Run the hub: one process and one folder, with a transport (NATS JetStream) of its own. Beyond this
machine it listens, and connects to --nats, only with TLS. The first administrator's token is written to admin.token in the folder.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if keepDays < 1 || period < time.Second || cfg.ObserveFor < time.Second || cfg.Spec.MinTasks < 1 || cfg.Spec.MinSamplesPerTask < 1 || cfg.Spec.MinSamplesPerTask > spec.MaxSamplesPerTask || cfg.Spec.Sizes < 0 || cfg.Spec.Sizes > spec.MaxSizes {
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("--keep-days, --min-tasks and --min-samples are 1 or more, --min-samples at most %d, --spec-every and --observe-for a second or more, --spec-sizes 0 to %d", spec.MaxSamplesPerTask, spec.MaxSizes))
			}
			if n, err := fmt.Sscanf(shard+"\n", "%d/%d\n", &cfg.Shard, &cfg.Shards); err != nil || n != 2 || cfg.Shard < 1 || cfg.Shards < 1 {
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("--shard %q; expected I/N with I from 1 to N, as 2/3", shard))
			}
			cfg.Keep, cfg.Version, cfg.Spec.PeriodNsec = time.Duration(keepDays)*24*time.Hour, version, int64(period)
			if err := openBucket(&cfg, where, keepLocal); err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			boundGarbage(ctx)
			cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			h, err := hub.New(cfg)
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			return h.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Dir, "dir", defaultDir, "everything that the hub keeps")
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:8469", "pages and HTTP interface")
	f.StringVar(&cfg.NATSListen, "nats-listen", "127.0.0.1:4222", "where nodes connect")
	f.StringVar(&cfg.NATS, "nats", "", "an existing NATS cluster with JetStream, in place of the hub's own")
	f.StringVar(&cfg.NATSCreds, "nats-creds", "", "credentials file for it")
	f.StringVar(&cfg.NATSCA, "nats-ca", "", "certificates that its are signed by")
	f.BoolVar(&cfg.NATSUnguarded, "nats-unguarded", false, "--nats may be another machine in plain text (nats:// without --nats-ca), or without credentials: something else guards the way, as a tunnel")
	f.IntVar(&cfg.Replicas, "nats-replicas", 1, "copies of each message in it")
	f.IntVar(&cfg.Partitions, "partitions", 1, "of the fleet's jobs, which several hubs on one NATS cluster share; they may become more, not fewer")
	f.StringVar(&shard, "shard", shard, "which of these hubs this is")
	f.BoolVar(&cfg.TakeOver, "take-over", false, "take this shard's partitions also from a hub that is silent and did not give them back: its folder is lost for good, and with it what it had stored")
	f.StringVar(&cfg.TLSCert, "tls-cert", "", "certificate, of pages and transport")
	f.StringVar(&cfg.TLSKey, "tls-key", "", "its key")
	f.StringVar(&cfg.ClientCA, "client-ca", "", "certificates that people's are signed by: they may enter by them, without a token")
	f.IntVar(&keepDays, "keep-days", 90, "how long the store keeps a day, folder and bucket")
	f.IntVar(&keepLocal, "keep-local-days", 0, "how long the folder keeps a day that the bucket has (default: 7, or --keep-days)")
	bucketFlags(f, &where)
	f.StringVar(&cfg.HookURL, "hook-url", "", "is told (POST) of tasks that are held again and again, and of what operators want done with a task: restart, confine")
	f.DurationVar(&cfg.ObserveFor, "observe-for", time.Hour, "how long a roll-out observes before it may enforce, on as many nodes")
	f.StringVar(&cfg.SQL, "sql", "", "the program that answers queries (default: commensal-sql beside this one)")
	f.DurationVar(&period, "spec-every", period, "from one calculation of specs to the next (CPI² §3.1: 24 h)")
	f.BoolVar(&cfg.Spec.Fit, "fit-thresholds", false, "thresholds by a fitted distribution (CPI² figure 7: GEV) in place of mean and two standard deviations")
	f.IntVar(&cfg.Spec.Sizes, "spec-sizes", 0, "of a job on a platform, learn so many sizes of its tasks apart, as nodes tell them (size in a rule of their tasks), beside all of them together; 0: none")
	f.IntVar(&cfg.Spec.MinTasks, "min-tasks", cfg.Spec.MinTasks, "tasks that a spec needs (CPI² §3.1)")
	f.IntVar(&cfg.Spec.MinSamplesPerTask, "min-samples", cfg.Spec.MinSamplesPerTask, "samples that each of them needs (CPI² §3.1)")
	return cmd
}

const whyEnrol = "the reason, for the audit (default: none)"

// enrolment changes who may enter, and has it in the audit of the hub's folder.
func enrolment(dir, why, what, node string, detail map[string]any, do func() error) error {
	if why != "" {
		if err := hub.CheckWhy(why); err != nil {
			return cli.Fail(cli.CodeBadInput, err)
		}
	}
	act := wire.Act{What: what, Node: node, Why: why, By: localUser()}
	if detail != nil {
		b, err := json.Marshal(detail)
		if err != nil {
			return err
		}
		act.Detail = b
	}
	return hub.Enrolment(dir, act, do)
}

// localUser is who runs this program, and, by sudo's word, as whom they came.
func localUser() string {
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	came := os.Getenv("SUDO_USER")
	if came == "" || came == name || len(came) > 63 || strings.ContainsFunc(came, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return name
	}
	return came + " as " + name
}

func nodeCommand(p *cli.Printer) *cobra.Command {
	var dir, to, why string
	cmd := &cobra.Command{
		Use: "node", Short: "Say which nodes may connect", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	add := &cobra.Command{
		Use: "add NAME", Short: "Let a node connect, and write the seed that it proves itself with", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var seed []byte
			err := enrolment(dir, why, "node-add", args[0], nil, func() (err error) {
				seed, err = hub.Enrol(dir, args[0], time.Now())
				return err
			})
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			path := to
			if path == "" {
				path = filepath.Join(dir, args[0]+".seed")
			}
			if err := store.Replace(path, append(seed, '\n')); err != nil {
				return err
			}
			return p.Print(map[string]string{"node": args[0], "seed_file": path}, func(w io.Writer) error {
				fmt.Fprintf(w, "%s may connect. Bring %s to it, where only root may read it, and put into its configuration:\n\nfleet:\n  hub: tls://HUB:4222\n  node: %s\n  seed_file: /etc/commensal/node.seed\n", args[0], path, args[0])
				return nil
			})
		},
	}
	add.Flags().StringVar(&to, "seed-file", "", "where the seed goes (default: NAME.seed in the hub's folder)")
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Let a node connect no more", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			err := enrolment(dir, why, "node-remove", args[0], nil, func() error { return dismiss(dir, args[0]) })
			if err != nil {
				return err
			}
			return p.Print(map[string]string{"removed": args[0]}, func(w io.Writer) error {
				fmt.Fprintf(w, "%s may connect no more\n", args[0])
				return nil
			})
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "List the nodes that may connect", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			nodes, err := hub.Nodes(dir)
			if err != nil {
				return err
			}
			if nodes == nil {
				nodes = []hub.Enrolled{}
			}
			return p.Print(nodes, func(w io.Writer) error {
				for _, n := range nodes {
					fmt.Fprintf(w, "%s\t%s\tsince %s\n", n.Name, n.Key, n.Added.Format(time.RFC3339))
				}
				return nil
			})
		},
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", defaultDir, "the hub's folder")
	for _, c := range []*cobra.Command{add, remove} {
		c.Flags().StringVar(&why, "why", "", whyEnrol)
	}
	cmd.AddCommand(add, remove, list)
	return cmd
}

func dismiss(dir, name string) error {
	ok, err := hub.Dismiss(dir, name)
	if err == nil && !ok {
		err = cli.Fail(cli.CodeBadInput, fmt.Errorf("no node %q is enrolled", name))
	}
	return err
}

func personCommand(p *cli.Printer) *cobra.Command {
	var dir, role, why string
	var noToken bool
	cmd := &cobra.Command{
		Use: "person", Short: "Say who may enter", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	add := &cobra.Command{
		Use: "add NAME", Short: "Let somebody in, and print the token; it is shown once. NAME is the common name of a certificate (serve --client-ca)", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var r hub.Role
			if err := r.UnmarshalText([]byte(role)); err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			var token string
			detail := map[string]any{"person": args[0], "role": role, "token": !noToken}
			err := enrolment(dir, why, "person-add", "", detail, func() (err error) {
				if noToken {
					return hub.AddCertified(dir, args[0], r, time.Now())
				}
				token, err = hub.AddPerson(dir, args[0], r, time.Now())
				return err
			})
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			if noToken {
				return p.Print(map[string]string{"person": args[0], "role": role}, func(w io.Writer) error {
					fmt.Fprintf(w, "%s may enter by certificate\n", args[0])
					return nil
				})
			}
			return p.Print(map[string]string{"person": args[0], "role": role, "token": token}, func(w io.Writer) error {
				fmt.Fprintln(w, token)
				return nil
			})
		},
	}
	add.Flags().StringVar(&role, "role", "viewer", "viewer, operator or admin")
	add.Flags().BoolVar(&noToken, "no-token", false, "by certificate only")
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Let somebody in no more, by token or certificate", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			err := enrolment(dir, why, "person-remove", "", map[string]any{"person": args[0]}, func() error {
				ok, err := hub.RemovePerson(dir, args[0])
				if err == nil && !ok {
					err = cli.Fail(cli.CodeBadInput, fmt.Errorf("there is no person %q", args[0]))
				}
				return err
			})
			if err != nil {
				return err
			}
			return p.Print(map[string]string{"removed": args[0]}, func(w io.Writer) error {
				fmt.Fprintf(w, "%s may enter no more\n", args[0])
				return nil
			})
		},
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", defaultDir, "the hub's folder")
	for _, c := range []*cobra.Command{add, remove} {
		c.Flags().StringVar(&why, "why", "", whyEnrol)
	}
	cmd.AddCommand(add, remove)
	return cmd
}

func schemaCommand(p *cli.Printer) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the columns of the store's tables", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return p.Print(store.Columns(), func(w io.Writer) error {
				for _, c := range store.Columns() {
					fmt.Fprintf(w, "%s.%s\t%s\t%s\n", c.Table, c.Name, c.Unit, c.What)
				}
				return nil
			})
		},
	}
}
