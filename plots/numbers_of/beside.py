# SPDX-License-Identifier: Apache-2.0
"""R2CCL beside NCCL's own transport in the same job, whose operations take turns."""

import re
import statistics

import inputs
import tables
from numbers_of.words import from_to, markdown, mean_between, median_between, median_of, rows_of, short

MEASURED = ("beside", "beside_2", "beside_3", "beside_ack_soon")  # at 1 MiB with the rule of ACKs that holds now, above also with earlier ones
PORTS = "beside_ports"  # NICs of a limited rate
SMALL = ("beside_small", "beside_small_2", "beside_small_3")  # sizes below 64 KiB, NICs without a limit
# The rule of ACKs, the set, the transport.
ACKS = (("16 tests", "beside_8", "migrate_beside_ib"), ("1024 tests", "beside_acks_1024", "migrate_beside_ib"), ("none awaited", "beside_8", "loose_beside_ib"),
        ("16 tests", "beside_11", "migrate_beside_ib"), ("16 tests, or 1024 if not asked for soon", "beside_ack_soon", "migrate_beside_ib"),
        ("16 tests, or 1024 if not asked for soon", "beside_ack_soon", "balance_beside_ib"), ("–", "beside_ack_soon", "ib_beside_ib"))
BESIDE = {"migrate_beside_ib": "R2CCL mode 1", "balance_beside_ib": "R2CCL mode 2", "baseline_beside_ib": "R2CCL mode 0", "loose_beside_ib": "R2CCL mode 1, loose ACK",
          "ib_beside_ib": "NCCL's IB (control)"}
NICS = 2  # of each node in these jobs
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


def of_jobs(rows):
    """The ratio of each job. Pairs of one job are not independent of each other."""
    return [statistics.median(float(ratio) for ratio in row["ratios"].split()) for row in rows]


def between_jobs(rows):
    return median_between(of_jobs(rows))


def beside_table(results, *sets):
    lines = []
    for (size, transport), (ratios, rows) in beside(results, *sets).items():
        between = between_jobs(rows)
        lines.append([inputs.size(size), BESIDE[transport], len(rows), len(ratios), median_of(rows, "other_ms"), short(statistics.median(ratios)),
                      "–" if between is None else from_to(between), within_bound(size, between), median_of(rows, "cpu_ratio")])
    return markdown(["size", "transport", "jobs", "pairs", "NCCL's IB (ms)", "ratio of the times", "95 % interval, by jobs", "bound", "ratio of the CPU times"], lines)


def port_mbits(results, name):
    """The rate of a NIC, which the set's command names."""
    return int(re.search(r"--mbits (\d+)", tables.provenance(results, name)["command"])[1])


def of_ports(results, name, size, ms):
    """What an AllReduce among two nodes carries, relative to what the ports of a node can."""
    return size / (NICS * port_mbits(results, name) * 1e6 / 8) * 1e3 / ms


def mean_and_interval(each):
    between = mean_between(each)
    return f"{statistics.mean(each):.4f}", f"{between[0]:.4f}–{between[1]:.4f}" if between else "–"


def means_table(results, *sets):
    """Jobs that differ little: the mean of few jobs' ratios has an interval where their median has none. NICs of a limited rate have a column more."""
    limited, lines = PORTS in sets, []
    for (size, transport), (ratios, rows) in beside(results, *sets).items():
        ms = statistics.median(float(row["other_ms"]) for row in rows)
        each = of_jobs(rows)
        cpu = [float(row["cpu_ratio"]) for row in rows]
        lines.append([inputs.size(size), BESIDE[transport], len(rows), len(ratios), short(ms), *([short(of_ports(results, PORTS, size, ms))] if limited else []), *mean_and_interval(each),
                      within_bound(size, mean_between(each)), *mean_and_interval(cpu)])
    return markdown(["size", "transport", "jobs", "pairs", "NCCL's IB (ms)", *(["of its ports' rate"] if limited else []), "ratio of the times", "95 % interval", "bound", "ratio of the CPU times", "95 % interval"], lines)


PLUGIN = ("migrate_beside_ib", "balance_beside_ib")
WHO = (("mode1", "migrate_beside_ib"), ("mode2", "balance_beside_ib"), ("control", "ib_beside_ib"))
SMALL_SIZES = (("8B", 8), ("32KiB", 32 * 1024))


def ports_cpu(results, sizes, *transports):
    """The greatest mean of a point's ratios of CPU times."""
    return f"{max(statistics.mean(float(row['cpu_ratio']) for row in rows) for (size, transport), (_, rows) in beside(results, PORTS).items() if size in sizes and transport in transports):.4f}"


def ports_cpu_intervals(results):
    """Of the ratio of CPU times at each point of the two modes."""
    return [mean_between([float(row["cpu_ratio"]) for row in rows]) for (_, transport), (_, rows) in beside(results, PORTS).items() if transport in PLUGIN]


def ports_share(results, size):
    return short(of_ports(results, PORTS, size, statistics.median(float(row["other_ms"]) for row in rows_of(results, "beside", PORTS) if int(row["bytes"]) == size)))


def ports_spread(results, pick):
    """Standard deviation of the jobs' ratios at a point, in percent."""
    return short(pick(100 * statistics.stdev(of_jobs(rows)) for _, rows in beside(results, PORTS).values()), 2)


def jobs_of(rows, cpu=False):
    """Of each job the ratio of the times, or of the CPU times."""
    return [float(row["cpu_ratio"]) for row in rows] if cpu else of_jobs(rows)


def small_point(results, size, transport, cpu):
    return statistics.mean(jobs_of(beside(results, *SMALL)[size, transport][1], cpu))


def small_between(results, size, transport, cpu):
    return mean_and_interval(jobs_of(beside(results, *SMALL)[size, transport][1], cpu))[1]


def small_most(results, pick, transports, cpu, sizes):
    """The least or greatest mean at these sizes."""
    return f"{pick(small_point(results, size, transport, cpu) for size in sizes for transport in transports):.4f}"


def ports_means(results, pick, *transports):
    return f"{pick(statistics.mean(of_jobs(rows)) for (_, transport), (_, rows) in beside(results, PORTS).items() if transport in transports):.4f}"


def beside_sends(results):
    """How long ACKs wait where a thread has sends open only: a set for each."""
    lines = []
    for tests, name in ((1, "beside"), (8, "beside_sends_8"), (32, "beside_sends_32")):
        ratios, rows = beside(results, name)[65536, "migrate_beside_ib"]
        between = between_jobs(rows)
        lines.append([tests, len(rows), short(statistics.median(ratios)), "–" if between is None else from_to(between), median_of(rows, "cpu_ratio")])
    return markdown(["tests in vain", "jobs", "ratio of the times", "95 % interval, by jobs", "ratio of the CPU times"], lines)


def beside_acks(results):
    """How long the ACK of a message waits while others are open, at 1 MiB."""
    lines = []
    for rule, name, transport in ACKS:
        ratios, rows = beside(results, name)[2**20, transport]
        between = between_jobs(rows)
        lines.append([rule, BESIDE[transport].removesuffix(", loose ACK"), len(rows), short(statistics.median(ratios), 4), from_to(between, 4), within_bound(2**20, between), median_of(rows, "cpu_ratio", 4)])
    return markdown(["an ACK waits for", "transport", "jobs", "ratio of the times", "95 % interval, by jobs", "bound", "ratio of the CPU times"], lines)


def beside_ratio(results, size, transport, *sets):
    return beside(results, *sets)[size, transport][0]


BLOCKS = {
    "beside": lambda results: beside_table(results, *MEASURED),
    "beside-ports": lambda results: means_table(results, PORTS),
    "beside-small": lambda results: means_table(results, *SMALL),
    "beside-causes": lambda results: beside_table(results, "beside_causes"),
    "beside-sends": beside_sends,
    "beside-acks": beside_acks,
}
NUMBERS = {
    "beside.control-least": lambda results: short(min(statistics.median(ratios) for (_, transport), (ratios, _) in beside(results, *MEASURED).items() if transport == "ib_beside_ib")),
    "beside.control-most": lambda results: short(max(statistics.median(ratios) for (_, transport), (ratios, _) in beside(results, *MEASURED).items() if transport == "ib_beside_ib")),
    **{f"beside.cpu-1mib-{mode}": (lambda transport: lambda results: median_of(beside(results, *MEASURED)[2**20, transport][1], "cpu_ratio"))(transport)
       for mode, transport in (("mode1", "migrate_beside_ib"), ("mode2", "balance_beside_ib"))},
    "beside.ports-upper-most": lambda results: f"{max(mean_between(of_jobs(rows))[1] for (_, transport), (_, rows) in beside(results, PORTS).items() if transport in PLUGIN):.4f}",
    **{f"beside.ports-{whose}-{what}": (lambda pick, transports: lambda results: ports_means(results, pick, *transports))(pick, transports)
       for whose, transports in (("modes", PLUGIN), ("control", ("ib_beside_ib",))) for what, pick in (("least", min), ("most", max))},
    **{f"beside.ports-spread-{what}": (lambda pick: lambda results: ports_spread(results, pick))(pick) for what, pick in (("least", min), ("most", max))},
    **{f"beside.ports-share-{name}": (lambda size: lambda results: ports_share(results, size))(size) for name, size in (("1mib", 2**20), ("1gib", 2**30))},
    **{f"beside.ports-cpu-{name}": (lambda sizes, transports: lambda results: ports_cpu(results, sizes, *transports))(sizes, transports)
       for name, sizes, transports in (("1mib-mode1", (2**20,), PLUGIN[:1]), ("1mib-mode2", (2**20,), PLUGIN[1:]), ("64mib-mode1", (2**26,), PLUGIN[:1]), ("1gib-mode2", (2**30,), PLUGIN[1:]))},
    **{f"beside.small-{where}-{who}{'-cpu' * cpu}": (lambda size, transport, cpu: lambda results: f"{small_point(results, size, transport, cpu):.4f}")(size, transport, cpu)
       for where, size in SMALL_SIZES for who, transport in WHO for cpu in (False, True)},
    **{f"beside.small-{where}-{who}{'-cpu' * cpu}-interval": (lambda size, transport, cpu: lambda results: small_between(results, size, transport, cpu))(size, transport, cpu)
       for where, size in SMALL_SIZES for who, transport in WHO for cpu in (False, True)},
    **{f"beside.small-{whose}{'-cpu' * cpu}-{what}": (lambda pick, transports, cpu, sizes: lambda results: small_most(results, pick, transports, cpu, sizes))(pick, transports, cpu, sizes)
       for whose, transports, cpu, sizes in (("modes", PLUGIN, False, (512, 4096, 32768)), ("control", ("ib_beside_ib",), False, (8, 512, 4096, 32768)),
                                             ("control", ("ib_beside_ib",), True, (8, 512, 4096)))
       for what, pick in (("least", min), ("most", max))},
    **{f"beside.small-32KiB-{who}-cpu-set{number}": (lambda transport, name: lambda results: f"{statistics.mean(jobs_of(beside(results, name)[32 * 1024, transport][1], True)):.4f}")(transport, name)
       for who, transport in WHO for number, name in enumerate(SMALL, 1)},
    "beside.small-32KiB-loose-cpu": lambda results: f"{small_point(results, 32 * 1024, 'loose_beside_ib', True):.4f}",
    "beside.small-32KiB-mode0-cpu": lambda results: f"{small_point(results, 32 * 1024, 'baseline_beside_ib', True):.4f}",
    "beside.small-8B-mode2-set2": lambda results: f"{statistics.mean(of_jobs(beside(results, SMALL[1])[8, 'balance_beside_ib'][1])):.4f}",
    "beside.ports-cpu-above": lambda results: str(sum(low > 1 for low, _ in ports_cpu_intervals(results))),
    "beside.ports-cpu-points": lambda results: str(len(ports_cpu_intervals(results))),
    "beside.1mib-modes": lambda results: short(max(statistics.median(beside_ratio(results, 2**20, transport, *MEASURED)) for transport in PLUGIN)),
    "beside.control-jobs": lambda results: str(sum(row["transport"] == "ib_beside_ib" for row in rows_of(results, "beside", *MEASURED))),
    "beside.control-missed": lambda results: str(sum(row["transport"] == "ib_beside_ib" and row["as_predicted"] == "0" for row in rows_of(results, "beside", *MEASURED))),
    "beside.1mib-mode0": lambda results: short(statistics.median(beside_ratio(results, 2**20, "baseline_beside_ib", "beside_2"))),
    "beside.causes-mode0": lambda results: short(statistics.median(beside_ratio(results, 65536, "baseline_beside_ib", "beside_causes"))),
    "beside.causes-mode1": lambda results: short(statistics.median(beside_ratio(results, 65536, "migrate_beside_ib", "beside_causes"))),
    "beside.causes-mode2": lambda results: short(statistics.median(beside_ratio(results, 65536, "balance_beside_ib", "beside_causes"))),
    "beside.causes-control": lambda results: short(statistics.median(beside_ratio(results, 65536, "ib_beside_ib", "beside_causes"))),
    "beside.causes-loose": lambda results: short(statistics.median(beside_ratio(results, 65536, "loose_beside_ib", "beside_causes"))),
}
