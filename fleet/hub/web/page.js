"use strict";
// Which page is shown, and when again.
let entered = false, view, way, timer, turn = 0;
// #token=…&view=… comes in by one click: what is behind # is sent to nobody, and it does not stay in the address.
if (location.hash.startsWith("#token=")) {
  const q = new URLSearchParams(location.hash.slice(1));
  token = q.get("token"); sessionStorage.setItem("token", token);
  history.replaceState(null, "", "#" + (q.get("view") || "fleet"));
}
const enter = document.getElementById("enter"), box = document.getElementById("what");
const buttons = ["fleet", "incidents", "jobs", "ask", "audit"];
for (const name of buttons) nav.append(el("button", { textContent: views[name].title, id: "nav-" + name, onclick: () => { location.hash = name; } }));

const plain = s => { try { return decodeURIComponent(s); } catch { return s; } }; // an address may be anything

// go reads the address.
function go() {
  [view, ...way] = (location.hash.slice(1) || "fleet").split("/").map(plain);
  if (!Object.hasOwn(views, view)) view = "fleet";
  if (view === "search" && document.activeElement !== box) box.value = way[0] || "";
  document.title = [views[view].title, ...way, "Commensal fleet"].join(" · ");
  for (const name of buttons) document.getElementById("nav-" + name).setAttribute("aria-current", String(name === (views[view].home || view)));
}

async function show() {
  clearTimeout(timer);
  const mine = ++turn, { show, every } = views[view], began = performance.now();
  enter.hidden = !!token || entered;
  try {
    const kids = await show(way);
    if (mine !== turn) return;
    entered = true; // without a token: by the browser's certificate
    enter.hidden = true;
    renew(main, kids.filter(Boolean));
    sweep();
    say.textContent = ""; say.className = "";
  } catch (e) {
    if (mine !== turn) return;
    say.textContent = e.message; say.className = "bad";
    if (e.code === 401) {
      if (!token && !entered) say.textContent = e.message.replace(/^expected.*/, ""); // nothing was tried yet
      token = ""; entered = false; sessionStorage.removeItem("token"); enter.hidden = false;
      main.replaceChildren(text("Enter a token. The first one is in the hub's folder, in admin.token; commensal-hub person add makes others."));
    }
  }
  // What takes long is asked seldom: a page that is left open has the hub busy for a tenth of the time at most.
  if ((token || entered) && every) timer = setTimeout(again, Math.max(every * 1000, 10 * (performance.now() - began)));
}

// again shows what is new, to whoever sees it.
function again() { if (!document.hidden) show(); else addEventListener("visibilitychange", again, { once: true }); }

addEventListener("hashchange", () => {
  go();
  main.replaceChildren(text("asking…", "dim"));
  sweep();
  if (document.activeElement === document.body) main.focus();
  show();
});
enter.addEventListener("submit", e => { e.preventDefault(); token = document.getElementById("token").value.trim(); sessionStorage.setItem("token", token); show(); });
document.getElementById("search").addEventListener("submit", e => {
  e.preventDefault();
  const to = "#search/" + encodeURIComponent(box.value.trim());
  if (location.hash === to) show(); else location.hash = to;
});

// / goes to the search, arrows from there through what was found and back.
addEventListener("keydown", e => {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  const on = document.activeElement, types = /^(INPUT|TEXTAREA|SELECT)$/.test(on.tagName);
  if (e.key === "/" && !types) { e.preventDefault(); box.focus(); box.select(); }
  if (view !== "search" || e.key !== "ArrowDown" && e.key !== "ArrowUp" || types && on !== box) return;
  const found = [box, ...main.querySelectorAll("tr a:first-child")].filter(a => a === box || a.closest("td").matches(":first-child"));
  const i = found.indexOf(on) + (e.key === "ArrowDown" ? 1 : -1);
  if (i >= 0 && i < found.length) { e.preventDefault(); found[i].focus(); }
});
go();
show();
