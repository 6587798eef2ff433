// Draws the charts of a page with uPlot (vendor/uPlot.min.js): curves over time, and bars. What they show is in the attribute data-chart, made
// by the server; what they say is in the text beside them, so nothing is lost where this script does not run.
"use strict";

(() => {
  const drawn = new Map();
  const schemes = window.matchMedia("(prefers-color-scheme: dark)");

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function clock(seconds) {
    return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  }

  // A small box beside the pointer with the values of the place.
  function tip(words) {
    let box;
    return {
      hooks: {
        init: (plot) => {
          box = document.createElement("div");
          box.className = "tip";
          plot.over.append(box);
          plot.over.addEventListener("mouseleave", () => (box.style.display = "none"));
        },
        setCursor: (plot) => {
          const { idx, left, top } = plot.cursor;
          const lines = idx === null || idx === undefined || left < 0 ? [] : words(idx);
          box.style.display = lines.length ? "block" : "none";
          box.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
          box.style.left = `${left + 12 + box.offsetWidth > plot.over.clientWidth ? left - 12 - box.offsetWidth : left + 12}px`;
          box.style.top = `${Math.max(0, Math.min(top, plot.over.clientHeight - box.offsetHeight))}px`;
        },
      },
    };
  }

  function axes(size) {
    const line = { stroke: colour("--line"), width: 1 };
    const common = { stroke: colour("--quiet"), font: "12px system-ui, sans-serif", ticks: { show: false } };
    return [
      { ...common, grid: { show: false }, size: 28 },
      { ...common, grid: line, size },
    ];
  }

  function curve(data) {
    const [horizontal, vertical] = axes(48);
    const unit = data.series.every((each) => each.unit === "%") ? "%" : "";
    return {
      series: [
        {},
        ...data.series.map((each, index) => ({
          label: each.name,
          stroke: colour(`--c${index % 4}`),
          width: 2,
          fill: index === 0 ? `${colour("--c0")}26` : undefined,
          points: { show: false },
        })),
      ],
      axes: [
        { ...horizontal, space: 80, values: (_, splits) => splits.map(clock) },
        { ...vertical, values: (_, splits) => splits.map((value) => `${value}${unit}`) },
      ],
      scales: { x: { time: true }, y: { range: (_, __, most) => [0, data.most || Math.max(most * 1.1, 4)] } },
      plugins: [tip((at) => [clock(data.times[at]), ...data.series.map((each) => `${each.name}: ${each.values[at]} ${each.unit}`)])],
    };
  }

  function bars(data, width) {
    const [horizontal, vertical] = axes(52);
    const paths = uPlot.paths.bars({ size: [0.72, 56], radius: 0.12 });
    const longest = Math.max(...data.labels.map((label) => label.length), 1);
    const every = Math.max(1, Math.ceil((data.labels.length * (longest * 7 + 12)) / Math.max(width - 60, 100)));
    const kind = (name, label) => ({ label, paths, fill: colour(name), stroke: colour(name), width: 0, points: { show: false } });
    return {
      series: [{}, kind("--c0", data.unit), kind("--c2", `${data.unit} late`)],
      axes: [
        {
          ...horizontal,
          splits: () => data.labels.map((_, index) => index),
          values: (_, splits) => splits.map((index) => (index % every ? "" : data.labels[index])),
        },
        vertical,
      ],
      scales: { x: { time: false, range: [-0.6, data.labels.length - 0.4] }, y: { range: (_, __, most) => [0, Math.max(most * 1.1, 4)] } },
      plugins: [tip((at) => [data.labels[at], `${Number(data.values[at].toPrecision(4))} ${data.unit}`])],
    };
  }

  // Parts on each other: each is drawn from the ground to the sum up to it, the highest first.
  function stack(data, width) {
    const base = bars({ labels: data.labels, values: [], late: [], unit: "" }, width);
    const paths = data.kind === "areas" ? undefined : base.series[1].paths;
    const hue = (name, index) => colour(name === "others" ? "--others" : `--c${index}`);
    const kind = (each, index) => ({
      label: each.name,
      paths,
      fill: hue(each.name, index),
      stroke: hue(each.name, index),
      width: data.kind === "areas" ? 1 : 0,
      points: { show: false },
    });
    const said = (value, unit) => `${Number(value.toPrecision(4)).toLocaleString()} ${unit}`;
    const edge = data.kind === "areas" ? [0, data.labels.length - 1] : [-0.6, data.labels.length - 0.4];
    return {
      ...base,
      series: [{}, ...data.series.map(kind).reverse()],
      scales: { ...base.scales, x: { time: false, range: edge } },
      plugins: [tip((at) => [data.labels[at], ...data.series.filter((each) => each.values[at]).map((each) => `${each.name}: ${said(each.values[at], each.unit)}`)])],
    };
  }

  function sums(data) {
    const whole = data.labels.map(() => 0);
    return data.series.map((each) => each.values.map((value, at) => (whole[at] += value)));
  }

  function values(data) {
    if (data.kind === "areas" || data.kind === "stacks") return [data.labels.map((_, index) => index), ...sums(data).reverse()];
    if (data.kind === "curve") return [data.times, ...data.series.map((each) => each.values)];
    const side = (late) => data.values.map((value, index) => (data.late[index] === late ? value : null));
    return [data.labels.map((_, index) => index), side(false), side(true)];
  }

  function draw(element) {
    const data = JSON.parse(element.dataset.chart);
    const size = { width: element.clientWidth, height: element.clientHeight };
    const make = { curve, bars, areas: stack, stacks: stack }[data.kind];
    const options = make(data, size.width);
    const old = drawn.get(element.id);
    if (old && old.element === element && old.text === element.dataset.chart) return;
    const plot = new uPlot(
      { ...size, ...options, legend: { show: false }, cursor: { y: false, points: { show: data.kind === "curve" }, drag: { x: false, y: false } } },
      values(data),
      element,
    );
    if (old) old.plot.destroy();
    drawn.set(element.id, { plot, element, text: element.dataset.chart });
    sizes.observe(element);
  }

  function drawAll() {
    for (const [id, each] of drawn) {
      if (!each.element.isConnected && !document.getElementById(id)) {
        each.plot.destroy();
        drawn.delete(id);
      }
    }
    for (const element of document.querySelectorAll(".chart[data-chart]")) draw(element);
  }

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const known = drawn.get(target.id);
      if (!target.isConnected) sizes.unobserve(target);
      else if (known && known.element === target && target.clientWidth) {
        known.plot.setSize({ width: target.clientWidth, height: target.clientHeight });
      }
    }
  });

  schemes.addEventListener("change", () => {
    for (const each of drawn.values()) each.text = "";
    drawAll();
  });
  document.addEventListener("exchanged", drawAll);
  drawAll();
})();
