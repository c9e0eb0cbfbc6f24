#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the retained bandwidth against the number of lost NICs, with a line per mode and the limit of each mode.

    python3 plots/retained.py --out DIR results/runs/k_of_8_nics-TIME/*/result.json

Reads results/tables/runs.csv (set k_of_8_nics), or results of one scenario whose runs lose different numbers of a node's NICs, such as
k_of_8_nics. If there are several results for a number, their mean is drawn as the line, and each result as a point. Writes retained.png and
retained.pdf."""

import argparse
import sys

import collect
import inputs
import style
import tables

NAME = "retained"
SET = "k_of_8_nics"
COMMAND = "r2bench run k_of_8_nics --no-plot --out DIR; plots/collect.py run k_of_8_nics DIR"


def of_rows(rows, evidence, name):
    """{"modes": {mode: {lost: [(retained, limit)]}}, "left_out": {mode: rows}, "job", "nics", "evidence", "versions"}. BadInput when they do not belong together."""
    modes, left_out, shared = {}, {}, None
    for row in rows:
        common = (row["nodes"], row["nics"], row["op"], row["bytes"])
        if shared not in (None, common):
            raise inputs.BadInput(f"{name}: {row['run']} is another job than the ones before: {common} and {shared}")
        shared = common
        if row["retained"] != "" and row["exact"] == "1":
            modes.setdefault(row["mode"], {}).setdefault(int(row["nics_lost"]), []).append((float(row["retained"]), float(row["limit"])))
        else:
            left_out[row["mode"]] = left_out.get(row["mode"], 0) + 1
    if not modes:
        raise inputs.BadInput(f"{name}: no result has a retained bandwidth")
    nodes, nics, op, size = shared
    return {"modes": modes, "left_out": left_out, "job": f"{op} of {int(size) / 2**20:g} MiB, {nodes} nodes", "nics": int(nics), "evidence": evidence,
            "versions": sorted({row["schema"] for row in rows})}


def load(paths):
    """What of_rows() gives, of result.json files."""
    rows, labels = [], set()
    for path in paths:
        result = inputs.read_result(path)
        labels.add(f"{result['evidence']} ({result['fabric']['kind']})")
        rows += [{column: tables.text(value) for column, value in row.items()} for row in collect.rows_of_result(result, path)[0]]
    if len(labels) > 1:
        raise inputs.BadInput(f"{paths[0]}: evidence of different kinds does not mix: {' and '.join(sorted(labels))}")
    return of_rows(rows, labels.pop(), paths[0])


def data(results):
    rows = tables.of_set(results, "runs", SET)
    if not rows:
        raise inputs.NoData(COMMAND)
    return of_rows(rows, tables.evidence(results, SET), tables.path_of(results, "runs"))


def footnote(table):
    """Where the numbers come from, and which runs are none of them."""
    versions = " and ".join(map(str, table["versions"]))
    text = f"evidence: {table['evidence']} · every element right · results of schema version {versions}"
    count = sum(table["left_out"].values())
    if count:
        text += f" · {count} {'run' if count == 1 else 'runs'} failed, left out ({', '.join(f'{number} {mode}' for mode, number in table['left_out'].items())})"
    return text


def draw(table):
    modes, nics = table["modes"], table["nics"]
    figure, axes = style.pyplot.subplots(figsize=(style.SINGLE_COLUMN, 2.5))
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
    axes.xaxis.set_major_locator(style.ticker.MaxNLocator(integer=True))
    axes.set_xlabel(f"NICs lost, of {nics} of one node")
    axes.set_ylabel("retained bandwidth (of 1)")
    axes.set_title(table["job"], loc="left")
    axes.legend(loc="upper right", handlelength=2.2)
    style.footer(figure, footnote(table))
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
