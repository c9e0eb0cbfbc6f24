#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recovery against the number of channels: each measured fault as a point, medians as lines, recovered and detected.

    python3 plots/channels.py --results results --out DIR

Reads results/tables/faults.csv and runs.csv, set recovery_channels (scenarios/recovery_channels.yaml)."""

import statistics
import sys

import inputs
import style
import tables

NAME = "recovery_channels"
SET = "recovery_channels"
COMMAND = "r2bench run recovery_channels --no-plot --keep-going --out DIR; plots/collect.py run recovery_channels DIR"
SERIES = [("recover", "recovered", style.BLUE, "o"), ("detect", "detected", style.PURPLE, "s")]


def data(results):
    """{"evidence", "job", "channels": {number: [{"detect", "recover", "floor"}]}} in ms, one per measured fault; and how many faults
    that met traffic never recovered. "recover" is None where no rate before the fault is known."""
    channels, jobs, of_run, lost = {}, set(), {}, 0
    for row in tables.of_set(results, "runs", SET):
        of_run[row["run"], row["mode"]] = int(row["channels"])
        jobs.add(f"{row['op']} of {int(row['bytes']) / 2**20:g} MiB, {row['nodes']} nodes × {row['nics']} NICs")
        lost += int(row["unrecovered"])
    for fault in tables.of_set(results, "faults", SET):
        if fault["sampled"] == "1" and fault["detect_ms"] and (fault["recover_ms"] or fault["why_no_rate_before"]):
            channels.setdefault(of_run[fault["run"], fault["mode"]], []).append({"detect": float(fault["detect_ms"]), "recover": tables.number(fault["recover_ms"]),
                                                                                 "floor": float(fault["floor_ms"])})
    if not channels:
        raise inputs.NoData(COMMAND)
    if len(jobs) > 1:
        raise inputs.BadInput(f"{tables.path_of(results, 'runs')}: the set {SET} has different jobs: {' and '.join(sorted(jobs))}")
    return {"evidence": tables.evidence(results, SET), "job": jobs.pop(), "channels": dict(sorted(channels.items())), "unrecovered": lost}


def draw(table):
    figure, axes = style.pyplot.subplots(figsize=(style.SINGLE_COLUMN, 2.5))
    figure.subplots_adjust(left=0.17, right=0.965, top=0.81, bottom=0.235)
    numbers = list(table["channels"])
    for key, label, colour, marker in SERIES:
        points = [(n, f[key]) for n in numbers for f in table["channels"][n] if f[key] is not None]
        medians = [(n, statistics.median(ms for of, ms in points if of == n)) for n in numbers if n in dict(points)]
        axes.plot([n for n, _ in points], [ms for _, ms in points], linestyle="", marker=marker, markersize=2.6, color=colour, alpha=0.4,
                  markeredgewidth=0, gid=f"data:{key}")
        axes.plot([n for n, _ in medians], [ms for _, ms in medians], color=colour, marker=marker, markersize=4,
                  label=label, gid=f"median:{key}")
    axes.plot(numbers, [max(f["floor"] for f in table["channels"][n]) for n in numbers], color=style.INK, linestyle=(0, (4, 2)), linewidth=0.9,
              label="floor", gid="data:floor")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(style.ticker.FixedLocator(numbers))
    axes.xaxis.set_minor_locator(style.ticker.NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(style.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("channels of the job")
    axes.set_ylabel("time since the fault (ms)")
    axes.set_title(table["job"], loc="left", fontsize=7.5, pad=16)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.995), ncol=3, handlelength=2, columnspacing=1.2, borderaxespad=0)
    never = f" · {table['unrecovered']} never recovered" if table["unrecovered"] else ""
    without = sum(fault["recover"] is None for of in table["channels"].values() for fault in of)
    never += f" · {without} without a rate before it" if without else ""
    style.footer(figure, f"evidence: {table['evidence']} · port_down, live migration · lines: medians · points: single faults · floor: one segment at the rate that is left{never}")
    return figure


if __name__ == "__main__":
    sys.exit(inputs.run_main(sys.modules[__name__], __doc__))
