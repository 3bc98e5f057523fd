package agent_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record/export"
	"github.com/commensal-io/commensal/slo"
)

// TestTargetMissed is a memcached that nobody but the probe asks, so that it uses next to no CPU, and that promises
// 25 ms; no spec is learned and no other signal may be used. A hog on its CPU makes it miss that: the hog alone is
// held, the target is met again and that is verified. A memcached that is stopped is red, and one that is gone grey.
func TestTargetMissed(t *testing.T) {
	path, err := exec.LookPath("memcached")
	if err != nil {
		t.Skipf("no memcached on this machine: %v", err)
	}
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs: the agent runs on the second")
	}
	b := newBed(t, "target", settings{mode: "enforce", judge: true})
	socket := filepath.Join(b.dir, "memcached")
	f, err := os.OpenFile(b.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A second's window of 250 requests: an antagonist's pauses show.
	_, err = f.WriteString("slo:\n  - {job: victim, kind: memcached, address: 'unix:" + socket + "', keys: [k], target: 25ms, poll: 4ms, window: 1s}\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{bed: b, victim: b.group("victim", unlimited), antagonist: b.group("be-antagonist", unlimited), bystander: b.group("be-bystander", unlimited)}
	for path, shares := range map[string]uint64{b.root: 262_144, s.victim: 8, s.antagonist: 8192} {
		if err := b.cg.WriteShares(path, shares); err != nil {
			t.Fatal(err)
		}
	}
	cmd, in := exec.Command("/bin/sh", "-c", `read go; exec taskset -c 0 "$0" -s "$1" -t 1 -m 16 -u root`, path, socket), (io.WriteCloser)(nil)
	if in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	if err := b.cg.MovePID(s.victim, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	s.start("steady", s.bystander, 1)
	p := b.agent()
	// The probe is the agent's: what else runs on this machine must not keep it waiting.
	own := b.group("own", unlimited)
	if err := errors.Join(b.cg.WriteShares(own, 262_144), b.cg.MovePID(own, p.cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() && len(b.processes()) > 0 {
			for _, inc := range b.status().Incidents {
				t.Log(b.must(0, "explain", inc.ID).out)
			}
		}
	}()
	colour := func(want slo.Colour) {
		t.Helper()
		last := ""
		defer func() { t.Logf("%s: %s", want, last) }()
		eventually(t, "it is "+want.String(), func() bool {
			st := b.status().SLO[0]
			last = st.Text
			return st.Colour == want
		})
	}
	for began := time.Now(); b.status().SLO[0].Colour != slo.Green; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > patience() {
			t.Skipf("this machine is too busy: undisturbed it is %s", b.status().SLO[0].Text)
		}
	}
	s.start("hog", s.antagonist, 0)
	defer s.quiet()
	var inc *model.Incident
	eventually(t, "the target is met again, and that is verified", func() bool {
		if b.read(s.victim) != unlimited || b.read(s.bystander) != unlimited {
			t.Errorf("not only the antagonist is held: %v", b.knobs())
			time.Sleep(time.Second)
			t.FailNow()
		}
		inc = s.incident(model.Recovered)
		return inc != nil
	})
	if inc.Source != model.SourceLatency || inc.Threshold != 25 || inc.Rounds[0].ChosenPath != s.antagonist {
		t.Errorf("%+v", inc)
	}
	t.Logf("latency %.1f ms, by blame %t: %.0f ms a second waited, usually %.0f ms; %.1f ms before, %.1f after",
		inc.Signal, inc.Rounds[0].ByBlame, inc.Rounds[0].WaitedNsec/1e6, inc.Rounds[0].UsualNsec/1e6, inc.Rounds[0].SignalBefore, inc.Rounds[0].SignalAfter)
	s.quiet()
	colour(slo.Green)
	time.Sleep(time.Second) // windows of 200 ms, at whose edges the engine is told
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	colour(slo.Red)
	_ = cmd.Process.Kill()
	colour(slo.Grey)
	time.Sleep(500 * time.Millisecond)
	p.stop(unix.SIGTERM)
	s.replays()
	if st := s.explain(inc.ID, "latency", "as its job promises", s.antagonist); st.SLO == nil || st.SLO.Opened.State != "red" {
		t.Errorf("%+v", st.SLO)
	}
	to := filepath.Join(b.dir, "tables")
	if _, err := export.JSONL(agent.RecordPath(b.dir+"/state"), to); err != nil {
		t.Fatal(err)
	}
	rows, err := os.ReadFile(filepath.Join(to, "latencies.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"green", "red", "grey"} {
		if !strings.Contains(string(rows), `"state":"`+state+`"`) {
			t.Errorf("no row of latencies is %s", state)
		}
	}
}
