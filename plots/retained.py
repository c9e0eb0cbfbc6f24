#!/usr/bin/env python3
"""Retained bandwidth against the number of NICs that are lost, one line per mode, with the limit of each.

    python3 plots/retained.py --out DIR results/reference/k_of_8_nics/*/result.json

Reads results of one scenario whose runs lose different numbers of a node's NICs (such as k_of_8_nics); several results of
one number are repetitions: the mean is drawn, and each of them as a point. Writes retained.png and retained.pdf."""

import argparse
import collections
import glob
import os
import re
import sys

import inputs
import style

NAME = "retained"
COMMAND = "r2bench run k_of_8_nics --no-plot --out results/reference/k_of_8_nics"

try:
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator
except ImportError:
    sys.exit(3)

DOWN = {"port_down", "device_fatal", "device_removed", "device_internal_error", "blackhole"}


def numbers(pattern):
    """The numbers that 'nic3', 'nic[0-2,5]' or 'nic*' name; None: all."""
    text = pattern[len("nic"):]
    if text == "*":
        return None
    found = set()
    for part in text.strip("[]").split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def lost(result, run):
    """How many NICs of the node that loses most, by the faults that were seen."""
    nics = result["fabric"]["nics_per_node"]
    gone = collections.defaultdict(set)
    for fault in run["faults"]:
        if fault["kind"] in DOWN and fault["witnessed"] and fault["healed_at_ms"] is None:
            node, nic = re.split("/", fault["target"])[:2]
            gone[node] |= numbers(nic) or set(range(nics))
    return max((len(names) for names in gone.values()), default=0)


def load(paths):
    """{"modes": {mode: {lost: [(retained, limit)]}}, "job", "nics", "evidence", "versions"}. BadInput when they do not belong together."""
    modes, shared, versions = {}, None, set()
    for path in paths:
        result = inputs.read_result(path)
        versions.add(result["schema_version"])
        fabric, workload = result["fabric"], result["workload"]
        common = (fabric["kind"], fabric["nodes"], fabric["nics_per_node"], workload["op"], workload["bytes"], result["evidence"])
        if shared not in (None, common):
            raise inputs.BadInput(f"{path}: another job than the ones before: {common} and {shared}")
        shared = common
        for run in result["runs"]:
            rate = run["metrics"]["throughput"]
            if rate["retained"] is None or not run["metrics"]["correctness"]["exact"]:
                continue
            modes.setdefault(run["mode"], {}).setdefault(lost(result, run), []).append((rate["retained"], rate["limit"]))
    if not modes:
        raise inputs.BadInput(f"{paths[0]}: no result has a retained bandwidth" if paths else "no result has a retained bandwidth")
    kind, nodes, nics, op, size, evidence = shared
    return {"modes": modes, "job": f"{op} of {size / 2**20:g} MiB, {nodes} nodes", "nics": nics, "evidence": f"{evidence} ({kind})",
            "versions": sorted(versions)}


def data(results):
    paths = sorted(glob.glob(os.path.join(results, "reference", "k_of_8_nics", "*", "result.json")))
    if not paths:
        raise inputs.NoData(COMMAND)
    return load(paths)


def draw(table):
    modes, nics = table["modes"], table["nics"]
    figure, axes = pyplot.subplots(figsize=(style.SINGLE_COLUMN, 2.5))
    figure.subplots_adjust(left=0.15, right=0.97, top=0.9, bottom=0.23)
    colours = style.colours_of(modes)
    for number, (mode, points) in enumerate(modes.items()):
        lost_nics = sorted(points)
        axes.plot([0] + lost_nics, [1] + [points[k][0][1] for k in lost_nics], color=colours[mode], alpha=0.6, linewidth=0.9,
                  linestyle="--", label=f"{mode}: limit", gid=f"data:limit:{mode}")
        axes.plot([0] + lost_nics, [1] + [sum(r for r, _ in points[k]) / len(points[k]) for k in lost_nics], color=colours[mode],
                  marker="os^D"[number % 4], markersize=3.5, label=mode, gid=f"data:retained:{mode}")
        for k in lost_nics:
            if len(points[k]) > 1:
                axes.plot([k] * len(points[k]), [r for r, _ in points[k]], linestyle="", marker="_", color=colours[mode], markersize=5)
    axes.set_xlim(-0.2, nics - 0.8)
    axes.set_ylim(0, 1.05)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"NICs lost, of {nics} of one node")
    axes.set_ylabel("retained bandwidth (of 1)")
    axes.set_title(table["job"], loc="left")
    axes.legend(loc="upper right", handlelength=2.2)
    versions = " and ".join(map(str, table["versions"]))
    style.footer(figure, f"evidence: {table['evidence']} · every element right · results of schema version {versions}")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="+", help="result.json files")
    parser.add_argument("--out", default=".", help="folder of the figure")
    arguments = parser.parse_args()
    style.use()
    try:
        style.save(draw(load(arguments.result)), arguments.out, NAME)
    except (inputs.BadInput, OSError, KeyError, TypeError) as error:
        print(f"retained.py: {error}", file=sys.stderr)
        return inputs.BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
