#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bus bandwidth of a healthy AllReduce against its size, one line per mode: medians over operations, with the middle half of them.

    python3 plots/busbw.py --results results --out DIR

Reads results/tables/runs.csv, set busbw_sizes (scenarios/busbw_sizes.yaml)."""

import sys

import inputs
import style
import tables

try:
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
except ImportError:
    sys.exit(3)

NAME = "busbw"
SET = "busbw_sizes"
COMMAND = "r2bench run busbw_sizes --no-plot --out DIR; plots/collect.py run busbw_sizes DIR"


def data(results):
    """{"evidence", "job", "ports": GB/s, "modes": {mode: [{"bytes", "median", "low", "high"}]}}: busbw in GB/s; low and high hold
    the middle half of the operations. Runs in which an element was wrong are left out."""
    modes, jobs, ports = {}, set(), 0.0
    for row in tables.of_set(results, "runs", SET):
        if row["outcome"] != "ok" or row["exact"] != "1" or not row["busbw_p50_gbytes"]:
            continue
        jobs.add(f"{row['op']}, {row['nodes']} nodes × {row['nics']} NICs of {row['nic_gbps']} Gbit/s")
        ports = float(row["nics"]) * float(row["nic_gbps"]) / 8
        modes.setdefault(row["mode"], []).append({"bytes": int(row["bytes"]), "median": float(row["busbw_p50_gbytes"]), "low": float(row["busbw_p25_gbytes"]),
                                                  "high": float(row["busbw_p75_gbytes"])})
    if not modes:
        raise inputs.NoData(COMMAND)
    if len(jobs) > 1:
        raise inputs.BadInput(f"{tables.path_of(results, 'runs')}: the set {SET} has different jobs: {' and '.join(sorted(jobs))}")
    for points in modes.values():
        points.sort(key=lambda p: p["bytes"])
    return {"evidence": tables.evidence(results, SET), "job": jobs.pop(), "ports": ports, "modes": modes}


def draw(table):
    figure, axes = pyplot.subplots(figsize=(style.SINGLE_COLUMN, 2.5))
    figure.subplots_adjust(left=0.15, right=0.965, top=0.9, bottom=0.255)
    colours = style.colours_of(table["modes"])
    sizes = sorted({p["bytes"] for points in table["modes"].values() for p in points})
    if table["ports"] > 0:
        axes.axhline(table["ports"], color=style.INK, linestyle=(0, (4, 2)), linewidth=0.8)
        axes.text(sizes[0], table["ports"] * 1.02, "all ports of a node", fontsize=7, va="bottom", ha="left")
    for number, (mode, points) in enumerate(table["modes"].items()):
        xs = [p["bytes"] for p in points]
        axes.fill_between(xs, [p["low"] for p in points], [p["high"] for p in points], color=colours[mode], alpha=0.15, linewidth=0)
        axes.plot(xs, [p["median"] for p in points], color=colours[mode], marker="os^D"[number % 4], markersize=3.5, label=mode, gid=f"data:{mode}")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes[::2] if len(sizes) > 5 else sizes))
    axes.xaxis.set_major_formatter(FuncFormatter(inputs.size))
    axes.xaxis.set_minor_locator(NullLocator())
    top = max([table["ports"]] + [p["high"] for points in table["modes"].values() for p in points])
    axes.set_ylim(0, top * 1.15)
    axes.set_xlabel("size of the AllReduce")
    axes.set_ylabel("bus bandwidth (GB/s)")
    axes.set_title(table["job"], loc="left", fontsize=7.5)
    axes.legend(loc="lower right", handlelength=2.2)
    style.footer(figure, f"evidence: {table['evidence']} · medians; shaded: the middle half of the operations")
    return figure


if __name__ == "__main__":
    sys.exit(inputs.run_main(sys.modules[__name__], __doc__))
