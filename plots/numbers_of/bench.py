# SPDX-License-Identifier: Apache-2.0
"""Emulated runs, the matrix, walks, the nightly, the gate, costs on the CPU, and conformance."""

import fractions
import math
import statistics
import textwrap

import inputs
import tables
from collect import quantile
from numbers_of.words import markdown, mode, one_run, rows_of, short, student, thousands


def recovery_times(results):
    """A time that never came is infinite. A recovery that cannot be judged is none that never came: the last line says how many, and why."""
    rows, unknown = [], {}
    for kind in ("port_down", "qp_error", "blackhole"):
        faults = [row for row in rows_of(results, "faults", "speed") if row["kind"] == kind and row["sampled"] == "1"]
        judged = [row for row in faults if not row["why_no_rate_before"]]
        for row in faults:
            if row["why_no_rate_before"]:
                unknown[row["why_no_rate_before"]] = unknown.get(row["why_no_rate_before"], 0) + 1
        detect, recover = (sorted(float(row[column]) if row[column] else float("inf") for row in of) for column, of in (("detect_ms", faults), ("recover_ms", judged)))
        rows.append([f"`{kind}`", len(faults), *(short(quantile(detect, part)) for part in (0.5, 0.99)),
                     *(short(quantile(recover, part)) if recover else "–" for part in (0.5, 0.9, 0.99, 1)), short(max(float(row["floor_ms"]) for row in faults))])
    table = markdown(["fault", "faults", "detected: p50 (ms)", "p99", "recovered: p50 (ms)", "p90", "p99", "most", "floor (ms)"], rows)
    every = {(row["run"], row["verdict"]) for row in rows_of(results, "runs", "speed")}
    others = sorted((run, verdict) for run, verdict in every if verdict != "pass")
    if others:
        named = ", ".join(f"`{run}` ({verdict})" for run, verdict in others)
        table += "\n" + textwrap.fill(f"Of the {len(every)} runs of this set, {len(others)} did not pass: {named}.", 110) + "\n"
    if unknown:
        reasons = "; ".join(f"{why} ({count})" for why, count in sorted(unknown.items()))
        table += f"\nThe recovery of {sum(unknown.values())} of these faults is left out: {reasons}.\n"
    return table


def recovered(row):
    """The longest recovery. Of a fault that was never recovered from, the table has how long it was waited for."""
    return "never" if int(row["unrecovered"] or 0) else short(row["recover_max_ms"])


def runs(results, *sets):
    rows = [[f"`{row['run']}`", mode(row["mode"]), row["verdict"], row["outcome"] + (f" after {short(row['error_ms'])} ms" if row["error_ms"] else ""),
             f"{row['sampled'] or 0}/{row['planned'] or 0}", short(row["detect_max_ms"]), recovered(row), short(row["floor_ms"]),
             short(row["retained"]) + ("\\*" if row["before_limited_by"] == "other" else ""), short(row["limit"])] for row in rows_of(results, "runs", *sets)]
    table = markdown(["scenario", "mode", "verdict", "job", "faults measured", "detected (ms, max)", "recovered (ms, max)", "floor (ms)", "retained", "limit"], rows)
    return table + ("\n\\* This is not the rate that the remaining NICs can carry: either the ports were not the limit before the\nfault, or the NIC was soon repaired.\n" if any(row[-2].endswith("*") for row in rows) else "")


def retained(results):
    rows = {}
    for row in rows_of(results, "runs", "k_of_8_nics"):
        rows.setdefault(int(row["nics_lost"]), {})[row["mode"]] = row

    def cells(row):
        return short(row["retained"]) + ("\\*" if row["before_limited_by"] == "other" else "") + ("" if row["verdict"] == "pass" else f" ({row['verdict']})"), short(row["limit"])
    table = markdown(["NICs lost of 8", "mode 1: retained", "limit", "mode 2: retained", "limit"],
                     [[lost, *(cell for name in ("migrate", "balance") for cell in cells(rows[lost][name]))] for lost in sorted(rows)])
    if any(row["verdict"] != "pass" for modes in rows.values() for row in modes.values()):
        table += "\nA verdict that is not a pass is in parentheses; a run has one verdict for both modes.\n"
    if "\\*" in table:
        table += "\n\\* This is not the rate that the remaining NICs can carry: something other than the ports limited the rate\nbefore the fault.\n"
    return table


def overhead(results):
    rows = []
    for row in tables.read(results, "runs"):
        if row["pairs"] and row["mode"] in ("migrate", "balance", "everything") and row["set"] != "slow_lane":
            size = f"{row['op']} of {inputs.size(int(row['bytes']))}"
            rows.append([f"`{row['set']}`", size, mode(row["mode"]), mode(row["against"]), row["pairs"], *(short(row[column], 2) for column in (
                "busbw_loss_pct", "busbw_loss_upper95_pct", "time_loss_pct", "time_loss_upper95_pct", "cpu_loss_pct", "cpu_loss_upper95_pct"))])
    return markdown(["set", "operation", "mode", "compared with", "pairs", "busbw loss (%)", "upper 95 %", "time (%)", "upper 95 %", "CPU (%)", "upper 95 %"], rows)


def pooled_loss(results, name):
    """(mean, upper bound with 95 % confidence) of the loss of busbw over the pairs of all jobs of a set, in %; each job says both of its own pairs."""
    jobs = [(int(row["pairs"]), float(row["busbw_loss_pct"]), float(row["busbw_loss_upper95_pct"])) for row in rows_of(results, "runs", name) if row["pairs"]]
    pairs = sum(count for count, _, _ in jobs)
    mean = sum(count * loss for count, loss, _ in jobs) / pairs
    error = math.sqrt(sum((count * (upper - loss) / student(count - 1)) ** 2 for count, loss, upper in jobs)) / pairs
    return mean, mean + student(pairs - len(jobs)) * error


def false_alarms(results):
    rows = [[f"`{row['scenario']}`", mode(row["mode"]), row["seed"], row["disturbances"], row["migrations"], row["verdict"]] for row in tables.read(results, "false_alarms")]
    return markdown(["scenario", "mode", "seed", "disturbances", "migrations", "verdict"], rows)


def matrix(results):
    rows = []
    for name, title in (("mode1", "1"), ("mode2", "2"), ("mode3", "3")):
        cells = rows_of(results, "matrix", name)
        count = [sum(cell["verdict"] == verdict for cell in cells) for verdict in ("pass", "fail", "missed")]
        run = [cell for cell in cells if cell["verdict"] != "empty"]
        rows.append([title, len(run), *count, sum(int(cell["struck"] or 0) for cell in run), thousands(sum(int(cell["checked"] or 0) for cell in run)),
                     sum(int(cell["wrong"] or 0) for cell in run)])
    return markdown(["mode", "cells", "hold", "fail", "missed", "faults that struck", "elements compared", "wrong"], rows)


def programs(results):
    return markdown(["program", "fault", "exit status", "its message", "client's completion", "after (ms)"],
                    [[f"`{row['program']}`", f"`{row['fault']}`", row["exit_status"], row["said"], row["saw"], short(row["after_ms"])] for row in tables.read(results, "programs")])


LOGS_CHECKED_AFTER = "2026-11-22"  # on that day, in the evening, commit 646d3ac0 made walk.py refuse a log of events that is not whole
LOGS_COUNTED_AFTER = "2026-11-26"  # on that day, in the evening, commit 4745bfdb made it compare the number of events with that in result.json


def walks(results):
    total = {}
    for row in tables.read(results, "walks"):
        checked = "yes" if row["date"] > LOGS_CHECKED_AFTER else "no"
        line = total.setdefault((row["fabric"], mode(row["mode"]), row["counting"], checked), [None] * 6)
        for number, column in enumerate(("walks", "faults", "path_changes", "failed", "unknown", "slow")):
            if row[column] != "":  # not every walk.py said how many were unknown or slow
                line[number] = (line[number] or 0) + int(row[column])
    return markdown(["fabric", "mode", "path changes counted", "event log checked", "walks", "faults", "path changes", "failed", "unknown", "slow"],
                    [[*key, *("–" if count is None else thousands(count) for count in line)] for key, line in sorted(total.items())])


def walks_with_counted_logs(results):
    return str(sum(int(row["walks"]) for row in tables.read(results, "walks") if row["date"] > LOGS_COUNTED_AFTER))


def gate(results):
    runs_by, rows = {}, []
    for row in rows_of(results, "gate", "gate"):
        runs_by.setdefault(row["delay_ms"], []).append(row)
    for delay, own in sorted(runs_by.items()):
        rows.append([f"{delay} ms", len(own), sum(row["status"] == "1" for row in own), short(max(float(row["seconds"]) for row in own))])
    return markdown(["delay in the candidate", "runs", "found slower", "longest run (s)"], rows)


def nightly(results):
    groups = {}
    for row in tables.read(results, "nightly"):
        groups.setdefault((row["set"], row["commit"]), []).append(row)
    said = {"1": "failed", "2": "undecided", "124": "cut off", "130": "cut off", "143": "cut off"}
    rows = []
    for (name, commit), own in groups.items():
        others = ", ".join(f"`{row['step']}`: {said.get(row['status'], row['status'])}" for row in own if row["status"] != "0")
        rows.append([f"`{name}`", f"`{commit}`", len(own), sum(row["status"] == "0" for row in own), others or "none"])
    return markdown(["set", "commit", "steps", "passed", "steps that did not pass"], rows)


def cluster(results):
    groups, rows = {}, []
    for row in tables.read(results, "cluster"):
        groups.setdefault((row["launcher"], row["hosts"], row["test"]), []).append(row)
    for (launcher, hosts, test), own in sorted(groups.items()):
        cases = ", ".join(f"`{row['scenario']}`" + ("" if row["verdict"] == "pass" else " (fails)") for row in own)
        clocks = [float(row["clock_bound_ms"]) for row in own if row["clock_bound_ms"]]
        judged = [(int(row["met"]), int(row["expectations"])) for row in own if row["expectations"] and row["met"]]
        met = f"{sum(met for met, _ in judged)}/{sum(all_of for _, all_of in judged)}" if judged else "–"
        rows.append([launcher, hosts, f"`{test}`", cases, f"{sum(row['verdict'] == 'pass' for row in own)}/{len(own)}", met, short(max(clocks)) if clocks else "–"])
    return markdown(["launcher", "hosts", "test", "cases", "passed", "expectations met", "clock bound (ms, max)"], rows)


BESIDE_CPU = "beside_ib_cpu"  # and its set of before


def beside_cpu(results):
    """The cpu workload over R2CCL beside NCCL's IB transport: before, now, and the control."""
    found = {(row["set"], int(row["bytes"]), "CPU" in row["benchmark"], row["mode"]): row for row in rows_of(results, "costs", BESIDE_CPU, BESIDE_CPU + "_before")}

    def cell(*key):
        row = found.get(key)
        return f"{short(row['ratio'], 4)} ({short(row['ratio_low95'], 4)} to {short(row['ratio_high95'], 4)})" if row else "–"
    rows = [[inputs.size(size), "CPU time" if cpu else "time", cell(BESIDE_CPU + "_before", size, cpu, "migrate"), *(cell(BESIDE_CPU, size, cpu, of) for of in ("migrate", "balance", "ib"))]
            for size in sorted({size for _, size, _, _ in found}) for cpu in (False, True)]
    return markdown(["size", "measure", "mode 1 before", "mode 1", "mode 2", "control"], rows)


def costs(results):
    rows = [[f"`{row['set']}`", row["benchmark"], inputs.size(int(row["bytes"])) if row["bytes"] else "–", mode(row["mode"]) or "–", f"{short(row['value'])} {row['unit']}" if row["value"] else "–",
             short(row["beside"]), short(row["ratio"], 4), (short(row["ratio_low95"], 4) + " to " if row["ratio_low95"] else "up to ") + short(row["ratio_high95"], 4) if row["ratio_high95"] else "–"]
            for row in tables.read(results, "costs") if not row["set"].startswith(BESIDE_CPU)]
    return markdown(["set", "benchmark", "size", "mode", "value", "compared with", "ratio", "95 % interval"], rows)


def conformance(results):
    lines = rows_of(results, "conformance", "conformance")
    return markdown(["fabric", "case", "expected", "observed"], [[row["fabric"], f"{row['test']}: {row['what']}", row["wanted"], row["got"]] for row in lines])


def simulated(results):
    chosen = [row for row in rows_of(results, "allreduce", "allreduce") if row["chosen"] == "1"]
    rows = []
    for segments in sorted({row["segments"] for row in chosen}, key=int):
        own = [float(row["simulated_bound"]) for row in chosen if row["segments"] == segments]
        rows.append([segments, len(own), short(statistics.median(own)), short(max(own))])
    return markdown(["K at most", "cases", "time / lower bound: median", "largest"], rows)


def beside_upstream(results):
    """T/T0 of the planner's choice, and of upstream's schedule, with one degraded node."""
    rows = {}
    for row in rows_of(results, "allreduce", "allreduce"):
        if row["degraded"] == "1" and (row["segments"] == "32") and (row["chosen"] == "1" or row["algorithm"] == "upstream"):
            rows.setdefault((int(row["nodes"]), row["lost"]), {})["upstream" if row["algorithm"] == "upstream" else "ours"] = row
    return markdown(["nodes", "x", "lower bound", "the planner's choice", "", "upstream", "upstream / ours"],
                    [[nodes, fractions.Fraction(lost), short(of["ours"]["bound_t0"]), short(of["ours"]["simulated_t0"]), of["ours"]["algorithm"].replace("_", " "),
                      short(of["upstream"]["simulated_t0"]), short(float(of["upstream"]["simulated_t0"]) / float(of["ours"]["simulated_t0"]))]
                     for (nodes, lost), of in sorted(rows.items())])


def vhca_copy(results):
    ratio = {}
    for row in rows_of(results, "costs", "vhca_copy", "write_bw"):
        ratio.setdefault(int(row["bytes"]), {})[row["benchmark"].split(" ")[-1] if row["set"] == "vhca_copy" else "ib_write_bw"] = row
    return markdown(["message", "memcpy (GB/s)", "WRITE", "READ", "`ib_write_bw`"],
                    [[inputs.size(size), short(next(iter(by.values()))["beside"], 2), *(short(by[name]["ratio"]) if name in by else "–" for name in ("WRITE", "READ", "ib_write_bw"))]
                     for size, by in sorted(ratio.items())])


BLOCKS = {
    "recovery": recovery_times,
    "retained": retained,
    "overhead": overhead,
    "false-alarms": false_alarms,
    "matrix": matrix,
    "programs": programs,
    "walks": walks,
    "gate": gate,
    "nightly": nightly,
    "cluster": cluster,
    "costs": costs,
    "beside-cpu": beside_cpu,
    "conformance": conformance,
    "simulated": simulated,
    "beside-upstream": beside_upstream,
    "vhca-copy": vhca_copy,
    "scenarios": lambda results: runs(results, "recovery", "device_removed", "dual_port_card", "alltoall_64"),
    "nccl-scenarios": lambda results: runs(results, "nccl_scenarios"),
    "degraded": lambda results: runs(results, "gray", "numa_far"),
    "mode3-emulated": lambda results: runs(results, "mode3_scenarios"),
    "mode3-emulated-2": lambda results: runs(results, "mode3_scenarios_2"),
}
NUMBERS = {
    "overhead.pooled": lambda results: short(pooled_loss(results, "no_fault_256_pairs")[0], 1),
    "overhead.pooled-upper95": lambda results: short(pooled_loss(results, "no_fault_256_pairs")[1], 2),
    "balance.loss": lambda results: short(one_run(results, "no_fault_balance", "no_fault_balance_40_pairs", "balance")["busbw_loss_pct"], 1),
    "balance.loss-upper95": lambda results: short(one_run(results, "no_fault_balance", "no_fault_balance_40_pairs", "balance")["busbw_loss_upper95_pct"], 2),
    "slow-lane.gain": lambda results: short(1 - float(one_run(results, "slow_lane", "slow_lane", "balance")["busbw_loss_pct"]) / 100),
    "walks.logs-counted": walks_with_counted_logs,
}
