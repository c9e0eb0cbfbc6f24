# SPDX-License-Identifier: Apache-2.0
"""The tables of results/tables: their columns, reading and writing. Judges and draws nothing.

A row belongs to a set, which is one measurement: the same commit, machine and evidence. provenance.csv has one row per set. An empty
field is a value that is not known. Names say their unit; `_gbps` is 10^9 bits per second, `_gbytes` 10^9 bytes per second."""

import csv
import os

from inputs import BadInput
from whole_file import alone, whole_file

COLUMNS = {
    # Where a set comes from. `fabric`: vhca, rxe, verbs, or none.
    "provenance": ["set", "tables", "evidence", "fabric", "date", "commit", "cores", "machine", "command", "note"],
    # One mode of one run of r2bench. `before_limited_by` of a run whose fault struck a NIC: `ports`, or `other` where the CPU or a GPU did, or a NIC
    # was soon used again: `retained` then says nothing of the NICs left. `restored`: rate once the NICs were back, of that before
    # (sets until 2026-11-26 lack it).
    "runs": ["set", "run", "mode", "schema", "verdict", "outcome", "error_ms", "nodes", "ranks_per_node", "nics", "nic_gbps", "op", "bytes", "iters", "channels",
             "repeats", "seed", "exact", "checked", "busbw_p25_gbytes", "busbw_p50_gbytes", "busbw_p75_gbytes", "before_gbps", "before_limited_by", "retained", "limit", "restored", "planned",
             "sampled", "unrecovered", "nics_lost", "detect_p50_ms", "detect_max_ms", "recover_p50_ms", "recover_max_ms", "blackout_max_ms", "floor_ms",
             "wakeup_p99_ms", "migrations", "against", "pairs", "time_loss_pct", "time_loss_upper95_pct", "busbw_loss_pct", "busbw_loss_upper95_pct",
             "cpu_loss_pct", "cpu_loss_upper95_pct"],
    # One fault that took effect in such a run; `sampled`: there was traffic for it to strike; else `why_not_sampled` has the reason
    # (sets until 2026-11-26 lack it).
    "faults": ["set", "run", "mode", "seed", "kind", "target", "sampled", "why_not_sampled", "detected_by", "detect_ms", "migrate_ms", "recover_ms", "blackout_ms", "floor_ms",
               "why_no_rate_before"],
    # One cell of r2bench matrix; verdict `empty`: it cannot happen, `why` says the reason.
    "matrix": ["set", "fault", "moment", "op", "end", "verdict", "outcome", "struck", "migrations", "replayed", "checked", "wrong", "error_ms", "why"],
    # One operation of one case of NCCL on GPUs; a case without operations ended in an error after `ended_ms`, or was aborted.
    "nccl": ["set", "case", "as_expected", "nodes", "gpus_per_node", "net", "mode", "nccl", "fault", "variant", "nics", "nic_gbps", "op", "step", "bytes",
             "wrong", "median_ms", "max_ms", "ended_ms", "bound_ms", "relative_error"],
    # One row of harness/workload/nccl/head_to_head.py; times in ms; `as_predicted`: by predictions.json, which was written before.
    "head_to_head": ["set", "table", "fault", "transport", "nccl", "op", "bytes", "nics", "mbits", "timeout", "version", "heal_ms", "seed", "survives", "outcome", "wrong",
                     "checked", "before_ms", "stall_ms", "retained", "restored", "used_again_ms", "error_ms", "busbw", "cpu_s", "as_predicted"],
    # One job in which two transports took turns (harness/workload/nccl/head_to_head.py --table beside), of `copies` pairs of communicators: the median
    # over the pairs of their medians in ms, and for each pair the ratio of the medians; `cpu_ratio`: of the CPU time within operations.
    "beside": ["set", "transport", "nccl", "op", "bytes", "copies", "seed", "outcome", "side_ms", "other_ms", "ratios", "cpu_ratio", "as_predicted"],
    # One job of the engine nccl with `renew`: NCCL's version, when in the job, what was open, the slowest rank's time, and ranks that were in a migration. Times in ms.
    "renewals": ["set", "scenario", "nccl", "workaround", "by", "iter", "delay_ms", "fault", "mode", "outcome", "wrong", "checked", "migrations", "ranks",
                 "open", "ranks_after", "renew_ms", "stall_ms", "in_migration"],
    # One program that is not ours, under one fault.
    "programs": ["set", "program", "fault", "exit_status", "said", "saw", "after_ms"],
    # Flow simulation of AllReduce (harness/sim/sweep.py); times relative to the fault-free ring.
    "allreduce": ["set", "nodes", "lost", "degraded", "segments", "algorithm", "chosen", "formula_t0", "simulated_t0", "bound_t0", "simulated_bound"],
    # AllReduce with one degraded node on virtual NICs (harness/bench/allreduce_table.py algorithms); `mbits`: of each of four NICs; `cpu_idle`: of the machine.
    "allreduce_emulated": ["set", "nodes", "lost", "bytes", "mbits", "algorithm", "jobs", "t_ms", "t0_ms", "t_to_t0", "bound_ms", "t_to_bound", "simulated_ms",
                           "t_to_simulated", "cpu_idle"],
    # The same at each size, mode 3 beside ring and Balance (harness/bench/allreduce_table.py sizes); `margin`: R2CC_COLLNET_MARGIN, empty: the default.
    # `ratios`: of mode 3 in each round, to the better of the two (mode3_sizes_4 and mode3_sizes_1GiB lack them).
    "allreduce_sizes": ["set", "nodes", "lost", "bytes", "mbits", "margin", "algorithm", "jobs", "t_ms", "t0_ms", "bound_ms", "to_better_of_ring_and_balance", "ratios", "cpu_idle"],
    # Two modes whose operations take turns in each job (harness/bench/allreduce_table.py turns). `ratios`: of each job, the median time of the first to that of the
    # one beside it; `ratios_before`: before the loss.
    "allreduce_turns": ["set", "nodes", "lost", "bytes", "mbits", "margin", "algorithm", "jobs", "t_ms", "t0_ms", "ratios", "ratios_before", "cpu_idle"],
    # CPU time or rate of one benchmark; `ratio`: to `beside`, with its 95 % interval.
    "costs": ["set", "benchmark", "bytes", "mode", "unit", "value", "beside", "ratio", "ratio_low95", "ratio_high95"],
    # One run of the recovery gate, with a delay put into the candidate or not.
    "gate": ["set", "run", "delay_ms", "status", "seconds", "wakeup_p99_ms"],
    # Random walks, one line per call; `unknown` and `slow` are empty where walk.py did not say them yet. Slow ones are not among the walks.
    "walks": ["set", "date", "commit", "fabric", "mode", "counting", "small", "first_seed", "walks", "faults", "path_changes", "migrations", "failed", "unknown", "slow", "seconds"],
    # Steps of the nightly; status 0: passed, 124 and 130: cut off.
    "nightly": ["set", "step", "size", "commit", "machine", "status", "seconds"],
    # One case of a test of several hosts (harness/hosts/tests/recorder.py); `met` of `expectations` of a scenario, which has the rates, too.
    "cluster": ["set", "test", "hosts", "fabric", "launcher", "scenario", "verdict", "expectations", "met", "clock_bound_ms", "date", "commit"],
    # Where the virtual HCA and soft RoCE differ (r2bench conformance).
    "conformance": ["set", "fabric", "test", "what", "wanted", "got", "explained", "acceptable", "why"],
    # What a GPU read of LL128's lines: `checked` elements of NCCL's jobs over a transport, or lines that a CPU wrote in some way (harness/workload/nccl/torn_lines.cu).
    "ll128": ["set", "source", "unit", "memory", "gpus", "runs", "checked", "wrong", "first_half_old"],
    # Disturbances that must move nothing.
    "false_alarms": ["set", "scenario", "mode", "seed", "jobs", "repeats", "disturbances", "migrations", "verdict"],
}


def path_of(results, name):
    return os.path.join(results, "tables", name + ".csv")


def text(value):
    """A value as it stands in a table: of a float at most five digits, nothing for what is not known."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def number(field):
    """The number in a field, None where it is empty."""
    return float(field) if field != "" else None


def read(results, name):
    """The rows of a table as dictionaries of text; [] when there is no such file. BadInput names the file and the line."""
    path = path_of(results, name)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            missing = [column for column in COLUMNS[name] if column not in header]
            if missing:
                raise BadInput(f"{path}: is no table of {name}, or of another version: it has no column '{missing[0]}'; take the file that belongs to this tree")
            rows = []
            for fields in lines:
                if len(fields) != len(header):
                    raise BadInput(f"{path}:{lines.line_num}: was cut off: it has {len(fields)} fields, and the first line has {len(header)}; copy it again")
                rows.append(dict(zip(header, fields)))
            return rows
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def of_set(results, table, name):
    return [row for row in read(results, table) if row["set"] == name]


def provenance(results, name):
    """The row of a set in provenance.csv. BadInput when there is none: numbers without an origin are not drawn."""
    for row in read(results, "provenance"):
        if row["set"] == name:
            return row
    raise BadInput(f"{path_of(results, 'provenance')}: has no line for the set '{name}'; plots/collect.py writes it")


def evidence(results, name):
    """'emulated (vhca)'."""
    row = provenance(results, name)
    return row["evidence"] + (f" ({row['fabric']})" if row["fabric"] else "")


def write(results, name, rows):
    """Writes the table, as a whole or not at all; `rows` are dictionaries of text or values."""
    os.makedirs(os.path.join(results, "tables"), exist_ok=True)
    with whole_file(path_of(results, name)) as part, open(part, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS[name], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({column: text(row.get(column)) for column in COLUMNS[name]})


def replace(results, name, of, rows):
    """Puts `rows` in the place of those that the set `of` had."""
    os.makedirs(os.path.join(results, "tables"), exist_ok=True)
    with alone(path_of(results, name)):
        kept = [row for row in read(results, name) if row["set"] != of]
        write(results, name, sorted(kept + [{**row, "set": of} for row in rows], key=lambda row: row["set"]))
