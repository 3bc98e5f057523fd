"use strict";
// All text goes in by textContent: names come from machines that nobody here vouches for.
const main = document.getElementById("main"), say = document.getElementById("say"), nav = document.getElementById("nav");
const el = (tag, props, ...kids) => { const e = Object.assign(document.createElement(tag), props || {}); e.append(...kids.filter(k => k != null)); return e; };
const num = (v, d = 3) => v == null ? "" : Number(v).toLocaleString("en", { maximumSignificantDigits: d });
const when = t => !t || t.startsWith("0001") ? "never" : new Date(t).toLocaleString();
const wall = ns => ns ? new Date(ns / 1e6).toLocaleString() : "";
const ago = t => { if (!t || t.startsWith("0001")) return "never"; const s = Math.max(0, (Date.now() - new Date(t)) / 1000); return s < 120 ? Math.round(s) + " s ago" : s < 7200 ? Math.round(s / 60) + " min ago" : s < 172800 ? Math.round(s / 3600) + " h ago" : Math.round(s / 86400) + " days ago"; };
const bytes = b => { const u = ["B", "KiB", "MiB", "GiB", "TiB"]; let i = 0; while (b >= 1024 && i < 4) { b /= 1024; i++; } return num(b) + " " + u[i]; };

const link = (text, ...way) => el("a", { textContent: text, href: "#" + way.map(encodeURIComponent).join("/") });

let token = sessionStorage.getItem("token") || "", entered = false, view, way, timer;
// #token=…&view=… comes in by one click: what is behind # is sent to nobody, and it does not stay in the address.
if (location.hash.startsWith("#token=")) {
  const q = new URLSearchParams(location.hash.slice(1));
  token = q.get("token"); sessionStorage.setItem("token", token);
  history.replaceState(null, "", "#" + (q.get("view") || "fleet"));
}
const go = () => { [view, ...way] = (location.hash.slice(1) || "fleet").split("/").map(decodeURIComponent); };
go();

async function ask(path, body) {
  const r = await fetch(path, { method: body ? "POST" : "GET", headers: token ? { Authorization: "Bearer " + token } : {}, body: body && JSON.stringify(body) });
  const v = await r.json();
  if (!r.ok) throw Object.assign(new Error(v.error || r.statusText), { code: r.status });
  return v;
}

// table makes one of columns [title, of a row a text or a node, "n" for numbers].
function table(rows, columns, none) {
  if (!rows.length) return el("p", { className: "dim", textContent: none });
  const head = el("tr", {}, ...columns.map(c => el("th", { textContent: c[0], className: c[2] || "", scope: "col" })));
  const body = rows.map(r => el("tr", {}, ...columns.map(c => { const v = c[1](r); return el("td", { className: c[2] || "" }, v instanceof Node ? v : String(v ?? "")); })));
  return el("div", { className: "scroll", tabIndex: 0 }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
}
const mark = (text, cls) => el("span", { textContent: text, className: cls });

const query = o => new URLSearchParams(Object.entries(o).filter(([, v]) => v)).toString();
// finder is a line that narrows a list, and goes through its pages. What is asked for stands in the address: view/match/only/after.
function finder(name, what, kinds, match, only, after, next) {
  const go = (...to) => { location.hash = [name, ...to].map(encodeURIComponent).join("/"); };
  const box = el("input", { type: "search", value: match, placeholder: what, ariaLabel: what });
  const kind = el("select", { ariaLabel: "which" }, ...kinds.map(([v, t]) => el("option", { value: v, textContent: t, selected: v === only })));
  kind.onchange = () => go(box.value, kind.value, "");
  const form = el("form", { className: "find", onsubmit: e => { e.preventDefault(); document.activeElement.blur(); go(box.value, kind.value, ""); } }, box, kind, el("button", { textContent: "Find" }));
  if (after) form.append(el("button", { type: "button", textContent: "First page", onclick: () => go(match, only, "") }));
  if (next) form.append(el("button", { type: "button", textContent: "Next page", id: "next", onclick: () => go(match, only, next) }));
  return form;
}

const views = {
  fleet: ["Fleet", async () => {
    const [match, only, after] = [0, 1, 2].map(i => way[i] || "");
    const [s, page] = await Promise.all([ask("/v1/fleet"), ask("/v1/nodes?" + query({ match, only, after, limit: 100 }))]), n = s.nodes;
    const lines = [`Version ${s.version}, since ${when(s.started)}. Nodes connect to ${s.nodes_connect_to}. ${s.jobs} jobs; ${s.waiting_rows} rows wait for the store.`];
    const out = [el("p", { textContent: lines[0] })];
    if (s.partitions > 1) out.push(el("p", { textContent: `Shard ${s.shard}: of the fleet's ${s.partitions} partitions ${s.own_partitions.join(", ")} are this hub's, and all that follows is of their jobs.` }));
    if (s.off.off) out.push(el("p", { className: "bad", textContent: `The fleet's kill switch is on: ${s.off.by}, ${s.off.why || "no reason given"}. Nothing is held on any node.` }));
    if (s.rollout.id) out.push(el("p", { className: s.rollout.halted ? "bad" : "warn", textContent: s.rollout.halted ? `A roll-out by ${s.rollout.by} was halted: ${s.rollout.halted}.` : `A roll-out by ${s.rollout.by} (${s.rollout.why || "no reason given"}) is in force on ${s.rollout.in_force} nodes, ${s.rollout.percent} % of the fleet; ${s.rollout.refusing} refuse it.` }));
    if (s.problem) out.push(el("p", { className: "bad", textContent: "Batches are not read: " + s.problem }));
    out.push(el("h2", { textContent: "Nodes" }), el("p", { textContent: `${num(n.known, 9)} nodes, of which ${num(n.enrolled, 9)} are enrolled and ${num(n.heard, 9)} were heard; ${num(n.silent, 9)} of these are silent. Batches: ${num(n.batches, 9)}; lost ${num(n.lost, 9)}, refused ${num(n.refused, 9)} of ${num(n.refusing, 9)} nodes.` }),
      finder("fleet", "part of a node's name", [["", "all"], ["silent", "silent for three minutes"], ["refused", "with refused batches"], ["lost", "with lost batches"], ["unknown", "not enrolled"]], match, only, after, page.next));
    out.push(table(page.nodes, [
      ["Node", r => link(r.name, "node", r.name)], ["Last heard", r => mark(ago(r.seen), Date.now() - new Date(r.seen) > 180e3 ? "warn" : "")], ["Platform", r => r.platform], ["Agent", r => r.program],
      ["Tasks", r => num(r.tasks, 9), "n"], ["Samples", r => num(r.samples, 9), "n"], ["Incidents", r => num(r.incidents, 9), "n"], ["Lost", r => r.lost || "", "n"],
      ["Refused", r => r.refused ? mark(`${r.refused}: ${r.why}`, "bad") : ""], ["", r => r.enrolled ? "" : mark("not enrolled", "warn")],
    ], match || only || after ? "No node is so." : "No node is enrolled yet: commensal-hub node add NAME"));
    out.push(el("h2", { textContent: "Store" }), table(s.store, [["Table", r => r.table], ["Files", r => num(r.files, 9), "n"], ["Size", r => bytes(r.bytes), "n"]], ""));
    return out;
  }],
  incidents: ["Incidents", async () => {
    const list = await ask("/v1/incidents?limit=200");
    const last = r => r.rounds && r.rounds.length ? r.rounds[r.rounds.length - 1] : {};
    const colour = s => ({ recovered: "good", "cannot-fix": "bad", verifying: "warn", holding: "warn", searching: "warn" })[s] || "";
    return [table(list, [
      ["Opened", r => link(wall(r.opened_wall_nsec), "incident", r.node, r.id)], ["Node", r => link(r.node, "node", r.node)], ["Victim", r => r.victim_job + " " + r.victim_path], ["Signal", r => r.source],
      ["Value", r => num(r.signal), "n"], ["Threshold", r => num(r.threshold), "n"], ["State", r => mark(r.state, colour(r.state))],
      ["Antagonist", r => last(r).chosen_path || ""], ["What came of it", r => last(r).verdict || r.evidence || ""],
    ], "No incident since the hub was started. Older ones: ask the store.")];
  }],
  jobs: ["Jobs", async () => {
    const [match, only, after] = [0, 1, 2].map(i => way[i] || ""), page = await ask("/v1/jobs?" + query({ match, only, after, limit: 100 }));
    const rows = page.jobs.flatMap(j => j.signals.map(s => ({ j, s })));
    return [finder("jobs", "part of a job's name", [["", "all"], ["held", "with specs that are held back"]], match, only, after, page.next), table(rows, [
      ["Job", r => r.s.samples ? link(r.j.job, "job", r.j.job, r.j.platform, r.s.signal) : r.j.job], ["Platform", r => r.j.platform], ["Signal", r => r.s.signal], ["Sheet", r => r.j.revision ? r.j.revision + (r.j.pinned ? " pinned" : "") : "", "n"],
      ["Samples", r => num(Math.round(r.s.samples), 9), "n"], ["Tasks", r => r.s.tasks, "n"], ["Mean", r => r.s.published ? num(r.s.mean, 4) : "", "n"], ["Deviation", r => r.s.published ? num(r.s.stddev) : "", "n"],
      ["Threshold", r => r.s.published ? num(r.s.threshold, 4) : "", "n"], ["p50", r => num(r.s.p50), "n"], ["p90", r => num(r.s.p90), "n"], ["p99", r => num(r.s.p99), "n"],
      ["", r => r.s.held ? mark("held back: " + r.s.held, "warn") : r.s.published ? "" : mark("not enough samples yet", "dim")],
    ], match || only || after ? "No job is so." : "No samples yet.")];
  }],
  ask: ["Ask", async () => {
    const box = el("textarea", { value: sessionStorage.getItem("sql") || "SELECT job, platform, count(*) AS samples, avg(cpu) AS cpu FROM samples GROUP BY ALL ORDER BY samples DESC", ariaLabel: "SQL" });
    const to = el("div");
    const run = async (sql, args) => {
      to.replaceChildren(el("p", { className: "dim", textContent: "asking…" }));
      try {
        const r = await ask("/v1/query", { sql, args });
        to.replaceChildren(el("p", { className: "dim", textContent: `${r.rows.length} rows${r.truncated ? " and more" : ""}, ${num(r.seconds)} s` }),
          table(r.rows, r.columns.map((c, i) => [c, x => typeof x[i] === "number" ? num(x[i], 6) : x[i], typeof (r.rows[0] || [])[i] === "number" ? "n" : ""]), "No rows."));
      } catch (e) { to.replaceChildren(el("p", { className: "bad", textContent: e.message })); }
    };
    const ready = (await ask("/v1/questions")).map(q => {
      const inputs = q.args.map(a => el("input", { placeholder: a, ariaLabel: a, size: 14 }));
      const b = el("button", { textContent: q.text, onclick: () => { box.value = q.sql.trim(); run(q.sql, inputs.map(i => i.value)); } });
      return el("p", {}, b, " ", ...inputs);
    });
    const go = el("button", { textContent: "Run", onclick: () => { sessionStorage.setItem("sql", box.value); run(box.value); } });
    return [...ready, el("h2", { textContent: "SQL on samples, decisions, incidents, specs, audit" }), box, go, to];
  }, true],
  audit: ["Audit", async () => [table((await ask("/v1/audit")).reverse(), [
    ["Time", r => when(r.time)], ["Who", r => `${r.who} (${r.role})`], ["What", r => r.what], ["Node", r => r.node || ""], ["Detail", r => r.detail ? JSON.stringify(r.detail) : ""], ["Why", r => r.why || ""], ["Result", r => r.result || ""],
  ], "Nothing was done since the hub was started. Older acts: SELECT * FROM audit")]],
};

// rows asks in SQL and returns objects by column.
const rows = async (sql, args) => { const r = await ask("/v1/query", { sql, args }); return r.rows.map(x => Object.fromEntries(r.columns.map((c, i) => [c, x[i]]))); };
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// chart draws lines; shade is a list of [from, to] on the x axis, and mark a level of the first line's scale.
function chart(title, data, series, options) {
  const at = el("div", { className: "chart" }), o = options || {};
  const axis = more => Object.assign({ stroke: css("--dim"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } }, more);
  const u = new uPlot({
    title, width: Math.min(1100, Math.max(320, main.clientWidth - 40)), height: 300, scales: Object.assign({ x: { time: !o.plain } }, o.scales),
    series: [{ label: o.x || "time" }, ...series.map(s => Object.assign({ width: 1.5, spanGaps: false, value: (_, v) => v == null ? "" : num(v, 4) }, s))],
    axes: [axis({}), axis({ scale: series[0].scale || "y" }), ...(o.right ? [axis({ scale: o.right, side: 1, grid: { show: false } })] : [])],
    hooks: {
      drawClear: [u => {
        u.ctx.save(); u.ctx.fillStyle = "rgba(200, 120, 0, .18)";
        for (const [a, b] of o.shade || []) { const x = u.valToPos(a, "x", true), w = u.valToPos(b, "x", true) - x; u.ctx.fillRect(Math.max(x, u.bbox.left), u.bbox.top, Math.max(0, Math.min(w, u.bbox.left + u.bbox.width - x)), u.bbox.height); }
        u.ctx.restore();
      }],
      draw: [u => {
        if (o.mark == null) return;
        const y = u.valToPos(o.mark, series[0].scale || "y", true);
        u.ctx.save(); u.ctx.strokeStyle = css("--bad"); u.ctx.setLineDash([6, 4]); u.ctx.beginPath(); u.ctx.moveTo(u.bbox.left, y); u.ctx.lineTo(u.bbox.left + u.bbox.width, y); u.ctx.stroke(); u.ctx.restore();
      }],
    },
  }, data, at);
  at.append(el("p", { className: "dim", textContent: o.text || "" }));
  return at;
}

const signalName = s => { if (!/^[a-z]+$/.test(s)) throw new Error("no signal " + s); return s; };
const day = ms => new Date(ms).toISOString().slice(0, 10);

views.incident = ["Incident", async () => {
  const [node, id] = way;
  const found = (await rows("SELECT document FROM incidents WHERE node = ? AND id = ? ORDER BY spool, batch DESC LIMIT 1", [node, id]))[0];
  if (!found) return [el("p", { textContent: `The store has no incident ${id} of ${node}; what just happened is there within seconds.` })];
  const inc = JSON.parse(found.document), sig = signalName(inc.source), last = (inc.rounds || []).at(-1) || {}, opened = inc.opened_wall_nsec / 1e6;
  const from = opened - 5 * 60e3, to = opened + 15 * 60e3, tasks = [inc.victim_path, last.chosen_path || inc.victim_path];
  const span = [node, day(from), day(to), Math.round(from), Math.round(to)];
  const samples = await rows(`SELECT epoch_ms(time) AS t, task, cpu, ${sig} AS v FROM samples WHERE node = ? AND date BETWEEN CAST(? AS DATE) AND CAST(? AS DATE) AND epoch_ms(time) BETWEEN ? AND ? AND task IN (?, ?) ORDER BY t`, [...span, ...tasks]);
  const told = await rows("SELECT epoch_ms(time) AS t, kind, taken_by, mode, task, reason FROM decisions WHERE node = ? AND date BETWEEN CAST(? AS DATE) AND CAST(? AS DATE) AND epoch_ms(time) BETWEEN ? AND ? AND (incident = ? OR task IN (?, ?)) ORDER BY t LIMIT 500", [...span, id, ...tasks]);
  const xs = [...new Set(samples.map(s => s.t))], at = new Map(xs.map((t, i) => [t, i])), value = xs.map(() => null), use = xs.map(() => null);
  for (const s of samples) { if (s.task === inc.victim_path) value[at.get(s.t)] = s.v; if (s.task === last.chosen_path) use[at.get(s.t)] = s.cpu; }
  const shade = [];
  for (const d of told) {
    if (d.task !== last.chosen_path) continue;
    if (d.kind === "cap" || d.kind === "demote") shade.push([d.t / 1e3, to / 1e3]);
    else if (shade.length && ["release", "taken-back"].includes(d.kind)) shade.at(-1)[1] = Math.min(shade.at(-1)[1], d.t / 1e3);
  }
  const suspects = (last.suspects || []).slice(0, 12);
  return [
    el("h2", { textContent: `${inc.victim_job} on ${node}: ${inc.state}` }),
    el("p", { textContent: `${sig} ${num(inc.signal, 4)}, threshold ${num(inc.threshold, 4)}, at ${wall(inc.opened_wall_nsec)}. ${inc.spec && inc.spec.sheet ? "Spec of the fleet, revision " + inc.spec.sheet + "." : "The node's own spec."} ${last.verdict || inc.evidence || ""}` }),
    xs.length ? chart(`${sig} of ${inc.victim_path}`, [xs.map(t => t / 1e3), value, use], [{ label: sig, stroke: css("--link"), scale: "y" }, { label: (last.chosen_path || "nobody") + " (CPU)", stroke: css("--warn"), scale: "cpu" }], { right: "cpu", shade, mark: inc.threshold, text: "Dashed: the threshold. Shaded: the antagonist is held." }) : el("p", { className: "dim", textContent: "The store has no samples of that time." }),
    el("h2", { textContent: "Suspects of the last round" }),
    table(suspects, [["Task", s => s.path], ["Job", s => s.job || ""], ["Class", s => s.class], [last.by_blame ? "Share of the waiting" : "Correlation", s => num(s.score), "n"], ["CPU", s => num(s.usage), "n"], ["Verdict", s => s.verdict]], "None."),
    el("h2", { textContent: "What was decided" }), table(told, decided, "Nothing."),
  ];
}, true];
const decided = [["Time", d => new Date(d.t).toLocaleString()], ["What", d => d.kind], ["By", d => d.taken_by + (d.mode ? " (" + d.mode + ")" : "")], ["Task", d => d.task], ["Why", d => d.reason]];

views.job = ["Job", async () => {
  const [job, platform, sig] = way;
  signalName(sig);
  const known = (await ask("/v1/jobs?" + new URLSearchParams({ job, limit: 1000 }))).jobs.find(j => j.platform === platform), s = known && known.signals.find(x => x.signal === sig);
  if (!s) return [el("p", { textContent: "The hub knows no such job." })];
  const width = Math.max((s.p99 - s.p50) / 12, s.p50 / 200, 1e-6);
  const where = `FROM samples WHERE job = ? AND platform = ? AND usable AND ${sig} IS NOT NULL AND date >= CAST(? AS DATE)`, since = day(Date.now() - 7 * 864e5);
  const bins = await rows(`SELECT floor(${sig} / CAST(? AS DOUBLE)) AS b, count(*) AS n ${where} AND ${sig} <= CAST(? AS DOUBLE) GROUP BY 1 ORDER BY 1`, [width, job, platform, since, 3 * (s.p99 || 1)]);
  const total = bins.reduce((a, b) => a + b.n, 0), xs = bins.map(b => (b.b + .5) * width);
  const normal = x => s.published && s.stddev > 0 ? Math.exp(-((x - s.mean) ** 2) / (2 * s.stddev ** 2)) / (s.stddev * Math.sqrt(2 * Math.PI)) * width : null;
  const hours = await rows(`SELECT epoch_ms(date_trunc('hour', time)) AS t, avg(${sig}) AS mean, quantile_cont(${sig}, 0.99) AS top, avg(cpu) AS cpu ${where} GROUP BY 1 ORDER BY 1`, [job, platform, since]);
  const clock = await rows(`SELECT hour, avg(${sig}) AS mean, avg(cpu) AS cpu ${where} GROUP BY 1 ORDER BY 1`, [job, platform, since]);
  return [
    el("h2", { textContent: `${job} on ${platform}: ${sig}` }),
    el("p", { textContent: s.published ? `Spec: ${num(s.mean, 4)} ± ${num(s.stddev)}, threshold ${num(s.threshold, 4)}; revision ${known.revision}${known.pinned ? ", pinned" : ""}.` : "Not enough samples for a spec yet." }),
    s.held ? el("p", { className: "warn", textContent: "Held back: " + s.held }) : null,
    xs.length > 1 ? chart("Distribution of a week's windows", [xs, bins.map(b => b.n / total), xs.map(normal)], [{ label: "share of windows", stroke: css("--link"), fill: "rgba(60, 120, 200, .2)", paths: uPlot.paths.bars({ size: [1] }) }, { label: "normal by the spec", stroke: css("--bad") }], { plain: true, x: sig }) : el("p", { className: "dim", textContent: "The store has no samples of the last week." }),
    hours.length > 1 ? chart("By the hour", [hours.map(h => h.t / 1e3), hours.map(h => h.mean), hours.map(h => h.top), hours.map(h => h.cpu)], [{ label: "mean", stroke: css("--link") }, { label: "p99", stroke: css("--warn") }, { label: "CPU a task", stroke: css("--good"), scale: "cpu" }], { right: "cpu", mark: s.published ? s.threshold : null, text: "Dashed: the threshold." }) : null,
    clock.length > 1 ? chart("By the hour of the day", [clock.map(h => Number(h.hour)), clock.map(h => h.mean), clock.map(h => h.cpu)], [{ label: "mean", stroke: css("--link") }, { label: "CPU a task", stroke: css("--good"), scale: "cpu" }], { plain: true, x: "hour, UTC", right: "cpu", mark: s.published ? s.threshold : null, text: "Means of a week. Dashed: the threshold." }) : null,
  ].filter(Boolean);
}, true];

views.node = ["Node", async () => {
  const [node] = way, now = Date.now();
  const use = await rows("SELECT epoch_ms(time_bucket(INTERVAL 1 minute, time)) AS t, class, sum(cpu) / count(DISTINCT time) AS cpu FROM samples WHERE node = ? AND date >= CAST(? AS DATE) AND epoch_ms(time) >= ? GROUP BY 1, 2 ORDER BY 1", [node, day(now - 6 * 36e5), now - 6 * 36e5]);
  const xs = [...new Set(use.map(u => u.t))], of = c => xs.map(t => { const u = use.find(u => u.t === t && u.class === c); return u ? u.cpu : null; });
  const told = await rows("SELECT epoch_ms(time) AS t, kind, taken_by, mode, task, reason FROM decisions WHERE node = ? ORDER BY time DESC LIMIT 300", [node]);
  return [
    el("h2", { textContent: node }),
    xs.length > 1 ? chart("CPU of the last six hours", [xs.map(t => t / 1e3), of("LC"), of("BE")], [{ label: "LC", stroke: css("--link") }, { label: "BE", stroke: css("--warn") }]) : el("p", { className: "dim", textContent: "The store has no samples of the last six hours." }),
    el("h2", { textContent: "What was decided, newest first" }), table(told, decided, "Nothing."),
  ];
}, true];

const shown = ["fleet", "incidents", "jobs", "ask", "audit"];
for (const [name, v] of Object.entries(views)) if (shown.includes(name)) nav.append(el("button", { textContent: v[0], id: "nav-" + name, onclick: () => { location.hash = name; } }));

// again shows what is new, but not while somebody types into what it would replace.
function again() {
  if (main.contains(document.activeElement) && /^(INPUT|SELECT)$/.test(document.activeElement.tagName)) timer = setTimeout(again, 1000);
  else show();
}

async function show() {
  clearTimeout(timer);
  if (!Object.hasOwn(views, view)) view = "fleet";
  const home = { incident: "incidents", job: "jobs", node: "fleet" }[view] || view;
  for (const name of shown) document.getElementById("nav-" + name).setAttribute("aria-current", String(name === home));
  document.getElementById("enter").hidden = !!token || entered;
  const at = view, where = location.hash;
  try {
    const kids = await views[at][1]();
    if (at !== view || where !== location.hash) return;
    entered = true; // without a token: by the browser's certificate
    document.getElementById("enter").hidden = true;
    main.replaceChildren(...kids);
    say.textContent = ""; say.className = "";
  } catch (e) {
    say.textContent = e.message; say.className = "bad";
    if (e.code === 401) {
      if (!token && !entered) say.textContent = e.message.replace(/^expected.*/, ""); // nothing was tried yet
      token = ""; entered = false; sessionStorage.removeItem("token"); document.getElementById("enter").hidden = false;
      main.replaceChildren(el("p", { textContent: "Enter a token. The first one is in the hub's folder, in admin.token; commensal-hub person add makes others." }));
    }
  }
  if ((token || entered) && !views[at][2]) timer = setTimeout(again, 3000);
}
addEventListener("hashchange", () => { go(); main.replaceChildren(el("p", { className: "dim", textContent: "asking…" })); show(); });
document.getElementById("enter").addEventListener("submit", e => { e.preventDefault(); token = document.getElementById("token").value.trim(); sessionStorage.setItem("token", token); show(); });
show();
