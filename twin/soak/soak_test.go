package soak

import (
	"encoding/json"
	"hash/fnv"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
)

// fixedSeeds is how many seeds each test run plays, always the same ones.
const fixedSeeds = 80

// TestSeeds plays the fixed seeds, and one that is drawn from the commit, so that each
// commit also tries what none before it has.
func TestSeeds(t *testing.T) {
	drawn := commitSeed()
	t.Logf("the commit draws seed %d", drawn)
	for _, r := range [][2]uint64{{1, fixedSeeds}, {drawn, drawn}} {
		sum, err := Sweep(r[0], r[1], Options{}, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := sum.Print(&text); err != nil {
			t.Fatal(err)
		}
		t.Log(text.String())
		if sum.Failed > 0 {
			t.Fail()
		}
		if r[0] == r[1] {
			continue
		}
		for what, n := range map[string]int{
			"incidents": sum.Incidents, "missed targets": sum.Late, "caps": sum.Caps, "kills": sum.Kills, "limits put back": sum.Restored,
			"raises": sum.Raises, "places": sum.Places, "memory taken back": sum.Reclaims, "ages moved on": sum.Aged, "CPUs gone": sum.Faults["cpu-gone"],
			"foreign writes": sum.Faults["foreign"], "stops": sum.Faults["stop"], "roll-outs": sum.Faults["roll-out"], "ends of roll-outs": sum.Faults["roll-out-ends"], "groups gone": sum.Faults["group-gone"], "CPUs taken": sum.Faults["cpu-taken"],
			"OOM kills": sum.Faults["oom-kill"], "OOM kills of services": sum.Faults["oom-kill-LC"], "machines with full swap": sum.Faults["swap-full"],
		} {
			if n < 10 {
				t.Errorf("%d %s in %d seeds: too few for the test to prove anything", n, what, sum.Seeds)
			}
		}
	}
}

// commitSeed draws a seed above the fixed ones from the commit's hash; without a
// repository it is always the same.
func commitSeed() uint64 {
	h := fnv.New64a()
	if out, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil {
		_, _ = h.Write(out) // a hash takes all
	}
	return 1000 + h.Sum64()%1_000_000_000
}

// mended are seeds that failed once, by what was wrong.
var mended = map[string][]uint64{
	"the witness: an end that pressure had asked for was carried out after a roll-out had switched it off":                                        {26113960000039},
	"the witness: a stranger's limit of io.max had a number that was ours already":                                                                {26113880000615},
	"node/linux: a list on its way back, cut to the group above and with ours that a group below had still, passed for a stranger's":              {26113850000227},
	"an operator demoted whom remedy had just demoted, and remedy judged that":                                                                    {26113860003843},
	"remedy told only once that its step back was disturbed":                                                                                      {26113860004881},
	"node/linux: a class's group of a run before was tried again a minute later":                                                                  {26113790002309},
	"node/linux: a burst that was refused as it was put back passed for one without room, beside a greater one of ours that the kernel had taken": {26113790002551},
	"the hard cap capped whom it had demoted while balm had the same task on trial":                                                               {26113840002883},
	"policies saw a class of service that the ledger had forgotten, and a replay did not":                                                         {26113850000375},
	"io gave a task back in the turn in which remedy concluded its trial with a step back":                                                        {26113810001084},
	"the witness: an operator freed a task while its pages were on their way":                                                                     {26113800001377},
	"the hard cap held all best-effort tasks back, with them one that remedy had just told to end":                                                {26113780000411},
	"node/linux: a part of the L2s that the kernel forgot while a core was offline, between two looks, passed for a stranger's":                   {26113770003030, 26113770003778},
	"node/linux: a frozen task stayed so for half a minute, as another group's at its path could not be put back":                                 {26113770002045},
	"a burst without room, lowered before the quota that was put back, was no state that the journal knew":                                        {26113750001024},
	"a burst lowered for a quota that was refused all the same stayed low, and passed for a stranger's":                                           {26113730000722},
	"remedy moved a task onto CPUs that a stranger had just taken from it":                                                                        {26113730000163},
	"io halved a limit in the turn in which the hard cap began with the same task":                                                                {26113640001319},
	"the witness: services have ways of their own at each cache, also when all tasks are gone":                                                    {26113640001267},
	"the witness: memory that pressure had asked for came back after a roll-out had switched it off":                                              {26113640000828},
	"the witness: what disturbed the asking of policy memory was held against the limit that came after it":                                       {26113640000719},
	"kernel/cgroup: a list below a task that a short listing left out was taken for a copy of the one that is held above it":                      {26113610000562},
	"the witness: who was given up under a roll-out was ended beside the loop, just after the roll-out was over":                                  {26113620000200},
	"the witness: a controller that was taken and came back between two readings reads as cpu.max written anew beside a burst of ours":            {26113330000361},
	"a quota was raised from what had been found before, over a stranger's, where an earlier change was half done":                                {26112460010580},
	"the witness: a stranger's list of all CPUs, where an empty one was being put back when the guardian was killed":                              {26112470013165},
	"lists that were on their way back, of which a full disk took no note, were taken for a stranger's":                                           {26112510009178},
	"what the kernel struck from a list below a task, of CPUs that were offline for a while, was taken for a stranger's":                          {26112540018441},
	"a list below a task was forgotten before the one above it, where an end cut off what was noted of them":                                      {26112550008017},
	"a burst raised a quota over a greater one that a stranger wrote meanwhile":                                                                   {26112550012022},
	"the witness: a stranger gave a group without a list the one that is held above it":                                                           {26112560006880, 26112560008235},
	"the witness: a group was renamed while the agent was stopped":                                                                                {26112560011382},
	"what was left below a renamed task was taken for what was found there":                                                                       {26112560016290},
	"the witness: a group was made with the list of the one above, which was ours and had once been a stranger's":                                 {26112570005740},
	"a list below a renamed task was put back as far as there was room for it, before the task itself was found":                                  {26112570013859},
	"the witness: a stranger wrote again in the turn that reported his last word":                                                                 {26112540016059},
	"the witness: a stranger after the hold was given up or refused, before a new one took":                                                       {26112510001117, 26112530013422},
	"the witness: a stranger wrote what was found, less a CPU that was offline, while it could not be put back":                                   {26112680001107},
	"the witness: resctrl was mounted anew, and an operator freed a task's class in the turn that was told of it":                                 {26112680003622},
	"node/linux: memory was taken back from a group that was made anew under the path of the one that was meant":                                  {26112800002432},
	"engine: what was held of a task was forgotten with one knob of it, whose controller somebody had taken":                                      {26113500000019, 26113500000042, 26113500000061, 26113500000119, 26113500000149},
	"node/linux: a frozen task that was renamed was taken for gone, beside a group without a directory of its own":                                {26113250001056},
	"policy/remedy: a trial was void while pages were moved for it, and they went on moving for nobody":                                           {26113300001473},
	"policy/hardcap: a frozen task was capped, found to tell nothing and let go, once a second":                                                   {26113310000570},
	"policy/hardcap: all best-effort tasks were held back at once, with them one that another policy had on trial":                                {26113290000968},
	"node/linux: a task was held anew over a stranger's setting that a release, refused elsewhere, had left to him":                               {26112800000849},
	"node/linux: a stranger's burst under a raised quota kept the quota that was found from being put back for ever":                              {26113320000960},
	"engine: what a class of one task has of no policy's doing, as it follows the class of BE, was taken for a step":                              {26113320001790},
	"policies: what another policy did to a task between a hold's decision and the kernel's answer passed for the hold's effect":                  {26113650001070},
	"node/linux: a burst that is there beside a lower quota was lowered, as the quota was written and the kernel said it was not":                 {26113660000505},
	"the witness: who started a process made a directory anew that somebody had removed from one hierarchy":                                       {26113670000212},
	"node/linux: a task whose list could not be read while it was put back was forgotten, with a list of ours in a group that copied it":          {26113680001404},
	"balm: who came after it was said that nothing helps, and had less then, was not on trial":                                                    {26113690001658, 26113690001736},
}

// TestMended plays the seeds that failed once and still draw what they drew then.
func TestMended(t *testing.T) {
	for why, seeds := range mended {
		for _, seed := range seeds {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				r, err := Run(seed, Options{roomy: seed < drawnWhole, only: func(p *plan) { asItFailed(seed, p) }})
				if err != nil {
					t.Fatal(err)
				}
				if r.Failure != nil {
					t.Errorf("%s: %s: %s", why, r.Failure.Check, r.Failure.What)
				}
			})
		}
	}
}

// drawnWhole is from where on the seeds failed as they are drawn.
const drawnWhole = 26113320000000

// rolledOut is from where on they failed with roll-outs.
const rolledOut = 26113600000000

// drawnL2 is from where on machines had L2s that can be divided, and services parts of their ways.
const drawnL2 = 26113799000000

// asItFailed leaves out of a plan what came to the drawing after the seed had failed.
func asItFailed(seed uint64, p *plan) {
	p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.do == rollOut && seed < rolledOut })
	if seed < drawnL2 {
		p.l2Ways, p.config.Policies.CPU.Cache.L2Ways, p.config.Policies.CPU.Cache.Parts = 0, 0, ""
	}
	if seed >= drawnWhole {
		return
	}
	p.kernel, p.events = nil, slices.DeleteFunc(p.events, func(e event) bool { return e.do == taken || e.do == handDown })
	if p.moves = false; seed < 26112600000000 {
		p.rdt, p.recalls, p.config.Policies.CPU.CacheMode = false, false, model.ModeOff
	}
}

// TestWorkers: what comes out depends on the seeds alone.
func TestWorkers(t *testing.T) {
	play := func(workers int) string {
		sum, err := Sweep(1, 6, Options{Minutes: 2}, workers, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(sum)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if diff := cmp.Diff(play(1), play(4)); diff != "" {
		t.Errorf("four workers (-one +four):\n%s", diff)
	}
}

func TestBadOptions(t *testing.T) {
	for _, minutes := range []float64{-1, 1e9} {
		if _, err := Run(1, Options{Minutes: minutes}); err == nil {
			t.Errorf("%v minutes were played", minutes)
		}
	}
	if _, err := Sweep(2, 1, Options{}, 1, nil); err == nil {
		t.Error("a range that ends before it begins was played")
	}
}

// BenchmarkSeed reports how many times faster than life a seed is played.
func BenchmarkSeed(b *testing.B) {
	seed := uint64(0)
	for b.Loop() {
		seed++
		if _, err := Run(seed, Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(DefaultMinutes*60e9*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "x-life")
}
