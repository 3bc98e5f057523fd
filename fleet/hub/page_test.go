package hub

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/model"
)

// hostile is a name that is markup to whoever takes it for that; so is the path of its task.
const (
	hostile     = `<img src=x onerror="document.title='owned'">`
	hostileTask = "/be <b>x</b>"
)

// scene is a fleet of two nodes that has something to show, and a browser to look at it with.
type scene struct {
	*bed
	chromium *browser
	nodes    []*testNode
	token    string // a viewer's
}

func startScene(t *testing.T) *scene {
	t.Helper()
	chromium := startBrowser(t)
	needSQL(t)
	cfg := testConfig(t.TempDir())
	cfg.Spec.Fit = true
	s := &scene{bed: startHub(t, cfg), chromium: chromium}
	s.token = s.bed.token("v", Viewer)
	for i := range 2 {
		name := fmt.Sprintf("node-%d", i)
		n := startNode(t, t.Context(), s.NodesURL(), name, enrol(t, s.dir, name), t.TempDir())
		t.Cleanup(func() { n.Close() })
		s.nodes = append(s.nodes, n)
	}
	for k := range 60 {
		for _, n := range s.nodes {
			if k == 30 {
				n.wall = n.wall.Add(time.Hour) // a day has more than one hour
			}
			n.window(2 + 0.02*float64(k%7))
		}
		time.Sleep(3 * time.Millisecond)
	}
	twoRounds(s.nodes[0])
	s.stored(2)
	if _, err := s.command(&person{Name: "ann", Role: Operator}, "node-0", wireCommand("cap", "/gone", hostile)); err != nil {
		t.Fatal(err)
	}
	return s
}

// stored waits until the store has all, and the hub so many incidents.
func (s *scene) stored(incidents int) {
	s.t.Helper()
	eventually(s.t, "all is in the store", func() bool {
		rows := s.store.Pending()
		s.mu.Lock()
		defer s.mu.Unlock()
		return rows == 0 && len(s.incidents) == incidents && s.nodes[0].Status().Waiting == 0
	})
}

func (s *scene) at(view string) string {
	return s.URL() + "/#token=" + s.token + "&view=" + url.QueryEscape(view)
}

// twoRounds is an incident as CPI²'s case 4: the first hold does not help, the second one does; another policy has best-effort work in a part of the cache
// meanwhile, and a third only observes.
func twoRounds(n *testNode) {
	n.wall = time.Now().Add(-25 * time.Minute)
	begin, mono := n.wall, n.mono
	tasks := []model.Task{
		{Num: 1, Path: "/web", Job: "web", Class: model.LC}, {Num: 2, Path: hostileTask, Job: hostile, Class: model.BE}, {Num: 3, Path: "/scan", Job: "scan", Class: model.BE},
		{Num: 4, Path: "/sim/worker-3", Job: "simulation", Class: model.BE}, {Num: 5, Path: "/index", Job: "index", Class: model.LC}, {Num: 6, Path: "/logs", Job: "logs", Class: model.BE},
	}
	decide := func(minute int, d model.Decision) {
		d.WallNsec = begin.Add(time.Duration(minute) * time.Minute).UnixNano()
		n.Gather.Event(n.mono, &d)
	}
	act := func(minute int, kind model.DecisionKind, policy, mode, path, incident string) {
		decide(minute, model.Decision{Kind: kind, Policy: policy, Mode: mode, Path: path, Incident: incident, Reason: hostile})
	}
	act(7, model.DecideCap, "", "enforce", "/scan", "i1")
	act(10, model.DecideRelease, "", "enforce", "/scan", "i1")
	act(12, model.DecideCap, "", "enforce", hostileTask, "i1")
	act(17, model.DecideRelease, "", "enforce", hostileTask, "i1")
	act(9, model.DecideDivide, model.PolicyCache, "enforce", "", "")
	act(8, model.DecideFreeze, model.PolicyPressure, "observe", "/logs", "")
	for k := range 120 {
		minute := float64(k) / 6
		cpi, cpu := 1.8+0.1*math.Sin(minute), []float64{2, 1.2 + 0.4*math.Sin(2*minute), 0.9 + 0.3*math.Cos(3*minute), 0.4, 1.5 + 0.1*math.Sin(5*minute), 0.2}
		if minute > 3 && minute < 12 || minute >= 17 {
			cpi, cpu[1] = cpi+1.2, cpu[1]+1.5
		}
		if minute >= 7 && minute < 10 {
			cpu[2] = 0.1
		}
		if minute >= 12 && minute < 17 {
			cpu[1] = 0.1
		}
		n.mono, n.wall = n.mono+10e9, n.wall.Add(10*time.Second)
		w := uplink.Window{MonoNsec: n.mono, WallNsec: n.wall.UnixNano(), Tasks: tasks}
		for i := range tasks {
			o := model.TaskObservation{Num: tasks[i].Num, CPU: model.Known(cpu[i])}
			for src := range model.NumSources {
				o.Signals[src] = model.Missing(model.Absent)
			}
			o.Signals[model.SourceCPI] = model.Known(cpi)
			w.Observed, w.Flags = append(w.Observed, o), append(w.Flags, 0) // no evidence of what is normal
		}
		n.Gather.Add(&w)
		n.Turn(n.mono + 1)
		time.Sleep(time.Millisecond)
	}
	suspects := func(held model.TaskNum) (list []model.Suspect) {
		for i, score := range []float64{0.46, 0.41, 0.36, 0.21, 0.05} {
			x := model.Suspect{Task: tasks[i+1].Num, Path: tasks[i+1].Path, Job: tasks[i+1].Job, Class: tasks[i+1].Class, Score: score, Usage: 1.1, Verdict: "passed over: " + hostile}
			if x.Task == held {
				x.Verdict = "held"
			}
			list = append(list, x)
		}
		return list
	}
	round := func(held model.TaskNum, path string, minute int64, after float64, verdict string) model.Round {
		return model.Round{Chosen: &held, ChosenPath: path, Cap: 0.1, Threshold: 0.35, AppliedNsec: mono + minute*60e9, SignalBefore: 3.02, SignalAfter: after, Verdict: verdict, Suspects: suspects(held)}
	}
	n.Gather.Incident(n.mono, &model.Incident{
		ID: "i1", VictimPath: "/web", VictimJob: "web", Source: model.SourceCPI, Signal: 3, Threshold: 2.2, OpenedNsec: mono + 5*60e9, ClosedNsec: mono + 14*60e9, OpenedWall: begin.Add(5 * time.Minute).UnixNano(),
		State: model.Recovered, Rounds: []model.Round{round(3, "/scan", 7, 2.98, "it did not help"), round(2, hostileTask, 12, 1.81, hostile)},
	})
	n.Gather.Incident(n.mono, byBlame(model.Verifying, n))
	n.window(2)
}

// byBlame is an incident of now, as far as it is.
func byBlame(state model.IncidentState, n *testNode) *model.Incident {
	held := model.TaskNum(4)
	list := []model.Suspect{{Task: 4, Path: "/sim/worker-3", Job: "simulation", Class: model.BE, Score: 0.62, Ran: 0.5, Room: 0.12, Low: 0.48, High: 0.71, Usage: 0.4, Verdict: "held"}}
	for _, path := range []string{"/scan", "/logs"} {
		list = append(list, model.Suspect{Task: 6, Path: path, Job: path[1:], Class: model.BE, Score: 0.11, Ran: 0.1, Room: 0.01, Low: 0.05, High: 0.2, Usage: 0.2, Verdict: "too little"})
	}
	return &model.Incident{
		ID: "i2", VictimPath: "/index", VictimJob: "index", Source: model.SourceCPI, Signal: 2.9, Threshold: 2.5, OpenedNsec: n.mono, OpenedWall: n.wall.UnixNano(), State: state,
		Rounds: []model.Round{{Chosen: &held, ChosenPath: "/sim/worker-3", Cap: 0.1, Threshold: 0.35, ByBlame: true, SignalBefore: 2.9, AppliedNsec: n.mono, Verdict: "it is watched", Suspects: list}},
	}
}

func TestPagesInABrowser(t *testing.T) {
	s := startScene(t)
	for _, test := range []struct {
		name string
		do   func(t *testing.T, s *scene)
	}{
		{"each page", eachPage}, {"search by keyboard", searchByKeyboard}, {"an incident goes on", incidentGoesOn}, {"the theme changes", themeChanges}, {"ask again", askAgain}, {"holds", holdsOfDecisions}, {"a curve of a fit", curveOfAFit},
	} {
		t.Run(test.name, func(t *testing.T) { test.do(t, s) })
	}
}

// eachPage: every page shows what it should, wide and narrow, light and dark; names that are markup are shown as text, nothing is asked of any other host, no
// script fails, and nothing sticks out at the side.
func eachPage(t *testing.T, s *scene) {
	job := "job/web/cpu/cpi"
	views := map[string][]string{
		"fleet":                             {"node-0", "node-1", ">cpu<", "samples"},
		"incidents":                         {"recovered", "/be &lt;b&gt;x&lt;/b&gt;", "&lt;img src=x onerror"},
		"jobs":                              {">web<", ">batch<", "Threshold", "part of a job"},
		"jobs/atc":                          {">batch<"},
		"jobs//held":                        {"No job is so."},
		"fleet/e-1":                         {"2 nodes, of which 2 are enrolled and 2 were heard", ">node-1<"},
		"fleet/none//":                      {"No node is so."},
		"fleet/" + url.PathEscape(hostile):  {"No node is so."},
		"ask":                               {"jobs that should not share a machine", "SQL on samples"},
		"audit":                             {"ann (operator)", "refused: no task", "&lt;img src=x"},
		"incident/node-0/i1":                {"web on node-0: recovered", "CPU of all suspects", `u-label">/sim/worker-3<`, "held by something else", "it did not help", ">1.81<", "Suspects of round 1", ">best-effort work<", ">cap<", "&lt;img src=x onerror"},
		"incident/node-0/i2":                {"index on node-0: verifying", "Share of the waiting", `class="span"`, "0.62 (0.48 to 0.71)"},
		job:                                 {"web on cpu: cpi", "<canvas", "Spec: ", "fitted GEV", "By the hour of the day"},
		"node/node-0":                       {"What was decided in the last week", ">cap<", "<canvas", ">i1<", ">/sim/worker-3<", "it is held"},
		"node/node-0/%2Fscan":               {"/scan on node-0", "All of node-0", "<canvas", "Held now, as far as decisions of the last week say</h2><p class=\"dim\">Nothing."},
		"__proto__":                         {"node-0"},
		"incident/node-0/own":               {"The store has no incident own"},
		"search/" + url.PathEscape("I"):     {">i1<", ">/sim/worker-3<", "Incidents: 2", "&lt;img"},
		"search/" + url.PathEscape(hostile): {"<h2>Incidents: 1</h2>", "Keys: ↓"},
		"search/%20":                        {"Type part of the name"},
	}
	for _, look := range []struct {
		width int
		theme string
	}{{1300, "light"}, {400, "dark"}} {
		for view, want := range views {
			p := s.chromium.open(t, look.width, 900, look.theme, s.at(view))
			dom := p.settled(want)
			for _, text := range want {
				if !strings.Contains(dom, text) {
					_, body, _ := strings.Cut(dom, "<body")
					t.Errorf("%s at %d lacks %q:\n%.6000s", view, look.width, text, body)
				}
			}
			if strings.Contains(dom, "<title>owned") || strings.Contains(dom, "<img") {
				t.Errorf("%s: a name became markup", view)
			}
			if wide := p.eval("document.documentElement.scrollWidth - innerWidth"); wide != "0" {
				t.Errorf("%s at %d: %s pixels stick out", view, look.width, wide)
			}
			p.eval("1") // what was logged until now is here
			for _, line := range p.Log {
				if strings.HasPrefix(line, "Runtime.exceptionThrown") || strings.Contains(line, "Error") || strings.Contains(line, "Refused") || strings.Contains(line, "violates") {
					t.Errorf("%s: %s", view, line)
				}
			}
			p.picture(regexp.MustCompile(`\W+`).ReplaceAllString(view, "-") + "-" + look.theme)
		}
	}
	for address, want := range map[string]string{"/#token=wrong": "the token is not known", "/": "Enter a token."} {
		if dom := s.chromium.open(t, 1300, 900, "light", s.URL()+address).settled([]string{want}); !strings.Contains(dom, want) || strings.Contains(dom, "expected the header") {
			t.Errorf("%s: %.2000s", address, dom)
		}
	}
}

// searchByKeyboard: from any page, without a mouse, to what has a text in its name.
func searchByKeyboard(t *testing.T, s *scene) {
	p := s.chromium.open(t, 1000, 700, "light", s.at("audit"))
	p.until("the page is there", `main.innerText.includes("ann (operator)")`)
	p.press("/", "W", "E", "B", "Enter")
	p.until("what was found is there", `main.innerText.includes("Incidents: 1") && main.innerText.includes("Tasks: 2")`)
	if at := p.eval("document.activeElement.id + ' ' + location.hash"); at != "what #search/WEB" {
		t.Errorf("the focus is on %s", at)
	}
	p.press("Down")
	if at := p.eval("document.activeElement.hash"); at != "#job/web/cpu/cpi" {
		t.Errorf("the first thing found is %s", at)
	}
	p.press("Down", "Up", "Down")
	if at := p.eval("document.activeElement.hash"); at != "#incident/node-0/i1" {
		t.Errorf("the second thing found is %s", at)
	}
	p.press("Enter")
	p.until("the incident is there", `main.innerText.includes("web on node-0: recovered")`)
	p.press("/")
	if at := p.eval("document.activeElement.id + ' ' + document.activeElement.value"); at != "what WEB" { // all of it is selected: what is typed takes its place
		t.Errorf("/ leads to %s", at)
	}
	p.press("Tab") // away from the box
	want, _ := strconv.Atoi(p.eval(`everything = [...document.querySelectorAll("a, button, input, summary, [tabindex='0']")].filter(e => e.checkVisibility()); everything.length`))
	for range want + 5 {
		p.eval("document.activeElement.reached = true")
		p.press("Tab")
	}
	if missed := p.eval("everything.filter(e => !e.reached && e.checkVisibility()).map(e => e.outerHTML).join()"); missed != "" || want < 15 {
		t.Errorf("of %d things Tab does not reach %s", want, missed)
	}
	p.eval("box.focus(); box.select(); 0")
	p.press("/", "b", "e", " ", "<", "b", "Enter") // the first of these is part of the name: the box has the focus
	p.until("the hostile task is there", `main.innerText.includes("Tasks: 2") && main.innerText.includes("/be <b>x</b>")`)
	if n := p.eval(`main.querySelectorAll("b, img").length + " " + document.title`); n != "0 Search · /be <b · Commensal fleet" {
		t.Errorf("names that became markup, and the title: %s", n)
	}
}

// incidentGoesOn: an open page follows its incident, and takes nothing from who reads it.
func incidentGoesOn(t *testing.T, s *scene) {
	p := s.chromium.open(t, 1000, 500, "dark", s.at("incident/node-0/i2"))
	p.until("it is there", `main.innerText.includes("verifying") && [...plots].length > 0`)
	p.eval(`[...document.links].find(a => a.textContent === "/sim/worker-3").focus(); scrollTo(0, 333); box.value = "half a wo"; plotWas = [...plots][0]; main.querySelector(".scroll").scrollLeft = 7; 0`)
	was := p.eval("`${scrollY} ${main.querySelector('.scroll').scrollLeft}`")
	s.nodes[0].Gather.Incident(s.nodes[0].mono, byBlame(model.Recovered, s.nodes[0]))
	s.nodes[0].window(2)
	p.until("it has recovered", `main.innerText.includes("index on node-0: recovered")`)
	if got := p.eval("`${scrollY} ${main.querySelector('.scroll').scrollLeft}`"); got != was {
		t.Errorf("scrolled to %s, was %s", got, was)
	}
	if got := p.eval(`document.activeElement.textContent + "; " + box.value + "; " + (plotWas === [...plots][0])`); got != "/sim/worker-3; half a wo; true" {
		t.Errorf("focus, what is typed, whether the chart is the same: %s", got)
	}
}

// themeChanges: page and charts follow, and all words and lines can be read on both.
func themeChanges(t *testing.T, s *scene) {
	p := s.chromium.open(t, 1000, 700, "light", s.at("incident/node-0/i1"))
	p.until("the charts are there", "plots.size === 2 && [...plots].every(p => p.u)")
	p.eval(`contrast = (a, b) => { // WCAG 2, 1.4.3
		const light = c => { const x = document.createElement("canvas").getContext("2d"); x.fillStyle = c; x.fillRect(0, 0, 1, 1);
			const [r, g, b] = [...x.getImageData(0, 0, 1, 1).data].map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
		const [x, y] = [light(a), light(b)].sort((a, b) => b - a); return (x + .05) / (y + .05); }; 0`)
	look := func() string {
		t.Helper()
		for _, bad := range []string{
			`["--ink", "--dim", "--bad", "--warn", "--good", "--link"].filter(c => contrast(css(c), css("--card")) < 4.5 || contrast(css(c), css("--back")) < 4.5).join()`,
			`[...Array(10).keys()].filter(i => contrast(hue(i), css("--card")) < 3).join()`,
			`[...plots].filter(p => p.u.axes.some(a => a.stroke(p.u) !== css("--dim"))).length || ""`,
		} {
			if got := p.eval(bad); got != "" {
				t.Errorf("cannot be read, or is of the other theme: %s: %s", bad, got)
			}
		}
		return p.eval(`css("--card") + [...plots].map(p => p.querySelector("canvas").toDataURL()).join()`)
	}
	light := look()
	p.theme("dark")
	p.until("it is dark", `css("--card") === "#1c2024" && [...plots][0].u.axes[0].stroke() === css("--dim")`)
	dark := look()
	p.theme("light")
	p.until("it is light again", `css("--card") === "#fff" && [...plots][0].u.axes[0].stroke() === css("--dim")`)
	if again := look(); light == dark || again[:4] != light[:4] {
		t.Error("the charts did not follow the theme")
	}
	p.eval(`main.querySelector(".chart").focus(); 0`)
	p.press("Right", "Right")
	if got := p.eval("[...plots][0].u.cursor.idx + ' ' + [...plots][1].u.cursor.idx"); got != "1 1" {
		t.Errorf("two steps by keyboard from the left: %s", got)
	}
	p.press("+")
	if got := p.eval("const u = [...plots][0].u; u.scales.x.max < u.data[0].at(-1)"); got != "true" {
		t.Error("+ does not zoom")
	}
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 420, "height": 700, "deviceScaleFactor": 1, "mobile": false})
	p.until("the charts are as narrow as the window", "[...plots].every(p => p.u.width < 400)")
}

// curveOfAFit: the curve is the distribution that was fitted, and the normal one where there is none.
func curveOfAFit(t *testing.T, s *scene) {
	p := s.chromium.open(t, 1000, 700, "light", s.at("job/web/cpu/cpi"))
	p.until("the fit is drawn", `main.innerText.includes("fitted GEV") && main.innerText.includes("by the fitted distribution")`)
	for _, c := range []struct{ curve, below, want string }{ // the paper's own curve: 90 % and 99 % of it are below these (SciPy, genextreme(0.0534, 1.73, 0.133))
		{"extreme({location: 1.73, scale: 0.133, shape: -0.0534})", "2.012015", "0.9000"}, {"extreme({location: 1.73, scale: 0.133, shape: -0.0534})", "2.272467", "0.9900"},
		{"normal({mean: 2, stddev: 0.5})", "2.5", "0.8413"},
	} {
		if got := p.eval(fmt.Sprintf("(() => { const f = %s; let sum = 0; for (let x = 0; x < %s; x += 1e-5) sum += f(x) * 1e-5; return sum.toFixed(4); })()", c.curve, c.below)); got != c.want {
			t.Errorf("%s: %s is below %s, want %s", c.curve, got, c.below, c.want)
		}
	}
	s.mu.Lock()
	for _, j := range s.learner.Jobs {
		for i := range j.Signals {
			if j.Apart != nil && j.Apart[i].Spec != nil { // as all are that are by a fit
				j.Apart[i].Spec.Tail = 0
			}
		}
	}
	s.mu.Unlock()
	p = s.chromium.open(t, 1000, 700, "light", s.at("job/web/cpu/cpi"))
	p.until("a normal distribution is drawn", `main.innerText.includes("normal by the spec") && !main.innerText.includes("GEV")`)
}

// holdsOfDecisions: what was held, by whom and until when, is what the decisions say, whoever ends it.
func holdsOfDecisions(t *testing.T, s *scene) {
	p := s.chromium.open(t, 1000, 700, "light", s.at("audit"))
	p.until("the page is there", `main.innerText.includes("ann (operator)")`)
	for _, c := range []struct{ told, want string }{
		{"cap hard_cap /a; step hard_cap /a; release hard_cap /a", "hard_cap /a 0-2"},
		{"cap hard_cap /a; demote hard_cap /a; cap io /a; gone io /a", "hard_cap /a 0-, io /a 2-3"},
		{"nudge hard_cap /a; refute hard_cap /a; cap hard_cap /b; taken-back hard_cap /b", "hard_cap /a 0-1, hard_cap /b 2-3"},
		{"divide cache ; release cache class best-effort, domain 0; freeze pressure /a; end pressure /a", "cache  0-1, pressure /a 2-3"},
		{"operator operators /a: ann caps it to 0.2 CPU for 60 s; release hard_cap /a; operator operators /a: ann demotes it for 60 s; operator operators /a: ann frees it", "operators /a 0-1, operators /a 2-3"},
		{"operator operators /a: ann turned protection off; release hard_cap /b", ""},
		{"cap hard_cap /a; level remedy /b; kill-switch operators ", "hard_cap /a 0-2, remedy /b 1-2"},
	} {
		got := p.eval(fmt.Sprintf(`holds(%q.split("; ").map((d, t) => { const [, kind, taken_by, task, reason] = d.match(/^(\S+) (\S+) ?([^:]*):? ?(.*)$/) || []; return { t, kind, taken_by, task, reason: reason || "" }; }))
			.map(h => h.by + " " + h.task + " " + h.from + "-" + (h.to ?? "")).join(", ")`, c.told))
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.told, got, c.want)
		}
	}
	if got := p.eval(`holds([{ t: 0, kind: "cap", taken_by: "hard_cap", mode: "observe", task: "/a", reason: "" }]).length`); got != "0" {
		t.Error("what only observes holds")
	}
}

// askAgain: an answer is kept current, and what is typed meanwhile stays and is not asked.
func askAgain(t *testing.T, s *scene) {
	p := s.chromium.open(t, 1000, 700, "light", s.at("ask"))
	p.until("it is there", `main.querySelector("textarea")`+" != null")
	p.eval(`const area = main.querySelector("textarea"); area.value = "SELECT epoch_ms(now()) AS x"; [...main.querySelectorAll("button")].find(b => b.textContent === "Run").click(); 0`)
	p.until("there is an answer", `main.innerText.includes("1 rows")`)
	was := p.eval(`main.querySelector("td").textContent`)
	p.eval(`main.querySelector("textarea").focus(); main.querySelector("textarea").value = "SELECT half"; 0`)
	p.until("it was asked again", fmt.Sprintf(`main.querySelector("td").textContent !== %q`, was))
	if got := p.eval(`document.activeElement.value`); got != "SELECT half" {
		t.Errorf("the text is %q", got)
	}
}
