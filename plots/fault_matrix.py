#!/usr/bin/env python3
"""The fault matrix as a heat map: each fault at each moment, under live migration and under Balance.

    python3 plots/fault_matrix.py --results results --out DIR

Reads results/matrix/matrix_migrate.json and matrix_balance.json (r2bench matrix). A field stands for all its cells (operations × ends)
and has the colour of the worst of them; a number says how many of how many hold where not all do."""

import os
import sys

import inputs
import style

try:
    from matplotlib import pyplot
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch
except ImportError:
    sys.exit(3)

NAME = "fault_matrix"
FILES = [("live migration", "migrate"), ("Balance", "balance")]
COMMAND = "r2bench matrix --mode migrate --out DIR and --mode balance; their tables go to results/matrix/matrix_MODE.json"
# From best to worst; a field is as bad as its worst cell.
STATES = [("empty", "cannot happen", "#F2F2F2"), ("survives", "job goes on, every element right", "#7FB8DB"),
          ("explained", "job ends in the core's error, in time", style.YELLOW), ("missed", "fault missed its moment", "#BBBBBB"),
          ("fails", "does not hold", style.VERMILION)]
ORDER = [name for name, _, _ in STATES]


def state_of(cell):
    if cell["verdict"] == "fail":
        return "fails"
    if cell["verdict"] == "missed":
        return "missed"
    if cell["verdict"] != "pass":
        raise ValueError(f"{cell['cell']}: verdict {cell['verdict']}")
    return "survives" if cell["outcome"] == "ok" else "explained"


def read(path):
    """{"evidence", "faults", "moments", "fields": {(fault, moment): {"state", "holds", "of"}}} of one table."""
    table = inputs.read_json(path)
    if not isinstance(table, dict) or table.get("schema_version") != 1 or "cells" not in table:
        raise inputs.BadInput(f"{path}: is no table of r2bench matrix of schema version 1; run r2bench matrix again")
    fields, faults, moments = {}, [], []
    for cell in table["cells"]:
        fault, moment = cell["cell"].split("/")[:2]
        faults += [fault] if fault not in faults else []
        moments += [moment] if moment not in moments else []
        field = fields.setdefault((fault, moment), {"state": "survives", "holds": 0, "of": 0})
        state = state_of(cell)
        field["of"] += 1
        field["holds"] += cell["verdict"] == "pass"
        field["state"] = max(field["state"], state, key=ORDER.index)
    return {"evidence": table["provenance"]["evidence"], "revision": table["provenance"].get("revision", "?"), "faults": faults, "moments": moments, "fields": fields}


def data(results):
    """{title: what read() gives}, in the order of FILES."""
    tables = {}
    for title, mode in FILES:
        path = os.path.join(results, "matrix", f"matrix_{mode}.json")
        if os.path.exists(path):
            tables[title] = read(path)
    if not tables:
        raise inputs.NoData(COMMAND)
    return tables


def draw(tables):
    first = next(iter(tables.values()))
    rows = first["faults"]
    height = 1.02 + 0.135 * len(rows)
    figure, panels = pyplot.subplots(1, len(tables), figsize=(style.DOUBLE_COLUMN, height), sharey=True, squeeze=False)
    figure.subplots_adjust(left=0.168, right=0.985, top=1 - 0.44 / height, bottom=0.5 / height, wspace=0.05)
    for axes, (title, table) in zip(panels[0], tables.items()):
        states = [[ORDER.index(table["fields"][fault, moment]["state"]) if (fault, moment) in table["fields"] else 0 for moment in table["moments"]] for fault in rows]
        axes.imshow(states, cmap=ListedColormap([colour for _, _, colour in STATES]), vmin=-0.5, vmax=len(STATES) - 0.5, aspect="auto", gid=f"data:{title}",
                    interpolation="nearest")
        for i, fault in enumerate(rows):
            for j, moment in enumerate(table["moments"]):
                field = table["fields"].get((fault, moment))
                if field is not None and field["holds"] < field["of"]:
                    axes.text(j, i, f"{field['holds']}/{field['of']}", ha="center", va="center", fontsize=6, color="white" if field["state"] == "fails" else style.INK)
        cells = sum(field["of"] for field in table["fields"].values())
        holds = sum(field["holds"] for field in table["fields"].values())
        axes.set_title(f"{title}: {holds} of {cells} cells hold", loc="left", pad=3)
        axes.set_xticks(range(len(table["moments"])), [m.replace("_", "\n") for m in table["moments"]], fontsize=5.8)
        axes.set_yticks(range(len(rows)), rows, fontsize=6.2)
        axes.set_xticks([j - 0.5 for j in range(1, len(table["moments"]))], minor=True)
        axes.set_yticks([i - 0.5 for i in range(1, len(rows))], minor=True)
        axes.grid(which="major", visible=False)
        axes.grid(which="minor", color="white", linewidth=1)
        axes.tick_params(which="both", length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    figure.legend(handles=[Patch(facecolor=colour, edgecolor="#999999", linewidth=0.4, label=label) for name, label, colour in STATES], loc="upper left",
                  bbox_to_anchor=(0.0, 1.0), ncol=len(STATES), handlelength=1.1, columnspacing=1.2, fontsize=6.6)
    evidence = inputs.one_evidence(table["evidence"] for table in tables.values())
    builds = inputs.one_evidence(table["revision"] for table in tables.values())
    style.footer(figure, f"evidence: {evidence} (vhca) · a field is three operations × sender, receiver, both; its colour is that of its worst cell · built from {builds}")
    return figure


if __name__ == "__main__":
    sys.exit(inputs.run_main(sys.modules[__name__], __doc__))
