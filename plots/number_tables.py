# SPDX-License-Identifier: Apache-2.0
"""What the READMEs say of the tables in results/: each block and each number by its name. Measures and draws nothing."""

import math
import statistics

import inputs
import tables
from collect import quantile

MODES = {"baseline": "0", "migrate": "1", "balance": "2", "allreduce": "3"}


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(field).replace("|", "\\|") for field in row) + " |" for row in rows]) + "\n"


def short(value, digits=3):
    """A number of three digits, '–' for what is not known, '∞' for a time that never came."""
    if value in (None, ""):
        return "–"
    value = float(value)
    if math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, digits - (whole if abs(value) >= 1 else 0))}f}"


def thousands(value):
    return f"{int(value):,}".replace(",", " ")


def mode(name):
    return MODES.get(name, name)


def rows_of(results, table, *sets):
    found = [row for row in tables.read(results, table) if row["set"] in sets]
    if not found:
        raise inputs.BadInput(f"{tables.path_of(results, table)}: has no rows of the set{'s' if len(sets) > 1 else ''} {', '.join(sets)}")
    return found


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
                     *(short(quantile(recover, part)) if recover else "–" for part in (0.5, 0.9, 0.99)), short(max(float(row["floor_ms"]) for row in faults))])
    table = markdown(["fault", "faults", "detected: p50 (ms)", "p99", "recovered: p50 (ms)", "p90", "p99", "floor (ms)"], rows)
    if unknown:
        reasons = "; ".join(f"{why} ({count})" for why, count in sorted(unknown.items()))
        table += f"\nThe recovery of {sum(unknown.values())} of these faults is left out: {reasons}.\n"
    return table


def runs(results, *sets):
    rows = [[f"`{row['run']}`", mode(row["mode"]), row["verdict"], row["outcome"] + (f" after {short(row['error_ms'])} ms" if row["error_ms"] else ""),
             f"{row['sampled'] or 0}/{row['planned'] or 0}", short(row["detect_max_ms"]), short(row["recover_max_ms"]), short(row["floor_ms"]),
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


def student(freedom):
    """One-sided 95 % quantile of Student's distribution, by its expansion for many degrees of freedom (Abramowitz and Stegun, 26.7.5)."""
    z = 1.6448536
    return z + (z ** 3 + z) / (4 * freedom) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * freedom ** 2)


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
    for name, title in (("matrix_migrate", "1"), ("matrix_balance", "2"), ("matrix_allreduce", "3")):
        cells = rows_of(results, "matrix", name)
        count = [sum(cell["verdict"] == verdict for cell in cells) for verdict in ("pass", "fail", "missed")]
        run = [cell for cell in cells if cell["verdict"] != "empty"]
        rows.append([title, len(run), *count, sum(int(cell["struck"] or 0) for cell in run), thousands(sum(int(cell["checked"] or 0) for cell in run)),
                     sum(int(cell["wrong"] or 0) for cell in run)])
    return markdown(["mode", "cells", "hold", "fail", "missed", "faults that struck", "elements compared", "wrong"], rows)


def nccl(results):
    rows = []
    for name in ("nccl_four_gpus", "nccl_two_gpus", "nccl_one_gpu", "nccl_first", "nccl_unlimited"):
        lines = rows_of(results, "nccl", name)
        cases = {row["case"]: row for row in lines}
        rows.append([f"`{name}`", len(cases), sum(row["as_expected"] == "1" for row in cases.values()), sum(int(row["wrong"] or 0) for row in lines),
                     ", ".join(sorted({row["nccl"] for row in lines if row["nccl"]})), ", ".join(sorted({mode_of_nccl(row) for row in lines})),
                     ", ".join(sorted({f"`{row['fault']}`" for row in lines if row["fault"]})) or "none"])
    return markdown(["set", "cases", "as expected", "wrong elements", "NCCL", "mode", "faults"], rows)


def mode_of_nccl(row):
    return "NCCL's IB" if row["net"] == "ib" else row["mode"]


def nccl_stalls(results):
    """The struck AllReduce of four GPUs, by fault and transport."""
    rows = []
    for row in rows_of(results, "nccl", "nccl_four_gpus"):
        if row["op"] in ("", "allreduce") and row["nodes"] == "2" and row["variant"] in ("", "lasting", "NCCL_PROTO=Simple") and row["nccl"] == "2.28.9" and row["step"] in ("", "0"):
            ended = f"ended after {short(float(row['ended_ms']) / 1000)} s" if row["ended_ms"] else f"{short(row['median_ms'])} / {short(row['max_ms'])}"
            rows.append([f"`{row['case']}`", f"`{row['fault']}`" if row["fault"] else "none", mode_of_nccl(row), f"{row['nics']} × {row['nic_gbps']}", ended])
    return markdown(["case", "fault", "mode", "NICs (Gbit/s)", "AllReduce of 64 MiB: median / longest (ms)"], rows)


def mode3_median(results, case, step, measured="nccl_mode3"):
    found = [row for row in rows_of(results, "nccl", measured) if row["case"] == case and row["step"] == step]
    if not found:
        raise inputs.BadInput(f"{tables.path_of(results, 'nccl')}: the set {measured} has no case {case} with a step '{step}'")
    return found[0]


# What, the cases' name, the step, the set.
MODE3 = (("healthy", "healthy", "healthy", "nccl_mode3_striped"), ("one NIC of eight lost", "eighth", "after", "nccl_mode3_gpus"),
         ("one of four lost", "lost", "after", "nccl_mode3_gpus"), ("one of four lost, current send window", "lost", "after", "nccl_mode3_degraded"),
         ("two of four lost", "half", "after", "nccl_mode3_gpus"),
         ("one of four at a quarter of its rate", "throttle", "after", "nccl_mode3_gpus"), ("six nodes, one of four lost", "six_nodes", "after", "nccl_mode3_gpus"),
         ("two degraded nodes, one of four lost at each, current send window", "two_degraded", "after", "nccl_mode3_degraded"),
         ("two degraded nodes, one after the other, current send window", "second_loss", "after", "nccl_mode3_degraded"),
         ("NICs of 1 Gbit/s, one of four lost", "lost", "after", "nccl_mode3_1gbit"))


def mode3(results):
    rows = []
    for title, case, step, measured in MODE3:
        known = {row["case"]: row for row in rows_of(results, "nccl", measured) if row["step"] == step}
        mine = mode3_median(results, f"{case}_mode3", step, measured)
        rows.append([title, short(mine["bound_ms"]), *(short(known.get(f"{case}_{name}", {}).get("median_ms")) for name in ("migrate", "balance")), short(mine["median_ms"]),
                     short(float(mine["median_ms"]) / float(mine["bound_ms"]))])
    return markdown(["AllReduce of 64 MiB, in ms", "lower bound", "ring, mode 1", "ring, mode 2", "mode 3", "mode 3 / bound"], rows)


def mode3_versions(results):
    """One of four NICs lost, under each version of NCCL."""
    found = {}
    for row in rows_of(results, "nccl", "nccl_mode3_gpus"):
        if row["case"] in ("lost_other_nccl", "lost_mode3", "lost_balance", "lost_migrate"):
            found.setdefault(row["nccl"], []).append(row)
    lines = []
    for version, rows in sorted(found.items()):
        after = {row["mode"]: row["median_ms"] for row in rows if row["step"] == "after"}
        lines.append([version, sum(int(row["wrong"]) for row in rows), *(short(after.get(number)) for number in ("1", "2", "3"))])
    return markdown(["NCCL", "wrong elements", "ring, mode 1 (ms)", "ring, mode 2", "mode 3"], lines)


ALGORITHMS = {"balance": "Balance", "ring": "ring", "r2ccl_allreduce": "R2CCL-AllReduce", "four_stage": "four-stage", "mix": "mix", "mode3": "mode 3"}


def mode3_algorithms(results, measured="mode3_algorithms"):
    lines, rows = rows_of(results, "allreduce_emulated", measured), []
    for nodes, lost, mbits in sorted({(int(row["nodes"]), row["lost"], int(row["mbits"])) for row in lines}):
        here = {row["algorithm"]: row for row in lines if (row["nodes"], row["lost"], row["mbits"]) == (str(nodes), lost, str(mbits))}
        rows.append([nodes, lost, mbits, short(min(float(row["cpu_idle"]) for row in here.values())), short(next(iter(here.values()))["bound_ms"]),
                     *(short(here[name]["t_to_bound"]) if name in here else "–" for name in ALGORITHMS)])
    return markdown(["nodes", "x", "NIC (Mbit/s)", "CPUs idle", "bound (ms)", *ALGORITHMS.values()], rows)


def mode3_sizes(results):
    """Mode 3's time over that of the better of ring and Balance, which took turns with it."""
    lines, rows = rows_of(results, "allreduce_sizes", "mode3_sizes"), []
    lost = ("0", "1/8", "1/4", "1/2")
    ratio = {(int(row["bytes"]), row["lost"]): row["to_better_of_ring_and_balance"] for row in lines if row["algorithm"] == "mode3"}
    for size in sorted({size for size, _ in ratio}):
        rows.append([inputs.size(size), *(short(ratio[size, x]) if (size, x) in ratio else "–" for x in lost)])
    return markdown(["AllReduce of", *("nothing lost" if x == "0" else f"x = {x}" for x in lost)], rows)


MACHINES = ("head_to_head", "head_to_head_h200_2", "head_to_head_two_gpus")  # of what was run again with a later build, on another machine
TRANSPORTS = {"ib": "NCCL's IB", "ib_unmerged": "NCCL's IB, NICs not merged", "ib_failover": "NCCL's IB, failover", "r2ccl_baseline": "R2CCL mode 0", "r2ccl_migrate": "R2CCL mode 1", "r2ccl_balance": "R2CCL mode 2", "r2ccl_allreduce": "R2CCL mode 3",
              "upstream": "upstream R2CCL", "upstream_1s": "upstream R2CCL, time-out 1 s"}


def by_transport(results, table, *keys, measured=("head_to_head",)):
    """[(values of `keys`, transport), its rows] of one table of measurements of the head-to-head, in the order of the rows."""
    found = {}
    for row in (row for name in measured for row in rows_of(results, "head_to_head", name)):
        if row["table"] == table:
            found.setdefault((tuple(row[key] for key in keys), row["transport"]), []).append(row)
    return sorted(found.items(), key=lambda item: (item[0][0], list(TRANSPORTS).index(item[0][1])))


def median_of(rows, column, digits=3):
    values = [float(row[column]) for row in rows if row[column] != ""]
    return short(statistics.median(values), digits) if values else "–"


def survived(rows):
    return f"{sum(row['survives'] == '1' for row in rows)} of {len(rows)}"


def used_again(rows):
    """Of some jobs the median; how many of them saw it, where not all did."""
    seen = [row for row in rows if row["used_again_ms"] != ""]
    return median_of(rows, "used_again_ms") + (f" ({len(seen)} of {len(rows)} jobs)" if 0 < len(seen) < len(rows) else "")


def head_to_head(results):
    lines = []
    groups = [group for name in ("head_to_head", "head_to_head_repaired") for group in by_transport(results, "faults", "fault", "heal_ms", measured=(name,))]
    for ((fault, heals), transport), rows in sorted(groups, key=lambda group: (group[0][0], list(TRANSPORTS).index(group[0][1]))):
        healed = heals not in ("", "0")
        if healed and rows[0]["set"] == "head_to_head":  # some of these jobs were too short to see NCCL use the NIC again
            continue
        lines.append([f"`{fault}`" + (", repaired" if healed else ""), TRANSPORTS[transport], survived(rows), sum(int(row["wrong"] or 0) for row in rows),
                      median_of(rows, "before_ms"), median_of(rows, "stall_ms"), median_of(rows, "error_ms"), median_of(rows, "retained", 2),
                      median_of(rows, "restored", 2) if healed else "–", used_again(rows), f"{sum(row['as_predicted'] == '1' for row in rows)} of {len(rows)}"])
    return markdown(["fault", "transport", "survives", "wrong elements", "before (ms)", "longest (ms)", "error after (ms)", "retained", "restored", "used again after (ms)",
                     "as predicted"], lines)


def head_to_head_mode3(results):
    lines = [[f"`{row['fault']}`" + (", repaired" if row["heal_ms"] not in ("", "0") else ""), TRANSPORTS[row["transport"]], row["nccl"], survived([row]), row["wrong"],
              *(median_of([row], column) for column in ("before_ms", "stall_ms")), median_of([row], "retained", 2), median_of([row], "used_again_ms"),
              "yes" if row["as_predicted"] == "1" else "no"] for row in rows_of(results, "head_to_head", "head_to_head_mode3")]
    return markdown(["fault", "transport", "NCCL", "survives", "wrong elements", "before (ms)", "longest (ms)", "retained", "used again after (ms)", "as predicted"], sorted(lines))


def head_to_head_versions(results):
    lines = [[version, f"`{fault}`", TRANSPORTS[transport], survived(rows), sum(int(row["wrong"] or 0) for row in rows), median_of(rows, "stall_ms"),
              median_of(rows, "retained", 2)] for ((version, fault), transport), rows in by_transport(results, "versions", "nccl", "fault", measured=MACHINES)]
    return markdown(["NCCL", "fault", "transport", "survives", "wrong elements", "longest (ms)", "retained"], lines)


def head_to_head_retained(results):
    lines = []
    for ((op, nics, _), transport), every in by_transport(results, "retained", "op", "nics", "mbits", measured=MACHINES):
        rows = [row for row in every if int(row["nics"]) * float(row["mbits"]) == 10000]  # at twice the rate the ranks were the limit, not the ports
        if rows:
            lines.append([op, nics, TRANSPORTS[transport], survived(rows), sum(int(row["wrong"] or 0) for row in rows), median_of(rows, "retained", 3), short(1 - 1 / int(nics), 3)])
    return markdown(["collective", "NICs", "transport", "survives", "wrong elements", "retained", "limit"], lines)


def head_to_head_timeouts(results):
    lines = [[f"{version} ({timeout})", f"`{fault}`", TRANSPORTS[transport], survived(rows), sum(int(row["wrong"] or 0) for row in rows), median_of(rows, "stall_ms"),
              median_of(rows, "retained", 2)] for ((version, timeout, fault), transport), rows in by_transport(results, "timeouts", "version", "timeout", "fault", measured=MACHINES)
             if version in ("default", "firmware")]
    return markdown(["IB timeout", "fault", "transport", "survives", "wrong elements", "longest (ms)", "retained"], lines)


def renewals(results):
    """Cells that differ only in when the communicators were renewed are one line."""
    found = {}
    for row in rows_of(results, "renewals", "nccl_renewals", "nccl_renewals_in_migration", "nccl_renewals_in_migration_2", "nccl_renewals_2_23"):
        when = "between operations" if row["delay_ms"] == "" else "in the struck operation" if row["iter"] == "20" else "in a later operation"
        if row["in_migration"] not in ("", "0"):
            when = "in a migration without a path"
        elif row["outcome"] != "ok":
            when = "in the struck operation"
        found.setdefault((row["by"], row["nccl"] + (", workaround" if row["workaround"] == "1" else ""), when), []).append(row)
    lines = []
    for (by, nccl, when), rows in sorted(found.items()):
        known = [float(row["renew_ms"]) for row in rows if row["renew_ms"] != ""]
        goes_on = f"{sum(row['outcome'] == 'ok' for row in rows)} of {len(rows)}" if any(int(row["checked"]) for row in rows) else "has no such call"
        lines.append([f"`{by}`", nccl, when, goes_on, sum(int(row["wrong"]) for row in rows),
                      f"{min(known):.0f}–{max(known):.0f}" if known else "–", median_of(rows, "stall_ms")])
    return markdown(["communicators end by", "NCCL", "when", "continues", "wrong elements", "renewed after (ms)", "longest operation (ms)"], lines)


def head_to_head_cost(results, measured=("head_to_head_h200", "head_to_head_h200_2")):
    groups = by_transport(results, "cost", "bytes", measured=measured)
    theirs = {size: rows for ((size,), transport), rows in groups if transport == "ib"}
    lines = []
    for ((size,), transport), rows in sorted(groups, key=lambda item: (int(item[0][0][0]), list(TRANSPORTS).index(item[0][1]))):
        ratio = statistics.median(float(row["before_ms"]) for row in rows) / statistics.median(float(row["before_ms"]) for row in theirs[size])
        lines.append([inputs.size(int(size)), TRANSPORTS[transport], median_of(rows, "before_ms"), short(ratio), median_of(rows, "busbw"), median_of(rows, "cpu_s")])
    return markdown(["size", "transport", "operation (ms)", "ratio to NCCL's IB", "busbw (GB/s)", "CPU (s)"], lines)


TWO_GPUS = ("head_to_head_two_gpus_60", "head_to_head_two_gpus_cost", "head_to_head_two_gpus")  # the first that has a size is what is said of it


def cost_in_turns(results, measured=TWO_GPUS):
    """[(size, transport, its rows, their times over NCCL's IB transport's row of the same seed)]: they ran in turns."""
    found, known = [], set()
    for name in measured:
        groups = [(int(size), transport, rows) for ((size,), transport), rows in by_transport(results, "cost", "bytes", measured=(name,)) if int(size) not in known]
        theirs = {(size, row["seed"]): float(row["before_ms"]) for size, transport, rows in groups if transport == "ib" for row in rows}
        found += [(size, transport, rows, [float(row["before_ms"]) / theirs[size, row["seed"]] for row in rows]) for size, transport, rows in groups]
        known |= {size for size, _, _ in groups}
    return sorted(found, key=lambda one: (one[0], list(TRANSPORTS).index(one[1])))


def from_to(values):
    return f"{short(min(values))}–{short(max(values))}"


def median_between(values):
    """The interval that has the median with 95 % or more, by ranks alone: (the k-th least, the k-th greatest). None: there are too few values."""
    ordered, count = sorted(values), len(values)
    below, least = 0.0, 0
    for k in range(count // 2):
        below += math.comb(count, k) / 2**count
        if below > 0.025:
            break
        least = k + 1
    return (ordered[least - 1], ordered[-least]) if least else None


def head_to_head_cost_spread(results):
    lines = [[inputs.size(size), TRANSPORTS[transport], len(rows), median_of(rows, "before_ms"), from_to([float(row["before_ms"]) for row in rows]),
              short(statistics.median(ratios)), "–" if transport == "ib" or median_between(ratios) is None else from_to(median_between(ratios)), median_of(rows, "busbw"), median_of(rows, "cpu_s")]
             for size, transport, rows, ratios in cost_in_turns(results)]
    return markdown(["size", "transport", "rows", "operation (ms)", "least–most", "ratio to NCCL's IB", "95 % interval of the ratio", "busbw (GB/s)", "CPU (s)"], lines)


BESIDE = {"migrate_beside_ib": "R2CCL mode 1", "balance_beside_ib": "R2CCL mode 2", "baseline_beside_ib": "R2CCL mode 0", "loose_beside_ib": "R2CCL mode 1, loose ACK",
          "ib_beside_ib": "NCCL's IB (control)"}


# How long an AllReduce may take over R2CCL, relative to NCCL's IB transport: bytes from, to, and the most. The latter is a bus bandwidth of 0.99.
COST_BOUNDS = [(1, 64 * 1024, 1.03), (1024 * 1024, 1024**3, 1 / 0.99)]


def within_bound(size, between):
    """What the interval says of the bound of this size."""
    bound = next((bound for low, high, bound in COST_BOUNDS if low <= size <= high), None)
    if bound is None or between is None:
        return "–"
    low, high = between
    return "met" if high <= bound else "missed" if low > bound else "undecided"


def beside(results, *sets):
    """{(size, transport): ([ratio of a pair of communicators], its rows)}"""
    found = {}
    for row in rows_of(results, "beside", *sets):
        ratios, rows = found.setdefault((int(row["bytes"]), row["transport"]), ([], []))
        ratios += [float(ratio) for ratio in row["ratios"].split()]
        rows.append(row)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], list(BESIDE).index(item[0][1]))))


def between_jobs(rows):
    """Pairs of one job are not independent of each other."""
    return median_between([statistics.median(float(ratio) for ratio in row["ratios"].split()) for row in rows])


def beside_table(results, *sets):
    lines = []
    for (size, transport), (ratios, rows) in beside(results, *sets).items():
        between = between_jobs(rows)
        lines.append([inputs.size(size), BESIDE[transport], len(rows), len(ratios), median_of(rows, "other_ms"), short(statistics.median(ratios)),
                      "–" if between is None else from_to(between), within_bound(size, between), median_of(rows, "cpu_ratio")])
    return markdown(["size", "transport", "jobs", "pairs", "NCCL's IB (ms)", "ratio of the times", "95 % interval, by jobs", "bound", "ratio of the CPU times"], lines)


def beside_sends(results):
    """How long ACKs wait where a thread has sends open only: a set for each."""
    lines = []
    for tests, name in ((1, "beside"), (8, "beside_sends_8"), (32, "beside_sends_32")):
        ratios, rows = beside(results, name)[65536, "migrate_beside_ib"]
        between = between_jobs(rows)
        lines.append([tests, len(rows), short(statistics.median(ratios)), "–" if between is None else from_to(between), median_of(rows, "cpu_ratio")])
    return markdown(["tests in vain", "jobs", "ratio of the times", "95 % interval, by jobs", "ratio of the CPU times"], lines)


def beside_most(results, transport, sizes):
    """The ratio of the size at which it is the greatest."""
    return short(max(statistics.median(ratios) for (size, of), (ratios, _) in beside(results, "beside").items() if of == transport and size in sizes))


def beside_ratio(results, size, transport, *sets):
    return beside(results, *sets)[size, transport][0]


# By what NCCL's IB transport has: sets whose seeds differ.
FOUR_GPUS = {"ib": ("head_to_head_four_gpus",), "ib_unmerged": ("head_to_head_four_gpus_unmerged", "head_to_head_four_gpus_mode2")}
FOUR_GPUS_SETS = {name for sets in FOUR_GPUS.values() for name in sets}


def four_gpus(results):
    """[(NCCL's IB transport, transport, its rows, their times over that transport's row of the same seed)] at 256 MiB."""
    found = []
    for theirs, sets in FOUR_GPUS.items():
        times = {row["seed"]: float(row["before_ms"]) for row in rows_of(results, "head_to_head", *sets) if row["transport"] == theirs}
        found += [(theirs, transport, rows, [float(row["before_ms"]) / times[row["seed"]] for row in rows])
                  for (_, transport), rows in by_transport(results, "cost", "bytes", measured=sets)]
    return found


def head_to_head_cost_four_gpus(results):
    lines = [[TRANSPORTS[theirs], TRANSPORTS[transport], len(rows), median_of(rows, "before_ms"), from_to([float(row["before_ms"]) for row in rows]),
              short(statistics.median(ratios)), "–" if transport == theirs or median_between(ratios) is None else from_to(median_between(ratios)), median_of(rows, "cpu_s")]
             for theirs, transport, rows, ratios in four_gpus(results)]
    return markdown(["beside", "transport", "rows", "operation (ms)", "least–most", "ratio", "95 % interval of the ratio", "CPU (s)"], lines)


def four_gpus_ratio(results, theirs, transport):
    (ratios,) = [ratios for beside, name, _, ratios in four_gpus(results) if (beside, name) == (theirs, transport)]
    return ratios


def cost_ratios(results, size, transport):
    (ratios,) = [ratios for count, name, _, ratios in cost_in_turns(results) if (count, name) == (size, transport)]
    return ratios


def sizes_where(results, holds):
    """At how many sizes mode 1 or 2 is so with every seed."""
    return str(len({size for size, transport, _, ratios in cost_in_turns(results) if transport in ("r2ccl_migrate", "r2ccl_balance") and all(map(holds, ratios))}))


def head_to_head_upstream(results):
    lines = [[f"`{row['fault']}`", TRANSPORTS[row["transport"]], row["outcome"], row["wrong"], short(row["before_ms"]), short(row["stall_ms"]) if row["stall_ms"] else "–"]
             for name in ("upstream", "upstream_1s") for row in tables.read(results, "head_to_head") if row["transport"] == name and row["table"] == "faults"]
    return markdown(["fault", "transport", "the job", "wrong elements", "before (ms)", "longest (ms)"], lines)


def flap(results, transport, measure):
    """Median over the seeds of the job under a link that flaps."""
    return statistics.median(float(row[measure]) for row in tables.read(results, "head_to_head") if row["fault"] == "flap" and row["transport"] == transport and row[measure])


GPU_SETS = ("nccl_protocols", "nccl_more", "nccl_gpu_direct", "nccl_collectives", "nccl_four_nics", "nccl_removed")
ONE_RUN = {"broadcast": "nccl_port_down, Broadcast", "in_place": "nccl_port_down, in place", "group": "nccl_port_down, four calls a group",
           "blackhole": "nccl_blackhole", "qp_error": "nccl_qp_error"}


def gpu_scenarios(results):
    """The scenarios of GPUs whose cells differ only in what a matrix varies: one line for each scenario and mode."""
    found = {}
    for row in rows_of(results, "runs", *GPU_SETS):
        name = row["run"].split("-")[0]
        found.setdefault((ONE_RUN.get(name, name if name.startswith("nccl") else "nccl_port_down, two ranks a node"), WRITERS.get(row["mode"], mode(row["mode"]))), []).append(row)
    lines = [[f"`{name}`", which, len(rows), sum(row["outcome"] == "ok" for row in rows), sum(row["exact"] == "1" for row in rows)] for (name, which), rows in sorted(found.items())]
    return markdown(["scenario", "mode", "jobs", "jobs without an error", "jobs with every element right"], lines)


def fault_times(results, *sets):
    """How many faults of these sets: all, sampled, sampled with a time of recovery."""
    rows = rows_of(results, "faults", *sets)
    sampled = [row for row in rows if row["sampled"] == "1"]
    return {"all": len(rows), "sampled": len(sampled), "recovered": sum(row["recover_ms"] != "" for row in sampled)}


def gpu_protocol_times(results):
    """How long the plugin under NCCL takes to recover, by fault and protocol."""
    found = {}
    for row in rows_of(results, "faults", "nccl_protocols"):
        found.setdefault((row["kind"], row["run"].rsplit("-", 1)[1], mode(row["mode"])), []).append(row)
    lines = []
    for (kind, protocol, which), rows in sorted(found.items()):
        sampled = [row for row in rows if row["sampled"] == "1"]
        detect, recover = ([float(row[column]) for row in sampled if row[column]] for column in ("detect_ms", "recover_ms"))
        unknown = sum(row["why_no_rate_before"] != "" for row in sampled)
        lines.append([f"`{kind}`", protocol, which, len(rows), len(sampled), str(len(recover)) + (f" ({unknown} unknown)" if unknown else ""), short(statistics.median(detect)), *(short(of(recover)) for of in (min, statistics.median, max))])
    return markdown(["fault", "protocol", "mode", "faults", "sampled", "recovered", "detected after (ms, median)", "recovered after: least", "median", "most"], lines)


def gpu_removed(results):
    """A NIC that is removed: how long until new data flows over another one, by how long its last writes may come."""
    found = {}
    for row in rows_of(results, "runs", "nccl_removed"):
        found.setdefault((int(row["run"].rsplit("-", 1)[1].removesuffix("ms")), mode(row["mode"])), []).append(row)
    lines = []
    for (window, which), rows in sorted(found.items()):
        times = [float(row["blackout_max_ms"]) for row in rows if row["blackout_max_ms"]]
        lines.append([f"{window} ms", which, len(rows), len(times), *(short(str(limit(times))) for limit in (min, statistics.median, max))])
    return markdown(["its last writes come for", "mode", "jobs", "with data in flight", "no data for (ms): least", "median", "most"], lines)


THROTTLED = {"one_of_two": "one of two at a quarter of its rate", "quarter_default": "one of four at a quarter", "quarter": "one of four at a quarter, no margin",
             "tenth": "one of four at a tenth, no margin", "two_tenths": "two of four at a tenth", "forced": "one of four at a quarter, CollNet forced"}


def mode3_throttled(results):
    """NICs that are slow although their ports do not say so, in mode 3: with plans by ports alone, and by the rates of links."""
    found = {}
    for row in rows_of(results, "runs", "mode3_throttled", "mode3_throttled_2"):
        case, plans, _ = row["run"].split("-")
        found.setdefault((case, plans), []).append(row)
    lines = []
    for case, words in THROTTLED.items():
        ports, links = found[(case, "ports")], found[(case, "links")]
        retained = [[float(row["retained"]) for row in rows] for rows in (ports, links)]
        lines.append([words, len(ports), len(links), short(ports[0]["limit"]), *(short(str(statistics.median(values))) for values in retained),
                      sum(int(row["migrations"]) for row in ports), sum(int(row["migrations"]) for row in links), sum(row["exact"] != "1" for row in ports + links)])
    return markdown(["slow NICs of one node", "jobs: by ports", "by links", "limit", "retained: by ports", "by links", "migrations: by ports", "by links", "jobs with wrong elements"], lines)


def gpu_four_nics(results):
    """One of four NICs lost or slow: what live migration and Balance retain, by collective."""
    found = {}
    # AllGather again: beside other jobs its rate before the fault was not the ports'.
    for row in rows_of(results, "runs", "nccl_four_nics") + rows_of(results, "runs", "nccl_allgather_alone"):
        if row["run"].startswith("nccl_one_of_four"):
            found.setdefault((row["run"].split("-")[0], row["op"]), {})[row["mode"]] = row
    return markdown(["scenario", "collective", "mode 1: retained", "limit", "mode 2: retained", "limit"],
                    [[f"`{name}`", op, *(short(rows[which][column]) for which in ("migrate", "balance") for column in ("retained", "limit"))] for (name, op), rows in sorted(found.items())])


WRITERS = {"ib": "NCCL's IB", "r2ccl_baseline": "R2CCL mode 0", "r2ccl_migrate": "R2CCL mode 1", "r2ccl_balance": "R2CCL mode 2"}


def ll128_lines(results):
    return markdown(["how the CPU wrote them", "lines read", "torn", "of those, first 64 bytes old"],
                    [[f"`{row['source']}`", row["checked"], row["wrong"], row["first_half_old"]] for row in rows_of(results, "ll128", "ll128") if row["unit"] == "lines"])


def ll128_jobs(results):
    found = [row for row in rows_of(results, "ll128", "ll128") if row["unit"] == "elements"]
    found.sort(key=lambda row: (row["memory"] == "gpu", row["gpus"], list(WRITERS).index(row["source"])))
    return markdown(["receives into", "GPUs", "transport", "jobs", "elements compared", "wrong"], [["GPU memory" if row["memory"] == "gpu" else "host memory", row["gpus"], WRITERS[row["source"]], row["runs"], row["checked"], row["wrong"]] for row in found])


def gpu_memory(results, measured="nccl_gpu_memory"):
    cases = {}
    for row in rows_of(results, "nccl", measured):
        cases.setdefault(row["case"], []).append(row)
    lines = [[f"`{case}`", rows[0]["nodes"], rows[0]["mode"], f"`{rows[0]['fault']}`" if rows[0]["fault"] else "none", len(rows), sum(int(row["wrong"]) for row in rows),
              "yes" if rows[0]["as_expected"] == "1" else "no"] for case, rows in cases.items()]
    return markdown(["case", "nodes", "mode", "fault", "operations", "wrong elements", "as expected"], lines)


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


def costs(results):
    rows = [[f"`{row['set']}`", row["benchmark"], inputs.size(int(row["bytes"])) if row["bytes"] else "–", mode(row["mode"]) or "–", f"{short(row['value'])} {row['unit']}" if row["value"] else "–",
             short(row["beside"]), short(row["ratio"], 4), (short(row["ratio_low95"], 4) + " to " if row["ratio_low95"] else "up to ") + short(row["ratio_high95"], 4) if row["ratio_high95"] else "–"]
            for row in tables.read(results, "costs")]
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


def one_run(results, name, run, mode_name):
    found = [row for row in rows_of(results, "runs", name) if row["run"] == run and row["mode"] == mode_name]
    if not found:
        raise inputs.BadInput(f"{tables.path_of(results, 'runs')}: the set {name} has no run {run} in mode {mode_name}")
    return found[0]


def mode3_to_bound(results, pick):
    """Of the cases in which the tuner chose CollNet; in the others mode 3 is Balance."""
    found = [mode3_median(results, f"{case}_mode3", step, measured) for _, case, step, measured in MODE3 if step == "after" and case not in ("eighth", "throttle")]
    return short(pick(float(row["median_ms"]) / float(row["bound_ms"]) for row in found), 2)


def head_to_head_rows(results, name, table, **wanted):
    """The rows of a set and a table in which these columns have these values."""
    return [row for row in rows_of(results, "head_to_head", name) if row["table"] == table and all(row[column] == value for column, value in wanted.items())]


def failover_seconds(results, column, measured="head_to_head"):
    """Of NCCL's failover, where a NIC falls silent: the median of a time, over all such faults."""
    rows = [row for fault in ("port_down", "blackhole", "blackhole_one_way") for row in head_to_head_rows(results, measured, "faults", transport="ib_failover", fault=fault)]
    return short(statistics.median(float(row[column]) for row in rows if row[column] != "") / 1000, 2)


def used_again_seconds(results, pick):
    """Of R2CCL's rows with a repair."""
    rows = head_to_head_rows(results, "head_to_head_repaired", "faults")
    return short(pick(float(row["used_again_ms"]) for row in rows if row["transport"] != "ib_failover") / 1000, 2)


def third_seed(results):
    """(how many rows of the H200 end as all rows of the H100 with the same fault, transport and repair do, rows of the H200)"""
    rows = head_to_head_rows(results, "head_to_head_h200_2", "faults")
    first = {}
    for row in head_to_head_rows(results, "head_to_head", "faults"):
        first.setdefault((row["fault"], row["transport"], row["heal_ms"]), set()).add(row["survives"])
    same = sum(first.get((row["fault"], row["transport"], row["heal_ms"])) == {row["survives"]} for row in rows)
    return same, len(rows)


def one_way_third_seed(results):
    (row,) = head_to_head_rows(results, "head_to_head_h200_2", "faults", fault="blackhole_one_way", transport="ib_failover")
    return short(row["stall_ms"])


def cost_on_h100(results, size, transports):
    """The longest time over NCCL's IB transport's, of these transports."""
    (theirs,) = head_to_head_rows(results, "head_to_head", "cost", bytes=str(size), transport="ib")
    return short(max(float(row["before_ms"]) / float(theirs["before_ms"]) for transport in transports
                     for row in head_to_head_rows(results, "head_to_head", "cost", bytes=str(size), transport=transport)))


def vhca_copy(results):
    ratio = {}
    for row in rows_of(results, "costs", "vhca_copy", "write_bw"):
        ratio.setdefault(int(row["bytes"]), {})[row["benchmark"].split(" ")[-1] if row["set"] == "vhca_copy" else "ib_write_bw"] = row
    return markdown(["message", "memcpy (GB/s)", "WRITE", "READ", "`ib_write_bw`"],
                    [[inputs.size(size), short(next(iter(by.values()))["beside"], 2), *(short(by[name]["ratio"]) if name in by else "–" for name in ("WRITE", "READ", "ib_write_bw"))]
                     for size, by in sorted(ratio.items())])


BLOCKS = {
    "recovery": recovery_times, "retained": retained, "overhead": overhead, "false-alarms": false_alarms, "matrix": matrix,
    "nccl": nccl, "nccl-stalls": nccl_stalls, "mode3": mode3, "mode3-versions": mode3_versions, "mode3-algorithms": mode3_algorithms, "mode3-sizes": mode3_sizes,
    "mode3-algorithms-256": lambda results: mode3_algorithms(results, "mode3_algorithms_256"), "head-to-head-upstream": head_to_head_upstream,
    "head-to-head-cost-two-gpus": head_to_head_cost_spread, "head-to-head-cost-four-gpus": head_to_head_cost_four_gpus,
    "beside": lambda results: beside_table(results, "beside"), "beside-causes": lambda results: beside_table(results, "beside_causes"), "beside-sends": beside_sends, "gpu-scenarios": gpu_scenarios, "gpu-removed": gpu_removed, "gpu-protocol-times": gpu_protocol_times, "gpu-four-nics": gpu_four_nics, "ll128-lines": ll128_lines, "ll128-jobs": ll128_jobs,
    "pxn": lambda results: gpu_memory(results, "nccl_pxn"), "head-to-head": head_to_head, "head-to-head-versions": head_to_head_versions, "head-to-head-mode3": head_to_head_mode3,
    "head-to-head-retained": head_to_head_retained, "head-to-head-timeouts": head_to_head_timeouts, "renewals": renewals, "head-to-head-cost": head_to_head_cost, "gpu-memory": gpu_memory, "programs": programs, "walks": walks, "gate": gate, "nightly": nightly, "cluster": cluster, "costs": costs,
    "conformance": conformance, "simulated": simulated, "vhca-copy": vhca_copy,
    "scenarios": lambda results: runs(results, "recovery", "device_removed", "dual_port_card", "alltoall_64"),
    "mode3-throttled": mode3_throttled,
    "nccl-scenarios": lambda results: runs(results, "nccl_scenarios"),
    "degraded": lambda results: runs(results, "gray", "numa_far"),
    "mode3-emulated": lambda results: runs(results, "mode3_scenarios"),
}
NUMBERS = {
    "beside.control-least": lambda results: short(min(statistics.median(ratios) for (_, transport), (ratios, _) in beside(results, "beside").items() if transport == "ib_beside_ib")),
    "beside.control-most": lambda results: short(max(statistics.median(ratios) for (_, transport), (ratios, _) in beside(results, "beside").items() if transport == "ib_beside_ib")),
    **{f"beside.{name}-{mode}": (lambda transport, sizes: lambda results: beside_most(results, transport, sizes))(transport, sizes)
       for name, sizes in (("small", range(0, 65537)), ("large", range(2**20, 2**31))) for mode, transport in (("mode1", "migrate_beside_ib"), ("mode2", "balance_beside_ib"))},
    **{f"beside.cpu-1mib-{mode}": (lambda transport: lambda results: median_of(beside(results, "beside")[2**20, transport][1], "cpu_ratio"))(transport)
       for mode, transport in (("mode1", "migrate_beside_ib"), ("mode2", "balance_beside_ib"))},
    "beside.never-degraded": lambda results: short(statistics.median(beside_ratio(results, 2**20, "balance_beside_ib", "beside_never_degraded"))),
    **{f"h2h.first-{name}": (lambda case: lambda results: short(next(row["median_ms"] for row in rows_of(results, "nccl", "nccl_unlimited") if (row["case"], row["op"]) == (case, "allreduce")), 3))(case)
       for name, case in (("mode0", "healthy_baseline"), ("mode1", "healthy_migrate"), ("ib", "healthy_nccl_ib"))},
    "beside.control-jobs": lambda results: str(sum(row["transport"] == "ib_beside_ib" for row in rows_of(results, "beside", "beside"))),
    "beside.control-missed": lambda results: str(sum(row["transport"] == "ib_beside_ib" and row["as_predicted"] == "0" for row in rows_of(results, "beside", "beside"))),
    "beside.causes-mode0": lambda results: short(statistics.median(beside_ratio(results, 65536, "baseline_beside_ib", "beside_causes"))),
    "beside.causes-mode1": lambda results: short(statistics.median(beside_ratio(results, 65536, "migrate_beside_ib", "beside_causes"))),
    "beside.causes-mode2": lambda results: short(statistics.median(beside_ratio(results, 65536, "balance_beside_ib", "beside_causes"))),
    "beside.causes-control": lambda results: short(statistics.median(beside_ratio(results, 65536, "ib_beside_ib", "beside_causes"))),
    "beside.causes-loose": lambda results: short(statistics.median(beside_ratio(results, 65536, "loose_beside_ib", "beside_causes"))),
    "gpu.faults": lambda results: str(fault_times(results, *GPU_SETS)["all"]),
    "gpu.sampled": lambda results: str(fault_times(results, *GPU_SETS)["sampled"]),
    "gpu.recovered": lambda results: str(fault_times(results, *GPU_SETS)["recovered"]),
    "overhead.pooled": lambda results: short(pooled_loss(results, "no_fault_256_pairs")[0], 1),
    "overhead.pooled-upper95": lambda results: short(pooled_loss(results, "no_fault_256_pairs")[1], 2),
    "balance.loss": lambda results: short(one_run(results, "no_fault_balance", "no_fault_balance_40_pairs", "balance")["busbw_loss_pct"], 1),
    "balance.loss-upper95": lambda results: short(one_run(results, "no_fault_balance", "no_fault_balance_40_pairs", "balance")["busbw_loss_upper95_pct"], 2),
    "slow-lane.gain": lambda results: short(1 - float(one_run(results, "slow_lane", "slow_lane", "balance")["busbw_loss_pct"]) / 100),
    "h2h.firmware": lambda results: short(statistics.median(float(row["stall_ms"]) for row in tables.read(results, "head_to_head")
                                                            if row["table"] == "timeouts" and row["version"] == "firmware" and row["transport"] == "ib_failover") / 1000, 2),
    "h2h.failover": lambda results: failover_seconds(results, "stall_ms"),
    **{f"h2h.flap-{name}-{measure}": (lambda transport, column: lambda results: short(flap(results, transport, column), 2))(transport, column)
       for name, transport in (("ib", "ib_failover"), ("mode1", "r2ccl_migrate")) for measure, column in (("again", "used_again_ms"), ("stall", "stall_ms"), ("busbw", "busbw"))},
    "h2h.used-again": lambda results: failover_seconds(results, "used_again_ms", "head_to_head_repaired"),
    "h2h.used-again-least": lambda results: used_again_seconds(results, min),
    "h2h.used-again-most": lambda results: used_again_seconds(results, max),
    "h2h.third-seed": lambda results: str(third_seed(results)[0]),
    "h2h.third-seed-rows": lambda results: str(third_seed(results)[1]),
    "h2h.third-seed-wrong": lambda results: str(sum(int(row["wrong"]) for row in head_to_head_rows(results, "head_to_head_h200_2", "faults"))),
    "h2h.third-seed-one-way": one_way_third_seed,
    "h2h.h100-8B": lambda results: cost_on_h100(results, 8, ["r2ccl_migrate", "r2ccl_balance"]),
    "h2h.h100-16MiB": lambda results: cost_on_h100(results, 16 << 20, ["r2ccl_migrate", "r2ccl_balance"]),
    "h2h.h100-256MiB": lambda results: cost_on_h100(results, 256 << 20, ["r2ccl_balance"]),
    "h2h.two-gpus-sizes": lambda results: str(len({size for size, *_ in cost_in_turns(results)})),
    "h2h.two-gpus-slower": lambda results: sizes_where(results, lambda ratio: ratio > 1),
    "h2h.two-gpus-faster": lambda results: sizes_where(results, lambda ratio: ratio < 1),
    "h2h.four-gpus-mode1": lambda results: short(statistics.median(four_gpus_ratio(results, "ib_unmerged", "r2ccl_migrate"))),
    "h2h.four-gpus-mode2": lambda results: short(statistics.median(four_gpus_ratio(results, "ib_unmerged", "r2ccl_balance"))),
    "h2h.four-gpus-mode2-interval": lambda results: from_to(median_between(four_gpus_ratio(results, "ib_unmerged", "r2ccl_balance"))),
    "h2h.four-gpus-merged": lambda results: short(1 / statistics.median(four_gpus_ratio(results, "ib", "r2ccl_migrate")), 2),
    "h2h.two-gpus-256MiB-seeds": lambda results: str(len(cost_ratios(results, 256 << 20, "r2ccl_migrate"))),
    "h2h.two-gpus-256MiB-mode1": lambda results: str(sum(ratio > 1 for ratio in cost_ratios(results, 256 << 20, "r2ccl_migrate"))),
    "h2h.two-gpus-256MiB-mode2": lambda results: str(sum(ratio > 1 for ratio in cost_ratios(results, 256 << 20, "r2ccl_balance"))),
    "h2h.two-gpus-64MiB-mode1": lambda results: str(sum(ratio > 1 for ratio in cost_ratios(results, 64 << 20, "r2ccl_migrate"))),
    "walks.logs-counted": walks_with_counted_logs,
    "mode3.degraded": lambda results: short(one_run(results, "mode3_scenarios", "allreduce_degraded", "allreduce")["retained"]),
    "mode3.degraded-limit": lambda results: short(one_run(results, "mode3_scenarios", "allreduce_degraded", "allreduce")["limit"]),
    "mode3.two-degraded": lambda results: short(one_run(results, "mode3_scenarios", "allreduce_two_degraded", "allreduce")["retained"]),
    "mode3.two-degraded-limit": lambda results: short(one_run(results, "mode3_scenarios", "allreduce_two_degraded", "allreduce")["limit"]),
    "mode3.least": lambda results: mode3_to_bound(results, min),
    "mode3.most": lambda results: mode3_to_bound(results, max),
}
