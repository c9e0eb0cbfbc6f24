#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the throughput around a fault: above the whole run, below the milliseconds around the fault, with one line per mode.

Reads a run's result.json and the timeline.json beside it; writes timeline.png and timeline.pdf."""

import argparse
import bisect
import os
import sys

import inputs
import style

NAME = "timeline"
COMMAND = "r2bench run nic_down --out results/reference/nic_down"

MARKS = [("t0_at_ms", "fault", "v"), ("detected_at_ms", "detected", "o"), ("migrated_at_ms", "migrated", "s"),
         ("recovered_at_ms", "recovered", "D")]


def load(path):
    result = inputs.read_result(path)
    beside = os.path.join(os.path.dirname(path) or ".", "timeline.json")
    if not os.path.exists(beside):
        raise inputs.BadInput(f"{beside}: no such file; the curves of {os.path.basename(path)} are in it: copy the whole folder of the run")
    timeline = inputs.read_json(beside)
    if not isinstance(timeline, dict) or "modes" not in timeline:
        raise inputs.BadInput(f"{beside}: is no timeline of r2bench run; copy the whole folder of the run again")
    return result, {mode["mode"]: mode for mode in timeline["modes"]}


def data(results):
    """(result, {mode: curve}) of the reference run of nic_down."""
    path = os.path.join(results, "reference", "nic_down", "result.json")
    if not os.path.exists(path):
        raise inputs.NoData(COMMAND)
    return load(path)


def first_fault(run):
    """The first firing that counts, else the first that was seen at all."""
    seen = [f for f in run["faults"] if f["t0_at_ms"] is not None]
    return next((f for f in seen if f["sampled"]), seen[0] if seen else None)


def smooth(times, values, opens, bin_ms, width_ms):
    """Means over `width_ms`, so that a line of thousands of bins can be read. A bin counts by how much of it an
    operation was under way: what lies between operations (comparing the results) is left out, as the measurement
    leaves it out."""
    if not times:
        return [], []
    step = max(1, round(width_ms / bin_ms)) if bin_ms > 0 else 1
    xs, ys = [], []
    enough = 0.25 * step * sum(opens) / len(opens)  # a moment at the job's end says nothing of a rate
    for i in range(0, len(times), step):
        weight = sum(opens[i:i + step])
        if weight > enough:
            xs.append(times[i] + bin_ms * min(step, len(times) - i) / 2)
            ys.append(sum(v * o for v, o in zip(values[i:i + step], opens[i:i + step])) / weight)
    return xs, ys


def sliding_rate(raw, t0, low, high, window_ms, ended):
    """Gbit/s in a window centred on each point, from exact deliveries; times relative to t0. After the last
    delivery of a job that `ended` there is silence; of one that went on, only nothing recorded."""
    times = [t - t0 for t in raw["time_ms"]]
    total, sums = 0, [0]
    for size in raw["bytes"]:
        total += size
        sums.append(total)
    if not times:
        return [], []
    xs, ys, steps = [], [], 800
    for i in range(steps + 1):
        x = low + (high - low) * i / steps
        begin, end = x - window_ms / 2, x + window_ms / 2
        if begin < times[0] or (not ended and end > times[-1]):
            continue
        delivered = sums[bisect.bisect_right(times, end)] - sums[bisect.bisect_right(times, begin)]
        xs.append(x)
        ys.append(delivered * 8 / (window_ms * 1e-3) / 1e9)
    return xs, ys


def line_width(index, runs):
    """Earlier lines are wider, so that they show beneath a later one that runs over them."""
    return 1.2 + 0.9 * (len(runs) - 1 - index)


def how_it_ended(run):
    if run["outcome"] == "ok":
        return "finished"
    return {"error": "job ended in an error", "hang": "job hung", "killed": "a rank died",
            "cancelled": "cut short"}[run["outcome"]]


def draw_whole(axes, runs, curves, colours):
    """The whole run in seconds, each mode from its own first iteration."""
    top, ends = 0, []
    span = max((c["total"]["time_ms"][-1] for c in curves.values() if c["total"]["time_ms"]), default=0)
    for index, run in enumerate(runs):
        curve = curves.get(run["mode"])
        if not curve or not curve["total"]["time_ms"]:
            continue
        total = curve["total"]
        xs, ys = smooth(total["time_ms"], total["gbps"], total["open"], curve["bin_ms"], max(span / 120, 50))
        top = max([top] + ys)
        axes.plot([x / 1000 for x in xs], ys, color=colours[run["mode"]], zorder=3 + index, gid=f"data:whole:{run['mode']}",
                  linewidth=line_width(index, runs), linestyle=style.LINE_STYLES[index % len(style.LINE_STYLES)])
        if run["outcome"] != "ok":
            end = (curve["end_ms"] if curve["end_ms"] is not None else total["time_ms"][-1]) / 1000
            ends.append((end, run))
    for run in runs:
        shade_faults(axes, run, curves.get(run["mode"]), 1000.0)
    draw_limits(axes, runs, curves, colours, scale=1000.0)
    top = top or 1
    axes.set_ylim(0, top * (1.08 + 0.14 * max(1, len(ends))))
    for row, (end, run) in enumerate(ends):
        level = top * (1.10 + 0.14 * row)
        axes.plot([end, end], [0, level], color=colours[run["mode"]], linewidth=0.7, linestyle=(0, (2, 2)), zorder=2)
        axes.plot([end], [level], marker="x", color=colours[run["mode"]], markersize=5, markeredgewidth=1.5, zorder=9)
        late = end > 0.6 * axes.get_xlim()[1]
        axes.annotate(f"{run['mode']}: {how_it_ended(run)}", (end, level), xytext=(-6 if late else 6, 0),
                      textcoords="offset points", fontsize=7, color=colours[run["mode"]], va="center",
                      ha="right" if late else "left", zorder=10)
    axes.set_xlim(left=0)
    axes.margins(x=0.01)
    axes.yaxis.set_major_locator(style.ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.set_xlabel("time since the first iteration (s)")
    axes.set_ylabel("delivered (Gbit/s)")


def shade_faults(axes, run, curve, scale):
    end = curve["end_ms"] if curve and curve["end_ms"] is not None else None
    for fault in run["faults"]:
        if fault["t0_at_ms"] is None:
            continue
        until = fault["healed_at_ms"] if fault["healed_at_ms"] is not None else end
        if until is not None and until > fault["t0_at_ms"]:
            axes.axvspan(fault["t0_at_ms"] / scale, until / scale, color="#888888", alpha=0.09, linewidth=0, zorder=0)


def limit_steps(run, curve):
    """[(ms, limit)] from the first fault on: what the mode can carry at best, at each change of the NICs that are left. A result of
    version 1 knows the limit of one fault only."""
    if "limits" in curve:
        return list(zip(curve["limits"]["time_ms"], curve["limits"]["limit"]))
    fault = first_fault(run)
    return [(fault["t0_at_ms"], run["metrics"]["throughput"]["limit"])] if fault is not None else []


def draw_limits(axes, runs, curves, colours, scale=1.0, since=None):
    """What the mode can carry at best: a dashed line of its colour, from the first change to the end of the job. `since`: by mode,
    the moment that is 0 on this axis."""
    for run in runs:
        curve, before = curves.get(run["mode"]), run["metrics"]["throughput"]["before_gbps"]
        if run["outcome"] != "ok" or not curve or not curve["total"]["time_ms"] or before <= 0:
            continue
        steps = limit_steps(run, curve)
        if not any(limit < 1 for _, limit in steps):
            continue
        zero = since.get(run["mode"], 0) if since is not None else 0
        end = curve["end_ms"] if curve["end_ms"] is not None else curve["total"]["time_ms"][-1]
        xs = [(at - zero) / scale for at, _ in steps] + [(end - zero) / scale]
        ys = [limit * before for _, limit in steps]
        axes.plot(xs, ys + ys[-1:], drawstyle="steps-post", color=colours[run["mode"]], linestyle=(0, (5, 3)), linewidth=0.8, zorder=2,
                  scalex=False)


def window_of(runs):
    """How far to look around the fault, so that every mark of the first recoveries is inside."""
    latest = 0
    for run in runs:
        fault = first_fault(run)
        if fault is not None and run["outcome"] == "ok":
            for key, _, _ in MARKS:
                if fault[key] is not None:
                    latest = max(latest, fault[key] - fault["t0_at_ms"])
    return 60 if latest <= 50 else min(latest * 1.25, 3000)


def draw_around_fault(axes, runs, curves, colours):
    """Milliseconds around t0 of the first fault of each mode, from exact delivery times."""
    high = window_of(runs)
    low = -high / 3
    top, marks, averaged = 0, [], 0
    for index, run in enumerate(runs):
        fault, curve = first_fault(run), curves.get(run["mode"])
        if fault is None or not curve:
            continue
        window = max(2.0, fault["floor_ms"])
        averaged = max(averaged, window)
        xs, ys = sliding_rate(curve["raw"], fault["t0_at_ms"], low, high, window, run["outcome"] != "ok")
        axes.plot(xs, ys, color=colours[run["mode"]], zorder=3 + index, gid=f"data:fault:{run['mode']}",
                  linewidth=line_width(index, runs), linestyle=style.LINE_STYLES[index % len(style.LINE_STYLES)])
        top = max([top] + ys)
        own = [(fault[key] - fault["t0_at_ms"], label, marker) for key, label, marker in MARKS[1:]
               if fault[key] is not None and fault[key] - fault["t0_at_ms"] <= high]
        if own:
            marks.append((colours[run["mode"]], own))
    top = top or 1
    axes.set_ylim(0, top * (1.12 + 0.34 * max(1, len(marks))))
    axes.set_xlim(low, high)
    axes.axvspan(0, high, color="#888888", alpha=0.09, linewidth=0, zorder=0)
    axes.axvline(0, color=style.INK, linewidth=0.8, zorder=4)
    axes.text(low * 0.04, axes.get_ylim()[1] * 0.985, "fault", ha="right", va="top", fontsize=7)
    for row, (colour, own) in enumerate(marks):
        draw_marks(axes, own, colour, high - low, top, row)
    zeros = {run["mode"]: first_fault(run)["t0_at_ms"] for run in runs if first_fault(run) is not None}
    draw_limits(axes, [run for run in runs if run["mode"] in zeros], curves, colours, since=zeros)
    axes.yaxis.set_major_locator(style.ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.set_xlabel("time since the fault (ms)")
    axes.set_ylabel("delivered (Gbit/s)" + (f"\nmean over {averaged:.2g} ms" if averaged else ""))


def draw_marks(axes, own, colour, span, top, row):
    """One row of names above the curves, moved apart until none covers another; a thin line leads to the exact
    time."""
    dot = top * (1.12 + 0.34 * row)
    room, own = span * 0.118, sorted(own)
    places, low = [], span * 0.012
    for at, _, _ in own:
        places.append(max(at + span * 0.012, low))
        low = places[-1] + room
    limit = span * 0.75 - room  # the axis ends at three quarters of its span after the fault
    for i in reversed(range(len(places))):
        places[i] = min(places[i], limit)
        limit = places[i] - room
    for text_at, (at, label, marker) in zip(places, own):
        axes.plot([at, at], [0, dot], color=colour, linewidth=0.7, linestyle=(0, (2, 2)), zorder=4)
        axes.plot([at, text_at], [dot, dot + top * 0.075], color=colour, linewidth=0.5, zorder=4)
        axes.plot([at], [dot], marker=marker, color=colour, markersize=3.5, zorder=11)
        axes.text(text_at + span * 0.003, dot + top * 0.06, f"{label}\n{at:.3g} ms", ha="left", va="bottom",
                  fontsize=7, color=colour, zorder=10, linespacing=1.15)


def title_of(result):
    fabric, work = result["fabric"], result["workload"]
    rate = fabric["nic_rate_bits_per_s"]
    nics = f"{fabric['nics_per_node']} NICs" + (f" × {rate / 1e9:g} Gbit/s" if rate else "")
    what = "a command" if work["engine"] == "exec" else f"{work['op']} of {work['bytes'] / 2**20:g} MiB {work['dtype']}"
    return f"{result['scenario']}: {what}, {fabric['nodes']} nodes × {nics}"


def footer_of(result):
    shown = []
    for key in ("NCCL_IB_RETRY_CNT", "NCCL_IB_TIMEOUT", "R2CC_PROBE_MS", "R2CC_STRICT_ACK", "R2CC_SUSPECT_MS"):
        by_mode = {run["mode"]: run["settings"][key] for run in result["runs"] if key in run["settings"]}
        if len(set(by_mode.values())) == 1:
            shown.append(f"{key} {next(iter(by_mode.values()))}")
        elif by_mode:
            shown.append(f"{key} " + ", ".join(f"{value} ({mode})" for mode, value in by_mode.items()))
    parts = [f"evidence: {result['evidence']} ({result['fabric']['kind']})", f"seed {result['seed']}"] + shown
    wakeups = [run["metrics"]["recovery"]["wakeup_p99_ms"] for run in result["runs"]]
    wakeups = [w for w in wakeups if w is not None]
    if wakeups:
        parts.append(f"wake-up p99 {max(wakeups):.2g} ms")
    if result["workload"].get("verify"):
        parts.append("nothing travels while results are compared, between operations")
    parts += [f"verdict {result['verdict']}", result["started_at"]]
    return " · ".join(parts)


def legend(axes, runs, curves, colours):
    handles = [style.lines.Line2D([], [], color=colours[run["mode"]], linestyle=style.LINE_STYLES[i % len(style.LINE_STYLES)],
                               label=run["mode"]) for i, run in enumerate(runs)]
    if any(run["outcome"] == "ok" and any(limit < 1 for _, limit in limit_steps(run, curves[run["mode"]])) for run in runs):
        handles.append(style.lines.Line2D([], [], color=style.INK, linestyle=(0, (5, 3)), linewidth=0.8,
                                         label="what the mode can carry at best"))
    if any(run["faults"] for run in runs):
        handles.append(style.patches.Patch(facecolor="#888888", alpha=0.2, label="fault"))
    if not handles:
        return
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncol=len(handles), borderaxespad=0.2,
                handlelength=2.2, columnspacing=1.6)


def draw(table):
    result, curves = table
    runs = [run for run in result["runs"] if run["mode"] in curves]
    colours = style.colours_of([run["mode"] for run in runs])
    around = any(first_fault(run) is not None and curves[run["mode"]]["raw"]["time_ms"] for run in runs)
    # Fixed margins: layout engines differ between the versions of matplotlib that distributions carry.
    figure = style.pyplot.figure(figsize=(style.DOUBLE_COLUMN, 4.7 if around else 2.9))
    panels = figure.subplots(2 if around else 1, 1, squeeze=False)
    figure.subplots_adjust(left=0.09, right=0.985, hspace=0.32, top=0.895 if around else 0.83,
                           bottom=0.14 if around else 0.23)
    figure.suptitle(title_of(result), fontsize=9, x=0.01, y=0.985, ha="left", va="top")
    draw_whole(panels[0][0], runs, curves, colours)
    legend(panels[0][0], runs, curves, colours)
    if around:
        draw_around_fault(panels[1][0], runs, curves, colours)
    style.footer(figure, footer_of(result))
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", help="result.json of a run, with timeline.json in the same folder")
    parser.add_argument("--out", help="folder of the figure (default: the result's)")
    arguments = parser.parse_args()
    style.use()
    try:
        result, curves = load(arguments.result)
    except inputs.BadInput as error:
        print(error, file=sys.stderr)
        return inputs.BAD_INPUT
    except (KeyError, TypeError) as error:
        print(f"{arguments.result}: does not hold what a result of its version should: {error!r}", file=sys.stderr)
        return inputs.BAD_INPUT
    style.save(draw((result, curves)), arguments.out or os.path.dirname(arguments.result) or ".", "timeline")
    return 0


if __name__ == "__main__":
    sys.exit(main())
