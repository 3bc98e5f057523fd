"use strict";
// Charts (uPlot). Each is drawn from a plan, and again when the plan, the width or the theme changes.
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");
// hue is the colour of the i-th of many lines: neighbours are far apart, and each is readable on the theme's ground.
const hue = i => `hsl(${Math.round(210 + i * 137.5) % 360} 70% ${dark.matches ? 68 : 38}%)`;

const plots = new Set(); // that are on the page
const wide = new ResizeObserver(list => { for (const { target: p } of list) if (p.u && p.clientWidth > 0) p.u.setSize({ width: p.clientWidth, height: p.plan.o.height || 280 }); });
dark.addEventListener("change", () => plots.forEach(draw));

// chart draws lines over data[0]: seconds, or plain numbers where o.plain. A line is {label, colour: a variable of page.css or a number for hue, scale, fill,
// bars, width, dash}. o.shade is a list of {from, to, colour, strip: at the foot only} on the x axis in seconds, o.level a value of the first line, o.at one on
// the x axis, o.right the scale of the right axis, o.steps what the x axis may be divided by, o.sync a name that charts with one cursor share.
function chart(name, data, lines, o = {}) {
  const plot = el("div", { className: "plot" });
  plot.plan = { data: o.plain ? data : broken(data), lines, o };
  requestAnimationFrame(() => { if (plot.isConnected) { plots.add(plot); wide.observe(plot); draw(plot); } });
  return el("div", { className: "chart", tabIndex: 0, role: "figure", ariaLabel: name, onkeydown: e => press(e, plot) },
    el("h3", { textContent: name }), plot, text(o.text || "", "dim"), text("Keys: ← → read values, + − zoom, Esc all of it, 1 to 9 hide a line.", "dim keys"));
}

// broken puts a hole where nothing was measured for more than three times the usual: a line through it would say that something was.
function broken(data) {
  const xs = data[0], steps = xs.slice(1).map((x, i) => x - xs[i]), usual = steps.toSorted((a, b) => a - b)[steps.length >> 1];
  return data.map((column, c) => column.flatMap((v, i) => steps[i] > 3 * usual ? [v, c ? null : v + usual] : [v]));
}

// sweep lets go of charts that are on the page no more.
function sweep() {
  for (const p of plots) if (!p.isConnected) { plots.delete(p); wide.unobserve(p); p.u?.destroy(); }
}

// replan shows what is new, at the zoom that the reader chose.
function replan(plot, plan) {
  const labels = p => JSON.stringify(p.lines.map(l => l.label)), same = labels(plot.plan) === labels(plan), u = plot.u;
  plot.plan = plan;
  if (!u || !same) { draw(plot); return; }
  const { min, max } = u.scales.x, xs = u.data[0], zoomed = min > xs[0] || max < xs.at(-1);
  u.setData(plan.data);
  if (zoomed) u.setScale("x", { min, max });
}

function draw(plot) {
  const { data, lines, o } = plot.plan;
  plot.u?.destroy();
  const colour = (c, i) => typeof c === "number" ? hue(c) : css(c || "--link");
  const axis = more => ({ stroke: css("--dim"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") }, ...more });
  const first = lines[0].scale || "y", within = (u, min, max) => uPlot.rangeNum(Math.min(min ?? o.level, o.level), Math.max(max ?? o.level, o.level), .1, true);
  plot.u = new uPlot({
    width: plot.clientWidth || 320, height: o.height || 280, padding: [null, o.right ? null : 50, null, null], // with and without a right axis charts are as wide
    scales: { x: { time: !o.plain }, ...(o.level == null ? {} : { [first]: { range: within } }) }, cursor: o.sync ? { sync: { key: o.sync } } : {},
    series: [{ label: o.x || "time" }, ...lines.map(l => ({
      label: l.label, scale: l.scale || "y", stroke: colour(l.colour), width: l.width || 1.5, dash: l.dash, fill: l.fill && css(l.fill), spanGaps: false,
      points: o.smooth && { show: false }, paths: l.bars ? uPlot.paths.bars({ size: [1] }) : undefined, value: (_, v) => v == null ? "" : num(v, 4),
    }))],
    axes: [axis(o.steps ? { incrs: o.steps } : {}), axis({ scale: first }), ...(o.right ? [axis({ scale: o.right, side: 1, grid: { show: false } })] : [])],
    hooks: { drawClear: [u => shade(u, plot.plan.o)], draw: [u => rules(u, plot.plan)] },
  }, data, plot);
}

function shade(u, o) {
  const { left, top, width, height } = u.bbox, clip = x => Math.min(Math.max(u.valToPos(x, "x", true), left), left + width);
  u.ctx.save();
  for (const s of o.shade || []) {
    const high = s.strip ? height / 10 : height;
    u.ctx.fillStyle = css(s.colour);
    u.ctx.fillRect(clip(s.from), top + height - high, clip(s.to) - clip(s.from), high);
  }
  u.ctx.restore();
}

// rules draws the dashed lines of a level and of a place on the x axis.
function rules(u, { lines, o }) {
  const { left, top, width, height } = u.bbox, line = (x0, y0, x1, y1) => { u.ctx.beginPath(); u.ctx.moveTo(x0, y0); u.ctx.lineTo(x1, y1); u.ctx.stroke(); };
  u.ctx.save();
  u.ctx.beginPath(); u.ctx.rect(left, top, width, height); u.ctx.clip();
  u.ctx.strokeStyle = css("--bad"); u.ctx.lineWidth = 1.5 * devicePixelRatio; u.ctx.setLineDash([6, 4]);
  if (o.level != null) { const y = u.valToPos(o.level, lines[0].scale || "y", true); line(left, y, left + width, y); }
  if (o.at != null) { const x = u.valToPos(o.at, "x", true); line(x, top, x, top + height); }
  u.ctx.restore();
}

// press lets the keyboard do what a mouse does.
function press(e, { u }) {
  if (!u || e.ctrlKey || e.altKey || e.metaKey) return;
  const xs = u.data[0], { min, max } = u.scales.x, last = xs.length - 1, at = u.cursor.idx;
  const to = i => { const x = xs[Math.max(0, Math.min(last, i))]; u.setCursor({ left: u.valToPos(x, "x"), top: u.over.clientHeight / 2 }, true, true); };
  const zoom = by => { const mid = at == null ? (min + max) / 2 : xs[at]; u.setScale("x", { min: mid - (mid - min) * by, max: mid + (max - mid) * by }); };
  const does = {
    ArrowLeft: () => to(at == null ? last : at - 1), ArrowRight: () => to(at == null ? 0 : at + 1), Home: () => to(0), End: () => to(last),
    "+": () => zoom(.5), "-": () => zoom(2), Escape: () => u.setData(u.data),
  }[e.key] || (/^[1-9]$/.test(e.key) && u.series[e.key] && (() => u.setSeries(Number(e.key), { show: !u.series[e.key].show })));
  if (does) { e.preventDefault(); does(); }
}
