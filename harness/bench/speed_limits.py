#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports how fast faults were detected and recovered from over many runs, and whether that is within the limits.

Takes result.json files, folders that contain such files (at any depth), and .jsonl files that this program wrote. A run that was cut
short counts, too, unless something had failed by then; those of its faults count that were measured. A time that never came is infinite.
Exception: a time of the last fault of a run that was cut short is infinite only if it had been waited for (waited_ms less window_ms) for
longer than each of its limits; else it does not count. Faults are grouped by kind and mode; the mode baseline is left
out. A port that went down silently also has the kind port_down: evaluate such runs in a separate call.

The limits, where 'floor' is the fault's own floor_ms and 'wake-up' the p99 of its run:
  qp_error, port_down   detected after: p50 <= 0.5 ms, p99 <= wake-up + 2 ms
                        recovered after: p50 <= floor + 2 ms, p99 <= floor + wake-up + 15 ms
  blackhole             recovered after: p99 <= floor + wake-up + 30 ms
Percentiles are nearest-rank. The floor and the wake-up are subtracted from each fault before the percentile is taken, so that runs with
different floors can be combined. The p99 of fewer than 100 faults is the largest of them. A limit is met only if it would still be met if
each time that is not known were above it: those of a fault that was not measured, unless it met nothing (no operation was open, for
example), and the recovery of a fault without a rate before it.

Exit status:
  0   every limit is met
  1   a limit is not met; or a run ended in an error, a hang or a death, has the verdict fail, or had a wrong element
  2   undecided: a limit might not be met if all times were known; a run has the verdict unknown for another reason than that it was cut short, or does not say why (results of older
      versions); lost trace events, or does not say whether it did; there are fewer faults of a kind and mode than --wanted, or none although
      some were planned; no fault was of a kind that has limits; or more than --dropped percent of the faults that took effect were not
      measured
  64  there are no results, or no fault was measured and nothing had failed; a file is damaged; or a run was given twice
Status 1 takes precedence over status 2. The table has the faults of all runs, whatever the status."""

import argparse
import json
import math
import os
import sys

WANTED = 200  # faults of a kind and mode
DROPPED = 5.0  # percent of those that took effect
# What a time may be beside what is its own: (the time, percentile, is the floor allowed, is the wake-up, and so many ms).
LIMITS = {
    "qp_error": [("detect", 50, False, False, 0.5), ("detect", 99, False, True, 2.0),
                 ("recover", 50, True, False, 2.0), ("recover", 99, True, True, 15.0)],
    "blackhole": [("recover", 99, True, True, 30.0)],
}
LIMITS["port_down"] = LIMITS["qp_error"]
# Why a fault is not measured that had nothing to be measured (met_nothing() in harness/judge/settle_bound.h).
MET_NOTHING = ["no operation was open", "no channel used the target", "no segment was in flight on the target",
               "it took nothing from its NIC", "no NIC was struck", "the job's last operation had ended"]
CUT = "cut"  # a time that had not come when the run was cut short
CUT_SHORT = "cut_short"  # the doubt of a run that was cut short, and of nothing else
VERDICTS = ["pass", "fail", "unknown"]
TIMES = ["detect_ms", "recover_ms", "floor_ms", "waited_ms"]
OF_EACH_SAMPLE = ["floor_ms", "window_ms", "limit"]  # which no measured fault lacks
KEYS = ["name", "kind", "target", "detected_by", "detect_ms", "migrate_ms", "recover_ms", "blackout_ms", "floor_ms", "window_ms",
        "limit", "before_gbps", "after_gbps", "witnessed", "sampled", "why_not_sampled"]
NEWER_KEYS = ["why_no_rate_before", "waited_ms"]  # older results lack them


class Unreadable(Exception):
    """One sentence."""


def percentile(values, percent):
    """The smallest value that at least so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(percent * len(ordered) / 100)) - 1]


def doubts_of_result(result):
    """The keys of what is unknown, each once; None: an older result, which has none."""
    if "doubt_kinds" not in result:
        return None
    return sorted({*result["doubt_kinds"], *(each["doubt"] for each in result["expectations"] if each["doubt"] is not None)})


def fields_of(fault):
    return {**{key: fault[key] for key in KEYS}, **{key: fault.get(key) for key in NEWER_KEYS}}


def runs_of_result(path):
    """Each mode of a result.json as {seed, mode, outcome, verdict, doubts, trace_lost, correctness, wakeup, faults}. The verdict and the doubts
    are those of all modes."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        if result["verdict"] not in VERDICTS:
            raise Unreadable(f"{path} is damaged: its verdict is {result['verdict']!r}")
        return [{"seed": result["seed"], "mode": run["mode"], "outcome": run["outcome"], "r2cc_mode": run["r2cc_mode"],
                 "verdict": result["verdict"], "doubts": doubts_of_result(result), "trace_lost": run["trace_lost"], "correctness": run["metrics"]["correctness"], "wakeup": run["metrics"]["recovery"]["wakeup_p99_ms"],
                 "faults": [fields_of(fault) for fault in run["faults"]]} for run in result["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{path} is no result of a run: {error!r}") from error


def runs_of_lines(path):
    """What write_lines() wrote."""
    runs = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                if "run" in entry:
                    runs.append({"mode": "?", "r2cc_mode": 1, "verdict": None, "doubts": None, "trace_lost": None, **entry["run"], "faults": []})
                else:
                    runs[-1]["faults"].append(fields_of(entry))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise Unreadable(f"{path} does not hold a fault a line: {error!r}") from error
    return runs


def is_number(value):
    """From 0 on, and finite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def check(runs, path):
    """Refuses what r2bench writes of no run, so that an odd value is not taken for a good one. Times may be null."""
    def wanted(holds, of, key, value):
        if not holds:
            raise Unreadable(f"{path} is damaged: {key} of {of} is {value!r}")

    for run in runs:
        name = f"the run of mode {run['mode']}, seed {run['seed']}"
        wanted(run["verdict"] in [None, *VERDICTS], name, "verdict", run["verdict"])
        wanted(isinstance(run["outcome"], str), name, "outcome", run["outcome"])
        wanted(isinstance(run["correctness"]["exact"], bool), name, "exact", run["correctness"]["exact"])
        for key in ("wakeup", "trace_lost"):
            wanted(run[key] is None or is_number(run[key]), name, key, run[key])
        for fault in run["faults"]:
            wanted(isinstance(fault["kind"], str), fault["name"], "kind", fault["kind"])
            for key in ("witnessed", "sampled"):
                wanted(isinstance(fault[key], bool), fault["name"], key, fault[key])
            for key in TIMES:
                wanted(fault[key] is None or is_number(fault[key]), fault["name"], key, fault[key])
            for key in OF_EACH_SAMPLE if fault["witnessed"] and fault["sampled"] else ():
                wanted(is_number(fault[key]), fault["name"], key, fault[key])
    return runs


def gather(arguments):
    runs = []
    for argument in arguments:
        if os.path.isdir(argument):
            found = sorted(os.path.join(folder, "result.json") for folder, _, files in os.walk(argument) if "result.json" in files)
            if not found:
                raise Unreadable(f"there is no result.json in {argument}")
        else:
            found = [argument]
        for path in found:
            of_path = runs_of_lines(path) if path.endswith(".jsonl") else runs_of_result(path)
            try:
                check(of_path, path)
            except (KeyError, TypeError) as error:
                raise Unreadable(f"{path} is damaged: {error!r}") from error
            for run in of_path:
                if run["faults"] and run in runs:  # no two runs agree in all their times
                    raise Unreadable(f"{path} is of a run that was given before (seed {run['seed']}, mode {run['mode']})")
            runs += of_path
    return [run for run in runs if run["r2cc_mode"] != 0]


def write_lines(runs, path):
    with open(path, "w", encoding="utf-8") as file:
        for run in runs:
            head = {key: run[key] for key in ("seed", "mode", "r2cc_mode", "outcome", "verdict", "doubts", "trace_lost", "correctness", "wakeup")}
            file.write(json.dumps({"run": head}) + "\n")
            for fault in run["faults"]:
                file.write(json.dumps({"seed": run["seed"], "mode": run["mode"], **fault}) + "\n")


def longest_allowed(fault, time, wakeup):
    """The largest limit of that time of the fault's kind, in ms."""
    return max(((fault["floor_ms"] if floor else 0) + (wakeup if with_wakeup else 0) + allowed
                for of, _, floor, with_wakeup, allowed in LIMITS.get(fault["kind"], []) if of == time), default=math.inf)


def time_of(run, fault, time):
    """In ms; infinite: it never came; None: it is not known; CUT: it was not waited for until the limit."""
    if fault[time + "_ms"] is not None:
        return fault[time + "_ms"]
    if time == "recover" and fault["why_no_rate_before"]:
        return None
    if run["outcome"] != "cancelled" or fault is not run["faults"][-1] or fault["recover_ms"] is not None:
        return math.inf
    if fault["waited_ms"] is None:
        return None
    # An interval of good rate that had begun may have been cut.
    return math.inf if fault["waited_ms"] - fault["window_ms"] > longest_allowed(fault, time, run["wakeup"]) else CUT


def measured(run):
    """The faults of a run that were measured."""
    for fault in run["faults"]:
        if fault["witnessed"] and fault["sampled"]:
            yield {"detect": time_of(run, fault, "detect"), "recover": time_of(run, fault, "recover"),
                   "floor": fault["floor_ms"], "limit": fault["limit"], "wakeup": run["wakeup"]}


def groups_of(runs, port_floor):
    groups = {}
    for run in runs:
        kinds = {fault["kind"] for fault in run["faults"]}
        if run["wakeup"] is None and any(fault["witnessed"] and fault["sampled"] for fault in run["faults"]):
            raise Unreadable(f"the wake-up latency of a run of {', '.join(sorted(kinds))} (seed {run['seed']}) is not known")
        for kind in kinds:
            of_kind = dict(run, faults=[fault for fault in run["faults"] if fault["kind"] == kind])
            # Whether the last fault was cut short is a matter of the whole run.
            if of_kind["faults"][-1] is not run["faults"][-1]:
                of_kind["outcome"] = "ok"
            groups.setdefault((kind, run["mode"]), []).extend(measured(of_kind))
    if port_floor:
        for faults in groups.values():
            for fault in faults:
                fault["floor"] *= min(1.0, max(0.1, fault["limit"]))
    return {key: faults for key, faults in sorted(groups.items()) if faults}


def judge(kind, faults, dropped):
    """(what is wanted, what came of it, whether that is within; None: not known) for each limit of the kind. `dropped`: how many faults were
    not measured."""
    judged = []
    for time, percent, floor, wakeup, allowed in LIMITS.get(kind, []):
        known = [fault[time] - (fault["floor"] if floor else 0) - (fault["wakeup"] if wakeup else 0) for fault in faults if fault[time] not in (None, CUT)]
        unknown = sum(fault[time] is None for fault in faults) + dropped
        own = "".join(f"{name} + " for name, used in (("floor", floor), ("wake-up", wakeup)) if used)
        wanted = f"{time} p{percent} <= {own}{allowed:g} ms"
        if not known:
            judged.append((wanted, "no such time is known", None))
            continue
        over = percentile(known, percent)
        beside = own.removesuffix(" + ").replace(" + ", " and ")
        got = f"{over:.2f} ms" + (f" beside {beside}" if beside else "")
        within = over <= allowed
        if within and percentile(known + [math.inf] * unknown, percent) > allowed:
            worse = sum(each > allowed for each in known)
            got += f", but {unknown} of {len(known) + unknown} are not known" + (f" and {worse} are longer" if worse else "")
            within = None
        judged.append((wanted, got, within))
    return judged


def failures_of(run):
    """What went wrong in a run, beside its times: one phrase each."""
    if run["outcome"] not in ("ok", "cancelled"):
        yield f"it ended as {run['outcome']}"
    if run["verdict"] == "fail":
        yield "its verdict is fail"
    if not run["correctness"]["exact"]:
        yield "not every element was right, or none was compared"


def doubts_of(run):
    """Why a run's times cannot be relied on: one phrase each."""
    if run["verdict"] is None or run["trace_lost"] is None:
        yield "the record does not say its verdict, or whether trace events were lost"
    elif run["verdict"] == "unknown":
        other = [doubt for doubt in run["doubts"] or [] if doubt != CUT_SHORT]
        if other:
            yield f"its verdict is unknown: {', '.join(other)}"
        elif not run["doubts"]:
            yield "its verdict is unknown, and the record does not say why"
    if run["trace_lost"]:
        yield f"{run['trace_lost']} trace events were lost"


def dropped_of(runs):
    """(kind, mode) -> [faults that took effect, how many of them were not sampled, their reasons, how many of those met something]."""
    groups = {}
    for run in runs:
        for fault in run["faults"]:
            if not fault["witnessed"]:
                continue
            entry = groups.setdefault((fault["kind"], run["mode"]), [0, 0, {}, 0])
            entry[0] += 1
            if not fault["sampled"]:
                entry[1] += 1
                entry[3] += fault["why_not_sampled"] not in MET_NOTHING
                entry[2][fault["why_not_sampled"]] = entry[2].get(fault["why_not_sampled"], 0) + 1
    return groups


def planned_of(runs):
    """Each (kind, mode) that has limits."""
    return {(fault["kind"], run["mode"]) for run in runs for fault in run["faults"] if fault["kind"] in LIMITS}


def report(groups, dropped, planned, wanted_faults, out):
    """Prints the table and the limits. (Whether all of them are met, whether there were faults enough.)"""
    rows = [["kind", "mode", "witnessed", "sampled", "dropped", "judged", "detect p50", "p99", "max", "recover p50", "p90", "p99", "floor",
             "wake-up p99"]]
    for (kind, mode), (witnessed, not_sampled, _, _) in sorted(dropped.items()):
        faults = groups.get((kind, mode), [])
        detect, recover = ([f[time] for f in faults if f[time] not in (None, CUT)] for time in ("detect", "recover"))
        rows.append([kind, mode] + [str(count) for count in (witnessed, witnessed - not_sampled, not_sampled, len(recover))] +
                    [f"{percentile(times, percent):.2f}" if times else "–" for times, percent in (
                        (detect, 50), (detect, 99), (detect, 100), (recover, 50), (recover, 90), (recover, 99),
                        ([f["floor"] for f in faults], 100), ([f["wakeup"] for f in faults], 100))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) if column < 2 else cell.rjust(width)
                        for column, (cell, width) in enumerate(zip(row, widths))), file=out)
    print("witnessed: took effect; dropped: of those, not sampled; judged: sampled, and it is known whether and when it recovered\n"
          "times in ms; floor and wake-up: the largest of the group\n", file=out)
    met = enough = True
    if not any(kind in LIMITS for kind, _ in groups):
        enough = False
        print("unknown  no limit was evaluated", file=out)
    for (kind, mode), faults in groups.items():
        if kind not in LIMITS:
            print(f"{kind}, {mode}: no limit is stated", file=out)
            continue
        for wanted, got, within in judge(kind, faults, dropped[kind, mode][3]):
            met = met and within is not False
            enough = enough and within is not None
            print(f"{'unknown' if within is None else 'met    ' if within else 'NOT MET'}  {kind}, {mode}: {wanted}: {got}", file=out)
        if len(faults) < wanted_faults:
            enough = False
            print(f"few      {kind}, {mode}: {len(faults)} faults; {wanted_faults} are wanted", file=out)
    for kind, mode in sorted(planned - set(groups)):
        enough = False
        print(f"few      {kind}, {mode}: 0 faults; {max(wanted_faults, 1)} are wanted", file=out)
    for kind in sorted(set(LIMITS) - {kind for kind, _ in planned}):
        print(f"none     {kind}: its limits were not evaluated", file=out)
    return met, enough


def main(arguments=None, out=sys.stdout):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="FOLDER_OR_FILE", help="result.json, .jsonl, or a folder with such results")
    parser.add_argument("--jsonl", metavar="OUT", help="write one line for each run and each of its faults to this file")
    parser.add_argument("--floor", choices=["limit", "port"], default="limit",
                        help="the rate that the floor assumes for a segment: limit, the share of the port's rate that the mode's limit leaves (floor_ms, the default), or port, the whole rate of the port")
    parser.add_argument("--wanted", type=int, default=WANTED, metavar="N", help=f"least number of faults of each kind and mode (default: {WANTED})")
    parser.add_argument("--dropped", type=float, default=DROPPED, metavar="PERCENT",
                        help=f"largest share of the faults of a kind and mode that took effect but were not measured (default: {DROPPED:g})")
    options = parser.parse_args(arguments)
    try:
        runs = gather(options.results)
        groups = groups_of(runs, options.floor == "port")
        if not groups and not any(True for run in runs for _ in failures_of(run)):
            raise Unreadable("no fault was measured")
        if options.jsonl:
            write_lines(runs, options.jsonl)
    except (Unreadable, OSError) as error:
        print(error, file=sys.stderr)
        return 64
    dropped_groups = dropped_of(runs)
    met, known = report(groups, dropped_groups, planned_of(runs), options.wanted, out)
    for run in runs:
        for phrase in failures_of(run):
            met = False
            print(f"NOT MET  mode {run['mode']}, seed {run['seed']}: {phrase}", file=out)
        for phrase in doubts_of(run):
            known = False
            print(f"unknown  mode {run['mode']}, seed {run['seed']}: {phrase}", file=out)
    for (kind, mode), (witnessed, dropped, reasons, _) in sorted(dropped_groups.items()):
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items(), key=str))
        if 100 * dropped > options.dropped * witnessed:
            known = False
            print(f"unknown  {kind}, {mode}: {dropped} of {witnessed} faults were not measured, more than {options.dropped:g} %: {why}", file=out)
        elif dropped:
            print(f"dropped  {kind}, {mode}: {dropped} of {witnessed} faults were not measured: {why}", file=out)
    return 1 if not met else 0 if known else 2


if __name__ == "__main__":
    sys.exit(main())
