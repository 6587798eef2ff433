// A row opens beside the list where there is room: what its page shows, loaded again when the row changes. Elsewhere, with another button or
// with a key held, and without this script, a row leads to the page.
"use strict";

(() => {
  const wide = window.matchMedia("(min-width: 75rem)");
  const AGAIN_MS = 3000;
  const beside = document.getElementById("beside");
  const split = document.getElementById("split");
  const inside = document.getElementById("beside-job");
  const title = document.getElementById("beside-title");
  let link = null;
  let loaded = 0;
  let later = 0;

  function busy() {
    return Boolean(inside.querySelector("details[open]")) || (inside.contains(document.activeElement) && document.activeElement.matches("input"));
  }

  async function load() {
    const wanted = link;
    loaded = Date.now();
    const answer = await fetch(wanted, { redirect: "follow" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const content = page.getElementById("live");
    if (link !== wanted) return;
    if (answer.redirected || !content) return window.location.assign(wanted);
    title.textContent = page.querySelector("h1").textContent;
    inside.replaceChildren(...content.childNodes);
    document.dispatchEvent(new Event("exchanged"));
  }

  function mark() {
    for (const row of document.querySelectorAll("#rows tr")) {
      const on = link && row.querySelector("th a").getAttribute("href") === link;
      if (on) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  async function open(address) {
    link = address;
    document.getElementById("beside-page").href = address;
    mark();
    await load();
    split.classList.add("open");
    beside.hidden = false;
    title.focus({ preventScroll: true });
  }

  function close() {
    const row = [...document.querySelectorAll("#rows th a")].find((each) => each.getAttribute("href") === link);
    link = null;
    beside.hidden = true;
    inside.replaceChildren();
    split.classList.remove("open");
    mark();
    if (row) row.focus();
  }

  document.getElementById("rows").addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    const other = event.target.closest("a");
    const address = row.querySelector("th a");
    if (!wide.matches || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if ((other && other !== address) || (!other && String(window.getSelection()))) return;
    event.preventDefault();
    open(address.getAttribute("href"));
  });
  document.getElementById("beside-close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => event.key === "Escape" && link && close());
  document.addEventListener("rows", (event) => {
    mark();
    if (!link || !event.detail.some((uid) => document.getElementById(`job-${uid}`)?.querySelector("th a").getAttribute("href") === link)) return;
    clearTimeout(later);
    later = setTimeout(() => link && !busy() && load(), Math.max(0, loaded + AGAIN_MS - Date.now()));
  });
})();
