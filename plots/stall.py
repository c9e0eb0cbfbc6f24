#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a job stalls, by fault and by transport. On the left jobs of r2bench and perftest on virtual NICs: the longest gap
between delivered segments, or how long until the job ended in an error. On the right PyTorch and NCCL on GPUs: the longest
AllReduce, or how long until the job ended.

    python3 plots/stall.py --results results --out DIR

Reads results/tables: runs.csv and faults.csv (the runs named below, and the set speed), programs.csv, and nccl.csv (the set nccl_four_gpus)."""

import statistics
import sys

import inputs
import style
import tables

NAME = "stall"
COMMAND = "r2bench run nic_down (qp_error, two_nics_down, device_removed, …) --out DIR/…; plots/collect.py run recovery DIR"
SETS = ["recovery", "device_removed"]
# Rows of the left panel, and the runs that each comes from.
RUNS = [("port down", "nic_down"), ("port down, no event", "silent_port_down"), ("black hole", "blackhole"), ("queue pair error", "qp_error"), ("ACK lost", "ack_lost"),
        ("device removed", "device_removed"), ("two ports down", "two_nics_down")]
LINES = {"port_down": "port down", "qp_error": "queue pair error", "blackhole": "black hole"}  # of the set programs
ROWS = ["port down", "port down, no event", "black hole", "queue pair error", "ACK lost", "device removed", "two ports down"]
# Transport: label, colour, marker.
TRANSPORTS = {"perftest": ("ib_write_bw (bare verbs)", style.INK, "v"), "nccl_ib": ("NCCL's own IB transport", style.ORANGE, "^"),
              "baseline": ("R2CCL, mode 0 (no resilience)", style.VERMILION, "s"), "migrate": ("R2CCL, live migration", style.BLUE, "o"),
              "balance": ("R2CCL, Balance", style.GREEN, "D")}
NCCL_ROWS = {"port_down": "port down", "blackhole": "black hole", "qp_error": "queue pair error"}


def point(row, transport, ms, ended):
    return {"fault": row, "transport": transport, "ms": ms, "ended": ended}


def of_runs(results):
    """The longest gap of each mode over its faults; of a job that ended in an error, how long that took."""
    rows_of = {folder: row for row, folder in RUNS}
    found = []
    for run in tables.read(results, "runs"):
        if run["set"] not in SETS or run["run"] not in rows_of:
            continue
        label = tables.provenance(results, run["set"])["evidence"]
        if run["outcome"] == "error" and run["error_ms"]:
            found.append((label, point(rows_of[run["run"]], run["mode"], float(run["error_ms"]), True)))
        elif run["outcome"] == "ok" and run["blackout_max_ms"]:
            found.append((label, point(rows_of[run["run"]], run["mode"], float(run["blackout_max_ms"]), False)))
    return found


def of_perftest(results):
    """From the fault to the completion with which ib_write_bw ends."""
    return [(tables.provenance(results, one["set"])["evidence"], point(LINES[one["fault"]], "perftest", float(one["after_ms"]), True))
            for one in tables.read(results, "programs") if one["program"] == "ib_write_bw" and one["fault"] in LINES]


def of_nccl(results):
    """Cases of the NCCL matrix with one fault kind, two nodes of two GPUs, and NCCL's own choice of protocol."""
    longest = {}
    for case in tables.of_set(results, "nccl", "nccl_four_gpus"):
        plain = case["nodes"] == "2" and case["gpus_per_node"] == "2" and case["nics"] == "2" and case["variant"] in ("", "NCCL_PROTO=Simple")
        if case["fault"] not in NCCL_ROWS or not plain or case["op"] not in ("", "allreduce"):
            continue
        transport = "nccl_ib" if case["net"] == "ib" else {"0": "baseline", "1": "migrate", "2": "balance"}[case["mode"]]
        ended = case["ended_ms"] != ""
        ms = tables.number(case["ended_ms"] if ended else case["max_ms"])
        key = (NCCL_ROWS[case["fault"]], transport)
        if ms is not None and ms > longest.get(key, (0, False))[0]:
            longest[key] = (ms, ended)
    return [point(row, transport, ms, ended) for (row, transport), (ms, ended) in longest.items()]


def healthy_ms(results):
    """The median AllReduce of the NCCL matrix without a fault, under live migration; None when it was not run."""
    medians = [float(case["median_ms"]) for case in tables.of_set(results, "nccl", "nccl_four_gpus")
               if case["case"] == "healthy_migrate" and case["op"] == "allreduce"]
    return statistics.median(medians) if medians else None


def data(results):
    """{"evidence", "cpu": [point], "nccl": [point], "healthy_ms"}: point = {"fault", "transport", "ms", "ended"}."""
    labelled = of_runs(results) + of_perftest(results)
    nccl = of_nccl(results)
    if not labelled and not nccl:
        raise inputs.NoData(COMMAND)
    evidence = inputs.one_evidence([label for label, _ in labelled] + (["emulated"] if nccl else []))
    return {"evidence": evidence, "cpu": [one for _, one in labelled], "nccl": nccl, "healthy_ms": healthy_ms(results)}


def panel(axes, points, rows, prefix):
    order = [t for t in TRANSPORTS if any(p["transport"] == t for p in points)]
    for number, transport in enumerate(order):
        _, colour, marker = TRANSPORTS[transport]
        for ended in (False, True):
            own = [(p["ms"], rows.index(p["fault"]) + (number - (len(order) - 1) / 2) * (0.2 if prefix == "cpu" else 0.15)) for p in points if p["transport"] == transport and p["ended"] == ended]
            axes.plot([x for x, _ in own], [y for _, y in own], linestyle="", marker=marker, markersize=4.6, color=colour,
                      markerfacecolor="white" if ended else colour, markeredgewidth=1.1, gid=f"data:{prefix}:{transport}:{'ended' if ended else 'on'}")
    axes.set_xscale("log")
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    for i in range(1, len(rows)):
        axes.axhline(i - 0.5, color="#E3E3E3", linewidth=0.5)
    axes.xaxis.set_major_locator(style.ticker.FixedLocator([0.1, 1, 10, 100, 1000, 10000, 100000]))
    axes.xaxis.set_minor_locator(style.ticker.NullLocator())
    axes.xaxis.set_major_formatter(style.ticker.FuncFormatter(lambda ms, _: f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"))


def draw(table):
    figure, (left, right) = style.pyplot.subplots(1, 2, figsize=(style.DOUBLE_COLUMN, 3.1), gridspec_kw={"width_ratios": [1.25, 1]})
    figure.subplots_adjust(left=0.168, right=0.985, top=0.79, bottom=0.2, wspace=0.42)
    panel(left, table["cpu"], [row for row in ROWS if any(p["fault"] == row for p in table["cpu"])], "cpu")
    left.set_xlim(0.04, 3000)
    left.set_xlabel("longest gap in delivery, or time to the error")
    left.set_title("2 nodes × 4 NICs, virtual HCA", loc="left", fontsize=7.5)
    panel(right, table["nccl"], [row for row in ROWS if any(p["fault"] == row for p in table["nccl"])], "nccl")
    right.set_xlim(4, 400000)
    right.set_xlabel("longest AllReduce, or time to the end")
    right.set_title("PyTorch and NCCL, four H200s, virtual NICs", loc="left", fontsize=7.5, x=-0.08)
    if table["healthy_ms"] is not None:
        right.axvline(table["healthy_ms"], color=style.INK, linestyle=(0, (4, 2)), linewidth=0.8)
        right.text(table["healthy_ms"] * 1.15, len(right.get_yticks()) - 0.52, "median without a fault", fontsize=6.5, va="bottom")
    used = [t for t in TRANSPORTS if any(p["transport"] == t for p in table["cpu"] + table["nccl"])]
    handles = [style.lines.Line2D([], [], linestyle="", marker=TRANSPORTS[t][2], markersize=4.6, color=TRANSPORTS[t][1], label=TRANSPORTS[t][0]) for t in used]
    handles.append(style.lines.Line2D([], [], linestyle="", marker="o", markersize=4.6, color="#777777", markerfacecolor="white", label="hollow: the job ended"))
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.0, 1.0), ncol=3, columnspacing=1.3, handletextpad=0.2, fontsize=7)
    style.footer(figure, f"evidence: {table['evidence']} (the GPUs and NCCL on the right are real, the NICs are virtual) · NCCL_IB_TIMEOUT 14, 7 retries · right, hollow: PyTorch's timeouts; "
                 "an upper bound, until the last process was gone")
    return figure


if __name__ == "__main__":
    sys.exit(inputs.run_main(sys.modules[__name__], __doc__))
