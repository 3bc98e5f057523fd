"use strict";
// The pages of one incident, one job, one node and one task.
const signalName = s => { if (!/^[a-z]+$/.test(s)) throw new Error("no signal " + s); return s; };
const decided = [["Time", d => wall(d.t)], ["What", d => d.kind], ["By", d => d.taken_by + (d.mode ? ` (${d.mode})` : "")], ["Task", d => d.task], ["Why", d => d.reason]];
const decisionColumns = "epoch_ms(time) AS t, kind, taken_by, mode, task, incident, reason";

// What begins a hold and what ends one, by kinds of decisions.
const begins = ["cap", "demote", "nudge", "pool", "divide", "level", "freeze"], ends = ["release", "taken-back", "refute", "gone", "end", "kill-switch", "operator"];
const holdKinds = [...begins, ...ends].map(k => `'${k}'`).join(", ");

// holds says what was held when, of decisions in the order of time: {task: "" is all best-effort work, by, kind, incident, from, to: null while it lasts}. Of
// what only observes nothing is held.
function holds(told) {
  const all = [], open = new Map(), close = (h, t) => { h.to = t; open.delete(h.by + " " + h.task); };
  for (const d of told.filter(d => d.mode !== "observe")) {
    const operator = d.kind === "operator", key = `${d.taken_by} ${d.task}`;
    if (d.kind === "kill-switch") for (const h of [...open.values()]) close(h, d.t);
    else if (begins.includes(d.kind) || operator && /\b(caps|demotes) it\b/.test(d.reason)) {
      const h = open.get(key);
      if (h) { h.kind = d.kind; continue; } // it goes on, tighter or looser
      open.set(key, { task: d.task, by: d.taken_by, kind: d.kind, incident: d.incident, from: d.t, to: null });
      all.push(open.get(key));
    } else if (operator && /\bfrees it\b/.test(d.reason)) { for (const h of [...open.values()]) if (h.task === d.task) close(h, d.t); }
    else if (ends.includes(d.kind)) {
      const h = open.get(key) || open.get("operators " + d.task) || (d.kind === "release" && open.get(d.taken_by + " "));
      if (h) close(h, d.t);
    }
  }
  return all;
}
const holdColumns = [["Task", h => h.task || "best-effort work"], ["By", h => h.by], ["What", h => h.kind], ["Since", h => wall(h.from)], ["Until", h => h.to ? wall(h.to) : mark("it is held", "warn")]];

// bar draws a share: what was asked for as a line, and between which it lies as a thinner one.
function bar(v, asked, low, high) {
  const percent = x => 100 * Math.max(0, Math.min(1, x)) + "%";
  const part = (cls, from, to) => { const i = el("i", { className: cls }); i.style.left = percent(from); i.style.width = percent(to - from); return i; };
  return el("span", { className: "bar", ariaHidden: "true" }, part("fill", 0, v), high > low ? part("span", low, high) : null, asked > 0 ? part("asked", asked, asked) : null);
}

function suspects(r, node) {
  const blame = r.by_blame, asked = Math.max(r.threshold || 0, r.margin ? (r.median || 0) + r.margin : 0);
  return table(r.suspects || [], [
    ["Task", s => s.kind && s.kind !== "task" ? s.path : link(s.path, "node", node, s.path)], ["Job", s => s.job || ""], ["Class", s => s.class],
    [blame ? "Share of the waiting" : "Correlation", s => el("span", { className: "score" }, bar(s.score, asked, s.low, s.high), num(s.score) + (s.high > s.low ? ` (${num(s.low, 2)} to ${num(s.high, 2)})` : ""))],
    ...(blame ? [["Had the CPU", s => num(s.ran), "n"], ["Took the room", s => num(s.room), "n"]] : []),
    ["CPU", s => num(s.usage), "n"], ["Verdict", s => s.verdict],
  ], "None.");
}

// incidentNow is an incident as the hub heard of it last, or as the store has it.
async function incidentNow(node, id) {
  const known = (await ask("/v1/incidents?" + query({ node, limit: 2000 }))).find(i => i.id === id);
  if (known) return known;
  const found = (await rows("SELECT document FROM incidents WHERE node = ? AND id = ? ORDER BY spool, batch DESC LIMIT 1", [node, id]))[0];
  return found && JSON.parse(found.document);
}

// spanOf is the time that an incident's charts show, ms: five minutes before it, and what followed for ten minutes after it, six hours at most.
function spanOf(inc) {
  const opened = inc.opened_wall_nsec / 1e6, end = inc.closed_nsec ? opened + (inc.closed_nsec - inc.opened_nsec) / 1e6 : Date.now();
  return { opened, from: Math.round(opened - 5 * 60e3), to: Math.round(Math.min(Math.max(end + 10 * 60e3, opened + 15 * 60e3), opened + 6 * 36e5)) };
}

views.incident = { title: "Incident", every: 10, home: "incidents", show: async ([node, id]) => {
  const inc = await incidentNow(node, id);
  if (!inc) return [text(`The store has no incident ${id} of ${node}; what just happened is there within seconds.`)];
  const sig = signalName(inc.source), last = lastRound(inc), rounds = inc.rounds || [], { opened, from, to } = spanOf(inc);
  const chosen = [...new Set(rounds.flatMap(r => [...(r.members || []).map(m => m.path), r.chosen_path]))].filter(Boolean);
  const others = [...new Set([...chosen, ...rounds.flatMap(r => (r.suspects || []).filter(s => !s.kind || s.kind === "task").map(s => s.path))])].slice(0, 30);
  const tasks = [inc.victim_path, ...others], marks = tasks.map(() => "?").join(", ");
  // An answer has 10,000 rows: long incidents are shown by the mean of longer times.
  const step = Math.max(1, Math.ceil((to - from) / 1e3 * tasks.length / 9000)) * 1000;
  const samples = await rows(`SELECT epoch_ms(time) // ${step} * ${step} AS t, task, avg(cpu) AS cpu, avg(${sig}) AS v FROM samples WHERE node = ? AND date BETWEEN CAST(? AS DATE) AND CAST(? AS DATE) AND epoch_ms(time) BETWEEN ? AND ? AND task IN (${marks}) GROUP BY ALL ORDER BY t`, [node, day(from), day(to), from, to, ...tasks]);
  const before = from - 36e5; // a hold may be older than the incident
  const told = await rows(`SELECT ${decisionColumns} FROM decisions WHERE node = ? AND date BETWEEN CAST(? AS DATE) AND CAST(? AS DATE) AND epoch_ms(time) BETWEEN ? AND ? AND (incident = ? OR task IN (${marks}) OR kind IN (${holdKinds})) ORDER BY t LIMIT 5000`, [node, day(before), day(to), before, to, id, ...tasks]);
  const held = holds(told).filter(h => (h.to ?? to) > from && (h.incident === id || h.task === "" || tasks.includes(h.task)));
  const shade = held.map(h => ({ from: h.from / 1e3, to: (h.to ?? Math.min(to, Date.now())) / 1e3, colour: h.incident === id ? "--held" : "--other", strip: h.incident !== id }));
  const xs = [...new Set(samples.map(s => s.t))], at = new Map(xs.map((t, i) => [t, i])), lines = new Map(tasks.map(t => [t, xs.map(() => null)])), value = xs.map(() => null);
  for (const s of samples) { lines.get(s.task)[at.get(s.t)] = s.cpu; if (s.task === inc.victim_path) value[at.get(s.t)] = s.v; }
  const seconds = xs.map(t => t / 1e3), whom = last.chosen_path || others[0], seen = others.filter(t => lines.get(t).some(v => v != null));
  const legend = "Dashed: the threshold. Amber: held by this incident." + (held.some(h => h.incident !== id) ? " Violet, at the foot: held by something else." : "");
  return [
    title(`${inc.victim_job} on ${node}: ${inc.state}`),
    text(`Incident ${id}: ${sig} ${num(inc.signal, 4)}, threshold ${num(inc.threshold, 4)}, at ${wall(opened)}. ${inc.spec?.sheet ? `Spec of the fleet, revision ${inc.spec.sheet}.` : "The node's own spec."} ${last.verdict || inc.evidence || ""}`),
    xs.length ? chart(`${sig} of ${inc.victim_path}, and the CPU of ${whom || "nobody"}`, [seconds, value, ...(whom ? [lines.get(whom) || xs.map(() => null)] : [])],
      [{ label: sig }, ...(whom ? [{ label: `CPU of ${whom}`, colour: "--warn", scale: "cpu" }] : [])], { right: whom && "cpu", shade, level: inc.threshold, sync: "incident", text: legend }) : text("The store has no samples of that time.", "dim"),
    seen.length ? chart("CPU of all suspects", [seconds, ...seen.map(t => lines.get(t))], seen.map((t, i) => ({ label: t, colour: i, width: chosen.includes(t) ? 2.5 : 1.2, dash: i > 4 ? [6, 3] : undefined })), { shade, sync: "incident", text: "CPU-sec/sec. Thick: who was held, or would have been." }) : null,
    title("Rounds: who was held, and what followed"), table(rounds.map((r, i) => ({ ...r, i })), [
      ["", r => r.i + 1, "n"], ["Held", r => (r.members || []).map(m => m.path).join(", ") || r.chosen_path || "nobody"], ["To CPU", r => r.demoted ? "gives way" : r.cap ? num(r.cap) : "", "n"],
      ["Since", r => r.applied_nsec ? wall(opened + (r.applied_nsec - inc.opened_nsec) / 1e6) : ""], [`${sig} before`, r => r.signal_before ? num(r.signal_before, 4) : "", "n"],
      [`${sig} after`, r => r.signal_after ? mark(num(r.signal_after, 4), r.signal_after > inc.threshold ? "bad" : "good") : "", "n"], ["What came of it", r => r.verdict]], "None."),
    title("Suspects of the last round"), suspects(last, node),
    ...rounds.slice(0, -1).map((r, i) => el("details", {}, el("summary", { textContent: `Suspects of round ${i + 1}` }), suspects(r, node))),
    title("Holds of that time"), table(held, holdColumns, "Nothing was held."),
    title("What was decided"), table(told.filter(d => d.t >= from && (d.incident === id || tasks.includes(d.task))).slice(-500), decided, "Nothing."),
  ];
} };

// Densities by a spec: a normal distribution's, and a generalised extreme value distribution's where one was fitted (fleet/spec/gev.go).
const normal = s => x => Math.exp(-((x - s.mean) ** 2) / (2 * s.stddev ** 2)) / (s.stddev * Math.sqrt(2 * Math.PI));
const extreme = ({ location: m, scale, shape }) => x => {
  const y = 1 + shape * (x - m) / scale;
  if (y <= 0) return 0; // beyond where it ends
  const t = y ** (-1 / shape);
  return t ** (shape + 1) * Math.exp(-t) / scale;
};

views.job = { title: "Job", every: 30, home: "jobs", show: async ([job, platform, sig, size = ""]) => {
  signalName(sig);
  const known = (await ask("/v1/jobs?" + new URLSearchParams({ job, limit: 1000 }))).jobs.find(j => j.platform === platform && (j.size || "") === size), s = known && known.signals.find(x => x.signal === sig);
  if (!s) return [text("The hub knows no such job.")];
  const sized = size ? [size] : [];
  const width = Math.max((s.p99 - s.p50) / 12, s.p50 / 200, 1e-6);
  const where = `FROM samples WHERE job = ? AND platform = ? ${size && "AND size = ?"} AND usable AND ${sig} IS NOT NULL AND date >= CAST(? AS DATE)`, since = day(Date.now() - 7 * 864e5);
  const bins = await rows(`SELECT floor(${sig} / CAST(? AS DOUBLE)) AS b, count(*) AS n ${where} AND ${sig} <= CAST(? AS DOUBLE) GROUP BY 1 ORDER BY 1`, [width, job, platform, ...sized, since, 3 * (s.p99 || 1)]);
  const hours = await rows(`SELECT epoch_ms(date_trunc('hour', time)) AS t, avg(${sig}) AS mean, quantile_cont(${sig}, 0.99) AS top, avg(cpu) AS cpu ${where} GROUP BY 1 ORDER BY 1`, [job, platform, ...sized, since]);
  const clock = await rows(`SELECT hour, avg(${sig}) AS mean, avg(cpu) AS cpu ${where} GROUP BY 1 ORDER BY 1`, [job, platform, ...sized, since]);
  const total = bins.reduce((a, b) => a + b.n, 0), count = new Map(bins.map(b => [b.b, b.n])), level = s.published ? s.threshold : null;
  const least = bins.length ? bins[0].b - 1 : 0, most = bins.length ? Math.max(bins.at(-1).b, Math.floor((level || 0) / width)) + 1 : -1;
  const steps = Array.from({ length: Math.min(most - least + 1, 2000) }, (_, i) => least + i), xs = steps.map(b => (b + .5) * width), hoursOfDay = [...Array(24).keys()];
  const curve = s.fit ? extreme(s.fit) : s.published && s.stddev > 0 ? normal(s) : null;
  const named = s.fit ? `fitted GEV (${num(s.fit.location, 4)}, ${num(s.fit.scale)}, ${num(s.fit.shape)})` : "normal by the spec";
  const cpu = { label: "CPU a task", colour: "--good", scale: "cpu" };
  return [
    title(`${job} on ${platform}${size ? ", size " + size : ""}: ${sig}`),
    text(s.published ? `Spec: ${num(s.mean, 4)} ± ${num(s.stddev)}, threshold ${num(s.threshold, 4)}${s.fit ? " by the fitted distribution" : ""}; revision ${known.revision}${known.pinned ? ", pinned" : ""}.` : "Not enough samples for a spec yet."),
    s.held ? text("Held back: " + s.held, "warn") : null,
    xs.length > 1 ? chart("Distribution of a week's windows", [xs, steps.map(b => (count.get(b) || 0) / total), ...(curve ? [xs.map(x => curve(x) * width)] : [])],
      [{ label: "share of windows", fill: "--fill", bars: true }, ...(curve ? [{ label: named, colour: "--bad", width: 2 }] : [])], { plain: true, smooth: true, x: sig, at: level, text: level == null ? "" : "Dashed: the threshold." }) : text("The store has no samples of the last week.", "dim"),
    hours.length > 1 ? chart("By the hour", [hours.map(h => h.t / 1e3), hours.map(h => h.mean), hours.map(h => h.top), hours.map(h => h.cpu)],
      [{ label: "mean" }, { label: "p99", colour: "--warn" }, cpu], { right: "cpu", level, text: "Dashed: the threshold." }) : null,
    clock.length > 1 ? chart("By the hour of the day", [hoursOfDay, ...["mean", "cpu"].map(k => hoursOfDay.map(h => clock.find(c => Number(c.hour) === h)?.[k] ?? null))], [{ label: "mean" }, cpu],
      { plain: true, steps: [1, 2, 3, 6], x: "hour, UTC", right: "cpu", level, text: "Means of a week. Dashed: the threshold." }) : null,
  ];
} };

// A node, or one of its tasks.
views.node = { title: "Node", every: 10, home: "fleet", show: async ([node, task]) => {
  const now = Date.now(), of = task ? " AND task = ?" : "", args = task ? [task] : [];
  const status = (await ask("/v1/nodes?" + query({ node }))).nodes[0];
  const mine = (await ask("/v1/incidents?" + query({ node, limit: 200 }))).filter(i => !task || i.victim_path === task || (i.rounds || []).some(r => r.chosen_path === task));
  const use = await rows(`SELECT epoch_ms(time_bucket(INTERVAL 1 minute, time)) AS t, class, sum(cpu) / count(DISTINCT time) AS cpu FROM samples WHERE node = ? AND date >= CAST(? AS DATE) AND epoch_ms(time) >= ?${of} GROUP BY 1, 2 ORDER BY 1`, [node, day(now - 6 * 36e5), now - 6 * 36e5, ...args]);
  const tasks = await rows(`SELECT task, max(job) AS job, max(class) AS class, arg_max(cpu, time) AS cpu, max(epoch_ms(time)) AS t FROM samples WHERE node = ? AND date >= CAST(? AS DATE) AND epoch_ms(time) >= ?${of} GROUP BY task ORDER BY class DESC, cpu DESC LIMIT 1000`, [node, day(now - 36e5), now - 36e5, ...args]);
  const told = await rows(`SELECT ${decisionColumns} FROM (SELECT *, row_number() OVER (PARTITION BY kind IN (${holdKinds}) ORDER BY time DESC) AS nth FROM decisions WHERE node = ? AND date >= CAST(? AS DATE)${of}) AS d WHERE nth <= 300 ORDER BY t`, [node, day(now - 7 * 864e5), ...args]);
  const xs = [...new Set(use.map(u => u.t))], at = new Map(xs.map((t, i) => [t, i])), byClass = {};
  for (const u of use) (byClass[u.class] ||= xs.map(() => null))[at.get(u.t)] = u.cpu;
  const colours = { LC: "--link", BE: "--warn" }, classes = Object.keys(byClass).sort().reverse();
  return [
    task ? title(`${task} on ${node}`) : title(node),
    task ? el("p", {}, link("All of " + node, "node", node)) : null,
    status ? table([status], [...nodeColumns.slice(1), ["Roll-out", r => r.rollout ? mark(r.rollout.replace(/^!/, "refuses "), r.rollout[0] === "!" ? "bad" : "") : ""]], "") : text("The hub has not heard of such a node since it was started.", "warn"),
    xs.length > 1 ? chart("CPU of the last six hours", [xs.map(t => t / 1e3), ...classes.map(c => byClass[c])], classes.map(c => ({ label: c, colour: colours[c] || "--good" })), { text: "CPU-sec/sec by class, means of a minute." }) : text("The store has no samples of the last six hours.", "dim"),
    title("Incidents since the hub was started"), table(mine, incidentColumns.filter(c => c[0] !== "Node"), "None."),
    title("Held now, as far as decisions of the last week say"), table(holds(told).filter(h => !h.to), holdColumns, "Nothing."),
    title("Tasks of the last hour"), table(tasks, [["Task", t => link(t.task, "node", node, t.task)], ["Job", t => t.job], ["Class", t => t.class], ["CPU", t => num(t.cpu), "n"], ["Last window", t => wall(t.t)]], "None."),
    title("What was decided in the last week, newest first"), table(told.toReversed().slice(0, 300), decided, "Nothing."),
  ];
} };
