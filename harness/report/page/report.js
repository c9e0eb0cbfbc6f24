// SPDX-License-Identifier: Apache-2.0
// The page: one section per subject, in each one column per result. All text of a result goes through textContent.
const runs = JSON.parse(document.getElementById("data").textContent).runs;
const main = document.getElementById("main");
const pageSize = 300;

function node(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "class") element.className = value;
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function number(value, digits) {
  return value === null || value === undefined ? "–" : String(Number(Number(value).toPrecision(digits || 3)));
}

function table(heads, rows, caption) {
  const made = node("table", {}, node("thead", {}, node("tr", {}, ...heads.map((h) => node("th", { scope: "col", class: h.startsWith("#") ? "number" : null }, h.replace(/^#/, ""))))));
  if (caption) made.prepend(node("caption", {}, caption));
  const body = node("tbody");
  for (const row of rows) {
    const cells = row.map((cell, i) => node("td", { class: heads[i].startsWith("#") ? "number" : null }, cell instanceof Node ? cell : String(cell ?? "–")));
    body.append(node("tr", {}, ...cells));
  }
  made.append(body);
  return node("div", { class: "scroll" }, made);
}

const sections = [];

// `fill(article, run, index)`; false: nothing to show of that run.
function section(id, title, fill, long) {
  const columns = node("div", { class: "results", style: `--columns:${runs.length}` });
  runs.forEach((run, index) => {
    const article = node("article", { "aria-label": run.name });
    if (runs.length > 1) article.append(node("h3", {}, run.name));
    fill(article, run, index);
    columns.append(article);
  });
  const made = node("section", { id, tabindex: -1, class: long ? "long" : null, "aria-labelledby": `${id}-title` }, node("h2", { id: `${id}-title` }, title), columns);
  sections.push(made);
  main.append(made);
  document.getElementById("contents").append(node("a", { href: `#${id}` }, title));
}

// --- verdict ---------------------------------------------------------------------------------------------------------

function verdict(article, { result }) {
  const fabric = result.fabric, work = result.workload;
  const isLimited = fabric.kind === "vhca" || fabric.kind === "rxe";  // the devices of verbs have a rate of their own
  const rate = isLimited && fabric.nic_rate_bits_per_s > 0 ? ` of ${fabric.nic_rate_bits_per_s / 1e9} Gbit/s` : "";
  const job = work.engine === "exec" ? `command: ${(work.command || []).join(" ")}` : `${work.op} of ${work.bytes / 2 ** 20} MiB ${work.dtype}`;
  const held = result.expectations.filter((e) => e.ok === true).length;
  const box = node("div", { class: `verdict ${result.verdict}` },
    node("strong", { class: "word" }, result.verdict), " ", node("span", { class: "evidence" }, `evidence: ${result.evidence} (${fabric.kind})`),
    node("p", { class: "scenario" }, result.scenario), node("p", {}, result.description),
    node("p", {}, `${job}, ${fabric.nodes} nodes × ${fabric.nics_per_node} NICs${rate}; seed ${result.seed}; ${result.started_at}`),
    node("p", {}, `${held} of ${result.expectations.length} expectations hold`));
  for (const doubt of result.doubts) box.append(node("p", { class: "unsure" }, `Doubt: ${doubt}`));
  if (result.cancelled) box.append(node("p", { class: "unsure" }, "The run was cut short."));
  article.append(box);
}

// --- expectations ----------------------------------------------------------------------------------------------------

function expectations(article, { result }) {
  const mark = (ok) => ok === true ? ["✓ holds", "ok"] : ok === false ? ["✗ does not", "not-ok"] : ["? unknown", "unsure"];
  const rows = (wanted) => result.expectations.filter((e) => !wanted || e.ok !== true).map((e) => {
    const [words, kind] = mark(e.ok);
    const got = node("span", {}, e.got);
    if (e.detail) got.append(node("p", { class: "note" }, e.detail));
    return [node("span", { class: kind }, words), node("code", {}, e.name), e.wanted, got];
  });
  if (result.expectations.length === 0) {
    article.append(node("p", { class: "note" }, "The scenario expects nothing."));
    return;
  }
  const box = node("input", { type: "checkbox" });
  const place = node("div");
  const show = () => place.replaceChildren(table(["", "expectation", "wanted", "got"], rows(box.checked)));
  box.addEventListener("change", show);
  article.append(node("div", { class: "filters" }, node("label", {}, box, " only what does not hold")), place);
  show();
}

// --- figures ---------------------------------------------------------------------------------------------------------

function timeline(article, run) {
  if (!run.timeline || !run.result.runs.some((mode) => run.timeline.modes.some((c) => c.mode === mode.mode && c.total.time_ms.length > 0))) {
    article.append(node("p", { class: "note" }, "There was no timeline.json beside this result."));
    return;
  }
  const figure = node("figure");
  article.append(figure);
  run.chart = new Timeline(run, figure);
  const legend = node("div", { class: "legend" }, ...run.chart.modes.map(({ mode, colour }) =>
    node("span", {}, node("i", { style: `border-color:${colour}` }), `${mode.mode}: ${mode.outcome === "ok" ? "finished" : mode.outcome}`)));
  figure.append(legend, node("figcaption", {},
    "Delivered payload of all ranks; each mode is a job of its own, from its first iteration. Grey: a fault is in force. Dashed: the most that the mode can carry with the NICs that are left. Triangles: fault, detected, migrated, recovered. Close up, means over exact deliveries of at least one segment time. Drag to zoom."));
}

// In wall-clock time; recover_ms is in open time, so it is no sum of these.
const phases = [["detect", (f) => f.detect_ms, "--c3"], ["migrate", (f) => f.migrate_ms, "--c1"],
  ["ramp", (f) => Math.max(0, f.recovered_at_ms - f.migrated_at_ms), "--c2"]];
const lasts = (fault) => phases.reduce((sum, [, of]) => sum + of(fault), 0);

// Behind a rate that the ports did not limit; older results do not say.
const star = (throughput) => throughput.held_up ? "*" : "";

// Nearest rank; the metric holds how long a recovery was waited for that never came, and that may have taken any longer time.
function recoverPercentile({ faults, metrics }, percent) {
  const times = faults.filter((f) => f.sampled && f.recover_ms !== null).map((f) => f.recover_ms).sort((a, b) => a - b);
  const rank = Math.max(Math.ceil(percent / 100 * (times.length + metrics.faults.unrecovered)), 1);
  return times.length + metrics.faults.unrecovered === 0 ? "–" : rank > times.length ? "never" : number(times[rank - 1]);
}

function recovery(article, { result }) {
  const measured = result.runs.flatMap((mode) => mode.faults.filter((f) => f.sampled));
  const faults = result.runs.flatMap((mode) => mode.faults.filter((f) => f.sampled && [f.detect_ms, f.migrate_ms, f.migrated_at_ms, f.recovered_at_ms].every((v) => v !== null)).map((f) => ({ mode: mode.mode, ...f })));
  const rows = result.runs.map((mode) => {
    const r = mode.metrics.recovery, t = mode.metrics.throughput, c = mode.metrics.correctness;
    return [mode.mode, mode.outcome, number(t.before_gbps) + star(t), number(t.retained) + star(t), number(t.limit), `${mode.metrics.faults.sampled}/${mode.metrics.faults.witnessed}`,
      number(r.detect_ms.p50), number(r.migrate_ms.p50), recoverPercentile(mode, 50), recoverPercentile(mode, 100), number(r.floor_ms), number(r.blackout_ms.max), String(c.wrong_elements)];
  });
  article.append(table(["mode", "outcome", "#Gbit/s before", "#retained", "#limit", "#measured", "#detect p50 ms", "#migrate p50", "#recover p50", "#max", "#floor", "#blackout max", "#wrong"], rows));
  for (const { mode, metrics } of result.runs)
    if (metrics.throughput.held_up) article.append(node("p", { class: "note" }, `* ${mode}: ${metrics.throughput.held_up}.`));
  for (const { mode, metrics } of result.runs)
    for (const [why, count] of Object.entries(metrics.faults.dropped || {}))
      article.append(node("p", { class: "note" }, `${mode}: ${count} not measured: ${why}.`));
  const without = measured.length - faults.length;
  const left = without === 0 ? "" : ` ${without} of ${measured.length} measured faults ${without === 1 ? "has" : "have"} no bar: one of these times never came, or is not known.`;
  if (faults.length === 0) {
    if (left) article.append(node("p", { class: "note" }, `Detection, migration and recovery:${left}`));
    return;
  }
  const shown = faults.slice(0, 60), height = 22 + shown.length * 15 + 24, width = 760, margin = 250, longest = Math.max(...shown.map(lasts));
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "recovery", "aria-label": "Recovery of each fault, split into detect, migrate and ramp" });
  const x = (ms) => margin + ms / longest * (width - margin - 20);
  for (const t of roundSteps(0, longest, 6)) {
    svg("line", { class: "grid", x1: x(t), x2: x(t), y1: 16, y2: height - 22 }, root);
    svgText(root, x(t), height - 8, t, { "text-anchor": "middle" });
  }
  svgText(root, margin - 6, height - 8, "ms", { "text-anchor": "end" });
  shown.forEach((fault, i) => {
    const y = 18 + i * 15;
    const label = `${fault.mode}: ${fault.name}`;
    svgText(root, margin - 6, y + 9, label.length > 40 ? `${label.slice(0, 39)}…` : label, { "text-anchor": "end" });
    let from = 0;
    for (const [name, of, colour] of phases) {
      const ms = of(fault);
      const bar = svg("rect", { x: x(from), y, width: Math.max(x(from + ms) - x(from), 0), height: 11, style: `fill:var(${colour})`, "data-phase": name, "data-ms": ms }, root);
      svg("title", {}, bar).textContent = `${name} ${milliseconds(ms)}`;
      from += ms;
    }
  });
  article.append(node("figure", {}, root, node("div", { class: "legend" }, ...phases.map(([name, , colour]) => node("span", {}, node("i", { style: `border-color:var(${colour})` }), name))),
    node("figcaption", {}, `Each fault of which all three times are known${faults.length > shown.length ? `, the first ${shown.length} of ${faults.length}` : ""}: detect, migrate (until the last affected channel has delivered on another path), and ramp (from there until the rate is back), in wall-clock time; the columns of recover have open time.${left}`)));
}

function operations(article, { result }) {
  const modes = result.runs.filter((mode) => mode.iteration_ms.length > 0);
  if (modes.length === 0) {
    article.append(node("p", { class: "note" }, "No operation ended."));
    return;
  }
  const width = 760, height = 200, left = 46, bottom = height - 30;
  const most = Math.max(...modes.map((m) => m.iteration_ms.length)), top = Math.max(...modes.flatMap((m) => m.iteration_ms)) * 1.05;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "operations", "aria-label": "Time of each operation" });
  const x = (i) => left + i / Math.max(most - 1, 1) * (width - left - 10), y = (ms) => bottom - ms / top * (bottom - 8);
  for (const t of roundSteps(0, top, 4)) {
    svg("line", { class: "grid", x1: left, x2: width - 10, y1: y(t), y2: y(t) }, root);
    svgText(root, left - 5, y(t) + 4, t, { "text-anchor": "end" });
  }
  for (const i of roundSteps(0, most - 1, 8)) svgText(root, x(i), bottom + 14, i, { "text-anchor": "middle" });
  svgText(root, 2, height - 3, "ms per operation");
  svgText(root, width - 10, height - 3, "operation", { "text-anchor": "end" });
  modes.forEach((mode) => {
    const points = mode.iteration_ms.map((ms, i) => [i, ms]);
    svg("path", { class: "curve", d: pathOf(points, x, y), style: `stroke:var(--c${result.runs.indexOf(mode) % 5})` }, root);
  });
  article.append(node("figure", {}, root, node("div", { class: "legend" }, ...modes.map((mode) => node("span", {}, node("i", { style: `border-color:var(--c${result.runs.indexOf(mode) % 5})` }), mode.mode))),
    node("figcaption", {}, "Time of each counted operation, from its first rank's begin to its last rank's end.")));
}

// --- event log -------------------------------------------------------------------------------------------------------

function eventLog(article, run, index) {
  if (!run.has_events) {
    article.append(node("p", { class: "note" }, "There was no events.jsonl beside this result."));
    return;
  }
  const choice = (label, at) => {
    const values = [...new Set(run.events.map((event) => event[at]))].sort();
    return node("select", { "aria-label": `${label} of the events` }, node("option", { value: "" }, `every ${label}`), ...values.map((v) => node("option", { value: v }, v)));
  };
  const mode = choice("mode", 0), kind = choice("event", 3), source = choice("source", 2);
  const search = node("input", { type: "search", placeholder: "search the text (/)", "aria-label": "Search the event log" });
  const count = node("output", { class: "count" });
  const body = node("tbody"), more = node("button", { type: "button", hidden: "" }, "Show more");
  let found = [], shown = 0;
  const place = (event, row) => {
    for (const other of body.querySelectorAll(".now")) other.classList.remove("now");
    row.classList.add("now");
    if (run.chart) run.chart.moveTo(event[1]);
  };
  const add = () => {
    for (const event of found.slice(shown, shown + pageSize)) {
      const row = node("tr", { tabindex: 0 }, node("td", { class: "number" }, event[1].toFixed(3)), node("td", {}, event[0]), node("td", {}, event[2]), node("td", { class: "name" }, event[3]), node("td", {}, event[4]));
      row.addEventListener("click", () => place(event, row));
      row.addEventListener("keydown", (pressed) => {
        if (pressed.key === "Enter") place(event, row);
        const next = pressed.key === "ArrowDown" ? row.nextElementSibling : pressed.key === "ArrowUp" ? row.previousElementSibling : null;
        if (!next) return;
        pressed.preventDefault();
        next.focus();
      });
      body.append(row);
    }
    shown = Math.min(shown + pageSize, found.length);
    more.hidden = shown === found.length;
  };
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = run.events.filter((event) => (!mode.value || event[0] === mode.value) && (!kind.value || event[3] === kind.value) && (!source.value || event[2] === source.value) &&
      words.every((word) => `${event[3]} ${event[2]} ${event[4]}`.toLowerCase().includes(word)));
    const all = run.events_total > run.events.length ? `${run.events.length} first of ${run.events_total}` : String(run.events.length);
    count.textContent = `${found.length} of ${all} events`;
    body.replaceChildren();
    shown = 0;
    add();
  };
  for (const control of [mode, kind, source]) control.addEventListener("change", show);
  search.addEventListener("input", show);
  more.addEventListener("click", add);
  const clear = node("button", { type: "button" }, "Clear");
  clear.addEventListener("click", () => {
    for (const control of [mode, kind, source, search]) control.value = "";
    show();
  });
  if (index === 0) search.id = "search";
  article.append(node("div", { class: "filters" }, mode, kind, source, search, clear, count),
    node("div", { class: "log" }, node("table", {}, node("thead", {}, node("tr", {}, ...["ms", "mode", "source", "event", "text"].map((h) => node("th", { scope: "col" }, h)))), body), more));
  show();
}

// --- environment -----------------------------------------------------------------------------------------------------

function environment(article, { result, file }) {
  const rows = Object.entries(result.environment).concat([["result", file], ["scenario file", result.source], ["repeats", result.repeats], ["pairs", result.pairs]],
    Object.entries(result.overrides).map(([key, value]) => [`--set ${key}`, typeof value === "string" ? value : JSON.stringify(value)]));
  article.append(table(["", "value"], rows.map(([key, value]) => [key, String(value)])));
  const names = [...new Set(result.runs.flatMap((mode) => Object.keys(mode.settings)))].sort();
  if (names.length === 0) return;
  const settings = node("details", {}, node("summary", {}, `Settings of the ranks (${names.length})`),
    table(["setting", ...result.runs.map((mode) => mode.mode)], names.map((name) => [node("code", {}, name), ...result.runs.map((mode) => mode.settings[name] ?? "–")])));
  const ranks = node("details", {}, node("summary", {}, "Ranks"),
    table(["mode", "rank", "outcome", "#iterations", "said"], result.runs.flatMap((mode) => mode.ranks.map((rank) => [mode.mode, rank.label, rank.outcome, rank.iterations, [rank.error, ...rank.warnings].filter(Boolean).join("; ") || "–"]))));
  article.append(settings, ranks);
}

// --- theme and keys --------------------------------------------------------------------------------------------------

const themes = ["system", "light", "dark"];
let theme = 0;

function nextTheme() {
  theme = (theme + 1) % themes.length;
  if (theme === 0) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = themes[theme];
  document.getElementById("theme").textContent = `Theme: ${themes[theme]}`;
}

function toggleKeys() {
  const keys = document.getElementById("keys");
  keys.hidden = !keys.hidden;
  document.getElementById("help").setAttribute("aria-expanded", String(!keys.hidden));
}

let current = -1;

function jump(step) {
  const active = sections.findIndex((s) => s.contains(document.activeElement));
  current = Math.min(Math.max((active >= 0 ? active : current) + step, 0), sections.length - 1);
  sections[current].focus({ preventScroll: true });
  sections[current].scrollIntoView({ block: "start" });
}

document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("print").addEventListener("click", () => window.print());
document.getElementById("help").addEventListener("click", toggleKeys);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !document.getElementById("keys").hidden) return toggleKeys();
  if (["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName)) {
    if (event.key === "Escape") document.activeElement.blur();
    return undefined;
  }
  const acts = { t: nextTheme, "?": toggleKeys, n: () => jump(1), p: () => jump(-1), "/": () => document.getElementById("search")?.focus() };
  if (!acts[event.key]) return undefined;
  event.preventDefault();
  return acts[event.key]();
});
// On paper nothing can be opened.
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));

section("verdict", "Verdict", verdict);
section("expectations", "Expectations", expectations);
section("timeline", "Timeline", timeline);
section("recovery", "Recovery", recovery);
section("operations", "Operations", operations);
section("events", "Event log", eventLog, true);
section("environment", "Environment", environment, true);
