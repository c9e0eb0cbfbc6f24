#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures AllReduce with one degraded node on virtual NICs.

    harness/bench/allreduce_table.py algorithms --nodes 3,4,6,8 --mbits 400 --out build/allreduce
    harness/bench/allreduce_table.py sizes --nodes 4 --mbits 400 --out build/allreduce
    harness/bench/allreduce_table.py turns --nodes 4 --mbits 400 --largest 8 --out build/allreduce

`algorithms` compares the algorithms with the lower bound, and with the simulated time of the algorithm that the job's log names, as a stream
of as many pieces as NCCL makes of the operation, each with the segments that the log names, and with the latency that the planner assumes. `sizes` compares mode 3 with ring and Balance at each message size. Its `ratios` are those of mode 3's times in each round to the one of the two that is better at that size. `turns` does
the same within each job, where operations of two modes take turns (`beside` in a scenario): jobs differ from each other by much more than
the modes do. Its `ratios` are each job's median times of the one over the other, and `ratios_before` the same before the loss. A job of it
has a multiple of 32 operations, 96 at least, which is long for large ones.

A node has four NICs of --mbits each, and loses the fraction x of them after a third of each job: one for x = 1/4, two for x = 1/2. For
x = 1/8 it has eight NICs of half the rate, and loses one; with --eighth throttle it has four, and one of them falls to half its rate. T is the median duration of an operation once the job has settled after the loss,
and T0 the median before the loss, in the same job. `--mbits auto` takes the highest rate at which healthy rings (NCCL's and the engine's)
reach 0.97 of what the ports carry, with the number of NICs that belongs to x. Mode 3 runs with its default settings unless --margin is
given. Settled are operations of the last two thirds after the loss that begin at least half a second after it: until then channels
migrate, lanes are opened and a plan is agreed on. Each row has the share of the CPUs that was idle during its job (of the CPUs on which this program may run, see taskset): below about
0.3 the table measures the CPUs rather than the schedules. Jobs are interleaved: each round runs all jobs of a table once. Writes
algorithms.csv, sizes.csv or turns.csv, and one line per job to jobs.jsonl. Exit status: 0 every job ended without an error and with every element
right, 1 one did not, or there was no time for it."""

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "base"))
import comma_list  # noqa: E402
import turns  # noqa: E402

NICS = 4
LOST = {"0": 0.0, "1/8": 0.125, "1/4": 0.25, "1/2": 0.5}
ENGINE = ["ring", "unequal_ring", "r2ccl_allreduce", "four_stage", "mix"]  # forced; the simulator's names
SETTLE_MS = 500  # after a loss
SMALL_JOB_MS = 2000  # operations below 16 MiB, unless told otherwise
LATENCY = "80 us"  # what the planner assumes of a step (r2ccl/collective/host/advise.cc)
RATES = [2000, 1600, 1200, 800, 600, 400, 300, 200, 150, 100]
TEXT = """version: 1
name: allreduce-table
seed: 7
fabric: {{kind: vhca, nodes: {nodes}, ranks_per_node: 1, nics_per_node: {nics}, nic_rate: {mbits} Mbit/s}}
workload: {{engine: cpu, op: allreduce, dtype: float32, bytes: {bytes} B, iters: {iters}, warmup: 2, verify: true, collnet: {collnet}}}
env: {{NCCL_DEBUG: INFO}}
modes: [{{mode: {mode}, label: job{env}{beside}}}]
timeouts: {{setup: 120 s, stall: 60 s, job: 600 s}}
"""


def nics_of(arguments, lost, mbits):
    """(NICs of a node, Mbit/s of each)."""
    return (2 * NICS, mbits / 2) if lost == "1/8" and arguments.eighth == "nics" else (NICS, mbits)


def fault(arguments, lost, mbits, at):
    """The lines of the scenario."""
    target = {"0": None, "1/8": "nic0", "1/4": "nic0", "1/2": "nic[0-1]"}[lost]
    kind = f"throttle, rate: {mbits / 2} Mbit/s" if lost == "1/8" and arguments.eighth == "throttle" else "port_down"
    return f"faults:\n  - {{at: {{iter: {at}}}, target: \"node1/{target}\", kind: {kind}}}\n" if target else ""


def operations_of(arguments, size, ring_ms):
    """Operations of a job: many small ones, few large ones. `ring_ms`: what the ports take for one."""
    if size < 16 << 20:
        iters = arguments.small_iters or max(60, int(SMALL_JOB_MS / (0.12 + 1.5 * ring_ms)))
    else:
        iters = arguments.large_iters if size >= 512 << 20 else arguments.iters
    return turns.whole_rounds(max(iters, 6 * turns.TURN)) if arguments.table == "turns" else iters


def rounds_of(arguments, size):
    """Small operations differ more from job to job, and their jobs are short."""
    return arguments.small_rounds if arguments.small_rounds and size < 16 << 20 else arguments.rounds


def settled_from(begins_ms, at):
    """The first operation of a job that counts as settled after a loss at operation `at`."""
    return max(at + (len(begins_ms) - at) // 3, next((i for i in range(at, len(begins_ms)) if begins_ms[i] >= begins_ms[at] + SETTLE_MS), len(begins_ms)))


def variants(kind):
    """(label, mode, collnet, R2CC_ALGORITHM, the mode beside it) of each job of a table."""
    usual = [("balance", "balance", "off", "", ""), ("mode3", "allreduce", "auto", "", "")]
    if kind == "sizes":
        return [("ring", "migrate", "off", "", "")] + usual
    if kind == "turns":  # the last is the method's control
        return [("mode3_beside_ring", "allreduce", "auto", "", "migrate"), ("mode3_beside_balance", "allreduce", "auto", "", "balance"),
                ("balance_beside_ring", "balance", "off", "", "migrate"), ("ring_beside_ring", "migrate", "off", "", "migrate")]
    return usual + [("planner", "allreduce", "force", "", "")] + [(name, "allreduce", "force", name, "") for name in ENGINE]


def cpu_times():
    """(idle, all) ticks of the CPUs on which this process, and so its jobs, may run."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    with open("/proc/stat", encoding="ascii") as file:
        lines = [[int(word) for word in line.split()[1:9]] for line in file if line.split(" ", 1)[0] in mine]
    return sum(numbers[3] + numbers[4] for numbers in lines), sum(sum(numbers) for numbers in lines)


def plans_in(path):
    """What the plugin said of schedules and of its choice between NCCL's ring and the engine; each sentence once, the last 12."""
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            said = [re.sub(r"^.*?NET/R2CCL: ", "", line.strip()) for line in log if "AllReduce" in line]
    except OSError:
        return []
    return list(dict.fromkeys(said))[-12:]


def run_job(arguments, nodes, lost, mbits, size, variant, iters, healthy=False):
    """One job; a dictionary of what it took. `healthy`: with the NICs of nodes that lose `lost`, and nothing lost."""
    label, mode, collnet, algorithm, beside = variant
    at = iters // 3 // (2 * turns.TURN) * 2 * turns.TURN if beside else iters // 3
    settings = ([f"R2CC_COLLNET_MARGIN: {arguments.margin}"] if arguments.margin else []) + ([f"R2CC_ALGORITHM: {algorithm}"] if algorithm else [])
    env = f", env: {{{', '.join(settings)}}}" if settings else ""
    nics, nic_mbits = nics_of(arguments, lost, mbits)
    text = TEXT.format(nodes=nodes, nics=nics, mbits=nic_mbits, bytes=size, iters=iters, collnet=collnet, mode=mode, env=env, beside=f", beside: {beside}" if beside else "")
    lost = "0" if healthy else lost
    text += fault(arguments, lost, mbits, at)
    row = {"nodes": nodes, "lost": lost, "mbits": mbits, "bytes": size, "algorithm": label, "iters": iters, "margin": arguments.margin or ""}
    with tempfile.TemporaryDirectory(prefix="r2bench-table-") as folder:
        file = os.path.join(folder, "job.yaml")
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)
        idle, total = cpu_times()
        done = subprocess.run([arguments.r2bench, "run", file, "--quiet", "--no-plot", "--out", os.path.join(folder, "out")], capture_output=True, text=True,
                              timeout=900, check=False)
        idle_after, total_after = cpu_times()
        row["cpu_idle"] = round((idle_after - idle) / max(1, total_after - total), 3)
        try:
            with open(os.path.join(folder, "out", "result.json"), encoding="utf-8") as result:
                mode_result = json.load(result)["runs"][0]
            row["plans"] = plans_in(os.path.join(folder, "out", mode_result["ranks"][0]["log"])) if mode_result.get("ranks") else []
        except (OSError, ValueError):
            return row | {"ok": False, "why": done.stdout[-500:] + done.stderr[-500:]}
    times = mode_result["iteration_ms"]
    correct = mode_result["metrics"]["correctness"]["exact"]
    row |= {"ok": mode_result["outcome"] == "ok" and correct and len(times) == iters, "why": mode_result["error"] or ("" if correct else "wrong elements"),
            "times_ms": [round(t, 3) for t in times]}
    witnessed = mode_result["metrics"]["faults"]["witnessed"]
    if lost != "0" and witnessed < 1:
        row |= {"ok": False, "why": "the fault did not take effect"}
    if not row["ok"]:
        return row
    first = 0 if lost == "0" else settled_from(mode_result["iteration_begin_ms"], at)
    if len(times) - first < (turns.TURN if beside else 1):
        return row | {"ok": False, "why": f"the job ended within {SETTLE_MS} ms of the loss: give it more operations (--iters, --small-iters or --large-iters)"}
    if beside:
        return row | of_sides(times, first, at)
    row["t_ms"] = statistics.median(times[first:])
    row["t0_ms"] = statistics.median(times[1:at])
    return row


def of_sides(times, first, at):
    """What a job of two sides shows from its operation `first` on, and before the loss at operation `at`."""
    (mine, other), (mine_before, other_before) = turns.by_side(times, first), turns.by_side(times, 0, at)
    t, t0 = statistics.median(mine), statistics.median(mine_before)
    return {"t_ms": t, "t0_ms": t0, "ratio": t / statistics.median(other), "ratio_before": t0 / statistics.median(other_before)}


def bounds(nodes, lost, mbits, size):
    """(lower bound, healthy ring, degraded ring) in ms at the ports' rate."""
    unit = size / (mbits * 1e6 / 8 * NICS) * 1e3
    ring = 2 * (nodes - 1) / nodes
    least = 1 - LOST[lost]
    return max(1 / least, 2 * (nodes - 1) / (nodes - LOST[lost])) * unit, ring * unit, ring / least * unit


def simulated(arguments, nodes, lost, mbits, size, schedule):
    """Milliseconds of a schedule: (algorithm, K of each piece, pieces), as taken() has it; None without one."""
    if not schedule:
        return None
    capacities = [str(1 - LOST[lost])] + ["1"] * (nodes - 1)
    name, segments, pieces = schedule
    stream = ["--pieces", str(pieces), "--rails", str(nics_of(arguments, lost, mbits)[0])] if pieces > 1 else []
    done = subprocess.run([arguments.r2bench, "sim", "allreduce", "--capacities", *capacities, "--bytes", f"{size}B", "--rate", f"{mbits * NICS} Mbit/s",
                           "--latency", LATENCY, "--segments", str(segments), "--exactly", *stream, "--json"], capture_output=True, text=True, timeout=300, check=True)
    return next((entry["simulated_s"] * 1e3 for entry in json.loads(done.stdout)["algorithms"] if entry["name"] == name), None)


def taken_by(job, size):
    """(algorithm, K, pieces of the operation) by the last plan that the job's log names; None where it left operations of this size to NCCL's ring."""
    plans = job.get("plans", [])
    named = [match for line in plans if (match := re.match(r"AllReduce of ([0-9]+) KiB among .*, plan ([0-9]+): (\w+) of ([0-9]+) segments( \(R2CC_ALGORITHM\))?", line))]
    if job["algorithm"] in ENGINE:
        named = [match for match in named if match[5]]  # else the planner has chosen another
    if not named:
        return None
    plan = max(int(match[2]) for match in named)
    left = [int(match[1]) for line in plans if (match := re.match(r"mode 3: .*plan ([0-9]+): (?:.* stays with )?NCCL's own choice", line))]
    if job["algorithm"] == "mode3" and (plan == 0 or max(left, default=0) >= plan):
        return None
    kib, name, segments = max((int(match[1]), match[3], int(match[4])) for match in named if int(match[2]) == plan)  # the last piece may be smaller
    return name, segments, -(-size // (max(1, kib) << 10))


def taken(jobs, size):
    """As taken_by(); None where jobs differ."""
    found = {taken_by(job, size) for job in jobs}
    return found.pop() if len(found) == 1 else None


def rate_for(arguments, nodes, lost):
    """The highest rate of RATES at which healthy rings, NCCL's and the engine's, keep 0.97 of their ports: above it CPUs are measured. On nodes with as many
    NICs as those that lose `lost`: more of them cost more."""
    size = arguments.mib << 20
    for mbits in [rate for rate in RATES if not arguments.from_mbits or rate <= arguments.from_mbits]:
        ring, kept = bounds(nodes, "0", mbits, size)[1], []
        for variant in (("balance", "balance", "off", "", ""), ("engine", "allreduce", "force", "ring", "")):
            row = run_job(arguments, nodes, lost, mbits, size, variant, 8, healthy=True)
            kept.append(ring / row["t_ms"] if row["ok"] else 0)
            print(f"{nodes} nodes of {nics_of(arguments, lost, mbits)[0]} NICs at {mbits} Mbit/s, {variant[0]}: " + (f"healthy ring {kept[-1]:.3f} of its ports, CPUs idle {row['cpu_idle']:.2f}" if row["ok"] else row["why"]),
                  flush=True)
            if kept[-1] < 0.97:
                break
        if len(kept) == 2 and min(kept) >= 0.97:
            return mbits
    return RATES[-1]


def read_arguments():
    """With the lists that follow from them: `lost`, `sizes` in bytes, and the `chosen` variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["algorithms", "sizes", "turns"], help="the table to measure")
    parser.add_argument("--r2bench", default=os.path.join(HERE, "..", "..", "build", "release", "bin", "r2bench"))
    parser.add_argument("--nodes", type=comma_list.numbers, default=[4], help="numbers of nodes, separated by commas")
    parser.add_argument("--lost", type=comma_list.words, help="lost fractions x, separated by commas: " + ", ".join(LOST) + " (default: all for sizes, all but 0 for algorithms)")
    parser.add_argument("--mbits", default="auto", help="rate of each NIC in Mbit/s, or auto (the default)")
    parser.add_argument("--eighth", choices=["nics", "throttle"], default="nics", help="how x = 1/8 is lost")
    parser.add_argument("--only", type=comma_list.words, default=[], help="algorithms of the table, separated by commas (default: all)")
    parser.add_argument("--iters", type=int, default=24, help="operations per job, if an operation has 16 MiB or more")
    parser.add_argument("--small-iters", type=int, help="operations per job, if an operation is smaller than 16 MiB (default: of about two seconds)")
    parser.add_argument("--large-iters", type=int, default=9, help="operations per job, if an operation has 512 MiB or more")
    parser.add_argument("--margin", type=int, help="R2CC_COLLNET_MARGIN of mode 3 (default: the plugin's)")
    parser.add_argument("--from-mbits", type=int, help="with --mbits auto: the highest rate to try, in Mbit/s")
    parser.add_argument("--mib", type=int, default=64, help="algorithms: size of an operation in MiB")
    parser.add_argument("--largest", type=int, default=256, help="sizes, turns: largest size in MiB, at most 1024")
    parser.add_argument("--smallest", type=int, default=0, help="sizes, turns: smallest size in MiB")
    parser.add_argument("--bytes", type=comma_list.numbers, help="sizes, turns: these sizes in bytes, separated by commas, instead of --smallest to --largest")
    parser.add_argument("--rounds", type=int, default=3, help="how often each job runs")
    parser.add_argument("--small-rounds", type=int, default=0, help="how often each job with operations below 16 MiB runs (default: as --rounds)")
    parser.add_argument("--minutes", type=float, default=60, help="start no further round or point of the table after this time")
    parser.add_argument("--out", default=".", help="folder of the table")
    arguments = parser.parse_args()
    arguments.lost = arguments.lost or [x for x in LOST if arguments.table != "algorithms" or x != "0"]
    if set(arguments.lost) - set(LOST):
        parser.error(f"--lost takes {', '.join(LOST)}, not {', '.join(sorted(set(arguments.lost) - set(LOST)))}")
    if min(arguments.nodes) < 2:
        parser.error("--nodes takes numbers from 2 on")
    if arguments.bytes and arguments.table == "algorithms":
        parser.error("--bytes is for sizes and turns; algorithms takes --mib")
    arguments.sizes = sizes_of(arguments)
    if not arguments.sizes or min(arguments.sizes) < 1:
        parser.error("no size to measure: " + ("--mib and --bytes take at least 1" if arguments.table == "algorithms" or arguments.bytes else
                                               "--largest takes MiB from --smallest on, at least 1; smaller operations alone are given with --bytes"))
    known = [variant[0] for variant in variants(arguments.table)]
    if set(arguments.only) - set(known):
        parser.error(f"--only takes {', '.join(known)}, not {', '.join(sorted(set(arguments.only) - set(known)))}")
    arguments.chosen = [variant for variant in variants(arguments.table) if not arguments.only or variant[0] in arguments.only]
    return arguments


def sizes_of(arguments):
    """Bytes of each operation of the table."""
    if arguments.table == "algorithms":
        return [arguments.mib << 20]
    if arguments.bytes:
        return arguments.bytes
    sizes = [8 << (3 * k) for k in range(10) if 8 << (3 * k) <= arguments.largest << 20]
    if sizes and sizes[-1] < arguments.largest << 20:
        sizes.append(arguments.largest << 20)
    return [size for size in sizes if size >= arguments.smallest << 20]


def rates(arguments, until):
    """(nodes, x, Mbit/s) of each part of the table; Mbit/s is None where it was to be found after `until`."""
    for nodes in arguments.nodes:
        known = {}  # by the number of NICs
        for x in arguments.lost:
            nics = nics_of(arguments, x, 0)[0]
            if nics not in known and time.monotonic() < until:
                known[nics] = rate_for(arguments, nodes, x) if arguments.mbits == "auto" else int(arguments.mbits)
            yield nodes, x, known.get(nics)


def run_point(arguments, nodes, x, mbits, size, until, log):
    """(whether every job ended well, the rows of those that did by algorithm). No round begins after `until`."""
    good, jobs = True, {}
    for number in range(rounds_of(arguments, size)):
        if time.monotonic() > until:
            break
        for variant in arguments.chosen:
            row = run_job(arguments, nodes, x, mbits, size, variant, operations_of(arguments, size, bounds(nodes, "0", mbits, size)[1])) | {"table": arguments.table, "round": number}
            good = good and row["ok"]
            print(json.dumps(row), file=log, flush=True)
            if not row["ok"]:
                print(f"{nodes} nodes, x = {x}, {size} B, {variant[0]}: {row['why']}", flush=True)
            else:
                jobs.setdefault(variant[0], []).append(row)
    return good, jobs


def main():
    arguments = read_arguments()
    os.makedirs(arguments.out, exist_ok=True)
    until, rows, left_out, all_good = time.monotonic() + 60 * arguments.minutes, [], [], True
    with open(os.path.join(arguments.out, "jobs.jsonl"), "a", encoding="utf-8") as log:
        for nodes, x, mbits in rates(arguments, until):
            if mbits is None:
                left_out.append(f"{nodes} nodes, x = {x}")
                continue
            for size in arguments.sizes:
                good, jobs = run_point(arguments, nodes, x, mbits, size, until, log)
                all_good = all_good and good
                left_out += [] if jobs else [f"{nodes} nodes, x = {x}, {size} B"]
                rows += table_rows(arguments, nodes, x, mbits, size, jobs)
                write(os.path.join(arguments.out, arguments.table + ".csv"), rows)
    if left_out:
        print("not run for lack of time, or failed: " + "; ".join(left_out), flush=True)
    return 0 if all_good and not left_out else 1


def write(path, rows):
    """The table so far."""
    if rows:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def ratios(mine, theirs):
    """Times of jobs over those of other jobs of the same round."""
    of_round = {row["round"]: row["t_ms"] for row in theirs}
    return " ".join(f"{row['t_ms'] / of_round[row['round']]:.4g}" for row in mine if row["round"] in of_round)


def table_rows(arguments, nodes, x, mbits, size, jobs):
    """The rows of one point; printed, too."""
    if not jobs:
        return []
    if arguments.table == "turns":
        return rows_of_turns(arguments, nodes, x, mbits, size, jobs)
    bound, ring, degraded = bounds(nodes, x, mbits, size)
    best, better = min(((statistics.median(r["t_ms"] for r in jobs[name]), name) for name in ("ring", "balance") if name in jobs), default=(None, None))
    rows = []
    for label, done in jobs.items():
        t, t0 = (statistics.median(r[key] for r in done) for key in ("t_ms", "t0_ms"))
        expected = simulated(arguments, nodes, x, mbits, size, taken(done, size)) if arguments.table == "algorithms" and x != "0" else None
        row = {"nodes": nodes, "lost": x, "bytes": size, "mbits": mbits, "margin": arguments.margin or "", "algorithm": label, "jobs": len(done), "t_ms": round(t, 3), "t0_ms": round(t0, 3),
               "t_to_t0": round(t / t0, 4), "bound_ms": round(bound, 6), "t_to_bound": round(t / bound, 4), "healthy_ring_ms": round(ring, 3),
               "degraded_ring_ms": round(degraded, 3), "simulated_ms": round(expected, 3) if expected else "",
               "t_to_simulated": round(t / expected, 4) if expected else "", "to_better_of_ring_and_balance": round(t / best, 4) if best else "",
               "ratios": ratios(done, jobs[better]) if best and label == "mode3" else "", "cpu_idle": min(r["cpu_idle"] for r in done)}
        rows.append(row)
        print(f"{nodes} nodes, x = {x}, {size} B, {label:16} {t:9.2f} ms = {row['t_to_t0']:.3f} T0 = {row['t_to_bound']:.3f} bound"
              + (f", simulated {expected:.2f}" if expected else "") + f", CPUs idle {row['cpu_idle']:.2f}", flush=True)
    return rows


def rows_of_turns(arguments, nodes, x, mbits, size, jobs):
    rows = []
    for label, done in jobs.items():
        t, t0, ratio = (statistics.median(r[key] for r in done) for key in ("t_ms", "t0_ms", "ratio"))
        rows.append({"nodes": nodes, "lost": x, "bytes": size, "mbits": mbits, "margin": arguments.margin or "", "algorithm": label, "jobs": len(done), "t_ms": round(t, 4),
                     "t0_ms": round(t0, 4), "ratios": " ".join(f"{r['ratio']:.4f}" for r in done), "ratios_before": " ".join(f"{r['ratio_before']:.4f}" for r in done),
                     "cpu_idle": min(r["cpu_idle"] for r in done)})
        print(f"{nodes} nodes, x = {x}, {size} B, {label:20} {t:9.3f} ms, {ratio:.4f} times the other side's", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
