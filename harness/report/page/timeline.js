// SPDX-License-Identifier: Apache-2.0
// The timeline: delivered Gbit/s of each mode against time, with the faults. Drag to zoom into a part, wheel or + and -
// to zoom, arrow keys to move, 0 for the whole run.
const svgNS = "http://www.w3.org/2000/svg";

function svg(name, attributes, parent) {
  const element = document.createElementNS(svgNS, name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

function svgText(parent, x, y, words, attributes) {
  const element = svg("text", { x, y, ...attributes }, parent);
  element.textContent = words;
  return element;
}

// About `count` round numbers from low to high.
function roundSteps(low, high, count) {
  const raw = (high - low) / Math.max(count, 1);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const steps = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) steps.push(Number((i * step).toPrecision(12)));
  return steps;
}

function milliseconds(ms) {
  const size = Math.abs(ms);
  if (size >= 10000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Number(ms.toPrecision(4))} ms`;
}

// [[ms, Gbit/s or null]] of [low, high]: from exact deliveries where they are known and the view is short, else
// from bins. `segment`: the least time in ms that a mean of deliveries makes sense over. Time in which no operation was open is left out.
function rateOf(curve, low, high, ended, segment) {
  const raw = curve.raw.time_ms, span = high - low, points = [];
  if (span <= 400 && raw.some((t) => t >= low && t <= high)) {
    const window = Math.max(2, span / 60, segment || 0), sums = [0];
    for (const size of curve.raw.bytes) sums.push(sums[sums.length - 1] + size);
    let first = 0, last = 0;
    for (let i = 0; i <= 300; i++) {
      const t = low + span * i / 300;
      while (first < raw.length && raw[first] <= t - window / 2) first++;
      while (last < raw.length && raw[last] <= t + window / 2) last++;
      const known = t - window / 2 >= raw[0] && (ended || t + window / 2 <= raw[raw.length - 1]);
      points.push([t, known ? (sums[last] - sums[first]) * 8e-6 / window : null]);
    }
    return points;
  }
  const { time_ms: times, gbps, open } = curve.total, bin = curve.bin_ms;
  const width = Math.max(span / 240, bin, span > 400 ? 50 : bin);
  let i = 0;
  for (let begin = Math.max(low, times.length ? times[0] : low); begin < high; begin += width) {
    let sum = 0, weight = 0;
    while (i < times.length && times[i] < begin) i++;
    for (let k = i; k < times.length && times[k] < begin + width; k++) {
      sum += gbps[k] * open[k];
      weight += open[k];
    }
    if (weight > 0) points.push([begin + width / 2, sum / weight]);
  }
  return points;
}

function pathOf(points, x, y) {
  let words = "", pen = false;
  for (const [t, value] of points) {
    if (value !== null) words += `${pen ? "L" : "M"}${x(t).toFixed(1)},${y(value).toFixed(1)}`;
    pen = value !== null;
  }
  return words;
}

class Timeline {
  constructor(run, place, onMove) {
    this.run = run;
    this.modes = run.result.runs.map((mode, index) => ({
      mode, colour: `var(--c${index % 5})`,
      curve: ((run.timeline && run.timeline.modes) || []).find((c) => c.mode === mode.mode),
    })).filter((m) => m.curve && m.curve.total.time_ms.length > 0);
    this.end = Math.max(...this.modes.map((m) => {
      const times = m.curve.total.time_ms;
      return times[times.length - 1] + m.curve.bin_ms;
    }));
    this.segment = Math.max(0, ...this.modes.flatMap((m) => m.mode.faults.map((f) => f.floor_ms)));
    this.view = [0, this.end];
    this.cursor = null;
    this.onMove = onMove || (() => {});
    this.width = 760; this.height = 270; this.left = 46; this.right = 10; this.top = 12; this.bottom = 34;
    this.build(place);
    this.draw();
  }

  build(place) {
    const bar = document.createElement("div");
    bar.className = "filters";
    const button = (words, title, act) => {
      const made = document.createElement("button");
      made.type = "button"; made.textContent = words; made.title = title;
      made.addEventListener("click", act);
      bar.append(made);
    };
    button("+", "Zoom in (+)", () => this.zoom(0.5));
    button("−", "Zoom out (-)", () => this.zoom(2));
    button("Whole run", "Whole run (0)", () => this.show(0, this.end));
    button("Next fault", "The milliseconds around the next fault (f)", () => this.nextFault());
    this.said = document.createElement("output");
    this.said.className = "range";
    bar.append(this.said);
    this.svg = svg("svg", { viewBox: `0 0 ${this.width} ${this.height}`, tabindex: 0, role: "img", class: "timeline" });
    this.svg.setAttribute("aria-label", `Delivered Gbit/s against time of ${this.run.result.scenario}`);
    place.append(bar, this.svg);
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && document.activeElement !== this.svg) return;  // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event));
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => {
      this.svg.focus({ preventScroll: true });
      this.svg.setPointerCapture(event.pointerId);
      this.from = this.timeAt(event);
    });
    this.svg.addEventListener("pointermove", (event) => {
      this.cursor = this.timeAt(event);
      this.draw();
    });
    this.svg.addEventListener("pointerleave", () => { if (this.from === undefined) { this.cursor = null; this.draw(); } });
    this.svg.addEventListener("pointerup", (event) => {
      const from = this.from, to = this.timeAt(event);
      this.from = undefined;
      if (from !== undefined && Math.abs(to - from) > (this.view[1] - this.view[0]) / 100) this.show(Math.min(from, to), Math.max(from, to));
      else this.draw();
    });
    this.svg.addEventListener("dblclick", () => this.show(0, this.end));
  }

  timeAt(event) {
    const box = this.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * this.width;
    const part = (x - this.left) / (this.width - this.left - this.right);
    return this.view[0] + Math.min(Math.max(part, 0), 1) * (this.view[1] - this.view[0]);
  }

  show(low, high) {
    const span = Math.min(Math.max(high - low, 1), this.end);
    low = Math.min(Math.max(low, 0), this.end - span);
    this.view = [low, low + span];
    this.draw();
  }

  zoom(factor, about) {
    const [low, high] = this.view, centre = about === undefined ? (this.cursor ?? (low + high) / 2) : about;
    this.show(centre - (centre - low) * factor, centre + (high - centre) * factor);
  }

  faults() {
    return this.modes.flatMap(({ mode, colour }) => mode.faults.filter((f) => f.t0_at_ms !== null).map((fault) => ({ mode, colour, fault })))
      .sort((a, b) => a.fault.t0_at_ms - b.fault.t0_at_ms);
  }

  nextFault() {
    const faults = this.faults();
    if (faults.length === 0) return;
    const index = this.shown === undefined ? 0 : (this.shown + 1) % faults.length;
    this.shown = index;
    const { fault } = faults[index];
    const last = Math.max(...["detected_at_ms", "migrated_at_ms", "recovered_at_ms"].map((k) => fault[k] ?? fault.t0_at_ms));
    const span = Math.min(Math.max((last - fault.t0_at_ms) * 1.6, 60), 3000);
    this.cursor = fault.t0_at_ms;
    this.show(fault.t0_at_ms - span / 3, fault.t0_at_ms + span);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = this.view[1] - this.view[0];
    const acts = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.show(0, this.end),
      ArrowLeft: () => this.show(this.view[0] - span / 5, this.view[1] - span / 5),
      ArrowRight: () => this.show(this.view[0] + span / 5, this.view[1] + span / 5),
      f: () => this.nextFault(),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }

  draw() {
    const [low, high] = this.view, root = this.svg, bottom = this.height - this.bottom;
    root.replaceChildren();
    const curves = this.modes.map((m) => rateOf(m.curve, low, high, m.mode.outcome !== "ok", this.segment));
    const top = Math.max(1e-9, ...curves.flat().map(([, v]) => v ?? 0)) * 1.15;
    const x = (t) => this.left + (t - low) / (high - low) * (this.width - this.left - this.right);
    const y = (v) => bottom - v / top * (bottom - this.top);
    for (const v of roundSteps(0, top, 5)) {
      svg("line", { class: "grid", x1: this.left, x2: this.width - this.right, y1: y(v), y2: y(v) }, root);
      svgText(root, this.left - 5, y(v) + 4, v, { "text-anchor": "end" });
    }
    const seconds = high - low > 4000;
    for (const t of roundSteps(low, high, 8)) {
      svg("line", { class: "axis", x1: x(t), x2: x(t), y1: bottom, y2: bottom + 4 }, root);
      svgText(root, x(t), bottom + 16, seconds ? Number((t / 1000).toPrecision(6)) : Number(t.toPrecision(8)), { "text-anchor": "middle" });
    }
    svg("line", { class: "axis", x1: this.left, x2: this.width - this.right, y1: bottom, y2: bottom }, root);
    svgText(root, this.width - this.right, this.height - 4, `time since the first iteration (${seconds ? "s" : "ms"})`, { "text-anchor": "end" });
    svgText(root, 2, this.height - 4, "Gbit/s delivered");
    const clip = (t) => Math.min(Math.max(t, low), high);
    for (const { mode, colour, fault } of this.faults()) {
      const until = fault.healed_at_ms ?? this.end;
      if (until < low || fault.t0_at_ms > high) continue;
      const band = svg("rect", { class: "band", x: x(clip(fault.t0_at_ms)), y: this.top, height: bottom - this.top, "fill-opacity": 0.35,
        width: Math.max(x(clip(until)) - x(clip(fault.t0_at_ms)), 1) }, root);
      svg("title", {}, band).textContent = `${mode.mode}: ${fault.name}, from ${milliseconds(fault.t0_at_ms)}`;
      for (const [key, letter] of [["t0_at_ms", "fault"], ["detected_at_ms", "detected"], ["migrated_at_ms", "migrated"], ["recovered_at_ms", "recovered"]]) {
        const at = fault[key];
        if (at === null || at < low || at > high) continue;
        const mark = svg("path", { d: `M${x(at)},${this.top}l-4,-7h8z`, style: `fill:${colour}`, class: `mark ${letter}` }, root);
        svg("title", {}, mark).textContent = `${mode.mode}: ${letter} ${milliseconds(at - fault.t0_at_ms)} after the fault`;
        svg("line", { x1: x(at), x2: x(at), y1: this.top, y2: bottom, style: `stroke:${colour};stroke-opacity:.5`, "stroke-dasharray": "2 3" }, root);
      }
    }
    for (const event of this.run.events) {
      if (event[1] < low || event[1] > high || high - low > 2000) continue;
      svg("line", { class: "tick", x1: x(event[1]), x2: x(event[1]), y1: bottom - 5, y2: bottom }, root);
    }
    this.modes.forEach((m, index) => {
      this.limits(root, m, x, y, low, high);
      svg("path", { class: "curve", d: pathOf(curves[index], x, y), style: `stroke:${m.colour}`, "data-mode": m.mode.mode }, root);
    });
    if (this.from !== undefined && this.cursor !== null) {
      const [a, b] = [x(this.from), x(this.cursor)].sort((p, q) => p - q);
      svg("rect", { class: "selection", x: a, width: b - a, y: this.top, height: bottom - this.top }, root);
    }
    if (this.cursor !== null && this.cursor >= low && this.cursor <= high)
      svg("line", { class: "cursor", x1: x(this.cursor), x2: x(this.cursor), y1: this.top, y2: bottom }, root);
    this.said.textContent = `${milliseconds(low)} to ${milliseconds(high)}` + (this.cursor !== null ? `, at ${milliseconds(this.cursor)}` : "");
  }

  // What the mode can carry at best with the NICs that are left.
  limits(root, { mode, curve, colour }, x, y, low, high) {
    const steps = curve.limits ? curve.limits.time_ms.map((t, i) => [t, curve.limits.limit[i]]) : [];
    const before = mode.metrics.throughput.before_gbps;
    if (mode.outcome !== "ok" || !(before > 0) || !steps.some(([, limit]) => limit < 1)) return;
    let words = "";
    steps.forEach(([from, limit], i) => {
      const until = i + 1 < steps.length ? steps[i + 1][0] : this.end;
      if (until < low || from > high) return;
      words += `M${x(Math.max(from, low))},${y(limit * before)}H${x(Math.min(until, high))}`;
    });
    if (words) svg("path", { class: "limit", d: words, style: `stroke:${colour}` }, root);
  }

  moveTo(ms) {
    this.cursor = ms;
    const span = Math.min(this.view[1] - this.view[0], 400);
    this.show(ms - span / 2, ms + span / 2);
  }
}
