package stage

// cgroup.subtree_control of the root group: the controllers that cgroup v2 hands to the
// groups at the top.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#controlling-controllers
//
//	cpuset cpu memory pids        (written: "+cpu", "-cpu")
//
// A stage needs the cpu controller: without it its groups have neither a limit nor a
// weight. systemd enables it once some unit asks for it, so that on a fresh host it may
// be missing. To enable it is a change of the whole machine (every slice gets a weight):
// the stage makes it only where it must, says so, and takes it back when the last stage
// ends. Before it does, it leaves a note in recordPath, by which the next run knows after
// a crash. It is not taken back when somebody has come to rely on it meanwhile: a limit
// or a weight that was written to a group at the top, or a group there that hands the
// controller down, would silently be lost.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
)

// recordPath has the boot in which a stage enabled the controller and has not yet taken
// that back.
const recordPath = "/run/commensal-lab.cpu-controller"

// controller is the cpu controller at the root of a cgroup v2 hierarchy.
type controller struct {
	fs   hostfs.FS
	cg   *cgroup.V2
	file string // cgroup.subtree_control of the root
	log  io.Writer
}

// newController returns nil on cgroup v1, where every group has its controllers.
func newController(fs hostfs.FS, m *cgroup.Mounts, cg cgroup.Driver, log io.Writer) *controller {
	d, ok := cg.(*cgroup.V2)
	if !ok {
		return nil
	}
	return &controller{fs: fs, cg: d, file: m.Unified + "/cgroup.subtree_control", log: log}
}

// enable makes sure that groups at the top have the controller.
func (c *controller) enable() error {
	if c == nil {
		return nil
	}
	on, err := c.cg.ReadSubtreeControl("/")
	if err != nil || slices.Contains(on, cgroup.CPU) {
		return err
	}
	have, err := c.cg.ReadControllers("/")
	if err != nil {
		return err
	}
	if !slices.Contains(have, cgroup.CPU) {
		return fmt.Errorf("cgroup v2 has no cpu controller here (cgroup.controllers: %v): groups can be neither limited nor weighted", have)
	}
	boot, err := procstat.ReadBootID(c.fs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(recordPath, []byte(boot+"\n"), 0o600); err != nil {
		return fmt.Errorf("note that the cpu controller is about to be enabled: %w", err)
	}
	if err := c.fs.WriteFile(c.file, []byte("+cpu")); err != nil {
		why := "enable the cpu controller in the root group"
		switch {
		case errors.Is(err, unix.EBUSY):
			why += ", which has processes and is not the machine's (a container?)"
		case errors.Is(err, unix.EINVAL):
			why += " (a kernel with CONFIG_RT_GROUP_SCHED refuses while real-time processes are in other groups)"
		}
		return errors.Join(fmt.Errorf("%s: %w", why, err), os.Remove(recordPath))
	}
	fmt.Fprintln(c.log, "the cpu controller was off in the root cgroup: it is on for the whole machine until this run ends")
	return nil
}

// restore takes the controller back, if a stage of this boot enabled it, no other stage is
// there, and nobody relies on it.
func (c *controller) restore() error {
	if c == nil {
		return nil
	}
	noted, err := os.ReadFile(recordPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read who enabled the cpu controller: %w", err)
	}
	boot, err := procstat.ReadBootID(c.fs)
	if err != nil {
		return err
	}
	if string(bytes.TrimSpace(noted)) != boot {
		return os.Remove(recordPath) // the kernel forgot it with the boot
	}
	user, err := c.user()
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(user, "/"+prefix):
		return nil // that stage takes it back
	case user != "":
		fmt.Fprintf(c.log, "the cpu controller stays on in the root cgroup: %s\n", user)
		return os.Remove(recordPath)
	}
	err = c.fs.WriteFile(c.file, []byte("-cpu"))
	if errors.Is(err, unix.EBUSY) { // somebody was faster than our look
		fmt.Fprintln(c.log, "the cpu controller stays on in the root cgroup: a group hands it down")
		err = nil
	}
	if err != nil {
		return fmt.Errorf("disable the cpu controller in the root group: %w", err)
	}
	return os.Remove(recordPath)
}

// user says who relies on the controller at the top, "" if nobody does: another stage, or
// who has it do what it would not do by itself.
func (c *controller) user() (string, error) {
	groups, err := c.cg.List()
	if err != nil && groups == nil {
		return "", err
	}
	user := ""
	for _, g := range groups {
		if strings.Count(g, "/") > 1 {
			continue
		}
		if strings.HasPrefix(g, "/"+prefix) {
			return g, nil
		}
		if user == "" {
			if why := c.uses(g); why != "" {
				user = g + " " + why
			}
		}
	}
	return user, nil
}

// uses says what a group does with the controller, "" for nothing. A group that cannot be
// read is gone.
func (c *controller) uses(group string) string {
	if on, err := c.cg.ReadSubtreeControl(group); err == nil && slices.Contains(on, cgroup.CPU) {
		return "hands it down"
	}
	if max, err := c.cg.ReadCPUMax(group); err == nil && (max.QuotaUsec >= 0 || max.BurstUsec > 0) {
		return "has a CPU limit"
	}
	if w, err := c.cg.ReadWeight(group); err == nil && w != defaultWeight {
		return "has a weight"
	}
	return ""
}

// defaultWeight is what cpu.weight is when nobody wrote it.
const defaultWeight = 100
