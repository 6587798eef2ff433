// What a page of the dashboard does in the browser: it writes times in the local zone, follows changes, and leaves people alone while they
// type. No part of it makes markup from data: all markup comes from the server, which escapes it.
"use strict";

(() => {
  const live = document.getElementById("live");
  const connection = document.getElementById("connection");

  // "95s", "3m10s", "47m", "2h5m", "3d4h": as `rendering.how_long` of the server.
  function age(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    const two = (large, name, small, smaller) => {
      const rest = Math.floor((whole % large) / small);
      return `${Math.floor(whole / large)}${name}${rest ? rest + smaller : ""}`;
    };
    if (whole < 120 && whole !== 60) return `${whole}s`;
    if (whole < 600) return two(60, "m", 1, "s");
    if (whole < 3600) return `${Math.floor(whole / 60)}m`;
    if (whole < 172800) return two(3600, "h", 60, "m");
    return two(86400, "d", 3600, "h");
  }

  function writeTimes(within) {
    const now = Date.now();
    for (const element of within.querySelectorAll("time[data-kind], text[data-time]")) {
      const at = Date.parse(element.getAttribute("datetime") || element.dataset.time);
      if (Number.isNaN(at)) continue;
      const local = new Date(at);
      const day = local.toDateString() === new Date(now).toDateString();
      const clock = day ? local.toLocaleTimeString() : local.toLocaleString();
      const left = (at - now) / 1000;
      let text = clock;
      if (element.dataset.kind === "since") text = age(-left);
      if (element.dataset.kind === "ago") text = `${age(-left)} ago`;
      if (element.dataset.kind === "until") text = left >= 1 ? `in ${age(left)}` : "now";
      if (element.dataset.kind === "end") text = left >= 1 ? `ends in ${age(left)}` : `was to end ${age(-left)} ago`;
      if (element.dataset.kind === "hour") text = local.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      if (element.dataset.kind === "day") text = local.toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });
      if (element.textContent !== text) element.textContent = text;
      if (element.dataset.kind !== "at" && !element.title) element.title = local.toLocaleString();
    }
    for (const element of within.querySelectorAll("progress[data-end]")) {
      const begin = Date.parse(element.dataset.begin);
      const part = (now - begin) / Math.max(Date.parse(element.dataset.end) - begin, 1);
      element.value = Math.min(Math.max(part, 0), 1);
      element.classList.toggle("over", part > 1);
    }
  }

  function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  }

  // Rows that changed are exchanged one by one, so focus, selection and scrolling stay as they are; one of the same version stays itself.
  function exchangeRows(update) {
    const body = document.getElementById("rows");
    if (!body) return;
    const fresh = new Map();
    for (const html of Object.values(update.rows)) {
      const row = parsed(html).firstElementChild;
      fresh.set(row.id, row);
    }
    let next = body.firstElementChild;
    for (const uid of update.order) {
      const id = `job-${uid}`;
      const old = document.getElementById(id);
      let row = fresh.get(id) || old;
      if (!row) continue;
      if (old && row.dataset.version === old.dataset.version) row = old;
      if (old && row !== old) {
        const focused = old.contains(document.activeElement);
        if (next === old) next = row;
        old.replaceWith(row);
        row.classList.add("changed");
        if (focused) row.querySelector("a").focus();
      }
      if (row === next) next = row.nextElementSibling;
      else body.insertBefore(row, next);
    }
    while (next) {
      const gone = next;
      next = next.nextElementSibling;
      gone.remove();
    }
    document.getElementById("summary").replaceChildren(parsed(update.summary));
    document.dispatchEvent(new CustomEvent("rows", { detail: Object.keys(update.rows) }));
  }

  // While somebody types or has something open to confirm, the page stays as it is and takes the change afterwards.
  let waiting = null;
  function busy() {
    const active = document.activeElement;
    if (active && live.contains(active) && active.matches("input, select, textarea")) return true;
    return live.classList.contains("dragging") || Boolean(live.querySelector("details[open] form"));
  }

  // The element of the new content that stands for one of the old: the one with its id, its link, or its name.
  function successor(old) {
    if (old.id) return document.getElementById(old.id);
    if (old.matches("summary")) return document.getElementById(old.parentElement.id)?.querySelector("summary");
    const name = old.matches("a") ? "href" : "aria-label";
    const value = old.getAttribute(name);
    return value === null ? null : [...live.querySelectorAll(old.tagName)].find((element) => element.getAttribute(name) === value);
  }

  function exchangeAll(html) {
    if (busy()) {
      waiting = html;
      return;
    }
    waiting = null;
    const open = [...live.querySelectorAll("details[open][id]")].map((element) => element.id);
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const scrolled = [...live.querySelectorAll(".scroll")].map((element) => [element, element.scrollLeft, element.scrollTop]);
    live.replaceChildren(parsed(html));
    if (lit) relight();
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const [old, left, top] of scrolled) successor(old)?.scrollTo(left, top);
    if (focused) successor(focused)?.focus({ preventScroll: true });
    document.dispatchEvent(new Event("exchanged"));
  }

  // A job that is pointed at, or has the focus, lights up with what it waits for, wherever it is on the page, also after its content was exchanged.
  let lit = "";
  function relight() {
    const jobs = new Set(lit ? lit.split(" ") : []);
    let any = false;
    for (const element of live.querySelectorAll("[data-job]")) {
      const on = jobs.size > 0 && element.dataset.job.split(" ").some((job) => jobs.has(job));
      element.classList.toggle("lit", on);
      any = any || on;
    }
    live.classList.toggle("dims", any);
  }
  function light(event) {
    const away = event.type === "mouseleave" || event.type === "focusout";
    const at = away ? null : event.target.closest("[data-job]");
    const named = away ? null : event.target.closest("a[aria-label]:not([title])");
    if (named) named.title = named.getAttribute("aria-label");
    const jobs = at ? [at.dataset.job, at.dataset.waits].filter(Boolean).join(" ") : "";
    if (jobs === lit) return;
    lit = jobs;
    relight();
  }

  function say(text) {
    if (connection && connection.textContent !== text) connection.textContent = text;
  }

  // A page that nobody sees follows nothing: a browser has six connections to a site, and pages in more tabs than that would not load.
  let source = null;
  let ended = false;

  function rest() {
    if (source) source.close();
    source = null;
  }

  function follow() {
    if (source || ended || document.hidden) return;
    source = new EventSource(live.dataset.live);
    source.onopen = () => say("live");
    source.onmessage = (event) => {
      const update = JSON.parse(event.data);
      if (update.gone) {
        say("gone");
        ended = true;
        rest();
        return;
      }
      say(update.stale || "live");
      if (!update.stale) document.getElementById("stale")?.remove();
      if (update.order) exchangeRows(update);
      if (update.html !== undefined) exchangeAll(update.html);
      writeTimes(document);
      document.body.dataset.updates = String(Number(document.body.dataset.updates || 0) + 1);
    };
    source.addEventListener("over", () => {
      ended = true;
      rest();
      window.location.reload();
    });
    source.onerror = (event) => say(event.target.readyState === EventSource.CLOSED ? "not live: load the page again" : "connecting ...");
  }

  document.querySelector("header [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  for (const kind of ["mouseover", "mouseleave", "focusin", "focusout"]) live.addEventListener(kind, light);
  writeTimes(document);
  document.addEventListener("exchanged", () => writeTimes(document));
  setInterval(() => {
    writeTimes(document);
    if (waiting !== null && !busy()) exchangeAll(waiting);
  }, 1000);
  for (const select of document.querySelectorAll("form.filters select")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  document.addEventListener("keydown", (event) => {
    const field = document.getElementById("filter-text");
    if (event.key === "/" && field && !event.ctrlKey && !event.metaKey && !document.activeElement.matches("input, select, textarea")) {
      event.preventDefault();
      field.focus();
    }
  });
  if (live && live.dataset.live) {
    follow();
    document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
    window.addEventListener("pagehide", rest);
  }
})();
