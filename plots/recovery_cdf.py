#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How recovery times are distributed, and what they are made of: cumulative distributions of the moments detected, migrated and
recovered after the fault, one panel per kind of fault. The area between two curves is the mean time of the phase between them.

    python3 plots/recovery_cdf.py --results results --out DIR

Reads results/tables/faults.csv, set speed."""

import sys

import inputs
import style
import tables

NAME = "recovery_cdf"
SET = "speed"
COMMAND = "r2bench run nic_down (qp_error, blackhole) --modes migrate --shorter 4 --repeats 10 --out DIR/… (several seeds); plots/collect.py run speed DIR"
KINDS = ["port_down", "qp_error", "blackhole"]
PHASES = [("detect", style.PURPLE), ("migrate", style.BLUE), ("ramp", style.GREEN)]


def data(results):
    """{"evidence", "kinds": {kind: [{"detect", "migrate", "ramp", "recover", "floor"}]}} in ms, one per measured fault of mode migrate; and
    "never": {kind: faults whose rate did not come back}, which keep a curve below 1; "no_rate", where there are any: faults before which no rate
    is known. They are left out, since the curves of the three moments are of the same faults."""
    kinds, never, no_rate = {}, {}, 0
    for row in tables.of_set(results, "faults", SET):
        if row["sampled"] != "1" or row["mode"] != "migrate":
            continue
        if row["why_no_rate_before"]:
            no_rate += 1
            continue
        detect, migrate, recover = (tables.number(row[column]) for column in ("detect_ms", "migrate_ms", "recover_ms"))
        if detect is None or migrate is None or recover is None:
            never[row["kind"]] = never.get(row["kind"], 0) + 1
            continue
        ramp = recover - detect - migrate  # of three rounded numbers
        kinds.setdefault(row["kind"], []).append({"detect": detect, "migrate": migrate, "ramp": ramp if ramp > 1e-3 else 0.0, "recover": recover,
                                                  "floor": float(row["floor_ms"])})
    if not kinds:
        raise inputs.NoData(COMMAND)
    return {"evidence": tables.evidence(results, SET), "kinds": kinds, "never": never} | ({"no_rate": no_rate} if no_rate else {})


def moments(faults):
    """The sorted moments after the fault: detected, migrated, recovered."""
    detected = sorted(f["detect"] for f in faults)
    migrated = sorted(f["detect"] + f["migrate"] for f in faults)
    recovered = sorted(f["detect"] + f["migrate"] + f["ramp"] for f in faults)
    return detected, migrated, recovered


def draw(table):
    kinds = [kind for kind in KINDS if kind in table["kinds"]] + sorted(set(table["kinds"]) - set(KINDS))
    figure, panels = style.pyplot.subplots(1, len(kinds), figsize=(style.DOUBLE_COLUMN, 2.4), sharey=True, squeeze=False)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.77, bottom=0.225, wspace=0.1)
    for axes, kind in zip(panels[0], kinds):
        faults = table["kinds"][kind]
        struck = len(faults) + table["never"].get(kind, 0)
        share = [(i + 1) / struck for i in range(len(faults))]
        before = [0.0] * len(faults)
        for (phase, colour), times in zip(PHASES, moments(faults)):
            # Steps: the share jumps at each fault.
            axes.fill_betweenx([0] + share, [before[0]] + before, [times[0]] + times, step="pre", color=colour, alpha=0.25, linewidth=0)
            axes.step([times[0]] + times, [0] + share, where="post", color=colour, linewidth=1.1, gid=f"data:{kind}:{phase}")
            before = times
        floor = max(f["floor"] for f in faults)
        axes.axvline(floor, color=style.INK, linestyle=(0, (4, 2)), linewidth=0.8)
        early = floor < 0.2 * max(f["recover"] for f in faults)  # no room at the left of it
        axes.text(floor, 0.04, " floor ", fontsize=7, ha="left" if early else "right", va="bottom")
        means = [sum(f[phase] for f in faults) / len(faults) for phase, _ in PHASES]
        axes.set_title(f"{kind}, {struck} faults\nmeans {means[0]:.2g} + {means[1]:.3g} + {means[2]:.2g} ms", loc="left", fontsize=7.5)
        axes.set_xlim(0, max(f["recover"] for f in faults) * 1.04)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("time since the fault (ms)")
    panels[0][0].set_ylabel("share of the faults")
    names = {"detect": "detect (fault to detected)", "migrate": "migrate (until each affected channel has new data)", "ramp": "ramp (to 0.9 of the limit)"}
    figure.legend(handles=[style.patches.Patch(facecolor=colour, alpha=0.5, label=names[phase]) for phase, colour in PHASES], loc="upper left",
                  bbox_to_anchor=(0.065, 1.01), ncol=3, handlelength=1.4, columnspacing=1.4)
    count = table.get("no_rate", 0)
    left_out = f" · left out: {count} fault{'s' if count > 1 else ''} without a rate before {'them' if count > 1 else 'it'}" if count else ""
    style.footer(figure, f"evidence: {table['evidence']} · live migration · area between curves: mean time of that phase · floor: one segment at the rate that is left to it{left_out}")
    return figure


if __name__ == "__main__":
    sys.exit(inputs.run_main(sys.modules[__name__], __doc__))
