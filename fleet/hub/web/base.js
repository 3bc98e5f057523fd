"use strict";
// What all pages are made of. All text goes in by textContent: names come from machines that nobody here vouches for.
const main = document.getElementById("main"), say = document.getElementById("say"), nav = document.getElementById("nav");
const el = (tag, props, ...kids) => { const e = Object.assign(document.createElement(tag), props || {}); e.append(...kids.filter(k => k != null)); return e; };
const text = (words, cls) => el("p", { textContent: words, className: cls || "" });
const title = words => el("h2", { textContent: words });
const mark = (words, cls) => el("span", { textContent: words, className: cls });
const link = (words, ...way) => el("a", { textContent: words, href: "#" + way.map(encodeURIComponent).join("/") });

const num = (v, d = 3) => v == null ? "" : Number(v).toLocaleString("en", { maximumSignificantDigits: d });
const when = t => !t || t.startsWith("0001") ? "never" : new Date(t).toLocaleString();
const wall = msec => msec ? new Date(msec).toLocaleString() : "";
const day = msec => new Date(msec).toISOString().slice(0, 10);
const silent = t => Date.now() - new Date(t) > 180e3;
const ago = t => {
  if (!t || t.startsWith("0001")) return "never";
  const s = Math.max(0, (Date.now() - new Date(t)) / 1000);
  return s < 120 ? Math.round(s) + " s ago" : s < 7200 ? Math.round(s / 60) + " min ago" : s < 172800 ? Math.round(s / 3600) + " h ago" : Math.round(s / 86400) + " days ago";
};
const bytes = b => { const u = ["B", "KiB", "MiB", "GiB", "TiB"]; let i = 0; while (b >= 1024 && i < 4) { b /= 1024; i++; } return num(b) + " " + u[i]; };

let token = sessionStorage.getItem("token") || "";

async function ask(path, body) {
  const r = await fetch(path, { method: body ? "POST" : "GET", headers: token ? { Authorization: "Bearer " + token } : {}, body: body && JSON.stringify(body) });
  const v = await r.json();
  if (!r.ok) throw Object.assign(new Error(v.error || r.statusText), { code: r.status });
  return v;
}
const query = o => new URLSearchParams(Object.entries(o).filter(([, v]) => v)).toString();
// rows asks in SQL and returns objects by column.
const rows = async (sql, args) => { const r = await ask("/v1/query", { sql, args }); return r.rows.map(x => Object.fromEntries(r.columns.map((c, i) => [c, x[i]]))); };

// table makes one of columns [title, of a row a text or a node, "n" for numbers]. A row is known again by its first link.
function table(list, columns, none) {
  if (!list.length) return text(none, "dim");
  const head = el("tr", {}, ...columns.map(c => el("th", { textContent: c[0], className: c[2] || "", scope: "col" })));
  const body = list.map(r => {
    const tr = el("tr", {}, ...columns.map(c => { const v = c[1](r); return el("td", { className: c[2] || "" }, v instanceof Node ? v : String(v ?? "")); }));
    tr.key = tr.querySelector("a")?.href;
    return tr;
  });
  return el("div", { className: "scroll", tabIndex: 0 }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
}

// renew makes an element's children what fresh ones are, and keeps those that it has already: focus, scrolling, a selection and what is typed stay, and with
// them what a kept element does when it is used. Rows with keys are taken for the same by these, all else by its place.
function renew(at, fresh) {
  const wanted = new Set(fresh.map(k => k.key).filter(Boolean));
  let old = at.firstChild;
  for (const k of fresh) {
    while (old && old.key && !wanted.has(old.key)) { const gone = old; old = old.nextSibling; gone.remove(); }
    if (old === k) { old = old.nextSibling; continue; }
    if (!old || old.nodeName !== k.nodeName || old.key !== k.key) { at.insertBefore(k, old); continue; }
    if (k.plan) replan(old, k.plan);
    else if (k.nodeType === Node.TEXT_NODE) { if (old.data !== k.data) old.data = k.data; }
    else {
      for (const name of new Set([...old.getAttributeNames(), ...k.getAttributeNames()])) {
        const value = k.getAttribute(name);
        if (name === "open" || old.getAttribute(name) === value) continue; // whether details are open is the reader's
        if (name === "style") old.style.cssText = k.style.cssText; // the other way is forbidden to these pages
        else if (value == null) old.removeAttribute(name);
        else old.setAttribute(name, value);
      }
      renew(old, [...k.childNodes]);
    }
    old = old.nextSibling;
  }
  while (old) { const gone = old; old = old.nextSibling; gone.remove(); }
}

// finder is a line that narrows a list, and goes through its pages. What is asked for stands in the address: view/match/only/after.
function finder(name, what, kinds, match, only, after, next) {
  const go = (...to) => { location.hash = [name, ...to].map(encodeURIComponent).join("/"); };
  const box = el("input", { type: "search", value: match, placeholder: what, ariaLabel: what });
  const kind = el("select", { ariaLabel: "which" }, ...kinds.map(([v, t]) => el("option", { value: v, textContent: t, selected: v === only })));
  kind.onchange = () => go(box.value, kind.value, "");
  const form = el("form", { className: "find", onsubmit: e => { e.preventDefault(); go(box.value, kind.value, ""); } }, box, kind, el("button", { textContent: "Find" }));
  if (after) form.append(el("button", { type: "button", textContent: "First page", onclick: () => go(match, only, "") }));
  if (next) form.append(el("button", { type: "button", textContent: "Next page", id: "next", onclick: () => go(match, only, next) }));
  return form;
}
