# SPDX-License-Identifier: Apache-2.0
"""R2CCL beside NCCL's own transport, each in jobs of its own."""

import statistics

import inputs
import tables
from numbers_of.words import from_to, markdown, median_between, median_of, rows_of, short

SEEDS = ("head_to_head", "h200_2")  # of the table of faults: two on one machine, and the third on another, with a later build
MACHINES = ("head_to_head", "h200_2", "two_gpus")  # of what was run again with a later build, on another machine
RETAINED = (*MACHINES, "head_to_head_retained_8")
TRANSPORTS = {"ib": "NCCL's IB", "ib_unmerged": "NCCL's IB, NICs not merged", "ib_failover": "NCCL's IB, failover", "r2ccl_baseline": "R2CCL mode 0", "r2ccl_migrate": "R2CCL mode 1", "r2ccl_balance": "R2CCL mode 2", "r2ccl_allreduce": "R2CCL mode 3",
              "upstream": "upstream R2CCL", "upstream_1s": "upstream R2CCL, time-out 1 s"}


def by_transport(results, table, *keys, measured=("head_to_head",)):
    """[(values of `keys`, transport), its rows] of one table of measurements of the head-to-head, in the order of the rows."""
    found = {}
    for row in (row for name in measured for row in rows_of(results, "head_to_head", name)):
        if row["table"] == table:
            found.setdefault((tuple(row[key] for key in keys), row["transport"]), []).append(row)
    return sorted(found.items(), key=lambda item: (item[0][0], list(TRANSPORTS).index(item[0][1])))


def survived(rows):
    return f"{sum(row['survives'] == '1' for row in rows)} of {len(rows)}"


def used_again(rows):
    """Of some jobs the median; how many of them saw it, where not all did."""
    seen = [row for row in rows if row["used_again_ms"] != ""]
    return median_of(rows, "used_again_ms") + (f" ({len(seen)} of {len(rows)} jobs)" if 0 < len(seen) < len(rows) else "")


def head_to_head(results):
    lines = []
    groups = [group for sets in (SEEDS, ("head_to_head_repaired",), ("h200_3",)) for group in by_transport(results, "faults", "fault", "heal_ms", measured=sets)]
    known = {row["fault"] for row in rows_of(results, "head_to_head", *SEEDS)}
    groups = [group for group in groups if group[1][0]["set"] != "h200_3" or group[0][0][0] not in known]  # of the latest set, the faults that only it has
    for ((fault, heals), transport), rows in sorted(groups, key=lambda group: (group[0][0], list(TRANSPORTS).index(group[0][1]))):
        healed = heals not in ("", "0")
        if healed and rows[0]["set"] in SEEDS:  # some of these jobs were too short to see NCCL use the NIC again
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


def limited_by_ports(row):
    """At twice the rate the ranks were the limit, not the ports."""
    return int(row["nics"]) * float(row["mbits"]) == 10000


def head_to_head_retained(results):
    lines = []
    for ((op, nics, _), transport), every in by_transport(results, "retained", "op", "nics", "mbits", measured=RETAINED):
        rows = [row for row in every if limited_by_ports(row)]
        if rows:
            lines.append([op, nics, TRANSPORTS[transport], survived(rows), sum(int(row["wrong"] or 0) for row in rows), median_of(rows, "stall_ms"), median_of(rows, "retained", 3),
                          short(1 - 1 / int(nics), 3), f"{sum(row['as_predicted'] == '1' for row in rows)} of {len(rows)}"])
    return markdown(["collective", "NICs", "transport", "survives", "wrong elements", "longest (ms)", "retained", "limit", "as predicted"], lines)


def retained_of(results, pick, ops, nics=4, transport="r2ccl_balance", column="retained", of_limit=False):
    """One of so many NICs lost for good: the least or most of these collectives' medians, or the rate's part of the limit."""
    found = []
    for ((op, count, _), name), rows in by_transport(results, "retained", "op", "nics", "mbits", measured=RETAINED):
        if op in ops and (int(count), name) == (nics, transport) and limited_by_ports(rows[0]):
            found.append(statistics.median(float(row[column]) for row in rows) / (1 - 1 / nics if of_limit else 1))
    return short(pick(found))


def head_to_head_timeouts(results):
    lines = [[f"{version} ({timeout})", f"`{fault}`", TRANSPORTS[transport], survived(rows), sum(int(row["wrong"] or 0) for row in rows), median_of(rows, "stall_ms"),
              median_of(rows, "retained", 2)] for ((version, timeout, fault), transport), rows in by_transport(results, "timeouts", "version", "timeout", "fault", measured=MACHINES)
             if version in ("default", "firmware")]
    return markdown(["IB timeout", "fault", "transport", "survives", "wrong elements", "longest (ms)", "retained"], lines)


def head_to_head_cost(results, measured=("h200", "h200_2")):
    groups = by_transport(results, "cost", "bytes", measured=measured)
    theirs = {size: rows for ((size,), transport), rows in groups if transport == "ib"}
    lines = []
    for ((size,), transport), rows in sorted(groups, key=lambda item: (int(item[0][0][0]), list(TRANSPORTS).index(item[0][1]))):
        ratio = statistics.median(float(row["before_ms"]) for row in rows) / statistics.median(float(row["before_ms"]) for row in theirs[size])
        lines.append([inputs.size(int(size)), TRANSPORTS[transport], median_of(rows, "before_ms"), short(ratio), median_of(rows, "busbw"), median_of(rows, "cpu_s")])
    return markdown(["size", "transport", "operation (ms)", "ratio to NCCL's IB", "busbw (GB/s)", "CPU (s)"], lines)


TWO_GPUS = ("two_gpus_60", "two_gpus_cost", "two_gpus")  # the first that has a size is what is said of it


def cost_in_turns(results, measured=TWO_GPUS):
    """[(size, transport, its rows, their times over NCCL's IB transport's row of the same seed)]: they ran in turns."""
    found, known = [], set()
    for name in measured:
        groups = [(int(size), transport, rows) for ((size,), transport), rows in by_transport(results, "cost", "bytes", measured=(name,)) if int(size) not in known]
        theirs = {(size, row["seed"]): float(row["before_ms"]) for size, transport, rows in groups if transport == "ib" for row in rows}
        found += [(size, transport, rows, [float(row["before_ms"]) / theirs[size, row["seed"]] for row in rows]) for size, transport, rows in groups]
        known |= {size for size, _, _ in groups}
    return sorted(found, key=lambda one: (one[0], list(TRANSPORTS).index(one[1])))


def head_to_head_cost_spread(results):
    lines = [[inputs.size(size), TRANSPORTS[transport], len(rows), median_of(rows, "before_ms"), from_to([float(row["before_ms"]) for row in rows]),
              short(statistics.median(ratios)), "–" if transport == "ib" or median_between(ratios) is None else from_to(median_between(ratios)), median_of(rows, "busbw"), median_of(rows, "cpu_s")]
             for size, transport, rows, ratios in cost_in_turns(results)]
    return markdown(["size", "transport", "rows", "operation (ms)", "least–most", "ratio to NCCL's IB", "95 % interval of the ratio", "busbw (GB/s)", "CPU (s)"], lines)


# By what NCCL's IB transport has: sets whose seeds differ.
FOUR_GPUS = {"ib": ("four_gpus",), "ib_unmerged": ("four_gpus_unmerged", "four_gpus_mode2")}
ONE_CHANNEL = "head_to_head_upstream_one_channel"
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
    """Upstream's jobs that had the time that its own time-out needs."""
    lines = []
    for measured, channels in (("head_to_head_upstream", "–"), (ONE_CHANNEL, "1")):
        rows = head_to_head_rows(results, measured, "faults")
        lines += [[f"`{row['fault']}`{', repaired' if row['heal_ms'] not in ('', '0') else ''}", TRANSPORTS[name], channels, row["outcome"], row["wrong"], short(row["before_ms"]),
                   short(row["stall_ms"]) if row["stall_ms"] and row["outcome"] == "ok" else "–"] for name in ("upstream", "upstream_1s") for row in rows if row["transport"] == name]
    return markdown(["fault", "transport", "channels", "the job", "wrong elements", "before (ms)", "longest (ms)"], lines)


def flap(results, transport, measure):
    """Median over the seeds of the job under a link that flaps."""
    return statistics.median(float(row[measure]) for row in head_to_head_rows(results, SEEDS, "faults", fault="flap", transport=transport) if row[measure])


def head_to_head_rows(results, sets, table, **wanted):
    """The rows of a set, or of several, and a table in which these columns have these values."""
    return [row for row in rows_of(results, "head_to_head", *([sets] if isinstance(sets, str) else sets)) if row["table"] == table and all(row[column] == value for column, value in wanted.items())]


def failover_seconds(results, column, measured=SEEDS):
    """Of NCCL's failover, where a NIC falls silent: the median of a time, over all such faults."""
    rows = [row for fault in ("port_down", "blackhole", "blackhole_one_way") for row in head_to_head_rows(results, measured, "faults", transport="ib_failover", fault=fault)]
    return short(statistics.median(float(row[column]) for row in rows if row[column] != "") / 1000, 2)


def used_again_seconds(results, pick):
    """Of R2CCL's rows with a repair."""
    rows = head_to_head_rows(results, "head_to_head_repaired", "faults")
    return short(pick(float(row["used_again_ms"]) for row in rows if row["transport"] != "ib_failover") / 1000, 2)


THEIRS = ("allgather", "reducescatter", "sendrecv")  # whose rate under Balance upstream publishes
RINGS, PAIRS = ("allreduce", "allgather", "reducescatter"), ("sendrecv", "alltoall")
LATER_SEEDS = ("h200_2", "h200_3")


def later_seeds(results):
    """(how many rows of the H200 end as all rows of the H100 with the same fault, transport and repair do, rows of the H200 with such a fault)"""
    first = {}
    for row in head_to_head_rows(results, "head_to_head", "faults"):
        first.setdefault((row["fault"], row["transport"], row["heal_ms"]), set()).add(row["survives"])
    rows = [row for name in LATER_SEEDS for row in head_to_head_rows(results, name, "faults") if (row["fault"], row["transport"], row["heal_ms"]) in first]
    return sum(first[row["fault"], row["transport"], row["heal_ms"]] == {row["survives"]} for row in rows), len(rows)


def one_way_of_later_seeds(results):
    return short(statistics.median(float(row["stall_ms"]) for name in LATER_SEEDS
                                   for row in head_to_head_rows(results, name, "faults", fault="blackhole_one_way", transport="ib_failover")))


def cost_on_h100(results, size, transports):
    """The longest time over NCCL's IB transport's, of these transports."""
    (theirs,) = head_to_head_rows(results, "head_to_head", "cost", bytes=str(size), transport="ib")
    return short(max(float(row["before_ms"]) / float(theirs["before_ms"]) for transport in transports
                     for row in head_to_head_rows(results, "head_to_head", "cost", bytes=str(size), transport=transport)))


BLOCKS = {
    "head-to-head-upstream": head_to_head_upstream,
    "head-to-head-cost-two-gpus": head_to_head_cost_spread,
    "head-to-head-cost-four-gpus": head_to_head_cost_four_gpus,
    "head-to-head": head_to_head,
    "head-to-head-versions": head_to_head_versions,
    "head-to-head-mode3": head_to_head_mode3,
    "head-to-head-retained": head_to_head_retained,
    "head-to-head-timeouts": head_to_head_timeouts,
    "head-to-head-cost": head_to_head_cost,
}
NUMBERS = {
    "h2h.firmware": lambda results: short(statistics.median(float(row["stall_ms"]) for row in tables.read(results, "head_to_head")
                                                            if row["table"] == "timeouts" and row["version"] == "firmware" and row["transport"] == "ib_failover") / 1000, 2),
    "h2h.failover": lambda results: failover_seconds(results, "stall_ms"),
    **{f"h2h.flap-{name}-{measure}": (lambda transport, column: lambda results: short(flap(results, transport, column), 2))(transport, column)
       for name, transport in (("ib", "ib_failover"), ("mode1", "r2ccl_migrate")) for measure, column in (("again", "used_again_ms"), ("stall", "stall_ms"), ("busbw", "busbw"))},
    "h2h.used-again": lambda results: failover_seconds(results, "used_again_ms", "head_to_head_repaired"),
    "h2h.used-again-least": lambda results: used_again_seconds(results, min),
    "h2h.used-again-most": lambda results: used_again_seconds(results, max),
    "h2h.later-seeds": lambda results: str(later_seeds(results)[0]),
    "h2h.later-seeds-rows": lambda results: str(later_seeds(results)[1]),
    "h2h.later-seeds-wrong": lambda results: str(sum(int(row["wrong"]) for name in LATER_SEEDS for row in head_to_head_rows(results, name, "faults"))),
    "h2h.later-seeds-one-way": one_way_of_later_seeds,
    **{f"h2h.retained-{eight}{of}{what}": (lambda pick, nics, of_limit: lambda results: retained_of(results, pick, THEIRS, nics, of_limit=of_limit))(pick, nics, bool(of))
       for eight, nics in (("", 4), ("8-", 8)) for of in ("", "of-limit-") for what, pick in (("least", min), ("most", max))},
    **{f"h2h.eight-{name}-{what}": (lambda pick, ops, of: lambda results: retained_of(results, pick, ops, 8, *of))(pick, ops, of)
       for name, ops, of in (("mode1", RINGS, ("r2ccl_migrate",)), ("mode1-pairs", PAIRS, ("r2ccl_migrate",)), ("mode2", RINGS + PAIRS, ("r2ccl_balance",)), ("ib", RINGS + PAIRS, ("ib_failover",)),
                             ("ib-stall", RINGS + PAIRS, ("ib_failover", "stall_ms")), ("mode1-stall", RINGS + PAIRS, ("r2ccl_migrate", "stall_ms")), ("mode2-stall", RINGS + PAIRS, ("r2ccl_balance", "stall_ms")))
       for what, pick in (("least", min), ("most", max))},
    "h2h.two-apart-error": lambda results: short(float(head_to_head_rows(results, "h200_3", "faults", fault="two_apart", transport="ib_failover")[0]["error_ms"]) / 1000, 2),
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
}
