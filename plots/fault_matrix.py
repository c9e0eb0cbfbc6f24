#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fault matrix as a heat map: each fault at each moment, under live migration and under Balance.

    python3 plots/fault_matrix.py --results results --out DIR

Reads results/tables/matrix.csv, sets mode1 and mode2 (r2bench matrix). A field stands for all its cells (operations × ends)
and has the colour of the worst of them; a fraction such as 5/6 says how many of its cells hold, if not all do."""

import sys

import inputs
import style
import tables

NAME = "fault_matrix"
SETS = [("live migration", "mode1"), ("Balance", "mode2")]
COMMAND = "r2bench matrix --mode migrate --out DIR (and --mode balance); plots/collect.py matrix mode1 DIR/matrix.json (and mode2)"
# From best to worst; a field is as bad as its worst cell.
STATES = [("empty", "cannot happen", "#F2F2F2"), ("survives", "job continues, every element right", "#7FB8DB"),
          ("explained", "error within its bound", style.YELLOW), ("missed", "fault missed its moment", "#BBBBBB"),
          ("fails", "does not hold", style.VERMILION)]
ORDER = [name for name, _, _ in STATES]
# As a channel lives; a moment that is not here comes last.
MOMENTS = ["connect", "first_message", "mid_message", "last_segment", "replay", "failback", "close"]


def state_of(cell):
    if cell["verdict"] == "fail":
        return "fails"
    if cell["verdict"] == "missed":
        return "missed"
    if cell["verdict"] != "pass":
        raise ValueError(f"{cell['fault']} at {cell['moment']}: verdict {cell['verdict']}")
    return "survives" if cell["outcome"] == "ok" else "explained"


def read(results, name):
    """{"evidence", "faults", "moments", "fields": {(fault, moment): {"state", "holds", "of"}}} of one set; None when there is no such set."""
    fields, faults, moments = {}, [], []
    for cell in tables.of_set(results, "matrix", name):
        fault, moment = cell["fault"], cell["moment"]
        faults += [fault] if fault not in faults else []
        moments += [moment] if moment not in moments else []
        if cell["verdict"] == "empty":
            continue
        field = fields.setdefault((fault, moment), {"state": "survives", "holds": 0, "of": 0})
        state = state_of(cell)
        field["of"] += 1
        field["holds"] += cell["verdict"] == "pass"
        field["state"] = max(field["state"], state, key=ORDER.index)
    if not fields:
        return None
    moments.sort(key=lambda moment: MOMENTS.index(moment) if moment in MOMENTS else len(MOMENTS))
    origin = tables.provenance(results, name)
    return {"evidence": tables.evidence(results, name), "revision": origin["commit"], "faults": faults, "moments": moments, "fields": fields}


def data(results):
    """{title: what read() gives}, in the order of SETS."""
    found = {title: read(results, name) for title, name in SETS}
    found = {title: table for title, table in found.items() if table is not None}
    if not found:
        raise inputs.NoData(COMMAND)
    return found


def draw(panels_of):
    first = next(iter(panels_of.values()))
    rows = first["faults"]
    height = 1.02 + 0.135 * len(rows)
    figure, panels = style.pyplot.subplots(1, len(panels_of), figsize=(style.DOUBLE_COLUMN, height), sharey=True, squeeze=False)
    figure.subplots_adjust(left=0.178, right=0.985, top=1 - 0.44 / height, bottom=0.5 / height, wspace=0.05)
    for axes, (title, table) in zip(panels[0], panels_of.items()):
        states = [[ORDER.index(table["fields"][fault, moment]["state"]) if (fault, moment) in table["fields"] else 0 for moment in table["moments"]] for fault in rows]
        axes.imshow(states, cmap=style.colors.ListedColormap([colour for _, _, colour in STATES]), vmin=-0.5, vmax=len(STATES) - 0.5, aspect="auto", gid=f"data:{title}",
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
    figure.legend(handles=[style.patches.Patch(facecolor=colour, edgecolor="#999999", linewidth=0.4, label=label) for name, label, colour in STATES], loc="upper left",
                  bbox_to_anchor=(0.0, 1.0), ncol=len(STATES), handlelength=1.1, columnspacing=1.2, fontsize=6.6)
    evidence = inputs.one_evidence(table["evidence"] for table in panels_of.values())
    builds = inputs.one_evidence(table["revision"] for table in panels_of.values())
    style.footer(figure, f"evidence: {evidence} · a field is three operations × sender, receiver, both; its colour is that of its worst cell · built from {builds}")
    return figure


if __name__ == "__main__":
    sys.exit(inputs.run_main(sys.modules[__name__], __doc__))
