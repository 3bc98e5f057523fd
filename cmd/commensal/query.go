package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/cmd/cli"
	fleetclient "github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/model"
)

// answer is what a hub answers to a query.
type answer struct {
	Columns   []string `json:"columns"`
	Types     []string `json:"types"`
	Rows      [][]any  `json:"rows"`
	Truncated bool     `json:"truncated"`
	Seconds   float64  `json:"seconds"`
}

// question is one of those that the hub has ready.
type question struct {
	Name, Text string
	Args       []string
	SQL        string
}

func queryCommand(p *cli.Printer) *cobra.Command {
	var c fleetclient.Client
	var ready string
	cmd := &cobra.Command{
		Use: "query SQL | --question NAME [ARG...] | --question list", Short: "Ask the fleet's hub about samples, decisions and incidents",
		Long: "Ask the fleet's hub: one SELECT on the tables samples, decisions, incidents, specs and audit (`commensal-hub schema` lists\ntheir columns), or a question that it has ready, with a value for each of its arguments.",
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			switch {
			case ready != "":
				var list []question
				if err := c.Do(cmd.Context(), "/v1/questions", nil, &list); err != nil {
					return queryFailed(err)
				}
				if ready == "list" {
					return p.Print(list, func(w io.Writer) error {
						for _, q := range list {
							fmt.Fprintf(w, "%s %s\t%s\n", q.Name, strings.ToUpper(strings.Join(q.Args, " ")), q.Text)
						}
						return nil
					})
				}
				q, err := pick(list, ready, args)
				if err != nil {
					return cli.Fail(cli.CodeBadInput, err)
				}
				body["sql"], body["args"] = q.SQL, args
			case len(args) == 1:
				body["sql"] = args[0]
			default:
				return cli.Fail(cli.CodeBadInput, errors.New("expected one text in SQL, or --question"))
			}
			var a answer
			if err := c.Do(cmd.Context(), "/v1/query", body, &a); err != nil {
				return queryFailed(err)
			}
			return p.Print(&a, func(w io.Writer) error { return printAnswer(w, &a) })
		},
	}
	c.Flags(cmd.Flags())
	cmd.Flags().StringVar(&ready, "question", "", "a question that the hub has ready; list: show them")
	return cmd
}

func pick(list []question, name string, args []string) (*question, error) {
	for i := range list {
		if q := &list[i]; q.Name == name {
			if len(args) != len(q.Args) {
				return nil, fmt.Errorf("question %s takes %d values: %s", name, len(q.Args), strings.Join(q.Args, ", "))
			}
			return q, nil
		}
	}
	return nil, fmt.Errorf("no question %q; --question list shows them", name)
}

func queryFailed(err error) error {
	var r *fleetclient.Refused
	if !errors.As(err, &r) {
		return err
	}
	return cli.Answered(r.Code, err)
}

func printAnswer(w io.Writer, a *answer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ToUpper(strings.Join(a.Columns, "\t")))
	for _, row := range a.Rows {
		cells := make([]string, len(row))
		for i, v := range row {
			switch v := v.(type) {
			case nil:
				cells[i] = "-"
			case float64:
				cells[i] = fmt.Sprintf("%.6g", v)
			default:
				cells[i] = strings.Join(strings.Fields(fmt.Sprint(v)), " ")
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	more := ""
	if a.Truncated {
		more = " and more"
	}
	_, err := fmt.Fprintf(w, "%d rows%s, %.2f s\n", len(a.Rows), more, a.Seconds)
	return err
}

// maxTheirs bounds the fleet's specs that a status names; as JSON it has all.
const maxTheirs = 8

// printFleet says how the node stands to its fleet, and which of the specs in force are the fleet's.
func printFleet(w io.Writer, f *uplink.Status, specs []*model.Spec) {
	if f == nil {
		return
	}
	state := "connected since " + f.Since.Format(time.DateTime)
	if !f.Connected {
		state = "NOT CONNECTED since " + f.Since.Format(time.DateTime) + " (" + oneLine(f.Why) + "); this node goes on with what it knows"
	}
	fmt.Fprintf(w, "fleet: node %s of %s, %s; %d batches sent, %d wait, %d lost; sheets of %d jobs\n", f.Node, f.Hub, state, f.Sent, f.Waiting, f.Lost, f.Sheets)
	var theirs []string
	for _, sp := range specs {
		if sp.Sheet != 0 {
			theirs = append(theirs, fmt.Sprintf("%s of %s (revision %d)", sp.Source, oneLine(sp.Job), sp.Sheet))
		}
	}
	if n := len(theirs); n > maxTheirs {
		theirs = append(theirs[:maxTheirs], fmt.Sprintf("%d more", n-maxTheirs))
	}
	if theirs != nil {
		fmt.Fprintf(w, "the fleet's specs are in force: %s\n", strings.Join(theirs, ", "))
	}
	if id, refused := strings.CutPrefix(f.Rollout, "!"); refused {
		fmt.Fprintf(w, "the fleet's roll-out is refused here: %s\n", oneLine(id))
	} else if id != "" {
		fmt.Fprintf(w, "policies are changed by the fleet's roll-out %s\n", oneLine(id))
	}
	for i := range f.ProtectOff {
		p := &f.ProtectOff[i]
		fmt.Fprintf(w, "protection is off in the whole fleet for %s (%s: %s)\n", oneLine(cmp.Or(p.Job, "all jobs")), oneLine(p.By), oneLine(p.Why))
	}
	if f.Off {
		fmt.Fprintf(w, "THE FLEET'S KILL SWITCH is on (%s): everything is released, nothing is held\n", oneLine(f.OffWhy))
	}
}
