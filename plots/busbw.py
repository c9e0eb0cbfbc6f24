#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bus bandwidth of AllReduce against its size, one line per mode: healthy, as medians over operations with the middle half of them; and with
one degraded node, mode 3 beside NCCL's ring under live migration and under Balance, a panel for each lost part.

    python3 plots/busbw.py --results results --out DIR

Reads results/tables/runs.csv, set busbw_sizes (scenarios/busbw_sizes.yaml); and allreduce_sizes.csv, sets mode3_sizes_3 and mode3_sizes_1GiB (busbw_mode3)."""

import sys

import inputs
import style
import tables

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
    figure, axes = style.pyplot.subplots(figsize=(style.SINGLE_COLUMN, 2.5))
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
    axes.xaxis.set_major_locator(style.ticker.FixedLocator(sizes[::2] if len(sizes) > 5 else sizes))
    axes.xaxis.set_major_formatter(style.ticker.FuncFormatter(inputs.size))
    axes.xaxis.set_minor_locator(style.ticker.NullLocator())
    top = max([table["ports"]] + [p["high"] for points in table["modes"].values() for p in points])
    axes.set_ylim(0, top * 1.15)
    axes.set_xlabel("size of the AllReduce")
    axes.set_ylabel("bus bandwidth (GB/s)")
    axes.set_title(table["job"], loc="left", fontsize=7.5)
    axes.legend(loc="lower right", handlelength=2.2)
    style.footer(figure, f"evidence: {table['evidence']} · medians; shaded: the middle half of the operations")
    return figure


class Mode3:
    """The figure with one degraded node."""

    NAME = "busbw_mode3"
    SETS = ("mode3_sizes_3", "mode3_sizes_1GiB")  # a set for the largest size may be missing
    COMMAND = "harness/bench/allreduce_table.py sizes --out DIR; plots/collect.py sizes mode3_sizes_3 DIR/sizes.csv"
    LINES = {"ring": ("ring, live migration", style.BLUE, "o"), "balance": ("ring, Balance", style.GREEN, "s"), "mode3": ("mode 3", style.PURPLE, "^")}

    @classmethod
    def data(cls, results):
        """{"evidence", "nodes", "gbps": of a node, "panels": {lost: {algorithm: [(bytes, GB/s)]}}, "bounds": {lost: [(bytes, GB/s)]}}; the line `bound` is that
        of the lower bound at the ports' rate."""
        panels, bounds, shapes = {}, {}, set()
        for row in (row for measured in cls.SETS for row in tables.of_set(results, "allreduce_sizes", measured)):
            nodes, size = int(row["nodes"]), int(row["bytes"])
            volume = 2 * (nodes - 1) / nodes * size / 1e6  # busbw in GB/s from ms
            shapes.add((nodes, float(row["mbits"]) * 4 / 1000))
            panels.setdefault(row["lost"], {}).setdefault(row["algorithm"], []).append((size, volume / float(row["t_ms"])))
            bounds.setdefault(row["lost"], {})[size] = (volume, float(row["bound_ms"]))
        if not panels:
            raise inputs.NoData(cls.COMMAND)
        if len({nodes for nodes, _ in shapes}) > 1:
            raise inputs.BadInput(f"{tables.path_of(results, 'allreduce_sizes')}: the sets {', '.join(cls.SETS)} have different numbers of nodes")
        for lines in panels.values():
            for points in lines.values():
                points.sort()
        # One bus bandwidth for all sizes; the table rounds the times of small operations, so the largest one tells it.
        for points in bounds.values():
            volume, milliseconds = points[max(points)]
            points.update((size, volume / milliseconds) for size in list(points))
        return {"evidence": tables.evidence(results, cls.SETS[0]), "nodes": min(shapes)[0], "gbps": sorted({gbps for _, gbps in shapes}), "panels": panels,
                "bounds": {lost: sorted(points.items()) for lost, points in bounds.items()}}

    @classmethod
    def draw(cls, table):
        names = sorted(table["panels"], key=fraction)
        figure, panels = style.pyplot.subplots(1, len(names), figsize=(style.DOUBLE_COLUMN, 2.6), sharey=True, squeeze=False)
        left, right = 0.07, 0.985
        figure.subplots_adjust(left=left, right=right, top=0.8, bottom=0.24, wspace=0.08)
        for axes, lost in zip(panels[0], names):
            for name, (label, colour, marker) in cls.LINES.items():
                points = table["panels"][lost].get(name, [])
                if points:
                    axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=marker, markersize=3.5, label=label, gid=f"data:{lost}:{name}")
            bound = table["bounds"][lost]
            axes.plot([x for x, _ in bound], [y for _, y in bound], color=style.INK, linestyle="--", linewidth=0.8, label="at the lower bound of time", gid=f"data:{lost}:bound")
            axes.set_xscale("log", base=2)
            sizes = [x for x, _ in bound]
            axes.xaxis.set_major_locator(style.ticker.FixedLocator(sizes[::max(1, -(-len(sizes) // 3))]))
            axes.xaxis.set_major_formatter(style.ticker.FuncFormatter(inputs.size))
            axes.xaxis.set_minor_locator(style.ticker.NullLocator())
            axes.tick_params(axis="x", labelsize=6.5)
            ends = axes.get_xticklabels()  # beside those of the next panel
            ends[0].set_horizontalalignment("left")
            if axes.get_xticks()[-1] == sizes[-1]:
                ends[-1].set_horizontalalignment("right")
            axes.set_ylim(bottom=0)
            axes.set_title("nothing lost" if lost == "0" else f"x = {lost}", loc="left", fontsize=7.5)
        panels[0][0].set_ylabel("bus bandwidth (GB/s)")
        figure.supxlabel("size of the AllReduce", x=(left + right) / 2, y=0.095, va="bottom", fontsize=8)
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", ncol=4, columnspacing=1.2, handlelength=2.2, fontsize=7)
        rate = " and ".join(f"{gbps:g}" for gbps in table["gbps"])
        style.footer(figure, f"evidence: {table['evidence']} · {table['nodes']} nodes of {rate} Gbit/s, x of one node's NICs lost in mid-run · medians over jobs")
        return figure


def fraction(text):
    """0.125 of '1/8'."""
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


if __name__ == "__main__":
    status = inputs.run_main(sys.modules[__name__], __doc__)
    sys.exit(status or inputs.run_main(Mode3, __doc__))
