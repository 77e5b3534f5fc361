"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const { request, points, models, refused, published } = data;
const device = request.device;
const at = (id) => document.getElementById(id);

// Numbers.
const whole = (value) => Math.round(value).toLocaleString("en-US");
const digits = (value, count = 3) => Number(value.toPrecision(count)).toLocaleString("en-US", { maximumFractionDigits: 6 });
const short = (value) => {
  const steps = [[1e9, " G"], [1e6, " M"], [1e3, " k"]];
  const step = steps.find(([size]) => Math.abs(value) >= size);
  return step ? digits(value / step[0]) + step[1] : digits(value);
};
const percent = (share) => share >= 9.995 ? whole(share * 100) + " %" : (share * 100).toFixed(share < 0.0995 ? 1 : 0) + " %";
const half = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 1 });

const RESOURCES = [["lut", "LUT"], ["ff", "FF"], ["bram36", "BRAM36"], ["dsp", "DSP"]];
const AXES = [
  { key: "latency_us", label: "Latency, µs", better: "less", format: digits },
  { key: "throughput", label: "Transforms a second", better: "more", format: short },
  { key: "dsp", label: "DSP slices", better: "less", format: short },
  { key: "lut", label: "LUTs", better: "less", format: short },
  { key: "ff", label: "Flip-flops", better: "less", format: short },
  { key: "bram36", label: "Block memories of 36 Kbit", better: "less", format: short },
  { key: "bandwidth", label: "Peak I/O, GB/s", better: "less", format: short },
];
const cores = [...new Set(points.map((point) => point.core))];
const colour = (core) => `var(--s${cores.indexOf(core) % 5})`;
const of = (item, key) => item.amounts && key in item.amounts ? item.amounts[key] : item[key];

/** The name of a setting: the parameters in which settings differ. */
const varied = {};
for (const core of cores) {
  const own = points.filter((point) => point.core === core);
  varied[core] = Object.keys(own[0].parameters).filter((name) => new Set(own.map((point) => point.parameters[name])).size > 1);
}
const label = (point) => varied[point.core].map((name) => `${name}=${point.parameters[name]}`).join(" ") || "the only setting";
const status = (point) => point.front ? "on the front" : point.copy ? "on the front in another number" : point.feasible ? "dominated" :
  "too large: " + point.bounds.map((bound) => `${bound.what} ${percent(bound.share)}`).join(", ");

/** An element with attributes and children; text is never markup. */
const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const canvas = document.querySelector("#chart svg");
const draw = (name, attributes = {}, ...children) => {
  const element = document.createElementNS(canvas.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

// Head.
const facts = [
  ["Degree N", whole(request.n)],
  ["Modulus q", request.q_text],
  ["Transform", `${request.ring}, ${request.direction}`],
  ["Device", device.title],
  ["Clock", `${digits(request.clock_mhz, 5)} MHz${request.clock_assumed ? ", assumed" : ""}`],
  ["I/O bandwidth", request.bandwidth === null ? "not limited" : `${digits(request.bandwidth, 5)} GB/s`],
  ["Ranked by", request.goal],
];
at("request").append(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
const front = points.filter((point) => point.front);
const feasible = points.filter((point) => point.feasible);
at("summary").textContent = points.length === 0 ? "No core has a setting for this transform." :
  feasible.length === 0 ? `None of ${points.length} settings fits ${device.title}; the nearest is listed first.` :
  `${feasible.length} of ${points.length} settings fit, ${front.length} of them on the Pareto front of latency, throughput, DSP slices and LUTs.`;

// Chart.
const select = { x: at("x"), y: at("y") };
for (const axis of Object.values(select)) axis.append(...AXES.map(({ key, label: text }) => make("option", { value: key }, text)));
[select.x.value, select.y.value] = { latency: ["latency_us", "lut"], throughput: ["dsp", "throughput"], area: ["lut", "throughput"] }[request.goal];
if (feasible.length === 0) at("unfit").checked = true;
let chosen = points[0] ?? null;
let marks = [];

const shapes = {
  front: (r) => draw("circle", { class: "shape", r }),
  unfit: (r) => draw("path", { class: "shape", d: `M${-r},${-r}L${r},${r}M${-r},${r}L${r},${-r}` }),
  published: (r) => draw("path", { class: "shape", d: `M0,${-r}L${r},0L0,${r}L${-r},0Z` }),
};

const scale = (values, isLog, from, to) => {
  let low = Math.min(...values), high = Math.max(...values);
  if (!(low < high)) { low = isLog ? low / 2 : low - Math.max(1, low / 2); high = isLog ? high * 2 : high + Math.max(1, high / 2); }
  if (isLog) { const margin = (high / low) ** 0.07; low /= margin; high *= margin; }
  else { const margin = (high - low) * 0.07; low = low >= 0 ? Math.max(0, low - margin) : low - margin; high += margin; }
  const value = isLog ? Math.log : (v) => v;
  const map = (v) => from + (value(v) - value(low)) / (value(high) - value(low)) * (to - from);
  let ticks = [];
  if (isLog) {
    for (const steps of [[1], [1, 3], [1, 2, 5]]) {
      ticks = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
        for (const step of steps) { const v = Number((step * 10 ** power).toPrecision(6)); if (v >= low && v <= high) ticks.push(v); }
      if (ticks.length >= 4) break;
    }
  }
  if (ticks.length < 3) {
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    ticks = [];
    for (let v = Math.ceil(low / step) * step; v <= high; v += step) ticks.push(Number(v.toPrecision(6)));
  }
  return { map, ticks };
};

const shown = () => points.filter((point) => point.front || (point.feasible ? at("dominated").checked : at("unfit").checked));

function plot() {
  const x = AXES.find(({ key }) => key === select.x.value), y = AXES.find(({ key }) => key === select.y.value);
  const settings = shown();
  const others = at("published").checked ? published.filter((item) => of(item, x.key) != null && of(item, y.key) != null) : [];
  const width = Math.max(300, at("chart").clientWidth), height = Math.round(Math.min(520, Math.max(320, width * 0.62)));
  hint(null);
  canvas.replaceChildren();
  canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
  canvas.setAttribute("height", height);
  const all = [...settings, ...others];
  marks = [];
  if (all.length === 0) {
    canvas.append(draw("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "Nothing to show: see the boxes above"));
    return;
  }
  const box = { left: 62, right: width - 14, top: 26, bottom: height - 44 };
  // Zero has no logarithm: block memories may be none.
  const canLog = (axis) => all.every((item) => of(item, axis.key) > 0);
  const across = scale(all.map((item) => of(item, x.key)), at("logx").checked && canLog(x), box.left, box.right);
  const up = scale(all.map((item) => of(item, y.key)), at("logy").checked && canLog(y), box.bottom, box.top);
  const place = (item) => [across.map(of(item, x.key)), up.map(of(item, y.key))];
  let last = -Infinity;
  for (const tick of across.ticks) {
    const px = across.map(tick);
    canvas.append(draw("line", { class: "grid", x1: px, x2: px, y1: box.top, y2: box.bottom }));
    if (px - last < 44) continue;
    last = px;
    canvas.append(draw("text", { x: px, y: box.bottom + 17, "text-anchor": "middle" }, x.format(tick)));
  }
  for (const tick of up.ticks) {
    const py = up.map(tick);
    canvas.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: py, y2: py }),
      draw("text", { x: box.left - 8, y: py + 4, "text-anchor": "end" }, y.format(tick)));
  }
  canvas.append(draw("rect", { class: "frame", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }));
  canvas.append(draw("text", { class: "axis", x: box.right, y: height - 6, "text-anchor": "end" }, x.better === "less" ? `← ${x.label}` : `${x.label} →`));
  canvas.append(draw("text", { class: "axis", x: 4, y: 14 }, y.better === "less" ? `↓ ${y.label}` : `↑ ${y.label}`));

  // The front of the two axes that are shown, as a staircase of what is reached.
  const sign = [x.better === "less" ? 1 : -1, y.better === "less" ? 1 : -1];
  const value = (item) => [sign[0] * of(item, x.key), sign[1] * of(item, y.key)];
  const candidates = settings.filter((point) => point.feasible).sort((a, b) => value(a)[0] - value(b)[0] || value(a)[1] - value(b)[1]);
  const stairs = [];
  for (const point of candidates) if (stairs.length === 0 || value(point)[1] < value(stairs[stairs.length - 1])[1]) stairs.push(point);
  if (stairs.length > 1) {
    let path = "";
    stairs.forEach((point, i) => {
      const [px, py] = place(point);
      path += i === 0 ? `M${px},${py}` : `H${px}V${py}`;
    });
    canvas.append(draw("path", { class: "front", d: path }));
  }

  const order = (item) => item.front ? 3 : item.source ? 2 : item.feasible ? 1 : 0;
  for (const item of [...all].sort((a, b) => order(a) - order(b))) {
    const [px, py] = place(item);
    const kind = item.source ? "published" : item.front ? "front" : item.feasible ? "dominated" : "unfit";
    const group = draw("g", {
      class: `mark is-${kind}`, transform: `translate(${px},${py})`, tabindex: -1, role: "button",
      "aria-label": item.source ? `${item.name}, published: ${figuresOf(item).map((row) => row.join(" ")).join(", ")}` :
        `${item.core} ${label(item)}, ${status(item)}: ${figuresOf(item).map((row) => row.join(" ")).join(", ")}`,
    });
    const shape = (shapes[kind] ?? shapes.front)(kind === "unfit" ? 3.6 : kind === "dominated" ? 4.6 : 6.2);
    if (kind === "front" || kind === "dominated") { shape.style.fill = colour(item.core); if (kind === "dominated") shape.style.stroke = colour(item.core); }
    group.append(draw("circle", { class: "ring", r: 10 }), shape);
    group.addEventListener("focus", () => { hint(own); rove(group); });
    group.addEventListener("blur", () => hint(null));
    group.addEventListener("click", () => choose(item));
    group.addEventListener("keydown", (event) => keys(event, item, group));
    canvas.append(group);
    const own = { item, group, px, py };
    marks.push(own);
  }
  // Names of published designs, where there is room for them.
  const taken = [];
  for (const { item, px, py } of marks.filter(({ item }) => item.source)) {
    const long = item.name.length * 6.4;
    const areas = { start: [px + 11, py - 8, px + 11 + long, py + 8], end: [px - 11 - long, py - 8, px - 11, py + 8] };
    const meets = ([left, top, right, bottom]) => (other) => left < other[2] && other[0] < right && top < other[3] && other[1] < bottom;
    const isFree = (area) => area[0] > box.left && area[2] < box.right && !taken.some(meets(area));
    const covered = (area) => marks.filter((other) => other.item !== item && meets(area)([other.px - 5, other.py - 5, other.px + 5, other.py + 5])).length;
    const side = ["start", "end"].filter((each) => isFree(areas[each])).sort((a, b) => covered(areas[a]) - covered(areas[b]))[0];
    if (side === undefined) continue;
    taken.push(areas[side]);
    canvas.append(draw("text", { class: "name", x: side === "end" ? px - 11 : px + 11, y: py + 4, "text-anchor": side }, item.name));
  }
  marks.sort((a, b) => a.px - b.px || a.py - b.py);
  mark();
  rove(marks.find(({ item }) => item === chosen)?.group ?? marks[0].group);
  legend(settings, others);
}

// Points lie close together: the nearest one is meant.
const nearest = (event) => {
  const frame = canvas.getBoundingClientRect();
  const away = (mark) => Math.hypot(mark.px - event.clientX + frame.left, mark.py - event.clientY + frame.top);
  const found = marks.reduce((best, mark) => best === null || away(mark) < away(best) ? mark : best, null);
  return found !== null && away(found) <= 24 ? found : null;
};
canvas.addEventListener("pointermove", (event) => hint(nearest(event)));
canvas.addEventListener("pointerleave", () => hint(null));
canvas.addEventListener("click", (event) => {
  // A click that a screen reader makes has no place; it has reached its point already.
  const found = event.detail === 0 ? null : nearest(event);
  if (found === null) return;
  choose(found.item);
  hint(found);
});

function rove(group) {
  for (const each of marks) each.group.setAttribute("tabindex", each.group === group ? 0 : -1);
}

function keys(event, item, group) {
  const i = marks.findIndex((each) => each.group === group);
  const next = { ArrowRight: i + 1, ArrowUp: i + 1, ArrowLeft: i - 1, ArrowDown: i - 1, Home: 0, End: marks.length - 1 }[event.key];
  if (event.key === "Enter" || event.key === " ") choose(item);
  else if (event.key === "Escape") hint(null);
  else if (next !== undefined) marks[Math.min(marks.length - 1, Math.max(0, next))].group.focus();
  else return;
  event.preventDefault();
}

function figuresOf(item) {
  const rows = [];
  const add = (name, text) => rows.push([name, text]);
  if (item.latency_us != null) add("latency", `${digits(item.latency_us, 4)} µs${item.latency_cycles ? ` (${whole(item.latency_cycles)} cycles)` : ""}`);
  if (item.throughput != null) add("transforms", `${short(item.throughput)}/s`);
  if (item.butterflies) add("butterflies", whole(item.butterflies));
  for (const [key, name] of RESOURCES) if (of(item, key) != null) add(name, half(of(item, key)) + (item.source ? "" : ` (${percent(of(item, key) / device.amounts[key])})`));
  if (item.bandwidth != null) add("peak I/O", `${digits(item.bandwidth)} GB/s`);
  if (item.clock_mhz) add("clock", `${digits(item.clock_mhz)} MHz`);
  if (item.bits) add("modulus", `${item.bits} bits`);
  return rows;
}

let hinted = null;

function hint(found) {
  const tip = at("tip");
  if (found === null || found !== hinted) hinted?.group?.classList.remove("is-near");
  hinted = found;
  if (found === null) {
    tip.hidden = true;
    canvas.style.cursor = "";
    return;
  }
  found.group?.classList.add("is-near");
  canvas.style.cursor = "pointer";
  const { item, px, py } = found;
  tip.replaceChildren(
    make("strong", {}, item.source ? item.name : `${item.core} ${label(item)}`),
    make("table", {}, ...figuresOf(item).map(([name, text]) => make("tr", {}, make("td", {}, name), make("td", {}, text)))),
    make("div", { class: "quiet" }, item.source ? `${item.platform}; ${item.note}` : status(item)));
  tip.hidden = false;
  const width = at("chart").clientWidth;
  tip.style.left = `${Math.max(0, px + 16 + tip.offsetWidth > width ? Math.min(width - tip.offsetWidth, px - 16 - tip.offsetWidth) : px + 16)}px`;
  tip.style.top = `${Math.max(0, Math.min(py - 20, canvas.clientHeight - tip.offsetHeight))}px`;
}

function legend(own, others) {
  const entry = (kind, core, text) => {
    const picture = draw("svg", { width: 16, height: 16, viewBox: "-8 -8 16 16", "aria-hidden": "true" });
    const group = draw("g", { class: `mark is-${kind}` });
    const shape = (shapes[kind] ?? shapes.front)(kind === "unfit" ? 3.6 : kind === "dominated" ? 4.6 : 6);
    if (core) { shape.style.fill = colour(core); if (kind === "dominated") shape.style.stroke = colour(core); }
    group.append(shape);
    picture.append(group);
    return make("li", {}, picture, text);
  };
  const entries = [];
  for (const core of cores) {
    if (own.some((point) => point.core === core && point.front)) entries.push(entry("front", core, `${core}, on the front`));
    if (own.some((point) => point.core === core && point.feasible && !point.front)) entries.push(entry("dominated", core, `${core}, dominated`));
  }
  if (own.some((point) => !point.feasible)) entries.push(entry("unfit", null, `too large for ${device.name}${request.bandwidth === null ? "" : " or the bandwidth"}`));
  if (others.length > 0) entries.push(entry("published", null, "published, on its own device"));
  at("legend").replaceChildren(...entries);
}

// Details.
function choose(item) {
  chosen = item;
  details();
  mark();
}

function mark() {
  for (const { item, group } of marks) group.classList.toggle("is-chosen", item === chosen);
  for (const row of document.querySelectorAll("#settings tbody tr")) row.classList.toggle("is-chosen", points[row.dataset.index] === chosen);
}

function details() {
  const panel = at("details");
  if (chosen === null) {
    panel.replaceChildren(make("h2", {}, "No setting"), make("p", { class: "quiet" }, at("refused").textContent));
    return;
  }
  const fact = (name, value, more = "") => make("div", {}, make("dt", {}, name), make("dd", {}, value, " ", make("small", {}, more)));
  if (chosen.source) {
    panel.replaceChildren(
      make("h2", {}, chosen.name),
      make("div", { class: "badges" }, make("span", { class: "badge plain" }, "published")),
      make("dl", { class: "figures" }, ...figuresOf(chosen).map(([name, text]) => fact(name, text))),
      make("p", {}, `${chosen.source}. Measured on ${chosen.platform}; ${chosen.note}.`));
    return;
  }
  const model = models.find(({ core }) => core === chosen.core);
  const error = (key) => {
    const found = model.resources.find(({ resource }) => resource === key);
    return found && found.held_out.runs > 0 ? `off by ${percent(found.held_out.median)}, at most ${percent(found.held_out.maximum)}, on ${found.held_out.runs} held-out runs` : "exact, by formula";
  };
  const meters = RESOURCES.map(([key, name]) => {
    const share = chosen.amounts[key] / device.amounts[key];
    const fill = make("i", share > 1 ? { class: "over" } : {});
    fill.style.width = `${Math.min(100, share * 100)}%`;
    return make("div", { class: "meter", title: `${name}: ${error(key)}` }, make("span", {}, name), make("span", { class: "track" }, fill),
      make("span", {}, `${half(chosen.amounts[key])} · ${percent(share)}`));
  });
  const badges = [make("span", { class: "badge" }, `rank ${chosen.rank}`),
    ...(chosen.feasible ? [make("span", { class: "badge plain" }, status(chosen))] : chosen.bounds.map((bound) => make("span", { class: "badge bad" }, `${bound.what} ${percent(bound.share)}`)))];
  if (chosen.butterflies > model.largest_butterflies) badges.push(make("span", { class: "badge plain", title: `Synthesis runs have up to ${whole(model.largest_butterflies)} butterflies.` }, "resources extrapolated"));
  const command = make("code", { id: "command" }, chosen.command);
  const copy = make("button", { type: "button", id: "copy" }, "Copy command");
  copy.addEventListener("click", async () => {
    let isDone = true;
    try { await navigator.clipboard.writeText(command.textContent); } catch {
      // Pages of files may not use the clipboard everywhere: then the text is selected, for Ctrl-C.
      getSelection().selectAllChildren(command);
      isDone = document.execCommand("copy");
    }
    copy.textContent = isDone ? "Copied" : "Selected: press Ctrl-C";
    setTimeout(() => copy.textContent = "Copy command", 2000);
  });
  panel.replaceChildren(
    make("h2", {}, chosen.core),
    make("div", { class: "badges" }, ...badges),
    make("dl", { class: "figures" },
      fact("Latency", `${digits(chosen.latency_us, 4)} µs`, `${whole(chosen.latency_cycles)} cycles`),
      fact("Transforms a second", short(chosen.throughput), chosen.transforms > 1 ? `${chosen.transforms} side by side` : ""),
      fact("Interval", `${whole(chosen.interval_cycles)} cycles`),
      fact("Butterflies", whole(chosen.butterflies)),
      fact("Words in, out a cycle", `${chosen.words_in}, ${chosen.words_out}`, `of ${chosen.word_bits} bits`),
      fact("Peak I/O", `${digits(chosen.bandwidth)} GB/s`),
      fact("Order in", chosen.input_order),
      fact("Order out", chosen.output_order)),
    make("h3", {}, `Share of ${device.title}`),
    make("div", { class: "meters" }, ...meters),
    make("h3", {}, "Make this core"),
    make("div", { class: "command" }, command, copy));
}

// Table of settings.
const COLUMNS = [
  { name: "#", value: (point) => point.rank, cell: (point) => [String(point.rank)] },
  { name: "core", value: (point) => point.core, cell: (point) => [point.core], isLeft: true },
  { name: "parameters", value: (point) => label(point), cell: (point) => [label(point)], isLeft: true },
  { name: "latency", value: (point) => point.latency_us, cell: (point) => [`${point.latency_us < 100 ? point.latency_us.toFixed(2) : whole(point.latency_us)} µs`, `${whole(point.latency_cycles)} cy`] },
  { name: "transforms/s", value: (point) => point.throughput, cell: (point) => [short(point.throughput)] },
  ...RESOURCES.map(([key, name]) => ({ name, value: (point) => point.amounts[key], cell: (point) => [half(point.amounts[key]), percent(point.amounts[key] / device.amounts[key])] })),
  { name: "peak I/O", value: (point) => point.bandwidth, cell: (point) => [`${digits(point.bandwidth)} GB/s`] },
  { name: "", value: (point) => status(point), cell: (point) => [point.feasible ? status(point) : point.bounds.map((bound) => `${bound.what} ${percent(bound.share)}`).join(", ")], isLeft: true },
];
let sorting = { column: 0, isDown: false };

function rows() {
  const table = at("settings"), own = shown();
  const { column, isDown } = sorting;
  const sorted = [...own].sort((a, b) => {
    const [u, v] = [COLUMNS[column].value(a), COLUMNS[column].value(b)];
    return (typeof u === "string" ? u.localeCompare(v, "en", { numeric: true }) : u - v) * (isDown ? -1 : 1);
  });
  table.tHead.replaceChildren(make("tr", {}, ...COLUMNS.map(({ name, isLeft }, i) => {
    const button = make("button", { type: "button" }, name + (i === column ? (isDown ? " ▾" : " ▴") : ""));
    button.addEventListener("click", () => { sorting = { column: i, isDown: i === column && !isDown }; rows(); });
    return make("th", { scope: "col", class: isLeft ? "left" : "", "aria-sort": i === column ? (isDown ? "descending" : "ascending") : "none" }, ...(name ? [button] : []));
  })));
  table.tBodies[0].replaceChildren(...sorted.map((point) => {
    const row = make("tr", { "data-index": points.indexOf(point), tabindex: 0, class: point.feasible ? "" : "is-unfit" }, ...COLUMNS.map(({ cell, isLeft }, i) => {
      const [text, more] = cell(point);
      const isLast = i === COLUMNS.length - 1;
      return make("td", { class: (isLeft ? "left " : "") + (isLast && !point.feasible ? "cut" : isLast && point.front ? "ok" : "") }, text, ...(more ? [make("small", {}, more)] : []));
    }));
    row.addEventListener("click", () => choose(point));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(point); });
    return row;
  }));
  at("count").textContent = `${own.length} of ${points.length} shown`;
  mark();
}

at("refused").textContent = refused.map(({ core, reason }) => `${core} ${reason}.`).join(" ");

// Published designs.
if (published.length === 0) at("published-panel").hidden = true;
at("designs").tHead.append(make("tr", {}, ...["design", "platform", "q bits", "clock", "latency", "transforms/s", "LUT", "FF", "BRAM36", "DSP", "source"].map((name, i) =>
  make("th", { scope: "col", class: i < 2 || i > 9 ? "left" : "" }, name))));
for (const item of published) {
  const number = (value, format) => value == null ? "–" : format(value);
  at("designs").tBodies[0].append(make("tr", {},
    make("td", { class: "left" }, item.name), make("td", { class: "left wrap platform" }, item.platform), make("td", {}, item.bits),
    make("td", {}, `${digits(item.clock_mhz)} MHz`), make("td", {}, number(item.latency_us, (v) => `${digits(v, 4)} µs`)), make("td", {}, number(item.throughput, short)),
    ...["lut", "ff", "bram36", "dsp"].map((key) => make("td", {}, number(item[key], half))),
    make("td", { class: "left wrap source" }, item.source, make("small", {}, item.note))));
}

// Trust.
at("errors").tHead.append(make("tr", {}, ...["core", ...RESOURCES.map(([, name]) => name), "held out", "fitted"].map((name, i) => make("th", { scope: "col", class: i ? "" : "left" }, name))));
for (const model of models) {
  const cells = model.resources.map(({ held_out }) => make("td", {}, percent(held_out.median), make("small", {}, `≤ ${percent(held_out.maximum)}`)));
  at("errors").tBodies[0].append(make("tr", {}, make("td", { class: "left" }, `${model.core}, ${model.technology}`), ...cells, make("td", {}, model.dsp.maximum === 0 ? "exact" : percent(model.dsp.maximum)),
    make("td", {}, `${model.resources[0].held_out.runs} runs`), make("td", {}, `${model.resources[0].fitted.runs} runs`)));
}
at("assumptions").append(...[
  "Cycles are exact: formulas that simulation of the cores is held against.",
  request.clock_assumed ? `The clock, ${digits(request.clock_mhz, 5)} MHz, is assumed: settings are not placed and routed here. toroid core synth NAME --route gives one a clock rate on an Artix-7 or an ECP5.` :
    `The clock, ${digits(request.clock_mhz, 5)} MHz, is as given; whether a setting reaches it is not known.`,
  ...models.map((model) => `Runs of ${model.core} have up to ${whole(model.largest_butterflies)} butterflies; figures of settings with more are extrapolated.`),
  `A setting fits if each resource alone is within the device (${device.source}); placing and routing want room besides.`,
  "I/O bandwidth is that of beats in every cycle on both streams. Where a core waits between transforms, the mean is lower.",
  ...(device.uram > 0 ? [`The device's ${whole(device.uram)} UltraRAM blocks are not used.`] : []),
  ...(device.technology === "ecp5" ? ["DSP means multipliers of 18 × 18 bits, LUT those of four inputs; two blocks of 18 Kbit count as one BRAM36."] : ["One RAMB18 counts as half a BRAM36; LUTs that are memories and shift registers are in LUT."]),
].map((text) => make("li", {}, text)));

for (const id of ["x", "y", "logx", "logy", "dominated", "unfit", "published"]) at(id).addEventListener("change", () => { plot(); rows(); });
at("controls").addEventListener("submit", (event) => event.preventDefault());
rows();
details();
new ResizeObserver(plot).observe(at("chart"));
