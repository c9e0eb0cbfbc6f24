#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts a measurement into the tables of results/tables, with a line about its origin.

    plots/collect.py run SET FOLDER…      result.json files below the folders (r2bench run)     → runs.csv, faults.csv
    plots/collect.py matrix SET FILE      matrix.json of r2bench matrix                         → matrix.csv
    plots/collect.py head_to_head SET FILE…   of harness/workload/nccl/head_to_head.py          → head_to_head.csv, beside.csv
    plots/collect.py renewals SET FOLDER… of nccl_abort, nccl_shrink, nccl_revoke …             → renewals.csv
    plots/collect.py gpu_memory SET FILE  of harness/workload/nccl/gpu_memory.py                → nccl.csv
    plots/collect.py mode3 SET FILE…      of harness/workload/nccl/allreduce_matrix.py          → nccl.csv
    plots/collect.py sim SET FILE         allreduce.csv of harness/sim/sweep.py                 → allreduce.csv
    plots/collect.py allreduce SET FILE…  algorithms.csv of harness/bench/allreduce_table.py    → allreduce_emulated.csv
    plots/collect.py sizes SET FILE…      sizes.csv of harness/bench/allreduce_table.py         → allreduce_sizes.csv
    plots/collect.py turns SET FILE…      turns.csv of harness/bench/allreduce_table.py         → allreduce_turns.csv
    plots/collect.py programs SET FILE    programs.csv of harness/programs/record.py            → programs.csv
    plots/collect.py bench SET FILE…      Google Benchmark's JSON, with medians                 → costs.csv
    plots/collect.py ratios SET FILE…     of harness/bench/beside_nccl_ib.py                    → costs.csv
    plots/collect.py walks SET FILE       lines of harness/tests/walk.py                        → walks.csv
    plots/collect.py gate SET FILE        record.jsonl of harness/tests/gate_power.py           → gate.csv
    plots/collect.py nightly SET FILE     record.jsonl of .ci/nightly                           → nightly.csv
    plots/collect.py cluster SET FILE     lines of the tests of several hosts (R2BENCH_CLUSTER_RECORD) → cluster.csv
    plots/collect.py conformance SET FILE table.json of r2bench conformance                     → conformance.csv
    plots/collect.py ll128 SET FILE…      lines of harness/workload/nccl/torn_lines.cu, and result.json of jobs under NCCL_PROTO=LL128 → ll128.csv

The new rows replace all earlier rows of the set. Commit, machine, date, evidence and command are taken from the files if they have them; an
option takes precedence over the files. Then plots/readme_numbers.py writes the numbers of the READMEs, and `r2bench plot --all` the figures."""

import argparse
import csv
import os
import re
import statistics
import sys

import inputs
import tables

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faultinject"))
import fault_kinds  # noqa: E402

DOWN = fault_kinds.names(takes="port")


def quantile(ordered, part):
    """Nearest rank."""
    return ordered[min(len(ordered) - 1, max(0, int(part * len(ordered) + 0.9999) - 1))]


def nic_numbers(pattern):
    """The numbers that 'nic3', 'nic[0-2,5]' or 'nic*' name; None: all."""
    body = pattern[len("nic"):]
    if body == "*":
        return None
    found = set()
    for part in body.strip("[]").split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def nics_lost(result, run):
    """How many NICs of the node that loses most, by the faults that were seen and not healed."""
    gone = {}
    for fault in run["faults"]:
        if fault["kind"] in DOWN and fault["witnessed"] and fault["healed_at_ms"] is None:
            node, nic = fault["target"].split("/")[:2]
            gone.setdefault(node, set()).update(nic_numbers(nic) or range(result["fabric"]["nics_per_node"]))
    return max((len(names) for names in gone.values()), default=0)


def busbw(run):
    """The lower quarter, the median and the upper quarter of the operations' bus bandwidths."""
    row = run.get("row") or {}
    if run["outcome"] != "ok" or not row.get("algbw_gbytes") or not run["iteration_ms"]:
        return None, None, None
    factor = row["busbw_gbytes"] / row["algbw_gbytes"]
    rates = sorted(row["size_bytes"] / (ms * 1e6) * factor for ms in run["iteration_ms"])
    return tuple(quantile(rates, part) for part in (0.25, 0.5, 0.75))


MOST_OF_LIMIT, LEAST_OF_PORTS = 1.1, 0.85  # as harness/judge/held_up.cc has them, for results that were written before it


def before_limited_by(rate):
    """What limited the rate before the fault, of `throughput`: 'ports', 'other', or None where the result does not say."""
    ports, before = rate.get("ports_gbps"), rate["before_gbps"]
    if rate.get("held_up"):
        return "other"
    if "held_up" not in rate:
        if rate["retained"] is not None and rate["limit"] > 0 and rate["retained"] > MOST_OF_LIMIT * rate["limit"]:
            return "other"
        if ports and 0 < before < LEAST_OF_PORTS * ports and rate["rounds"]["of"] > 0:
            return "other"
    return "ports" if ports and before and rate["rounds"]["of"] > 0 else None


def rows_of_result(result, name):
    """(rows of runs.csv, rows of faults.csv) of one result.json, without their set."""
    fabric, work, runs, faults = result["fabric"], result["workload"], [], []

    def known(key):
        """A command decides by itself what it does."""
        return None if work["engine"] == "exec" else work[key]

    for run in result["runs"]:
        metrics = run["metrics"]
        recovery, rate, loss = metrics["recovery"], metrics["throughput"], metrics.get("overhead_pct") or {}
        low, median, high = busbw(run)
        runs.append({
            "run": name, "mode": run["mode"], "schema": result["schema_version"], "verdict": result["verdict"], "outcome": run["outcome"],
            "error_ms": run.get("error_ms"), "nodes": fabric["nodes"], "ranks_per_node": fabric["ranks_per_node"], "nics": fabric["nics_per_node"],
            "nic_gbps": fabric["nic_rate_bits_per_s"] / 1e9, "op": known("op"), "bytes": known("bytes"), "iters": known("iters"), "channels": work["channels"],
            "repeats": result["repeats"], "seed": result["seed"], "exact": metrics["correctness"]["exact"], "checked": metrics["correctness"]["checked_elements"],
            "busbw_p25_gbytes": low, "busbw_p50_gbytes": median, "busbw_p75_gbytes": high, "before_gbps": rate["before_gbps"],
            "before_limited_by": before_limited_by(rate), "retained": rate["retained"],
            "limit": rate["limit"], "restored": metrics.get("restored", {}).get("ratio"), "planned": metrics["faults"]["planned"], "sampled": metrics["faults"].get("sampled"),
            "unrecovered": metrics["faults"].get("unrecovered"), "nics_lost": nics_lost(result, run), "detect_p50_ms": recovery["detect_ms"]["p50"],
            "detect_max_ms": recovery["detect_ms"]["max"], "recover_p50_ms": recovery["recover_ms"]["p50"], "recover_max_ms": recovery["recover_ms"]["max"],
            "blackout_max_ms": recovery["blackout_ms"]["max"], "floor_ms": recovery["floor_ms"], "wakeup_p99_ms": recovery["wakeup_p99_ms"],
            "migrations": recovery["migrations"], "against": loss.get("against"), "pairs": loss.get("pairs"), "time_loss_pct": loss.get("mean"),
            "time_loss_upper95_pct": loss.get("upper95"), "busbw_loss_pct": loss.get("busbw_loss_mean"), "busbw_loss_upper95_pct": loss.get("busbw_loss_upper95"),
            "cpu_loss_pct": loss.get("cpu_loss_mean"), "cpu_loss_upper95_pct": loss.get("cpu_loss_upper95")})
        faults += [{"run": name, "seed": result["seed"], **{key: fault.get(key) for key in tables.COLUMNS["faults"] if key in fault}, "mode": run["mode"]}
                   for fault in run["faults"] if fault["witnessed"]]
    return runs, faults


def origin_of_result(result):
    environment = result["environment"]
    return {"evidence": result["evidence"], "fabric": result["fabric"]["kind"], "date": result["started_at"][:10], "commit": environment.get("revision"),
            "cores": environment.get("cores"), "machine": machine(environment.get("cpu"), environment.get("kernel"))}


def machine(cpu, kernel):
    """'Intel(R) Xeon(R) Processor, Linux 6.18': the version of the kernel, not the name of its build."""
    found = re.search(r"(\d+\.\d+)", kernel or "")
    return ", ".join(part for part in (cpu, f"Linux {found.group(1)}" if found else None) if part)


def of_runs(paths):
    """{"runs": rows, "faults": rows}, origin: of all result.json files below the folders. The origin's "differs": what they do not agree on, and
    the command line has to say for all of them."""
    found = []
    for path in paths:
        if os.path.isdir(path):
            found += [os.path.join(folder, name) for folder, _, names in sorted(os.walk(path)) for name in sorted(names) if name == "result.json"]
        else:
            found.append(path)
    if not found:
        raise inputs.BadInput(f"{paths[0]}: there is no result.json in it")
    rows, origins = {"runs": [], "faults": []}, []
    for path in found:
        result = inputs.read_result(path)
        name = os.path.basename(os.path.dirname(os.path.abspath(path))) if os.path.basename(path) == "result.json" else os.path.basename(path)[:-len(".json")]
        runs, faults = rows_of_result(result, name)
        rows["runs"] += runs
        rows["faults"] += faults
        origins.append(origin_of_result(result))
    values = {key: sorted({str(one[key]) for one in origins}) for key in ("evidence", "fabric", "commit", "cores", "machine")}
    for key in ("evidence", "fabric", "commit"):
        if len(values[key]) > 1:
            raise inputs.BadInput(f"{paths[0]}: its results differ in {key} ({', '.join(values[key])}); a set has one of each: collect them into several")
    return rows, {**max(origins, key=lambda one: one["date"]), "differs": {key: values[key] for key in ("cores", "machine") if len(values[key]) > 1}}


PLUGIN_SAID = "the plugin said: NET/R2CCL: "  # before it: which call failed


def of_matrix(paths):
    table = inputs.read_json(paths[0])
    if not isinstance(table, dict) or table.get("schema_version") != 1 or "cells" not in table:
        raise inputs.BadInput(f"{paths[0]}: is no table of r2bench matrix of schema version 1; run r2bench matrix again")
    if "interrupted" in table["provenance"]:
        raise inputs.BadInput(f"{paths[0]}: {table['provenance']['interrupted']}; run r2bench matrix again, to its end")
    rows = []
    for cell in table["cells"]:
        fault, moment, op, end = cell["cell"].split("/")
        rows.append({**cell, "fault": fault, "moment": moment, "op": op, "end": end, "why": cell.get("why", "").rpartition(PLUGIN_SAID)[2]})
    rows += [{**field, "verdict": "empty"} for field in table["empty"]]
    origin = table["provenance"]
    return {"matrix": rows}, {"evidence": origin["evidence"], "fabric": "vhca", "date": origin["started"][:10], "commit": origin.get("revision"), "cores": origin.get("cores"),
                              "machine": machine(origin.get("cpu"), origin.get("kernel")), "command": origin["command"]}


def origin_of_gpus(host, date):
    gpus = host.get("gpus") or []
    named = ", ".join(sorted({f"{gpus.count(gpu)} × {gpu}" for gpu in gpus}))
    return {"evidence": "emulated", "fabric": "vhca", "date": date[:10], "commit": re.sub(r".*commit ", "", host.get("build") or "") or host.get("commit"), "cores": host.get("cpus"),
            "machine": ", ".join(part for part in (named, f"driver {host['driver'][0]}" if host.get("driver") else None, f"PyTorch {host['pytorch']}" if host.get("pytorch") else None,
                                                   machine(None, host.get("kernel"))) if part)}


def gbps(rate):
    """20.0 of '20 Gbit/s'; None: unlimited."""
    found = re.match(r"([\d.]+) (G|M)bit/s", rate or "")
    return float(found.group(1)) / (1 if found.group(2) == "G" else 1000) if found else None


def of_gpu_memory(paths):
    table, rows = inputs.read_json(paths[0]), []
    for case in table["cases"]:
        if case.get("skipped"):
            raise inputs.BadInput(f"{paths[0]}: there was no time for the case '{case['name']}'; give --seconds more")
        ranks = [operations for operations in case["operations"] if operations]
        variant = " ".join(f"{key}={value}" for key, value in sorted(case["env"].items()) if key in ("VHCA_DELAY_VISIBILITY", "R2CC_GPU_FLUSH", "NCCL_PROTO", "VHCA_DMABUF", "NCCL_PXN_DISABLE"))
        for step, ops in enumerate(zip(*ranks)):
            rows.append({"case": case["name"], "as_expected": case["as_expected"], "nodes": case.get("nodes", len(case["exit"])), "gpus_per_node": case.get("gpus", 1), "net": "r2ccl", "mode": case["mode"],
                         "nccl": case["nccl"], "fault": case["fault"], "variant": variant, "nics": 2, "nic_gbps": gbps(table["rate"]), "op": ops[0]["op"], "step": step,
                         "bytes": ops[0]["bytes"], "wrong": sum(op["wrong"] for op in ops), "median_ms": max(op["median_ms"] for op in ops),
                         "max_ms": max(op["max_ms"] for op in ops)})
    return {"nccl": rows}, origin_of_gpus(table["host"], table.get("date", ""))


MOST_STEPS = 10  # that have a row each


def in_few_rows(steps):
    """A case that goes through types, operations and sizes has one row: what was wrong in all of it, and the largest error and size."""
    if not steps:  # it ended before its first one, which must not vanish
        return [{"step": "", "bytes": None, "wrong": [], "median_ms": None, "max_ms": None}]
    if len(steps) <= MOST_STEPS:
        return steps
    judged = [step for step in steps if not step.get("corrupt")]  # the others' wrong elements are meant
    return [{"step": f"{len(judged)} steps", "bytes": max(step["bytes"] for step in judged), "wrong": [sum(map(sum, (step["wrong"] for step in judged)))],
             "median_ms": None, "max_ms": max(step["max_ms"] for step in judged), "relative_error": max(step.get("relative_error") or 0 for step in judged)}]


def of_mode3(paths):
    rows, head = [], None
    for path in paths:
        head, *lines = inputs.read_lines(path)
        for case in lines:
            if "case" not in case:
                continue
            kinds = sorted({found for step in case["plan"] for found in re.findall(r"kind: (\w+)", step)})
            version = next((end["nccl"] for end in case["ends"] if end), None)
            env = ({"R2CC_COLLNET_MARGIN": head["margin"]} if head.get("margin") and case["mode"] == 3 else {}) | case["env"]
            for step in in_few_rows(case["steps"]):
                rows.append({"case": case["case"], "as_expected": case["ok"], "nodes": case["nodes"], "gpus_per_node": 1, "net": "r2ccl", "mode": case["mode"], "nccl": version,
                             "fault": " ".join(kinds), "variant": " ".join(f"{key}={value}" for key, value in sorted(env.items()) if key != "LD_PRELOAD"),
                             "nics": case.get("nics", 4), "nic_gbps": head["mbits"] * 4 / case.get("nics", 4) / 1000, "op": "allreduce", "step": step["step"], "bytes": step["bytes"],
                             "wrong": sum(step["wrong"]), "median_ms": step["median_ms"], "max_ms": step["max_ms"], "bound_ms": step.get("bound_ms"),
                             "relative_error": step.get("relative_error")})
    return {"nccl": rows}, origin_of_gpus(head["host"], head.get("date", ""))


def csv_rows(path, table, source):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or set(tables.COLUMNS[table]) - {"set"} - set(rows[0]):
        raise inputs.BadInput(f"{path}: is no table of {source}, or of another version")
    return rows


def of_programs(paths):
    return {"programs": csv_rows(paths[0], "programs", "harness/programs/record.py")}, {"evidence": "emulated", "fabric": "vhca"}


def of_sim(paths):
    return {"allreduce": csv_rows(paths[0], "allreduce", "harness/sim/sweep.py")}, {"evidence": "simulated", "command": "harness/sim/sweep.py build/release/bin/r2bench"}


def of_allreduce(paths):
    rows = [row for path in paths for row in csv_rows(path, "allreduce_emulated", "harness/bench/allreduce_table.py algorithms")]
    return {"allreduce_emulated": rows}, {"evidence": "emulated", "fabric": "vhca"}


def of_sizes(paths):
    rows = [row for path in paths for row in csv_rows(path, "allreduce_sizes", "harness/bench/allreduce_table.py sizes")]
    return {"allreduce_sizes": rows}, {"evidence": "emulated", "fabric": "vhca"}


def of_turns(paths):
    rows = [row for path in paths for row in csv_rows(path, "allreduce_turns", "harness/bench/allreduce_table.py turns")]
    return {"allreduce_turns": rows}, {"evidence": "emulated", "fabric": "vhca"}


def of_bench(paths):
    rows, origin = [], {}
    for path in paths:
        table = inputs.read_json(path)
        program = os.path.basename(table["context"]["executable"])
        for one in table["benchmarks"]:
            if one.get("aggregate_name") != "median":
                continue
            name, _, size = re.sub(r"(/real_time)?_median$", "", one["name"]).partition("/")
            rows.append({"benchmark": f"{program}: {name}", "bytes": size if size.isdigit() else "", "mode": table["context"].get("R2CC_MODE", "").split(" ")[0],
                         "unit": one["time_unit"], "value": one["cpu_time"]})
        origin = {"evidence": "emulated", "fabric": "vhca", "date": table["context"]["date"][:10], "cores": table["context"]["num_cpus"]}
    return {"costs": rows}, origin


def of_ratios(paths):
    """Of files whose `rows` have the columns of the table `costs`."""
    rows = [row for path in paths for row in inputs.read_json(path)["rows"]]
    if any(set(row) - set(tables.COLUMNS["costs"]) for row in rows):
        raise inputs.BadInput(f"{paths[0]}: its rows are not those of harness/bench/beside_nccl_ib.py")
    return {"costs": rows}, {"evidence": "emulated", "fabric": "vhca"}


def of_head_to_head(paths):
    rows, hosts, dates = {}, [], []
    for line in (line for path in paths for line in inputs.read_lines(path)):
        if "host" in line:
            hosts.append(line["host"])
            dates.append(line["began"][:10])
        else:
            rows[line["id"]] = {**line, **line["result"], "nccl": line["environment"].get("nccl")}
    if not rows:
        raise inputs.BadInput(f"{paths[0]}: has no row of harness/workload/nccl/head_to_head.py")
    last = next(line for line in reversed(inputs.read_lines(paths[-1])) if "id" in line)
    environment = last["environment"]
    beside = [{**row, "side_ms": statistics.median(row["side_ms"]), "other_ms": statistics.median(row["other_ms"]),
               "ratios": " ".join(f"{first / second:.5g}" for first, second in zip(row["side_ms"], row["other_ms"]))}
              for _, row in sorted(rows.items()) if row["table"] == "beside"]
    others = [row for _, row in sorted(rows.items()) if row["table"] != "beside"]
    return {name: of for name, of in (("head_to_head", others), ("beside", beside)) if of}, {
        "evidence": inputs.one_evidence([row["evidence"] for row in rows.values()]), "fabric": "vhca", "date": max(dates, default=None), "commit": environment.get("revision"),
        "cores": environment.get("cores"), "machine": environment.get("gpu", "").split(",")[0], "command": "harness/workload/nccl/head_to_head.py --out FILE"}


def of_renewals(paths):
    """Of result.json files of scenarios with `renew`, beside their scenario.yaml."""
    rows, origins = [], []
    for path in (os.path.join(folder, "result.json") for top in paths for folder, _, names in sorted(os.walk(top)) if "result.json" in names):
        result = inputs.read_result(path)
        with open(os.path.join(os.path.dirname(path), "scenario.yaml"), encoding="utf-8") as file:
            text = file.read()
        said = dict(re.findall(r"(\w+): *([^,}]+)", re.search(r"renew: *{([^}]*)}", text).group(1)))
        cell = {key: result["matrix"].get("workload.renew." + key, said.get(key)) for key in ("by", "iter", "delay")} if result.get("matrix") else said
        delay = cell.get("delay") or "none"
        origins.append(origin_of_result(result) | {"machine": result["environment"].get("gpu", "").split(",")[0]})
        for run in result["runs"]:
            renewals = [rank["renewal"] for rank in run["ranks"] if rank.get("renewal")]
            whole = renewals if len(renewals) == len(run["ranks"]) else []
            correctness = run["metrics"]["correctness"]
            rows.append({
                "scenario": result["scenario"], "nccl": result["environment"].get("nccl"), "workaround": int("NCCL_NET_PLUGIN_REF_COUNT" in text), "by": cell["by"],
                "iter": cell.get("iter"), "delay_ms": None if delay == "none" else delay.removesuffix(" ms"),
                "fault": " ".join(sorted({fault["kind"] for fault in run["faults"]})), "mode": run["mode"], "outcome": run["outcome"], "wrong": correctness["wrong_elements"], "checked": correctness["checked_elements"],
                "migrations": run["metrics"]["recovery"]["migrations"], "ranks": len(run["ranks"]), "open": sum(one["operation_open"] for one in whole) if whole else None,
                "ranks_after": max(one["ranks"] for one in whole) if whole else None, "renew_ms": max(one["renew_ms"] for one in whole) if whole else None,
                "stall_ms": run.get("stall_ms"), "in_migration": (run["metrics"].get("values") or {}).get("renewed_in_migration")})
    if not rows:
        raise inputs.BadInput(f"{paths[0]}: there is no result.json in it")
    return {"renewals": rows}, origins[0]


def of_walks(paths):
    lines = [line for path in paths for line in inputs.read_lines(path)]
    rows = [{**line, "mode": line.get("mode", "migrate"), "small": bool(line.get("small")), "counting": line.get("counting", "any")} for line in lines]
    return {"walks": rows}, {"evidence": "rxe" if lines[0]["fabric"] == "rxe" else "emulated", "fabric": lines[0]["fabric"], "date": max(line["date"] for line in lines),
                             "commit": " ".join(dict.fromkeys(line["commit"] for line in lines)), "cores": max(line.get("cores", 0) for line in lines) or None}


def of_gate(paths):
    return {"gate": inputs.read_lines(paths[0])}, {"evidence": "emulated", "fabric": "vhca"}


def of_nightly(paths):
    """The last end of a step counts: a step that was repaired was run again. A line with a machine speaks for those after it, as one with a commit does."""
    last, place, commit = {}, None, None
    for line in inputs.read_lines(paths[0]):
        place, commit = line.get("machine", place), line.get("commit", commit)
        if "status" in line:
            last[line["step"], line["size"]] = {**line, "machine": place, "commit": commit}
    rows = list(last.values())
    origin = {"evidence": "emulated", "fabric": "vhca", "date": max(row["ended"] for row in rows)[:10], "commit": " ".join(dict.fromkeys(row["commit"] for row in rows if row["commit"]))}
    return {"nightly": rows}, origin


def of_cluster(paths):
    """The last line of a case counts: a test that was repaired was run again."""
    lines = [line for path in paths for line in inputs.read_lines(path)]
    cases = {(line["test"], line["hosts"], line["launcher"], line["scenario"]): line for line in lines}
    rows = list(cases.values())
    if len({row["evidence"] for row in rows}) > 1:
        raise inputs.BadInput(f"{paths[0]}: has cases of namespaces and of soft RoCE; a set has one evidence: collect them into several")
    return {"cluster": rows}, {"evidence": inputs.one_evidence([row["evidence"] for row in rows]), "date": max(row["date"] for row in rows), "cores": max(row["cores"] for row in rows),
                               "commit": " ".join(dict.fromkeys(row["commit"] for row in rows if row["commit"])), "machine": rows[-1]["machine"]}


def of_conformance(paths):
    table = inputs.read_json(paths[0])
    origin = table["provenance"]
    return {"conformance": table["deviations"]}, {"evidence": "emulated, rxe", "fabric": "vhca, rxe", "date": origin["date"][:10], "commit": origin["commit"], "command": origin["command"]}


def of_ll128(paths):
    """The lines' file has GPU and ways; the results have a run for each transport, summed over files with as many GPUs."""
    rows, jobs, origin = [], {}, {}
    for path in paths:
        if path.endswith(".jsonl"):
            lines = inputs.read_lines(path)
            rows += [{"source": line["way"], "unit": "lines", "memory": "host", "gpus": 1, "runs": line["rounds"], "checked": line["lines"], "wrong": line["torn"],
                      "first_half_old": line["first_half_old"]} for line in lines if "way" in line]
            continue
        result = inputs.read_json(path)
        origin = origin_of_result(result)
        for run in result["runs"]:
            found = run["metrics"]["correctness"]
            memory = "gpu" if run["mode"] != "ib" and run["settings"].get("R2CC_GPU_DIRECT") == "1" else "host"  # NCCL's IB does not read the setting
            row = jobs.setdefault((run["mode"], memory, int(result["environment"]["gpu"].split()[0])), [0, 0, 0])
            for k, more in enumerate((1, found["checked_elements"], found["wrong_elements"])):
                row[k] += more
    rows += [{"source": label, "unit": "elements", "memory": memory, "gpus": gpus, "runs": row[0], "checked": row[1], "wrong": row[2], "first_half_old": None}
             for (label, memory, gpus), row in sorted(jobs.items())]
    return {"ll128": rows}, origin


READERS = {"run": of_runs, "matrix": of_matrix, "mode3": of_mode3, "gpu_memory": of_gpu_memory, "sim": of_sim, "allreduce": of_allreduce, "sizes": of_sizes, "turns": of_turns, "programs": of_programs, "bench": of_bench, "ratios": of_ratios, "walks": of_walks, "gate": of_gate,
           "nightly": of_nightly, "head_to_head": of_head_to_head, "renewals": of_renewals, "conformance": of_conformance, "cluster": of_cluster,
           "ll128": of_ll128}


def collect(results, name, found, origin, said):
    """Writes the tables that `found` has rows for, and the line of provenance.csv."""
    for table, rows in found.items():
        if rows:
            tables.replace(results, table, name, rows)
    line = {**origin, **{key: value for key, value in said.items() if value is not None}, "tables": " ".join(table for table, rows in found.items() if rows)}
    missing = [key for key in ("evidence", "date", "commit", "command") if not line.get(key)]
    if missing:
        raise inputs.BadInput(f"the files of '{name}' do not say their {missing[0]}; give --{missing[0]}")
    tables.replace(results, "provenance", name, [line])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(READERS), help="kind of the files")
    parser.add_argument("set", help="name of the measurement in the tables")
    parser.add_argument("path", nargs="+", help="files or folders")
    parser.add_argument("--results", default="results", help="folder of the results (default: results)")
    for option in ("evidence", "fabric", "date", "commit", "cores", "machine", "command", "note"):
        parser.add_argument("--" + option, help=f"{option} of the measurement (default: from the files)")
    arguments = parser.parse_args()
    try:
        found, origin = READERS[arguments.kind](arguments.path)
        said = {key: getattr(arguments, key) for key in ("evidence", "fabric", "date", "commit", "cores", "machine", "command", "note")}
        for key, values in origin.pop("differs", {}).items():
            if not said[key]:
                raise inputs.BadInput(f"{arguments.path[0]}: its results differ in {key} ({', '.join(values)}); collect them into several sets, or say "
                                      f"with --{key} what holds for all")
        missing = [key for key in ("evidence", "date", "commit", "command") if not (said[key] or origin.get(key))]
        if missing:
            raise inputs.BadInput(f"{arguments.path[0]}: does not say the {missing[0]} of the measurement; give --{missing[0]}")
        collect(arguments.results, arguments.set, found, origin, said)
    except inputs.BadInput as error:
        print(f"collect.py: {error}", file=sys.stderr)
        return inputs.BAD_INPUT
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        print(f"collect.py: {arguments.path[0]}: has unexpected content: {error!r}", file=sys.stderr)
        return inputs.BAD_INPUT
    print(f"{arguments.set}: " + ", ".join(f"{len(rows)} rows of {table}.csv" for table, rows in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
