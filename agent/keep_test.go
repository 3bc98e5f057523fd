package agent_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/learned"
	"github.com/commensal-io/commensal/model"
)

// TestRestartKeepsWhatIsKnown: specs and protection that is off outlive a clean stop, a
// record of both runs replays, and a file that is damaged is put aside and said.
func TestRestartKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	b := newBed(t, "keep", settings{judge: true})
	b.group("victim", unlimited)
	s := &scene{bed: b, victim: b.groups[0]}
	s.start("steady", s.victim, 0)
	p := b.agent()
	eventually(t, "the victim has a spec", func() bool { return len(b.status().Specs) > 0 })
	b.must(0, "protect", "off", "victim")
	b.must(0, "protect", "off")
	file, said := learned.Path(b.dir+"/state"), regexp.MustCompile(`"protect_off":\s*\[\s*"[a-z]*",\s*"[a-z]*"\s*\]`)
	eventually(t, "what the operator said is kept", func() bool {
		text, _ := os.ReadFile(file)
		return said.Match(text)
	})
	p.killBoth() // it does not wait for the minute, nor for an orderly end

	p = b.agent()
	st := b.status()
	off := slices.Sorted(slices.Values(st.ProtectOff))
	if !slices.Equal(off, []string{"", "victim"}) || st.ModeNow != model.ModeObserve.String() {
		t.Errorf("protection is off for %q, the hard cap's mode is %s", off, st.ModeNow)
	}
	for _, pol := range st.Policies {
		if pol.Now == model.ModeEnforce {
			t.Errorf("%s enforces", pol.Name)
		}
	}
	if !strings.Contains(p.text(), "was learned before the agent was restarted") {
		t.Errorf("no spec was taken up:\n%s", p.text())
	}
	b.must(0, "protect", "on")
	p.stop(unix.SIGTERM)
	s.replays()

	if err := os.WriteFile(file, []byte("commensal-learned 1 crc32c=00000000\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = b.agent()
	st = b.status()
	if len(st.ProtectOff) != 0 || !slices.ContainsFunc(st.Warnings, func(w string) bool { return strings.Contains(w, file+".damaged") }) {
		t.Errorf("protection is off for %q; warnings %q", st.ProtectOff, st.Warnings)
	}
	p.stop(unix.SIGTERM)
}
