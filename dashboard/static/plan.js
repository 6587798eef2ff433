// The part of time that the plan shows: what is dragged over the chart, and keys on it, lead to an address that has it.
"use strict";

(() => {
  const live = document.getElementById("live");
  const KEYS = { "+": "in", "=": "in", "-": "out", 0: "reset", ArrowLeft: "earlier", ArrowRight: "later" };
  const SHORTEST_MS = 60000;
  let drag = null;
  let dropped = false;

  function drop() {
    if (drag?.mark) drag.mark.remove();
    live.classList.remove("dragging");
    drag = null;
  }

  function place(event) {
    return Math.min(Math.max(event.clientX, drag.box.left), drag.box.right);
  }

  function look(from, to) {
    const { begin, end } = document.getElementById("zooms").dataset;
    const [first, width] = [Date.parse(begin), Date.parse(end) - Date.parse(begin)];
    const at = (x) => first + (width * (x - drag.box.left)) / drag.box.width;
    const middle = at((from + to) / 2);
    const half = Math.max((at(Math.max(from, to)) - at(Math.min(from, to))) / 2, SHORTEST_MS / 2);
    const text = (ms) => `${new Date(ms).toISOString().slice(0, 19)}Z`;
    const parameters = new URLSearchParams(window.location.search);
    parameters.delete("hours");
    parameters.set("from", text(middle - half));
    parameters.set("to", text(middle - half + Math.ceil((2 * half) / 1000) * 1000));
    window.location.assign(`${window.location.pathname}?${parameters}#zooms`);
  }

  live.addEventListener("pointerdown", (event) => {
    const drawing = event.target.closest(".lane > svg");
    if (!drawing || event.button !== 0 || event.pointerType === "touch") return;
    drag = { box: drawing.getBoundingClientRect(), gantt: drawing.closest(".gantt"), from: event.clientX, mark: null };
  });
  document.addEventListener("pointermove", (event) => {
    if (!drag) return;
    if (!drag.mark && Math.abs(event.clientX - drag.from) > 6) {
      drag.mark = Object.assign(document.createElement("div"), { className: "zoomed" });
      drag.gantt.append(drag.mark);
      live.classList.add("dragging");
    }
    if (!drag.mark) return;
    const [x, left] = [place(event), drag.gantt.getBoundingClientRect().left];
    drag.mark.style.left = `${Math.min(x, drag.from) - left}px`;
    drag.mark.style.width = `${Math.abs(x - drag.from)}px`;
  });
  document.addEventListener("pointerup", (event) => {
    if (drag?.mark) {
      dropped = true;
      setTimeout(() => (dropped = false));
      look(drag.from, place(event));
    }
    drop();
  });
  document.addEventListener("pointercancel", drop);
  live.addEventListener("dragstart", (event) => event.target.closest(".gantt") && event.preventDefault());
  live.addEventListener("click", (event) => dropped && event.preventDefault(), true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") drop();
    if (event.ctrlKey || event.metaKey || event.altKey || !event.target.closest(".gantt, #zooms")) return;
    const link = document.getElementById(`zoom-${KEYS[event.key]}`);
    if (!link) return;
    event.preventDefault();
    link.click();
  });
  const told = () => live.querySelectorAll(".scripted").forEach((element) => (element.hidden = false));
  document.addEventListener("exchanged", told);
  told();
})();
