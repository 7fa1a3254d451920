// What pages do beyond links and forms: look again, keys, choosing. All of it works without this script.
"use strict";
(() => {
  const root = document.documentElement;
  const away = document.getElementById("away");
  const live = document.getElementById("live");
  const main = document.getElementById("main");
  const header = "X-Asyncmonolith-Fragment";
  const patience = 10_000; // ms for an answer
  const idleAfter = 30 * 60_000; // ms without a key or a pointer
  const every = Number(root.dataset.every) * 1000;
  const policy = window.trustedTypes
    ? trustedTypes.createPolicy("asyncmonolith", { createHTML: (text) => text })
    : { createHTML: (text) => text };

  // Looking again.
  let tag = "";
  let timer = 0;
  let asking = null;
  let active = Date.now();
  let leaving = -Infinity; // since when another page, or the answer to a form, is on its way
  let pressed = null; // what the pointer holds down
  let stopped = "";
  const clock = () => new Date().toISOString().slice(11, 19);
  let seen = clock(); // when the last answer came
  const came = new WeakMap(); // sections, as they came: dress changes them

  // say writes below the page, and what is urgent in the bar on top of it, which is also read out, once.
  function say(text, urgent) {
    away.hidden = !urgent;
    if (urgent) live.textContent = "";
    const place = urgent ? away : live;
    if (place.textContent !== text) place.textContent = text;
  }
  const canLook = () => every > 0 && !stopped && !document.hidden && main.querySelector("[data-live]");

  function plan() {
    clearTimeout(timer);
    if (!canLook()) { if (stopped) say(stopped, true); return; }
    if (Date.now() - active > idleAfter) { say("Paused after 30 minutes without input. Move the pointer to resume."); return; }
    timer = setTimeout(look, every);
  }

  async function look() {
    if (asking || !canLook()) return;
    const call = asking = new AbortController();
    const giveUp = setTimeout(() => call.abort(), patience);
    try {
      const headers = { [header]: "main" };
      if (tag) headers["If-None-Match"] = tag;
      const answer = await fetch(location.href, { headers, redirect: "manual", cache: "no-store", credentials: "same-origin", signal: call.signal });
      if (answer.type === "opaqueredirect" || answer.status === 401 || (answer.ok && !answer.headers.get(header))) {
        stopped = "You are not logged in. Reload the page.";
      } else if (answer.status === 403 || answer.status === 404) {
        stopped = "This page is no longer available. Reload the page.";
      } else if (answer.status === 200 && main.querySelector("#passes")) {
        location.replace(location.pathname + location.search); // it is there again, with its title and its tab
        return;
      } else if (answer.status === 200) {
        tag = answer.headers.get("ETag") || "";
        const late = replace(await answer.text());
        seen = clock();
        say(`Refreshed at ${seen}${late ? "; sections in use stay unchanged" : ""}.`);
      } else if (answer.status === 304) {
        seen = clock();
        say(`Refreshed at ${seen}.`);
      } else if (!main.querySelector("#passes")) { // that page says it already
        const why = answer.headers.get(header) === "error" ? await answer.text() : "Refresh failed.";
        say(`${why.trim()} This page is as of ${seen}.`, true);
      }
    } catch {
      say(`The server does not answer. This page is as of ${seen}.`, true);
    } finally {
      clearTimeout(giveUp);
      call.abort(); // what was not read of the answer holds a connection
      asking = null;
      plan();
    }
  }

  // replace puts new sections where old ones are, but for those that the user is busy with, and returns whether there were such.
  // Where there are others than before, all of main is new: loading the page again would take away what is outside of it, too.
  function replace(text) {
    const page = document.createElement("template");
    page.innerHTML = policy.createHTML(text);
    const here = [...main.querySelectorAll("[data-live]")];
    const there = new Map([...page.content.querySelectorAll("[data-live]")].map((section) => [section.id, section]));
    there.forEach(remember);
    const others = here.length !== there.size || here.some((old) => !there.has(old.id));
    let kept = false;
    if (others && !busy(main)) {
      main.replaceChildren(...main.querySelectorAll(":scope > .notice[role=status]"), page.content);
    } else {
      kept = others;
      for (const old of here) kept = !put(there.get(old.id), old) || kept;
    }
    if (kept) tag = ""; // it has to come again
    dress();
    return kept;
  }

  // put has a section take the place of an old one, if it says something else, and tells whether that could be.
  function put(section, old) {
    if (!section || came.get(section).isEqualNode(came.get(old))) return true;
    if (busy(old)) return false;
    const x = old.querySelector(".scroll")?.scrollLeft || 0;
    old.replaceWith(section);
    const box = section.querySelector(".scroll");
    if (box && x) box.scrollLeft = x;
    return true;
  }

  const remember = (section) => came.set(section, section.cloneNode(true));

  function busy(part) {
    if (Date.now() - leaving < patience) return true; // a second click has to find the same form
    if (part !== document.activeElement && part.contains(document.activeElement) || pressed && part.contains(pressed)) return true;
    if (part.querySelector("details[open]:not([data-shown]), dialog[open], .here") || [...part.querySelectorAll("input, select, textarea")].some(isFilledIn)) return true;
    const picked = getSelection();
    return Boolean(picked && !picked.isCollapsed && picked.containsNode(part, true));
  }

  // isFilledIn reports whether the user has chosen or written something else than what was there.
  function isFilledIn(field) {
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.options) return field.selectedIndex !== Math.max(0, [...field.options].findLastIndex((option) => option.defaultSelected));
    return field.value !== field.defaultValue;
  }

  // narrow hides the rows of a list whose names do not have the text of its filter.
  function narrow(field) {
    const text = field.value.trim().toLowerCase();
    for (const row of document.querySelectorAll(`#${field.dataset.narrow} tbody tr`)) {
      row.hidden = !row.querySelector("th").textContent.toLowerCase().includes(text);
    }
  }

  // localize writes times in the zone of the browser, if the user wants that.
  function localize() {
    if (root.dataset.zone !== "local") return;
    document.getElementById("zone").textContent = "Times are local, on the database's clock.";
    const today = new Date().toDateString();
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      const date = at.toDateString() === today ? "" : at.toLocaleDateString("en-US", { month: "short", day: "numeric" }) + ", ";
      time.textContent = date + at.toLocaleTimeString("en-GB");
    }
  }

  // Tables that are wider than the page say so, choosing counts, and lists are narrowed.
  function dress() {
    localize();
    for (const field of document.querySelectorAll("[data-narrow]")) narrow(field);
    for (const box of document.querySelectorAll(".scroll")) box.classList.toggle("over", box.scrollWidth > box.clientWidth + 1);
    for (const form of document.querySelectorAll("form[data-pick]")) count(form);
  }

  function count(form) {
    const n = form.querySelectorAll("input[name=id]:checked").length;
    const text = form.querySelector("[data-count]");
    if (text) text.textContent = n === 0 ? "None selected" : n === 1 ? "1 selected:" : `${n} selected:`;
    for (const button of form.querySelectorAll(".actions button")) button.disabled = n === 0;
  }

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-pick]");
    if (form) count(form);
  });

  document.addEventListener("input", (event) => { if (event.target.dataset.narrow) narrow(event.target); });

  for (const name of ["keydown", "pointermove", "pointerdown"]) {
    document.addEventListener(name, () => {
      const slept = Date.now() - active > idleAfter;
      active = Date.now();
      if (slept) look();
    }, { passive: true });
  }
  document.addEventListener("pointerdown", (event) => { pressed = event.target; }, { passive: true });
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => { pressed = null; }, { passive: true });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(timer); return; }
    active = Date.now(); // the user has come back
    look();
  });
  addEventListener("beforeunload", () => { leaving = Date.now(); });
  addEventListener("pageshow", () => dress());
  addEventListener("resize", dress, { passive: true });

  // A search that goes on by itself, until the user stops it.
  const goOn = document.querySelector("[data-go-on]");
  if (goOn) {
    const next = setTimeout(() => location.replace(goOn.href), 400);
    const stop = document.querySelector("[data-stop]");
    stop.hidden = false;
    stop.addEventListener("click", () => { clearTimeout(next); stop.hidden = true; });
  }

  // A form is sent once.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || form.action.endsWith("/export")) return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => { leaving = -Infinity; for (const form of document.forms) delete form.dataset.sent; });

  // Keys.
  let going = 0;
  const help = document.getElementById("help");
  const rows = () => [...main.querySelectorAll("tr[data-row]")];

  function move(by) {
    const all = rows();
    if (all.length === 0) return;
    const old = all.findIndex((row) => row.classList.contains("here"));
    const at = old < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, old + by));
    all[old]?.classList.remove("here");
    all[at].classList.add("here");
    (all[at].querySelector("[data-open]") || all[at].querySelector("a"))?.focus({ preventScroll: true });
    all[at].scrollIntoView({ block: "nearest" });
  }

  function choose() {
    const box = main.querySelector("tr.here input[type=checkbox]");
    if (box) box.click();
  }

  const keys = {
    "/": () => { const field = document.querySelector("[data-filter] input:not([type=hidden]), [data-filter] select"); field?.focus(); return Boolean(field); },
    j: () => move(1),
    k: () => move(-1),
    x: choose,
    r: () => location.replace(location.pathname + location.search), // with its hash it would not be loaded
    "?": () => help.showModal(),
    Escape: () => { main.querySelector("tr.here")?.classList.remove("here"); if (document.activeElement !== document.body) document.activeElement.blur(); return false; },
  };

  document.addEventListener("keydown", (event) => {
    if (root.dataset.keys !== "true" || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || help.open) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (going && Date.now() - going < 1500) {
      going = 0;
      const tab = document.querySelector(`.tabs a[data-key="${CSS.escape(event.key)}"]`);
      if (tab) { event.preventDefault(); location.assign(tab.href); return; }
    }
    going = event.key === "g" ? Date.now() : 0;
    if (Object.hasOwn(keys, event.key) && keys[event.key]() !== false) event.preventDefault();
  });

  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  main.querySelectorAll("[data-live]").forEach(remember);
  dress();
  plan();
})();
