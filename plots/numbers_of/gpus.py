# SPDX-License-Identifier: Apache-2.0
"""Unmodified NCCL on GPUs."""

import statistics

from numbers_of.words import markdown, median_of, mode, rows_of, short


def nccl(results):
    rows = []
    for name in ("nccl_four_gpus", "nccl_two_gpus", "nccl_one_gpu", "nccl_unlimited"):
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


def renewals(results):
    """Cells that differ only in when the communicators were renewed are one line."""
    found = {}
    for row in rows_of(results, "renewals", "nccl_renewals", "nccl_renewals_in_migration", "nccl_renewals_in_migration_2", "nccl_renewals_in_migration_3", "nccl_renewals_in_migration_4", "nccl_renewals_2_23", "nccl_renewals_after"):
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


GPU_SETS = ("nccl_protocols", "nccl_more", "nccl_gpu_direct", "nccl_collectives", "nccl_four_nics", "nccl_four_nodes", "nccl_removed", "nccl_registered")
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


def gpu_four_nics(results):
    """One of four NICs lost or slow: what live migration and Balance retain, by collective."""
    found = {}
    # AllGather again: beside other jobs its rate before the fault was not the ports'.
    for row in (row for name in ("nccl_four_nics", "nccl_allgather_alone", "nccl_registered") for row in rows_of(results, "runs", name)):
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


def gpu_memory(results, *measured):
    cases = {}
    for row in rows_of(results, "nccl", *measured):
        cases.setdefault(row["case"], []).append(row)
    lines = [[f"`{case}`", rows[0]["nodes"], rows[0]["mode"], f"`{rows[0]['fault']}`" if rows[0]["fault"] else "none", len(rows), sum(int(row["wrong"]) for row in rows),
              "yes" if rows[0]["as_expected"] == "1" else "no"] for case, rows in cases.items()]
    return markdown(["case", "nodes", "mode", "fault", "operations", "wrong elements", "as expected"], lines)


BLOCKS = {
    "nccl": nccl,
    "nccl-stalls": nccl_stalls,
    "gpu-scenarios": gpu_scenarios,
    "gpu-removed": gpu_removed,
    "gpu-protocol-times": gpu_protocol_times,
    "gpu-four-nics": gpu_four_nics,
    "ll128-lines": ll128_lines,
    "ll128-jobs": ll128_jobs,
    "pxn": lambda results: gpu_memory(results, "nccl_pxn"),
    "renewals": renewals,
    "gpu-memory": lambda results: gpu_memory(results, "nccl_gpu_memory", "nccl_gpu_memory_four"),
}
NUMBERS = {
    **{f"h2h.first-{name}": (lambda case: lambda results: short(next(row["median_ms"] for row in rows_of(results, "nccl", "nccl_unlimited") if (row["case"], row["op"]) == (case, "allreduce")), 3))(case)
       for name, case in (("mode0", "healthy_baseline"), ("mode1", "healthy_migrate"), ("ib", "healthy_nccl_ib"))},
    "gpu.faults": lambda results: str(fault_times(results, *GPU_SETS)["all"]),
    "gpu.sampled": lambda results: str(fault_times(results, *GPU_SETS)["sampled"]),
    "gpu.recovered": lambda results: str(fault_times(results, *GPU_SETS)["recovered"]),
}
