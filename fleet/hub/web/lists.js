"use strict";
// The pages that list things. A page is {title, every: seconds until it is shown anew, home: the button it belongs to, show: what it has}; way is what its
// address says after its name.
const views = {};
const incidentColour = s => ({ recovered: "good", "cannot-fix": "bad", verifying: "warn", holding: "warn", searching: "warn" })[s] || "";
const lastRound = inc => (inc.rounds || []).at(-1) || {};
const incidentColumns = [
  ["Opened", r => link(wall(r.opened_wall_nsec / 1e6), "incident", r.node, r.id)], ["Number", r => r.id], ["Node", r => link(r.node, "node", r.node)],
  ["Victim", r => `${r.victim_job} ${r.victim_path}`], ["Signal", r => r.source], ["Value", r => num(r.signal), "n"], ["Threshold", r => num(r.threshold), "n"],
  ["State", r => mark(r.state, incidentColour(r.state))], ["Antagonist", r => lastRound(r).chosen_path || ""], ["What came of it", r => lastRound(r).verdict || r.evidence || ""],
];
const nodeColumns = [
  ["Node", r => link(r.name, "node", r.name)], ["Last heard", r => mark(ago(r.seen), silent(r.seen) ? "warn" : "")], ["Platform", r => r.platform], ["Agent", r => r.program],
  ["Tasks", r => num(r.tasks, 9), "n"], ["Samples", r => num(r.samples, 9), "n"], ["Incidents", r => num(r.incidents, 9), "n"], ["Lost", r => r.lost || "", "n"],
  ["Refused", r => r.refused ? mark(`${r.refused}: ${r.why}`, "bad") : ""], ["", r => r.enrolled ? "" : mark("not enrolled", "warn")],
];
const published = (key, d) => r => r.s.published ? num(r.s[key], d) : "";
const jobColumns = [
  ["Job", r => r.s.samples ? link(r.j.job, "job", r.j.job, r.j.platform, r.s.signal, ...(r.j.size ? [r.j.size] : [])) : r.j.job], ["Platform", r => r.j.platform], ["Size", r => r.j.size || ""], ["Signal", r => r.s.signal],
  ["Sheet", r => r.j.revision ? r.j.revision + (r.j.pinned ? " pinned" : "") : "", "n"], ["Samples", r => num(Math.round(r.s.samples), 9), "n"], ["Tasks", r => r.s.tasks, "n"],
  ["Mean", published("mean", 4), "n"], ["Deviation", published("stddev"), "n"], ["Threshold", published("threshold", 4), "n"],
  ["p50", r => num(r.s.p50), "n"], ["p90", r => num(r.s.p90), "n"], ["p99", r => num(r.s.p99), "n"],
  ["", r => r.s.held ? mark("held back: " + r.s.held, "warn") : r.s.published ? "" : mark("not enough samples yet", "dim")],
];
const bySignal = jobs => jobs.flatMap(j => j.signals.map(s => ({ j, s })));

views.fleet = { title: "Fleet", every: 3, show: async way => {
  const [match, only, after] = [0, 1, 2].map(i => way[i] || "");
  const [s, page] = await Promise.all([ask("/v1/fleet"), ask("/v1/nodes?" + query({ match, only, after, limit: 100 }))]), n = s.nodes, r = s.rollout;
  return [
    text(`Version ${s.version}, since ${when(s.started)}. Nodes connect to ${s.nodes_connect_to}. ${s.jobs} jobs; ${s.waiting_rows} rows wait for the store.`),
    s.partitions > 1 ? text(`Shard ${s.shard}: of the fleet's ${s.partitions} partitions ${s.own_partitions.join(", ")} are this hub's, and all that follows is of their jobs.`) : null,
    s.off.off ? text(`The fleet's kill switch is on: ${s.off.by}, ${s.off.why || "no reason given"}. Nothing is held on any node.`, "bad") : null,
    ...s.protection.off.map(p => text(`Protection is off in the whole fleet for ${p.job || "all jobs"}: ${p.by}, ${p.why}.`, "bad")),
    r.id && r.halted ? text(`A roll-out by ${r.by} was halted: ${r.halted}.`, "bad") : null,
    r.id && !r.halted ? text(`A roll-out by ${r.by} (${r.why || "no reason given"}) is in force on ${r.in_force} nodes, ${r.percent} % of the fleet; ${r.refusing} refuse it.`, "warn") : null,
    s.problem ? text("Batches are not read: " + s.problem, "bad") : null,
    title("Nodes"),
    text(`${num(n.known, 9)} nodes, of which ${num(n.enrolled, 9)} are enrolled and ${num(n.heard, 9)} were heard; ${num(n.silent, 9)} of these are silent. Batches: ${num(n.batches, 9)}; lost ${num(n.lost, 9)}, refused ${num(n.refused, 9)} of ${num(n.refusing, 9)} nodes.`),
    finder("fleet", "part of a node's name", [["", "all"], ["silent", "silent for three minutes"], ["refused", "with refused batches"], ["lost", "with lost batches"], ["unknown", "not enrolled"]], match, only, after, page.next),
    table(page.nodes, nodeColumns, match || only || after ? "No node is so." : "No node is enrolled yet: commensal-hub node add NAME"),
    title("Store"), table(s.store, [["Table", r => r.table], ["Files", r => num(r.files, 9), "n"], ["Size", r => bytes(r.bytes), "n"]], ""),
  ];
} };

views.incidents = { title: "Incidents", every: 3, show: async () => [
  table(await ask("/v1/incidents?limit=200"), incidentColumns, "No incident since the hub was started. Older ones: search, or ask the store."),
] };

views.jobs = { title: "Jobs", every: 3, show: async way => {
  const [match, only, after] = [0, 1, 2].map(i => way[i] || ""), page = await ask("/v1/jobs?" + query({ match, only, after, limit: 100 }));
  return [finder("jobs", "part of a job's name", [["", "all"], ["held", "with specs that are held back"]], match, only, after, page.next),
    table(bySignal(page.jobs), jobColumns, match || only || after ? "No job is so." : "No samples yet.")];
} };

views.audit = { title: "Audit", every: 3, show: async () => [table((await ask("/v1/audit")).reverse(), [
  ["Time", r => when(r.time)], ["Who", r => `${r.who} (${r.role})`], ["What", r => r.what], ["Node", r => r.node || ""], ["Detail", r => r.detail ? JSON.stringify(r.detail) : ""],
  ["Why", r => r.why || ""], ["Result", r => r.result || ""],
], "Nothing was done since the hub was started. Older acts: SELECT * FROM audit")] };

// ask keeps its elements, and with them what is typed and the last answer, as long as the tab lives. What is asked again is what was asked, not what is typed.
const asking = { kids: null, to: el("div"), asked: null };
async function answer(fresh) {
  const { to, asked } = asking;
  if (fresh) to.replaceChildren(text("asking…", "dim"));
  try {
    const r = await ask("/v1/query", asked);
    if (asked !== asking.asked) return; // another question came in between
    renew(to, [text(`${r.rows.length} rows${r.truncated ? " and more" : ""}, ${num(r.seconds)} s`, "dim"),
      table(r.rows, r.columns.map((c, i) => [c, x => typeof x[i] === "number" ? num(x[i], Number.isInteger(x[i]) ? 17 : 6) : x[i], typeof (r.rows[0] || [])[i] === "number" ? "n" : ""]), "No rows.")]);
  } catch (e) { if (asked === asking.asked) to.replaceChildren(text(e.message, "bad")); }
}
views.ask = { title: "Ask", every: 10, show: async () => {
  if (asking.kids) {
    if (asking.asked && asking.again.checked && main.contains(asking.to)) await answer(false);
    return asking.kids;
  }
  const questions = await ask("/v1/questions");
  const box = el("textarea", { value: sessionStorage.getItem("sql") || "SELECT job, platform, count(*) AS samples, avg(cpu) AS cpu FROM samples GROUP BY ALL ORDER BY samples DESC", ariaLabel: "SQL" });
  const put = (sql, args) => { asking.asked = { sql, args }; answer(true); };
  const ready = questions.map(q => {
    const inputs = q.args.map(a => el("input", { placeholder: a, ariaLabel: a, size: 14 }));
    return el("form", { className: "find", onsubmit: e => { e.preventDefault(); box.value = q.sql.trim(); put(q.sql, inputs.map(i => i.value)); } }, el("button", { textContent: q.text }), ...inputs);
  });
  const run = el("button", { textContent: "Run", onclick: () => { sessionStorage.setItem("sql", box.value); put(box.value); } });
  asking.again = el("input", { type: "checkbox", checked: true });
  return asking.kids = [...ready, title("SQL on samples, decisions, incidents, specs, audit"), box, el("p", {}, run, " ", el("label", {}, asking.again, " ask again every 10 seconds")), asking.to];
} };

views.search = { title: "Search", show: async way => {
  const what = way[0] || "";
  if (!what.trim()) return [text("Type part of the name of a job, a node or a task, or of an incident's number, victim or antagonist.", "dim")];
  const f = await ask("/v1/search?" + query({ match: what, limit: 50 }));
  const kinds = [
    ["jobs", "Jobs", bySignal(f.jobs), jobColumns],
    ["nodes", "Nodes", f.nodes, nodeColumns],
    ["incidents", "Incidents", f.incidents, [
      ["Number", r => link(r.id, "incident", r.node, r.id)], ["Opened", r => wall(r.opened_msec)], ["Node", r => link(r.node, "node", r.node)], ["Victim", r => `${r.victim_job} ${r.victim}`],
      ["State", r => mark(r.state, incidentColour(r.state))], ["Antagonist", r => r.antagonist], ["Its job", r => r.antagonist_job]]],
    ["tasks", "Tasks", f.tasks, [["Task", r => link(r.task || "all", "node", r.node, r.task)], ["Job", r => r.job], ["Node", r => link(r.node, "node", r.node)]]],
  ];
  const found = kinds.filter(k => k[2].length);
  return [
    text(found.length ? `What has “${what}” in its name. Keys: ↓ and ↑ go through it, Enter opens, / searches anew.` : `Nothing has “${what}” in its name.`, "dim"),
    f.store ? text("Tasks and older incidents are missing: " + f.store, "warn") : null,
    ...found.flatMap(([kind, name, list, columns]) => [title(f.more.includes(kind) ? `${name}: the first ${kind === "jobs" ? f.jobs.length : list.length}; there are more` : `${name}: ${list.length}`), table(list, columns, "")]),
  ];
} };
