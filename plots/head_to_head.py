#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and figures that compare NCCL's own IB transport with R2CCL on the same virtual NICs.

    python3 plots/head_to_head.py --out DIR head_to_head.jsonl …

Reads the lines of harness/workload/nccl/head_to_head.py. Writes head_to_head.csv (one line per row), head_to_head.md (tables of
the medians over the seeds), and three figures: head_to_head_stall (longest operation by fault and transport), head_to_head_retained
(retained rate by fault and by collective) and head_to_head_cost (times without a fault, divided by those of NCCL's IB transport,
against the size). A figure without rows is not drawn, and the output names it. Exit status: 0; 1 if nothing could be made; 64 if a
file cannot be used."""

import argparse
import csv
import os
import re
import statistics
import sys

import inputs
import style
import tables
from numbers_of.transports import FOUR_GPUS_SETS, ONE_CHANNEL

COMMAND = "harness/workload/nccl/head_to_head.py --out head_to_head.jsonl"
# Transport: label, colour, marker; in the order of tables and legends.
TRANSPORTS = {"ib": ("NCCL's IB transport", style.ORANGE, "^"), "ib_failover": ("NCCL's IB transport, failover and recovery", style.VERMILION, "v"),
              "r2ccl_baseline": ("R2CCL, mode 0", style.INK, "s"), "r2ccl_migrate": ("R2CCL, live migration", style.BLUE, "o"),
              "r2ccl_balance": ("R2CCL, Balance", style.GREEN, "D"), "r2ccl_allreduce": ("R2CCL, mode 3", style.PURPLE, "P"),
              "upstream": ("upstream R2CCL, its fork of NCCL", style.SKY, "X"), "upstream_1s": ("upstream R2CCL, time-out 1 s", style.SKY, "P")}
FAULTS = {"port_down": "port down", "blackhole": "black hole", "blackhole_one_way": "black hole, one way", "qp_error_node0": "QPs broken, node 0",
          "qp_error_node1": "QPs broken, node 1", "flap": "link flaps", "two_in_turn": "two NICs in turn",
          "flap_then_down": "a flap, then a NIC", "two_apart": "two NICs, 12 s apart", "all_but_one": "all NICs but one",
          "throttle": "a quarter of the rate"}
FIELDS = ["table", "fault", "transport", "op", "bytes", "version", "heal_ms", "seed"]
MEASURES = ["survives", "outcome", "wrong", "before_ms", "stall_ms", "retained", "restored", "used_again_ms", "error_ms", "busbw", "cpu_s", "error"]


def read(paths):
    """{"rows": [row], "evidence", "hosts": [GPU names]}: each row once, the last of those with one id."""
    rows, hosts = {}, []
    for path in paths:
        for number, line in enumerate(inputs.read_lines(path), 1):
            if not isinstance(line, dict):
                raise inputs.BadInput(f"{path}:{number}: is no line of {COMMAND}")
            if "host" in line:
                hosts.append(line["host"])
            elif "id" in line and "result" in line:
                rows[line["id"]] = line
            else:
                raise inputs.BadInput(f"{path}:{number}: is no line of {COMMAND}")
    if not rows:
        raise inputs.NoData(COMMAND)
    return {"rows": list(rows.values()), "evidence": inputs.one_evidence([row["evidence"] for row in rows.values()]), "hosts": hosts}


def of_results(results):
    """The same from results/tables/head_to_head.csv: all sets with one rank for each node and NCCL's own choice of channels, so all seeds; the foot of a figure names their machines."""
    rows = []
    for row in (row for row in tables.read(results, "head_to_head") if row["set"] not in FOUR_GPUS_SETS | {ONE_CHANNEL}):
        measures = {measure: row[measure] if measure == "outcome" else tables.number(row[measure]) for measure in MEASURES if measure != "error"}
        rows.append({**row, "bytes": int(row["bytes"]), "heal_ms": tables.number(row["heal_ms"]), "seed": int(row["seed"]), "as_predicted": row["as_predicted"] == "1",
                     "result": {**measures, "wrong": int(measures["wrong"] or 0), "survives": measures["survives"] == 1}, "environment": {"nccl": row["nccl"]}})
    if not rows:
        raise inputs.NoData(COMMAND)
    origins = [tables.provenance(results, name) for name in dict.fromkeys(row["set"] for row in rows)]
    return {"rows": rows, "evidence": inputs.one_evidence([origin["evidence"] for origin in origins]), "hosts": [{"gpus": [origin["machine"]]} for origin in origins]}


def write_csv(table, path):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS + MEASURES + ["as_predicted", "nccl"])
        for row in table["rows"]:
            writer.writerow([row[field] for field in FIELDS] + [row["result"].get(measure) for measure in MEASURES]
                            + [row.get("as_predicted"), row["environment"].get("nccl")])


def retained_rows(table):
    """Of the table `retained` those on the slowest ports, for each number of NICs: on faster ones it is not the ports that limit the job."""
    rows = [row for row in table["rows"] if row["table"] == "retained"]
    slowest = {}
    for row in rows:
        slowest[row.get("nics")] = min(slowest.get(row.get("nics"), float("inf")), float(row.get("mbits") or 0))
    return [row for row in rows if float(row.get("mbits") or 0) == slowest[row.get("nics")]]


def retained_name(row):
    return row["op"] + (f", 1 of {row['nics']}" if str(row.get("nics") or 4) != "4" else "")


def limit(row):
    """The most that the NICs permit that are left: of the rate before the fault. One NIC is lost unless the fault says otherwise."""
    nics = int(row.get("nics") or (4 if row["table"] == "retained" or row["fault"] == "all_but_one" else 2))
    return 1 - {"all_but_one": nics - 1, "throttle": 3 / 4}.get(row["fault"], 1) / nics


def beside_ib(table):
    """{(transport, bytes): [time over that of NCCL's IB transport in the same set and seed]}: they ran in turns."""
    times = {}
    for row in table["rows"]:
        if row["table"] == "cost" and row["result"].get("before_ms"):
            times.setdefault((row.get("set", ""), row["seed"], row["bytes"]), {})[row["transport"]] = row["result"]["before_ms"]
    found = {}
    for (_, _, count), of in sorted(times.items()):
        for transport, ms in of.items():
            if transport != "ib" and "ib" in of:
                found.setdefault((transport, count), []).append(ms / of["ib"])
    return found


def groups(table, name, key):
    """{key: [row]} of one table, in the order of their first rows."""
    found = {}
    for row in table["rows"]:
        if row["table"] == name:
            found.setdefault(key(row), []).append(row)
    return found


def median(rows, measure):
    values = [row["result"][measure] for row in rows if row["result"].get(measure) is not None]
    return statistics.median(values) if values else None


def cell(value, digits=0):
    return "–" if value is None else f"{value:.{digits}f}"


def survives(rows):
    good = sum(row["result"]["survives"] for row in rows)
    return f"{good} of {len(rows)}"


def markdown(table):
    """Medians over seeds."""
    text = []

    def add(title, header, lines):
        if lines:
            text.extend([f"## {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)] + ["| " + " | ".join(line) + " |" for line in lines] + [""])

    def order(item):
        (fault, transport, *rest), _ = item
        return ([*FAULTS, ""].index(fault) if fault in FAULTS or not fault else len(FAULTS), rest, list(TRANSPORTS).index(transport))

    lines = []
    for (fault, transport, heals), rows in sorted(groups(table, "faults", lambda r: (r["fault"], r["transport"], bool(r["heal_ms"]))).items(), key=order):
        lines.append([FAULTS[fault] + (", repaired" if heals else ""), TRANSPORTS[transport][0], survives(rows), str(sum(r["result"]["wrong"] for r in rows)),
                      cell(median(rows, "before_ms"), 1), cell(median(rows, "stall_ms")), cell(median(rows, "error_ms")), cell(median(rows, "retained"), 2),
                      cell(median(rows, "restored"), 2), cell(median(rows, "used_again_ms")), f"{sum(r.get('as_predicted') is True for r in rows)} of {len(rows)}"])
    add("Faults", ["fault", "transport", "survives", "wrong elements", "before, ms", "longest operation, ms", "until the error, ms", "retained",
                   "after the repair", "used again after, ms", "as predicted"], lines)
    lines = [[FAULTS[fault], version, TRANSPORTS[transport][0], survives(rows), str(sum(r["result"]["wrong"] for r in rows)), cell(median(rows, "stall_ms"))]
             for (fault, transport, version), rows in sorted(groups(table, "timeouts", lambda r: (r["fault"], r["transport"], r["version"])).items(), key=order)]
    add("Other timeouts and versions of NCCL's failover", ["fault", "timeout or version", "transport", "survives", "wrong elements", "longest operation, ms"], lines)
    lines = [[version, FAULTS[fault], TRANSPORTS[transport][0], survives(rows), str(sum(r["result"]["wrong"] for r in rows)), cell(median(rows, "before_ms"), 1),
              cell(median(rows, "stall_ms")), cell(median(rows, "retained"), 2)]
             for (fault, transport, version), rows in sorted(groups(table, "versions", lambda r: (r["fault"], r["transport"], r["version"])).items(), key=order)]
    add("Versions of NCCL", ["NCCL", "fault", "transport", "survives", "wrong elements", "before, ms", "longest operation, ms", "retained"], lines)
    lines = [[op, TRANSPORTS[transport][0], survives(rows), str(sum(r["result"]["wrong"] for r in rows)), cell(median(rows, "retained"), 3)]
             for (_, transport, op), rows in sorted(groups({"rows": retained_rows(table)}, "retained", lambda r: ("", r["transport"], retained_name(r))).items(), key=order)]
    add("Rate kept with one of four NICs lost, or as named", ["collective", "transport", "survives", "wrong elements", "retained (limit 0.75; 1 of 8: 0.875)"], lines)
    lines, ratios = [], beside_ib(table)
    for (count, transport), rows in sorted(groups(table, "cost", lambda r: (r["bytes"], r["transport"])).items(), key=lambda i: (i[0][0], list(TRANSPORTS).index(i[0][1]))):
        beside = 1.0 if transport == "ib" else statistics.median(ratios[(transport, count)]) if (transport, count) in ratios else None
        lines.append([inputs.size(count), TRANSPORTS[transport][0], cell(median(rows, "before_ms"), 3), cell(beside, 3), cell(median(rows, "busbw"), 2),
                      cell(median(rows, "cpu_s"), 2)])
    add("Without a fault", ["bytes", "transport", "operation, ms", "beside NCCL's IB transport", "busbw, GB/s", "CPU, s"], lines)
    gpus = sorted({gpu for host in table["hosts"] for gpu in (host["gpus"] if isinstance(host["gpus"], list) else [])})
    text.append(f"Evidence: {table['evidence']} (NICs are virtual; {', '.join(gpus) or 'GPUs'} and NCCL are real). Medians over seeds; times are of whole operations.")
    return "\n".join(text) + "\n"


def legend(figure, transports, ended=False, limits=False):
    handles = [style.lines.Line2D([], [], linestyle="", marker=TRANSPORTS[t][2], markersize=4.6, color=TRANSPORTS[t][1], label=TRANSPORTS[t][0])
               for t in TRANSPORTS if t in transports]
    if ended:
        handles.append(style.lines.Line2D([], [], linestyle="", marker="o", markersize=4.6, color="#777777", markerfacecolor="white", label="hollow: the job ended"))
    if limits:
        handles.append(style.lines.Line2D([], [], color=style.INK, linewidth=0.8, linestyle=(0, (3, 1.5)), label="limit"))
    figure.legend(handles=handles, loc="upper left", ncol=4 if limits else 3, columnspacing=1.2, handletextpad=0.2, fontsize=7)


def by_rows(axes, names, points, prefix):
    """points: [(row name, transport, value, ended)], a line of the panel for each name."""
    order = [t for t in TRANSPORTS if any(p[1] == t for p in points)]
    apart = min(0.16, 0.8 / len(order)) if order else 0  # a row is 1 high
    for number, transport in enumerate(order):
        _, colour, marker = TRANSPORTS[transport]
        for ended in (False, True):
            own = [(value, names.index(name) + (number - (len(order) - 1) / 2) * apart) for name, t, value, gone in points if t == transport and gone == ended]
            if own:
                axes.plot([x for x, _ in own], [y for _, y in own], linestyle="", marker=marker, markersize=4, color=colour,
                          markerfacecolor="white" if ended else colour, gid=f"data:{prefix}:{transport}:{'ended' if ended else 'on'}")
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.set_yticks(range(len(names)), names)
    axes.grid(axis="y", visible=False)
    for i in range(1, len(names)):
        axes.axhline(i - 0.5, color="#E3E3E3", linewidth=0.5)


def foot(figure, table, text, of=None):
    """`of`: the tables that are drawn, all where None."""
    versions = sorted({row["environment"].get("nccl", "?") for row in table["rows"] if of is None or row["table"] in of})
    gpus = sorted({re.sub(r"^\d+ × ", "", gpu) for host in table["hosts"] for gpu in (host["gpus"] if isinstance(host["gpus"], list) else [])})
    style.footer(figure, f"evidence: {table['evidence']} ({', '.join(gpus) or 'GPUs'} and NCCL {', '.join(versions)} are real, the NICs are virtual) · {text}")


def draw_stall(table):
    rows = [r for r in table["rows"] if r["table"] == "faults" and not r["heal_ms"]]
    points = [(FAULTS[r["fault"]], r["transport"], r["result"]["stall_ms"], False) for r in rows if r["result"]["stall_ms"] is not None]
    points += [(FAULTS[r["fault"]], r["transport"], r["result"]["error_ms"], True) for r in rows if not r["result"]["survives"] and r["result"]["error_ms"]]
    if not points:
        return None
    names = [name for name in FAULTS.values() if any(p[0] == name for p in points)]
    figure, axes = style.pyplot.subplots(figsize=(style.DOUBLE_COLUMN, 0.9 + 0.34 * len(names)))
    figure.subplots_adjust(left=0.2, right=0.98, top=1 - 0.5 / figure.get_figheight(), bottom=0.62 / figure.get_figheight())
    by_rows(axes, names, points, "stall")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(style.ticker.FixedLocator([10, 100, 1000, 10000, 100000]))
    axes.xaxis.set_minor_locator(style.ticker.NullLocator())
    axes.xaxis.set_major_formatter(style.ticker.FuncFormatter(lambda ms, _: f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"))
    axes.set_xlabel("longest AllReduce from the fault on, or time to the job's error")
    legend(figure, {p[1] for p in points}, ended=True)
    foot(figure, table, "NCCL_IB_TIMEOUT 14, 7 retries · a point a seed, none where the job hung", {"faults"})
    return figure


def draw_retained(table):
    rows = [(FAULTS[r["fault"]], r) for r in table["rows"] if r["table"] == "faults" and not r["heal_ms"] and r["fault"] in ("port_down", "all_but_one", "throttle")]
    rows = [(name, r) for name, r in rows + [(retained_name(r), r) for r in retained_rows(table)] if r["result"]["retained"]]
    if not rows:
        return None
    points = [(name, r["transport"], r["result"]["retained"], False) for name, r in rows]
    known = [FAULTS["port_down"], FAULTS["all_but_one"], FAULTS["throttle"],
             *(op + more for more in ("", ", 1 of 8") for op in ("allreduce", "allgather", "reducescatter", "sendrecv", "alltoall"))]
    names = [name for name in known if any(p[0] == name for p in points)]
    figure, axes = style.pyplot.subplots(figsize=(style.DOUBLE_COLUMN, 0.9 + 0.34 * len(names)))
    figure.subplots_adjust(left=0.2, right=0.98, top=1 - 0.5 / figure.get_figheight(), bottom=0.62 / figure.get_figheight())
    for name, most in sorted({(name, limit(r)) for name, r in rows}):
        axes.plot([most, most], [names.index(name) - 0.4, names.index(name) + 0.4], color=style.INK, linewidth=0.8, linestyle=(0, (3, 1.5)), gid=f"data:limit:{name}")
    by_rows(axes, names, points, "retained")
    axes.set_xlim(0, 1.05)
    axes.set_xlabel("rate kept after the fault (collectives: one of four NICs lost, or as named)")
    legend(figure, {p[1] for p in points}, limits=True)
    foot(figure, table, "operation before the fault / after it · a point a seed, none where the job hung · limit: of the NICs that are left", {"faults", "retained"})
    return figure


def draw_cost(table):
    ratios = beside_ib(table)
    if not ratios:
        return None
    figure, (left, right) = style.pyplot.subplots(1, 2, figsize=(style.DOUBLE_COLUMN, 2.6), sharey=True)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.8, bottom=0.25, wspace=0.08)
    for number, (transport, (_, colour, marker)) in enumerate(TRANSPORTS.items()):
        for axes, name in ((left, "latency"), (right, "busbw")):
            own = [(count, found) for (t, count), found in sorted(ratios.items()) if t == transport and (count <= 64 * 1024) == (name == "latency")]
            if not own:
                continue
            beside = 2 ** (0.16 * (number - 3))  # so that lines do not hide each other
            middle = [statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else 3 * found for _, found in own]
            axes.vlines([count * beside for count, _ in own], [low for low, _, _ in middle], [high for _, _, high in middle], color=colour, linewidth=0.8)
            axes.plot([count * beside for count, _ in own], [statistics.median(found) for _, found in own], linestyle="", marker=marker, markersize=3.5, color=colour,
                      gid=f"data:{name}:{transport}")
    for axes, title in ((left, "latency"), (right, "bandwidth")):
        axes.axhline(1, color=style.INK, linewidth=0.8, linestyle=(0, (4, 2)))
        axes.set_xscale("log", base=2)
        sizes = sorted({count for _, count in ratios if (count <= 64 * 1024) == (axes is left)})
        axes.xaxis.set_major_locator(style.ticker.FixedLocator([count for count in sizes if not any(count < other < 4 * count for other in sizes)]))
        axes.xaxis.set_minor_locator(style.ticker.NullLocator())
        axes.xaxis.set_major_formatter(style.ticker.FuncFormatter(inputs.size))
        axes.set_xlabel("bytes of an AllReduce")
        axes.set_title(title, loc="right", fontsize=7.5)
    left.set_ylabel("time / that of NCCL's IB")
    left.set_ylim(bottom=0)
    legend(figure, {t for t, _ in ratios})
    most = max(len(found) for found in ratios.values())
    foot(figure, table, f"ports without a limit of their rate, transports in turns · medians over at most {most} seeds; lines: the middle half", {"cost"})
    return figure


class OfResults:
    """A figure of `r2bench plot --all`: NAME, data(), draw()."""

    def __init__(self, name, drawing):
        self.NAME, self.drawing = name, drawing

    def data(self, results):
        return of_results(results)

    def draw(self, table):
        figure = self.drawing(table)
        if figure is None:
            raise inputs.NoData(COMMAND)
        return figure


FIGURES = {"head_to_head_stall": draw_stall, "head_to_head_retained": draw_retained, "head_to_head_cost": draw_cost}

# What it costs without a fault, plots/beside.py draws from jobs in which the transports took turns.
IN_RESULTS = [OfResults(name, drawing) for name, drawing in FIGURES.items() if drawing is not draw_cost]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", nargs="+", help="files that harness/workload/nccl/head_to_head.py has written")
    parser.add_argument("--out", default=".", help="folder of the tables and figures")
    arguments = parser.parse_args()
    style.use()
    try:
        table = read(arguments.lines)
        os.makedirs(arguments.out, exist_ok=True)
        write_csv(table, os.path.join(arguments.out, "head_to_head.csv"))
        with open(os.path.join(arguments.out, "head_to_head.md"), "w", encoding="utf-8") as file:
            file.write(markdown(table))
        for name, draw in FIGURES.items():
            figure = draw(table)
            if figure is None:
                print(f"{name}: no rows")
            else:
                style.save(figure, arguments.out, name)
    except inputs.NoData as missing:
        print(f"head_to_head: no data: run {missing}", file=sys.stderr)
        return 1
    except inputs.BadInput as error:
        print(f"head_to_head: {error}", file=sys.stderr)
        return inputs.BAD_INPUT
    except (KeyError, TypeError, ValueError) as error:
        print(f"head_to_head: a line has unexpected content: {error!r}", file=sys.stderr)
        return inputs.BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
