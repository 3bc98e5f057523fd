package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/node/linux/look"
	"github.com/commensal-io/commensal/node/survey"
)

const initLong = `Look at this host and write a configuration to start from: which systemd units, containers
and pods there are, what they have (quota, weight, QoS class), what they use in a second and
which ports they listen on. From that it guesses who is a service (LC) and who batch work (BE),
and writes each guess with its reason; what nothing speaks for is left open, as a comment.

What it writes observes: nothing is written to the kernel until you change a mode in it. It
changes nothing on the host, and no file that is there (--force does).

    commensal init                          write /etc/commensal/config.yaml
    commensal init -o -                     look at it first
    commensal init -o - --tree host.txt --pods pods.txt    of another host (see config match)

Exit codes: 0 written; 2 the file is there, or bad input; 4 it may not be written; 5 the cgroups cannot
be listed.`

// lookFor is how long init measures CPU.
const lookFor = time.Second

// drafted is what init prints.
type drafted struct {
	File    string `json:"file"` // - for stdout
	Tree    string `json:"tree"` // what was looked at
	Rules   int    `json:"rules"`
	Open    int    `json:"open"`    // cgroups, or sets of like ones, that nothing speaks for
	LeftOut int    `json:"leftout"` // units that keep the host going
	Text    string `json:"text"`
}

func initCommand(p *cli.Printer) *cobra.Command {
	var out, tree, pods string
	var force, show bool
	cmd := &cobra.Command{
		Use: "init", Short: "Look at this host and write a configuration to start from, which observes", Args: cobra.NoArgs, Long: initLong,
		RunE: func(*cobra.Command, []string) error {
			if show {
				out = "-"
			}
			if _, err := os.Stat(out); out != "-" && err == nil && !force {
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("%s is there already, and is left as it is; -o names another file, --force writes it anew, -o - prints", out))
			}
			d, err := draft(tree, pods)
			if err != nil {
				return err
			}
			if d.File = out; out != "-" {
				if err := writeDraft(out, d.Text); err != nil {
					return err
				}
			}
			return p.Print(d, d.print)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", defaultConfig, "where to write; - prints it")
	cmd.Flags().BoolVar(&show, "print", false, "the same as -o -")
	cmd.Flags().BoolVar(&force, "force", false, "write over a file that is there")
	cmd.Flags().StringVar(&tree, "tree", "", "a list of another host's cgroups, as find prints it, - for stdin")
	cmd.Flags().StringVar(&pods, "pods", "", "the names in that host's /var/log/pods, as ls prints them (with --tree)")
	return cmd
}

// draft looks at this host, or at a list, and drafts a configuration.
func draft(tree, pods string) (*drafted, error) {
	m := &matching{Tree: tree}
	paths, err := m.list()
	if err != nil {
		return nil, err
	}
	names, err := m.names(pods)
	if err != nil {
		return nil, err
	}
	groups := survey.Groups(paths, names)
	from := m.Tree
	if m.Tree == thisHost {
		if from, err = lookAt(groups); err != nil {
			return nil, err
		}
	}
	rules, infra := survey.Guess(groups)
	d := &drafted{Tree: m.Tree, LeftOut: infra, Text: string(config.Draft(rules, from, infra))}
	for i := range rules {
		if rules[i].Guessed {
			d.Rules++
		} else {
			d.Open++
		}
	}
	if _, err := config.Parse("the draft", []byte(d.Text)); err != nil {
		return nil, fmt.Errorf("init: what was drafted is not good, which is a fault of this program: %w", err)
	}
	return d, nil
}

// lookAt fills in what this host's groups are like, and says what was looked at.
func lookAt(groups []survey.Group) (from string, err error) {
	fs := hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(fs)
	if err != nil {
		return "", err
	}
	driver, err := cgroup.Open(fs, mounts)
	if err != nil {
		return "", err
	}
	look.At(groups, driver, "/", lookFor)
	name, err := os.Hostname()
	if err != nil {
		name = thisHost
	}
	return name + ", " + time.Now().Format(time.DateOnly), nil
}

// writeDraft writes a file whole or not at all. The configuration's own folder is made if it is not there; any other may be
// a slip.
func writeDraft(path, text string) error {
	tmp := path + ".new"
	var err error
	if path == defaultConfig {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(tmp, []byte(text), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return cli.Fail(cli.CodePrivilege, fmt.Errorf("%w; run it as root, or name a file with -o", err))
	case errors.Is(err, os.ErrNotExist):
		return cli.Fail(cli.CodeBadInput, fmt.Errorf("%w: there is no such folder", err))
	}
	return err
}

func (d *drafted) print(w io.Writer) error {
	if d.File == "-" {
		_, err := io.WriteString(w, d.Text)
		return err
	}
	_, err := fmt.Fprintf(w, `%[1]s is written, from a look at %[3]s. Rules guessed: %[2]d; left open, as comments: %[4]d; units left out, since they keep the host
going: %[5]d. It observes only. Next:
  $EDITOR %[1]s                  go through the guesses: each has its reason
  commensal config match %[1]s   which cgroups they find
  commensal agent -c %[1]s       or: systemctl enable --now commensal
`, d.File, d.Rules, d.Tree, d.Open, d.LeftOut)
	return err
}
