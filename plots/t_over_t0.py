#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the time of AllReduce with a degraded node, divided by that of the fault-free ring (T/T0).

    python3 plots/t_over_t0.py --out DIR results/tables/allreduce.csv

The left panel shows T/T0 against the lost fraction of the node's capacity, the right panel against the number of nodes. Each has a line per
algorithm, and the lower bound. Reads the table of harness/sim/sweep.py. Writes t_over_t0.png and t_over_t0.pdf."""

import argparse
import csv
import os
import sys

import inputs
import style

NAME = "t_over_t0"
COMMAND = "harness/sim/sweep.py build/release/bin/r2bench --out DIR; plots/collect.py sim allreduce DIR/allreduce.csv"

# Name in the table: label, colour, marker.
ALGORITHMS = {
    "ring": ("ring (Balance)", style.VERMILION, "o"),
    "unequal_ring": ("unequal ring", style.ORANGE, "v"),
    "double_tree": ("double tree", style.SKY, "s"),
    "upstream": ("upstream, K = 16", style.INK, "x"),
    "r2ccl_allreduce": ("R2CCL-AllReduce", style.PURPLE, "D"),
    "four_stage": ("four-stage", style.BLUE, "^"),
    "mix": ("mix", style.GREEN, "P"),
    "direct": ("direct", style.YELLOW, "*"),
}
SEGMENTS, DEGRADED = 32, 1


def load(path):
    """{(nodes, lost): {algorithm: T/T0, "bound": T/T0}} with one degraded node. BadInput: not such a table."""
    table = {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if int(row["segments"]) != SEGMENTS or int(row["degraded"]) != DEGRADED:
                    continue
                point = table.setdefault((int(row["nodes"]), float(row["lost"])), {})
                point[row["algorithm"]] = float(row["simulated_t0"])
                point["bound"] = float(row["bound_t0"])
    except OSError as error:
        raise inputs.BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise inputs.BadInput(f"{path}: is no table of harness/sim/sweep.py, or was cut off ({error!r}); make it again: {COMMAND}") from error
    if not table:
        raise inputs.BadInput(f"{path}: no row with K = {SEGMENTS} and one degraded node; make it again: {COMMAND}")
    return table


def data(results, nodes=16, lost=0.5):
    """What load() gives, with the number of nodes of the left panel and the lost part of the right one."""
    path = os.path.join(results, "tables", "allreduce.csv")
    if not os.path.exists(path):
        raise inputs.NoData(COMMAND)
    return load(path), nodes, lost


def panel(axes, table, fixed, index):
    """`index` 0: against nodes, at fixed lost part; 1: the other way round."""
    keys = sorted(key for key in table if key[1 - index] == fixed)
    xs = [key[index] for key in keys]
    for name, (label, colour, marker) in ALGORITHMS.items():
        points = [(x, table[key][name]) for x, key in zip(xs, keys) if name in table[key]]
        axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=marker, markersize=3.5, label=label, gid=f"data:{index}:{name}")
    axes.plot(xs, [table[key]["bound"] for key in keys], color=style.INK, linestyle="--", linewidth=1, label="lower bound", gid=f"data:{index}:bound")
    if index == 0:
        axes.set_xscale("log", base=2)
    axes.set_xticks(xs, [f"{x:g}" for x in xs])
    axes.xaxis.set_minor_locator(style.ticker.NullLocator())
    axes.xaxis.set_minor_formatter(style.ticker.NullFormatter())
    axes.set_ylim(0.95, 2.1)  # an algorithm that leaves the panel is slower than the ring


def draw(what):
    table, nodes, lost = what
    figure, (left, right) = style.pyplot.subplots(1, 2, figsize=(style.DOUBLE_COLUMN, 2.9), sharey=True)
    figure.subplots_adjust(left=0.07, right=0.775, top=0.9, bottom=0.2, wspace=0.08)
    panel(left, table, nodes, 1)
    panel(right, table, lost, 0)
    left.set_xlabel("lost part x of one node's capacity")
    left.set_ylabel("T / T0 (fault-free ring)")
    left.set_title(f"{nodes} nodes", loc="left")
    right.set_xlabel("nodes")
    right.set_title(f"x = {lost:g}", loc="left")
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.2)
    style.footer(figure, f"evidence: simulated (flow simulator, K = {SEGMENTS}, latency 0); ring, upstream and lower bound have closed forms")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="allreduce.csv")
    parser.add_argument("--out", default=".", help="folder of the figure")
    parser.add_argument("--nodes", type=int, default=16, help="number of nodes in the left panel (default: 16)")
    parser.add_argument("--lost", type=float, default=0.5, help="lost fraction in the right panel (default: 0.5)")
    arguments = parser.parse_args()
    style.use()
    try:
        table = load(arguments.table)
        if not any(n == arguments.nodes for n, _ in table) or not any(x == arguments.lost for _, x in table):
            raise inputs.BadInput(f"{arguments.table}: nothing with {arguments.nodes} nodes, or nothing with x = {arguments.lost:g}")
        style.save(draw((table, arguments.nodes, arguments.lost)), arguments.out, NAME)
    except inputs.BadInput as error:
        print(f"t_over_t0.py: {error}", file=sys.stderr)
        return inputs.BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
