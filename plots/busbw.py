#!/usr/bin/env python3
"""Bus bandwidth of a healthy AllReduce against its size, one line per mode: medians over operations, with the middle half of them.

    python3 plots/busbw.py --results results --out DIR

Reads results/reference/busbw_sizes/*/result.json (scenarios/busbw_sizes.yaml)."""

import sys

import inputs
import style

try:
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
except ImportError:
    sys.exit(3)

NAME = "busbw"
FOLDER = ("reference", "busbw_sizes")
COMMAND = "r2bench run busbw_sizes --no-plot --out results/reference/busbw_sizes"


def quantile(ordered, part):
    """Nearest rank."""
    return ordered[min(len(ordered) - 1, max(0, int(part * len(ordered) + 0.9999) - 1))]


def data(results):
    """{"evidence", "job", "ports": GB/s, "modes": {mode: [{"bytes", "median", "low", "high"}]}}: busbw in GB/s; low and high hold
    the middle half of the operations. Runs in which an element was wrong are left out."""
    modes, evidence, jobs, ports = {}, [], set(), set()
    for _, result in inputs.in_folder(results, *FOLDER):
        fabric, work = result["fabric"], result["workload"]
        evidence.append(f"{result['evidence']} ({fabric['kind']})")
        jobs.add(f"{work['op']}, {fabric['nodes']} nodes × {fabric['nics_per_node']} NICs of {fabric['nic_rate_bits_per_s'] / 1e9:g} Gbit/s")
        ports.add(fabric["nics_per_node"] * fabric["nic_rate_bits_per_s"] / 8e9)
        for run in result["runs"]:
            row = run["row"]
            if run["outcome"] != "ok" or not run["metrics"]["correctness"]["exact"] or not row["algbw_gbytes"]:
                continue
            factor = row["busbw_gbytes"] / row["algbw_gbytes"]
            rates = sorted(row["size_bytes"] / (ms * 1e6) * factor for ms in run["iteration_ms"])
            modes.setdefault(run["mode"], []).append({"bytes": row["size_bytes"], "median": quantile(rates, 0.5), "low": quantile(rates, 0.25),
                                                      "high": quantile(rates, 0.75)})
    if not modes:
        raise inputs.NoData(COMMAND)
    if len(jobs) > 1:
        raise inputs.BadInput(f"{'/'.join(FOLDER)}: results of different jobs: {' and '.join(sorted(jobs))}")
    for points in modes.values():
        points.sort(key=lambda p: p["bytes"])
    return {"evidence": inputs.one_evidence(evidence), "job": jobs.pop(), "ports": ports.pop(), "modes": modes}


def size(value, _=None):
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g} B"


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
    axes.xaxis.set_major_formatter(FuncFormatter(size))
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
