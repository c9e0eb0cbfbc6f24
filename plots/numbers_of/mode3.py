# SPDX-License-Identifier: Apache-2.0
"""AllReduce in mode 3, on GPUs and on virtual NICs."""

import fractions
import math
import statistics

import inputs
import tables
from numbers_of.words import markdown, median_between, one_run, rows_of, short


def mode3_median(results, case, step, measured):
    found = [row for row in rows_of(results, "nccl", measured) if row["case"] == case and row["step"] == step]
    if not found:
        raise inputs.BadInput(f"{tables.path_of(results, 'nccl')}: the set {measured} has no case {case} with a step '{step}'")
    return found[0]


# What, the cases' name, the step, the set.
MODE3 = (("healthy", "healthy", "healthy", "nccl_mode3_default"), ("one NIC of eight lost", "eighth", "after", "nccl_mode3_default"),
         ("one of four lost", "lost", "after", "nccl_mode3_default"), ("two of four lost", "half", "after", "nccl_mode3_default"),
         ("one of four at a quarter of its rate", "throttle", "after", "nccl_mode3_default"), ("six nodes, one of four lost", "six_nodes", "after", "nccl_mode3_default"),
         ("two degraded nodes, one of four lost at each", "two_degraded", "after", "nccl_mode3_default"),
         ("two degraded nodes, one after the other", "second_loss", "after", "nccl_mode3_default"),
         ("one of four lost", "lost", "after", "nccl_mode3_segments"),
         ("two of four lost", "half", "after", "nccl_mode3_256MiB"),
         ("two degraded nodes, one of four lost at each", "two_degraded", "after", "nccl_mode3_256MiB_two"),
         ("two degraded nodes, one after the other", "second_loss", "after", "nccl_mode3_256MiB_two"),
         *((f"{what}, NICs of 1 Gbit/s", case, "after", "nccl_mode3_slow_256MiB")
           for what, case in (("one of four lost", "lost"), ("two of four lost", "half"), ("six nodes, one of four lost", "six_nodes"))))
BALANCE = ("healthy", "eighth", "throttle")  # cases in which the tuner chose NCCL's ring


def mode3(results):
    rows = []
    for title, case, step, measured in MODE3:
        known = {row["case"]: row for row in rows_of(results, "nccl", measured) if row["step"] == step}
        mine = mode3_median(results, f"{case}_mode3", step, measured)
        rows.append([inputs.size(int(mine["bytes"])), title, short(mine["bound_ms"]), *(short(known.get(f"{case}_{name}", {}).get("median_ms")) for name in ("migrate", "balance")),
                     short(mine["median_ms"]), short(float(mine["median_ms"]) / float(mine["bound_ms"]))])
    return markdown(["AllReduce of", "nodes", "lower bound (ms)", "ring, mode 1", "ring, mode 2", "mode 3", "mode 3 / bound"], rows)


EIGHTH_SETS = ("nccl_mode3_eighth", "nccl_mode3_segments")  # a point is of the last set that has it


def mode3_eighth(results):
    """One NIC of eight lost: CollNet beside Balance, by size and rate; the median of the jobs' medians."""
    found = {}
    for measured in EIGHTH_SETS:
        points = {}
        for row in rows_of(results, "nccl", measured):
            if row["step"] == "after" and row["case"].startswith("eighth_"):
                points.setdefault((int(row["bytes"]), float(row["nic_gbps"]), float(row["bound_ms"])), {}).setdefault(row["case"], []).append(float(row["median_ms"]))
        found |= {point: (measured, of) for point, of in points.items()}
    lines = []
    for (size, gbps, bound), (measured, of) in sorted(found.items(), key=lambda point: (point[0][0], -point[0][1])):
        balance, mine = (statistics.median(of[f"eighth_{name}"]) for name in ("balance", "mode3"))
        lines.append([inputs.size(size), short(gbps), short(bound), len(of["eighth_balance"]), short(balance), len(of["eighth_mode3"]), short(mine), short(mine / balance), short(mine / bound),
                      f"`{measured}`"])
    return markdown(["AllReduce of", "each NIC (Gbit/s)", "lower bound (ms)", "jobs in mode 2", "ring, mode 2", "jobs in mode 3", "mode 3", "mode 3 / mode 2", "mode 3 / bound", "set"], lines)


def margin_times(results, case, step="after", column="median_ms"):
    """{NCCL's version: ms} of a case at the default margin, four nodes on eight cores."""
    found = {row["nccl"]: float(row[column]) for row in rows_of(results, "nccl", "nccl_mode3_default_margin") if row["case"].removesuffix("_again") == case and row["step"] == step}
    if not found:
        raise inputs.BadInput(f"{tables.path_of(results, 'nccl')}: the set nccl_mode3_default_margin has no case {case} with a step '{step}'")
    return found


def margin_ratio(results, pick, case, other="balance", step="after"):
    """Mode 3's time over the other mode's, of all versions of NCCL."""
    mine, others = margin_times(results, f"{case}_mode3", step), margin_times(results, f"{case}_{other}", step)
    return pick(mine[version] / others[version] for version in mine)


# The set, and the margin where it is not the one that those around it have.
VERSIONS = {"nccl_mode3_2_23": "", "nccl_mode3_2_23_margin_108": ", margin 108", "nccl_mode3_default": ", margin 108", "nccl_mode3_2_30": "", "nccl_mode3_2_30_margin_108": ", margin 108", "nccl_mode3_2_32": "",
            "nccl_mode3_2_32_margin_108": ", margin 108"}


def mode3_versions(results):
    """Each version of NCCL: how many cases were as they should be, and times with lost NICs."""
    lines = []
    for measured, margin in VERSIONS.items():
        rows = rows_of(results, "nccl", measured)
        version, = {row["nccl"] for row in rows}
        cases = {row["case"]: row["as_expected"] == "1" for row in rows}
        after = {row["case"]: short(row["median_ms"]) for row in rows if row["step"] == "after"}
        lines.append([version + margin, len(cases), sum(cases.values()), sum(int(row["wrong"]) for row in rows if row["step"] != "corrupted on purpose"),
                      *(after.get(case, "–") for case in ("lost_migrate", "lost_balance", "lost_mode3", "half_mode3", "two_degraded_mode3", "six_nodes_mode3"))])
    return markdown(["NCCL", "cases", "as expected", "wrong elements", "one of four lost (ms): ring, mode 1", "ring, mode 2", "mode 3", "two of four lost, mode 3",
                     "two degraded nodes, mode 3", "six nodes, one of four lost, mode 3"], lines)


LOST = ("0", "1/8", "1/4", "1/2")
ALGORITHMS = {"balance": "Balance", "ring": "ring", "r2ccl_allreduce": "R2CCL-AllReduce", "four_stage": "four-stage", "mix": "mix", "mode3": "mode 3"}


ALGORITHMS_600 = ("mode3_algorithms_256_3", "mode3_algorithms_256_4")  # NICs of 600 Mbit/s
# The highest rate at which healthy rings keep 0.97 of their ports; mode 3 measured later.
HIGHEST = ("mode3_algorithms_highest", "mode3_algorithms_2")
WITHIN = 1.06  # of the lower bound


def algorithm_rows(results, *sets):
    """One for each cell: the later set's, where both have it."""
    rows = {}
    for name in sets:
        rows |= {(row["nodes"], row["lost"], row["algorithm"]): row for row in rows_of(results, "allreduce_emulated", name)}
    return list(rows.values())


def mode3_algorithms(results):
    """Times over the lower bound, and those of mode 3 over the simulated time of what it took; and mode 3 on slower NICs."""
    lines, rows = algorithm_rows(results, *HIGHEST), []
    slower = {(row["nodes"], row["lost"]): row for row in algorithm_rows(results, *ALGORITHMS_600) if row["algorithm"] == "mode3"}
    for nodes, lost, mbits in sorted({(int(row["nodes"]), row["lost"], int(row["mbits"])) for row in lines}):
        here = {row["algorithm"]: row for row in lines if (row["nodes"], row["lost"], row["mbits"]) == (str(nodes), lost, str(mbits))}
        then = slower[str(nodes), lost]
        rows.append([nodes, lost, mbits, short(min(float(row["cpu_idle"]) for row in here.values())), short(next(iter(here.values()))["bound_ms"]),
                     *(short(here[name]["t_to_bound"], 4 if name == "mode3" else 3) if name in here else "–" for name in ALGORITHMS), short(here["mode3"]["t_to_simulated"], 4),
                     short(then["t_to_bound"], 4), short(then["t_to_simulated"], 4)])
    return markdown(["nodes", "x", "NICs (Mbit/s)", "CPUs idle", "bound (ms)", *ALGORITHMS.values(), "mode 3 / simulated", "mode 3 at 600 Mbit/s", "that / simulated"], rows)


TWO_TIMES = ("4", "1/2", "r2ccl_allreduce")  # its operations take one of two times


def forced_over_simulated(results, most, *sets):
    """Of those that were forced; at 600 Mbit/s but for TWO_TIMES."""
    return short(most(float(row["t_to_simulated"]) for row in algorithm_rows(results, *sets)
                      if row["algorithm"] != "mode3" and row["t_to_simulated"] and (row["mbits"] != "600" or (row["nodes"], row["lost"], row["algorithm"]) != TWO_TIMES)), 4)


def two_times(results):
    return short(next(float(row["t_to_simulated"]) for row in algorithm_rows(results, *ALGORITHMS_600) if (row["nodes"], row["lost"], row["algorithm"]) == TWO_TIMES), 4)


def of_mode3(results, column, pick, *sets):
    """Of mode 3 in all cells; four digits."""
    return short(pick(float(row[column]) for row in algorithm_rows(results, *sets) if row["algorithm"] == "mode3"), 4)


def of_point(results, name, nodes, lost):
    """Mode 3's time over the bound in one set."""
    return next(short(float(row["t_to_bound"]), 4) for row in algorithm_rows(results, name) if (row["nodes"], row["lost"], row["algorithm"]) == (nodes, lost, "mode3"))


def highest_within(results):
    return str(sum(float(row["t_to_bound"]) <= WITHIN for row in algorithm_rows(results, *HIGHEST) if row["algorithm"] == "mode3"))


def healthy_least(results, *sets):
    """What the rings carried before the loss, relative to what their ports can: at the point where it is least."""
    def of(row):
        nodes, rate = int(row["nodes"]), 4 * float(row["mbits"]) * 1e6 / 8
        return 2 * (nodes - 1) / nodes * int(row["bytes"]) / rate * 1e3 / float(row["t0_ms"])

    return short(min(of(row) for row in algorithm_rows(results, *sets) if row["algorithm"] in ("ring", "balance")))


def fast_over_bound(results, most):
    """What mode 3 takes on NICs of 1600 Mbit/s, over the lower bound."""
    def of(row):
        nodes, lost = int(row["nodes"]), float(fractions.Fraction(row["lost"]))
        bound_s = max(1 / (1 - lost), 2 * (nodes - 1) / (nodes - lost)) * int(row["bytes"]) / (4 * float(row["mbits"]) * 1e6 / 8)
        return float(row["t_ms"]) / 1e3 / bound_s

    return short(most(of(row) for row in rows_of(results, "allreduce_turns", "mode3_turns_128") if row["algorithm"].startswith("mode3") and row["lost"] != "0"))


SEGMENTS = "nccl_mode3_segments"
DIRECT = {"allgather": "collnet_direct-allgather", "reducescatter": "collnet_direct-reducescatter"}  # runs of nccl_collnet_direct
TURNS_1024 = ("mode3_turns_1024", "mode3_turns_1024_2")
SIZES = ("mode3_sizes_4", "mode3_sizes_eighth")
TURNS = ("mode3_turns", "mode3_turns_first", "mode3_turns_2", "mode3_turns_3", "mode3_turns_128", "mode3_turns_even", "mode3_turns_slow")
TURNS_BOUND = 1.02  # of mode 3 to the better of ring and Balance


def mode3_sizes(results, *sets):
    """Mode 3's time over that of the better of ring and Balance, which took turns with it; the median of the rounds' ratios and its interval where there are enough."""
    lines, rows = rows_of(results, "allreduce_sizes", *sets), []
    lost = [x for x in LOST if any(row["lost"] == x for row in lines)]
    found = {(int(row["bytes"]), row["lost"]): row for row in lines if row["algorithm"] == "mode3"}

    def cell(row):
        each = [float(ratio) for ratio in row["ratios"].split()]
        between = median_between(each) if each else None
        return f"{statistics.median(each):.2f} ({between[0]:.2f} to {between[1]:.2f})" if between else short(row["to_better_of_ring_and_balance"])

    for size in sorted({size for size, _ in found}):
        rows.append([inputs.size(size), *(cell(found[size, x]) if (size, x) in found else "–" for x in lost)])
    return markdown(["AllReduce of", *("nothing lost" if x == "0" else f"x = {x}" for x in lost)], rows)


def turn_points(results, *sets):
    """[(bytes, x, jobs, {algorithm: each job's ratio}, verdict on all intervals)] of modes whose operations take turns in each job."""
    found = {}
    for row in rows_of(results, "allreduce_turns", *sets):
        found.setdefault((int(row["bytes"]), row["lost"]), {}).setdefault(row["algorithm"], []).extend(float(ratio) for ratio in row["ratios"].split())
    points = []
    for (size, lost), each in sorted(found.items(), key=lambda point: (point[0][0], LOST.index(point[0][1]))):
        between = [median_between(ratios) for ratios in each.values()]
        verdict = ("–" if not all(between) else "met" if max(most for _, most in between) <= TURNS_BOUND else "missed" if max(least for least, _ in between) > TURNS_BOUND
                   else "undecided")
        points.append((size, lost, min(map(len, each.values())), each, verdict))
    return points


def turns_ratio(results, measured, pick):
    """Of all jobs of a set with one point."""
    return short(pick(float(ratio) for row in rows_of(results, "allreduce_turns", measured) for ratio in row["ratios"].split()))


def mode3_turns(results):
    def cell(each):
        between = median_between(each) if each else None
        return (f"{statistics.median(each):.3f}" if each else "–") + (f" ({between[0]:.3f} to {between[1]:.3f})" if between else "")

    rows = [[inputs.size(size), lost, jobs, cell(each.get("mode3_beside_ring")), cell(each.get("mode3_beside_balance")), verdict]
            for size, lost, jobs, each, verdict in turn_points(results, *TURNS)]
    return markdown(["AllReduce of", "x", "jobs", "mode 3 / ring", "mode 3 / Balance", f"at most {TURNS_BOUND}"], rows)


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


def mode3_to_bound(results, pick):
    """Of the cases in which the tuner chose CollNet; in the others mode 3 is Balance."""
    found = [mode3_median(results, f"{case}_mode3", step, measured) for _, case, step, measured in MODE3 if case not in BALANCE]
    return short(pick(float(row["median_ms"]) / float(row["bound_ms"]) for row in found), 2)


BLOCKS = {
    "mode3": mode3,
    "mode3-eighth": mode3_eighth,
    "mode3-versions": mode3_versions,
    "mode3-algorithms": mode3_algorithms,
    "mode3-sizes": lambda results: mode3_sizes(results, *SIZES),
    "mode3-turns": mode3_turns,
    "mode3-throttled": mode3_throttled,
}
NUMBERS = {
    **{f"mode3.{name}-{what}": (lambda column, pick, sets: lambda results: of_mode3(results, column, pick, *sets))(column, pick, sets)
       for name, column, sets in (("algorithms", "t_to_bound", ALGORITHMS_600), ("algorithms-simulated", "t_to_simulated", ALGORITHMS_600),
                                  ("highest-first", "t_to_bound", HIGHEST[:1]), ("highest", "t_to_bound", HIGHEST), ("highest-simulated", "t_to_simulated", HIGHEST)) for what, pick in (("least", min), ("most", max))},
    "mode3.highest-within": highest_within,
    **{f"mode3.{nodes}-nodes-{lost.replace('/', '-of-')}-{when}": (lambda name, nodes, lost: lambda results: of_point(results, name, nodes, lost))(name, nodes, lost)
       for nodes, lost in (("6", "1/8"), ("8", "1/8")) for when, name in zip(("first", "later"), HIGHEST)},
    "mode3.highest-cells": lambda results: str(sum(row["algorithm"] == "mode3" for row in algorithm_rows(results, *HIGHEST))),
    "mode3.highest-healthy": lambda results: healthy_least(results, *HIGHEST),
    "mode3.highest-idle": lambda results: short(min(float(row["cpu_idle"]) for row in algorithm_rows(results, *HIGHEST))),
    **{f"mode3.{name}-forced-{what}": (lambda pick, sets: lambda results: forced_over_simulated(results, pick, *sets))(pick, sets)
       for name, sets in (("algorithms", ALGORITHMS_600), ("highest", HIGHEST)) for what, pick in (("least", min), ("most", max))},
    "mode3.fast-least": lambda results: fast_over_bound(results, min),
    "mode3.fast-most": lambda results: fast_over_bound(results, max),
    "mode3.algorithms-two-times": two_times,
    "mode3.algorithms-healthy": lambda results: healthy_least(results, *ALGORITHMS_600),
    "mode3.turns-points": lambda results: str(len(turn_points(results, *TURNS))),
    "mode3.turns-met": lambda results: str(sum(verdict == "met" for *_, verdict in turn_points(results, *TURNS))),
    **{f"mode3.turns-{spread}-{what}": (lambda measured, pick: lambda results: turns_ratio(results, measured, pick))(f"mode3_turns_{spread}", pick)
       for spread in ("uneven", "even") for what, pick in (("least", min), ("most", max))},
    "mode3.turns-spread": lambda results: short(statistics.mean(
        statistics.variance(map(math.log, ratios)) for _, _, jobs, each, _ in turn_points(results, *TURNS) if jobs >= 6 for ratios in each.values()) ** 0.5, 2),
    "mode3.turns-most": lambda results: short(max(statistics.median(ratios) for _, _, _, each, _ in turn_points(results, *TURNS) for ratios in each.values())),
    **{f"mode3.starved-{mbits}": (lambda mbits: lambda results: next(short(row["ratios"]) for row in rows_of(results, "allreduce_turns", "mode3_turns_starved_2") if row["mbits"] == mbits))(mbits)
       for mbits in ("200", "600")},
    **{f"mode3.turns-1024-{name}": (lambda lost: lambda results: next(short(row["ratios"], 4) for row in rows_of(results, "allreduce_turns", *TURNS_1024) if row["lost"] == lost))(lost)
       for name, lost in (("nothing", "0"), ("eighth", "1/8"), ("quarter", "1/4"), ("half", "1/2"))},
    **{f"mode3.segments-{name}": (lambda case, step: lambda results: short(mode3_median(results, case, step, SEGMENTS)["median_ms"]))(case, step)
       for name, case, step in (("balance", "lost_balance", "after"), ("lost", "lost_mode3", "after"), ("graph-collnet", "graph_chain", "after"), ("graph-ring", "graph_ring", "after"),
                                ("eager", "graph_ring", "after, eagerly"))},
    "mode3.segments-bound": lambda results: short(mode3_median(results, "lost_mode3", "after", SEGMENTS)["bound_ms"]),
    **{f"mode3.direct-{name}": (lambda column: lambda results: short(mode3_median(results, "lost_direct", "after", "nccl_mode3_direct")[column]))(column)
       for name, column in (("lost", "median_ms"), ("bound", "bound_ms"))},
    **{f"mode3.direct-{op}": (lambda run: lambda results: short(one_run(results, "nccl_collnet_direct", run, "direct")["retained"]))(run) for op, run in DIRECT.items()},
    "mode3.direct-limit": lambda results: short(one_run(results, "nccl_collnet_direct", DIRECT["allgather"], "direct")["limit"]),
    "mode3.margin-eighth-slowest": lambda results: short(max(margin_times(results, "eighth_mode3", "struck", "max_ms").values()), 4),
    **{f"mode3.margin-eighth-{version}": (lambda version: lambda results: short(margin_times(results, "eighth_mode3")[version]))(version) for version in ("2.28.9", "2.30.7")},
    "mode3.margin-eighth-balance": lambda results: short(max(margin_times(results, "eighth_balance").values())),
    **{f"mode3.margin-{case}-{what}": (lambda case, pick: lambda results: short(margin_ratio(results, pick, case)))(case, pick)
       for case in ("half", "six_nodes") for what, pick in (("least", min), ("most", max))},
    "mode3.margin-healthy": lambda results: f"{margin_ratio(results, max, 'healthy', 'migrate', 'healthy'):.3f}",
    "mode3.degraded": lambda results: short(one_run(results, "mode3_scenarios_2", "allreduce_degraded", "allreduce")["retained"]),
    "mode3.degraded-limit": lambda results: short(one_run(results, "mode3_scenarios_2", "allreduce_degraded", "allreduce")["limit"]),
    **{f"mode3.links-{on}-{what}": (lambda on, pick: lambda results: short(pick(float(row["retained"]) for row in rows_of(results, "runs", f"mode3_scenarios_links_{on}"))))(on, pick)
       for on in (0, 1) for what, pick in (("least", min), ("most", max))},
    "mode3.two-degraded": lambda results: short(one_run(results, "mode3_scenarios_2", "allreduce_two_degraded", "allreduce")["retained"]),
    "mode3.two-degraded-limit": lambda results: short(one_run(results, "mode3_scenarios_2", "allreduce_two_degraded", "allreduce")["limit"]),
    **{f"mode3.channels-{number}": (lambda measured: lambda results: short(next(row["t_to_bound"] for row in rows_of(results, "allreduce_emulated", measured) if row["nodes"] == "8"), 4))
       (f"mode3_channels_{number}") for number in (192, 512)},
    "mode3.least": lambda results: mode3_to_bound(results, min),
    "mode3.most": lambda results: mode3_to_bound(results, max),
}
