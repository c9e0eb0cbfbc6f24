#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests mode 3 inside unmodified NCCL on one GPU.

    harness/workload/nccl/allreduce_matrix.py --minutes 8 --out allreduce.jsonl

Several 'nodes' (NCCL_HOSTID) share the GPU through CUDA's MPS, each with its own virtual NICs, some of which are lost or slow. Each case adds
a JSON line to --out when it ends; cases that fail keep their logs. A case is right if every element of every operation was right, all ranks
have the same bits, the faults took effect, NCCL used the expected algorithm (where its log names it), and every process ended by itself. The
lines have the times together with the lower bound and the healthy ring's time at the ports' rate. Comparisons of cases follow at the end, as
separate lines. Exit status: 0 all cases were right, 1 a case was not, 2 there was no time for some cases."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import gpu_jobs  # noqa: E402  pylint: disable=wrong-import-position
import gpu_topology  # noqa: E402  pylint: disable=wrong-import-position
import comma_list  # noqa: E402  pylint: disable=wrong-import-position  harness/base, which gpu_jobs adds

MIB = 1 << 20
CHAIN = {"NCCL_ALGO": "allreduce:collnetchain"}  # instead of the tuner's choice
DIRECT = {"NCCL_ALGO": "allreduce:collnetdirect"}
NICS = 4
DOWN = "port_down"
NUMBERS = {"0": "TREE", "1": "RING", "2": "COLLNET_DIRECT", "3": "COLLNET_CHAIN"}  # in the log of NCCL 2.23


def step(label, count, iters=3, dtype="float32", op="sum", **more):
    return {"label": label, "count": count, "dtype": dtype, "op": op, "iters": iters} | more


def sizes(bytes_list, **more):
    return [step(f"float32 sum {b} B", b // 4, 2, **more) for b in bytes_list]


def variants():
    """What an application may ask for: types, operations, sizes, odd counts, groups, communicators, in place."""
    steps = [step(f"{kind} sum", 1_000_003, 2, kind) for kind in ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float64", "float8e4m3",
                                                               "float8e5m2")]
    steps += [step(f"{kind} {op}", 300_001, 2, kind, op) for op in ("prod", "min", "max") for kind in ("float32", "bfloat16", "int8")]
    steps += [step(f"{kind} {op}", 2_000_001, 2, kind, op) for op in ("avg", "premulsum") for kind in ("float32", "float16", "float64")]
    steps += [step("int32 avg", 500_001, 2, "int32", "avg")]
    steps += sizes([4, 12, 4096, 65540, 1 * MIB + 4, 15 * MIB])
    steps += [step("in place", 3 * MIB + 1, 3, how="in_place"), step("four in a group", MIB // 2 + 3, 3, together=4),
              step("two communicators in turn", MIB + 1, 3, comms=["second"]), step("two communicators in a group", MIB + 1, 3, together=2, comms=["main", "second"]),
              step("corrupted on purpose", MIB + 1, 2, corrupt=True)]
    return steps


def before_and_after(mib, before=6, after=9, **more):
    """The fault strikes in the middle: `before` operations, then those that meet it, then those that have it behind them."""
    return [step("before", mib * MIB // 4, before, **more), step("struck", mib * MIB // 4, 6, **more), step("after", mib * MIB // 4, after, **more)]


def lost(node=0, nic=0, at=8, kind=DOWN, extra=""):
    return f"- {{at: {{iter: {at}}}, phase: {{up_to: 40 ms}}, target: node{node}/nic{nic}, kind: {kind}{extra}}}"


def cases(arguments):
    """`collnet`: of the operations that NCCL's log tells of: all, none, some (both), direct (all, as CollNetDirect), or None where it does not matter. `left`: what each
    degraded node has left of its capacity, in the step `after`. More `nics` share the same rate of a node."""
    mib = arguments.mib
    found = []

    def add(name, **case):
        base = {"name": name, "nodes": 4, "nics": NICS, "mode": 3, "plan": [], "steps": before_and_after(mib), "left": {}, "collnet": None, "env": {}, "nccl": arguments.nccl}
        found.append(base | case)

    healthy = [step("healthy", mib * MIB // 4, 12), step("healthy 1 MiB", MIB // 4, 12), step("healthy 64 KiB", 16384, 12)]
    add("healthy_migrate", mode=1, steps=healthy)
    add("healthy_mode3", steps=healthy, collnet="none")
    add("lost_mode3", plan=[lost()], left={0: 0.75}, collnet="some")
    add("lost_balance", mode=2, plan=[lost()], left={0: 0.75})
    add("lost_migrate", mode=1, plan=[lost()], left={0: 0.75})
    add("variants_chain", steps=variants(), env=CHAIN, collnet="all")
    # Without a margin the tuner takes CollNet for more of these sizes.
    add("variants_degraded", steps=variants() + sizes([64 * MIB]), plan=[lost(at=0), lost(nic=1, at=0)], left={0: 0.5}, collnet="some",
        env={"R2CC_COLLNET_MARGIN": "100"})
    add("variants_degraded_chain", steps=variants(), plan=[lost(at=0)], left={0: 0.75}, env=CHAIN, collnet="all")
    add("graph_chain", env=CHAIN, plan=[lost(at=8)], left={0: 0.75}, collnet="all",
        steps=[step("before", mib * MIB // 4, 6, how="capture", graph="g"), step("struck", mib * MIB // 4, 6, how="replay", graph="g"),
               step("after", mib * MIB // 4, 8, how="replay", graph="g")])
    add("graph_ring", plan=[lost(at=8)], left={0: 0.75}, collnet="some",
        steps=[step("before", mib * MIB // 4, 6, how="capture", graph="g"), step("struck", mib * MIB // 4, 6, how="replay", graph="g"),
               step("after", mib * MIB // 4, 8, how="replay", graph="g"), step("after, eagerly", mib * MIB // 4, 8)])
    half = [lost(), lost(nic=1)]
    add("half_mode3", plan=half, left={0: 0.5}, collnet="some")
    add("half_balance", mode=2, plan=half, left={0: 0.5})
    add("half_migrate", mode=1, plan=half, left={0: 0.5})
    add("eighth_mode3", nics=8, plan=[lost()], left={0: 0.875})
    add("eighth_balance", nics=8, mode=2, plan=[lost()], left={0: 0.875})
    add("eighth_migrate", nics=8, mode=1, plan=[lost()], left={0: 0.875})
    # A slow rate may be the other end's: it is Balance's business.
    add("throttle_mode3", plan=[lost(kind="throttle", extra=f", rate: {arguments.mbits // 4} Mbit/s")], left={0: 1 - 0.75 / NICS}, collnet="none")
    add("throttle_balance", mode=2, plan=[lost(kind="throttle", extra=f", rate: {arguments.mbits // 4} Mbit/s")], left={0: 1 - 0.75 / NICS})
    add("throttle_migrate", mode=1, plan=[lost(kind="throttle", extra=f", rate: {arguments.mbits // 4} Mbit/s")], left={0: 1 - 0.75 / NICS})
    add("six_nodes_mode3", nodes=6, plan=[lost()], left={0: 0.75}, collnet="some")
    add("six_nodes_balance", nodes=6, mode=2, plan=[lost()], left={0: 0.75})
    add("six_nodes_migrate", nodes=6, mode=1, plan=[lost()], left={0: 0.75})
    add("two_degraded_mode3", plan=[lost(), lost(node=2, nic=3, at=9)], left={0: 0.75, 2: 0.75}, collnet="some")
    add("nonblocking_mode3", plan=[lost()], left={0: 0.75}, collnet="some", nonblocking=True,
        steps=before_and_after(mib) + [step("group after", MIB // 2 + 3, 3, together=3)])
    add("heals_mode3", plan=[lost(extra=", for: 1500 ms")], collnet="some",
        steps=[step("before", mib * MIB // 4, 6), step("struck", mib * MIB // 4, 40), step("after", mib * MIB // 4, 8)])
    add("second_loss_mode3", plan=[lost(), lost(node=3, nic=1, at=14)], left={0: 0.75, 3: 0.75}, collnet="some",
        steps=[step("before", mib * MIB // 4, 6), step("struck", mib * MIB // 4, 16), step("after", mib * MIB // 4, 8)])
    if arguments.direct:
        add("variants_direct", steps=variants(), env=DIRECT, nvswitch=True, collnet="direct")
        add("lost_direct", plan=[lost()], left={0: 0.75}, env=DIRECT, nvswitch=True, collnet="direct")
    # Once more, so that what is compared was not measured on one side of a drift of the machine.
    add("healthy_mode3_again", steps=healthy, collnet="none")
    add("healthy_migrate_again", mode=1, steps=healthy)
    return found


def limits(case, arguments, count_bytes):
    """(lower bound, healthy ring, ring of the degraded) in ms at the ports' rate."""
    capacities = [case["left"].get(node, 1.0) for node in range(case["nodes"])]
    p, unit = len(capacities), count_bytes / (arguments.mbits * 1e6 / 8 * NICS) * 1e3
    bound = max(max(1 / c for c in capacities), 2 * (p - 1) / sum(capacities))
    ring = 2 * (p - 1) / p
    return bound * unit, ring * unit, ring / min(capacities) * unit


def environment(case, arguments, folder):
    env = gpu_jobs.environment(case | {"gpus": 1, "port": 0}, arguments, folder)
    env |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING", "R2CC_FAIL_BOUND_MS": "5000"}
    if arguments.margin:
        env["R2CC_COLLNET_MARGIN"] = str(arguments.margin)
    if case["mode"] == 3:
        env["NCCL_COLLNET_ENABLE"] = "1"
    if case.get("nvswitch"):
        env["NCCL_TOPO_FILE"] = os.path.join(folder, "topology.xml")
        with open(env["NCCL_TOPO_FILE"], "w", encoding="utf-8") as file:
            file.write(gpu_topology.topology(gpu_topology.bus_ids()[:1], 0, nvswitch=True))
    return env | case["env"]


def run_case(case, arguments, folder):
    """Starts the ranks and waits; what they left is read by read_outcome()."""
    with open(os.path.join(folder, "steps.json"), "w", encoding="utf-8") as file:
        json.dump(case["steps"], file)
    with open(os.path.join(folder, "plan.yaml"), "w", encoding="utf-8") as file:
        file.write("\n".join(case["plan"]) + "\n")
    env = {**os.environ, **environment(case, arguments, folder)}
    ranks, begin, killed = [], time.monotonic(), None
    try:
        for rank in range(case["nodes"]):
            command = [os.path.join(arguments.build, "bin", "r2bench"), "exec", "--fabric", "vhca", "--name", gpu_jobs.run_name(case), "--nodes", str(case["nodes"]),
                       "--nics", str(case["nics"]), "--rate", f"{arguments.mbits * NICS // case['nics']} Mbit/s", "--node", f"node{rank}", "--quiet"]
            if rank == 0 and case["plan"]:
                command += ["--plan", os.path.join(folder, "plan.yaml"), "--witness", os.path.join(folder, "witness.json")]
            command += ["--", sys.executable, os.path.join(HERE, "allreduce_rank.py"), "--steps", os.path.join(folder, "steps.json"), "--ids",
                        os.path.join(folder, "id")]
            command += ["--nccl", case["nccl"]] if case["nccl"] else []
            command += ["--nonblocking"] if case.get("nonblocking") else []
            with open(os.path.join(folder, f"rank{rank}.log"), "w", encoding="utf-8") as log:
                ranks.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=os.setpgrp,
                                              env={**env, "RANK": str(rank), "LOCAL_RANK": "0", "NCCL_HOSTID": f"{gpu_jobs.run_name(case)}-node{rank}"}))
            if rank == 0:
                time.sleep(0.3)  # the fabric is its
        first_end = None
        while any(p.poll() is None for p in ranks):
            now = time.monotonic()
            if first_end is None and any(p.poll() not in (None, 0) for p in ranks):
                first_end = now
            if now > begin + arguments.limit:
                killed = f"not done after {arguments.limit:.0f} s"
            elif first_end is not None and now > first_end + 15:
                killed = "some went on for 15 s after one had failed"
            if killed:
                break
            time.sleep(0.05)
    finally:
        for p in ranks:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
    return [p.returncode for p in ranks], killed, round(time.monotonic() - begin, 1)


def algorithms(folder):
    """How often NCCL's log says that it took which algorithm for an AllReduce; empty where it does not tell."""
    found = {}
    for name in os.listdir(folder):
        if name.startswith("nccl."):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as log:
                for line in log:
                    match = re.search(r"AllReduce: (\d+) Bytes -> Algo (\w+)", line)
                    if match:
                        algorithm = NUMBERS.get(match[2], match[2])
                        found[algorithm] = found.get(algorithm, 0) + 1
    return found


def read_outcome(case, arguments, folder, ended):
    exits, killed, seconds = ended
    outcome = {"case": case["name"], "seconds": seconds, "nodes": case["nodes"], "nics": case["nics"], "mode": case["mode"], "plan": case["plan"], "env": case["env"],
               "killed": killed, "exit": exits, "steps": [], "left_out": {}, "ends": [], "algorithms": algorithms(folder), "plugin_log": [], "tails": []}
    steps, ends, tails = {}, [], []
    for rank in range(case["nodes"]):
        with open(os.path.join(folder, f"rank{rank}.log"), encoding="utf-8", errors="replace") as log:
            lines = log.read().splitlines()
        rest = []
        for line in lines:
            said = None
            if line.startswith("{"):
                try:
                    said = json.loads(line)
                except ValueError:
                    pass
            if said and "step" in said:
                steps.setdefault(said["step"], []).append(said)
            elif said and "end" in said:
                ends.append(said)
            else:
                rest.append(line)
        tails.append(rest[-20:])
    outcome["ends"], outcome["tails"] = ends, tails
    for wanted in case["steps"]:
        ranks = steps.get(wanted["label"], [])
        if not ranks:
            continue
        if all("left_out" in r for r in ranks) and len(ranks) == case["nodes"]:
            outcome["left_out"][wanted["label"]] = ranks[0]["left_out"]
        ranks = [r for r in ranks if "left_out" not in r]
        if not ranks:
            continue
        bound, ring, degraded = limits(case, arguments, ranks[0]["bytes"])
        outcome["steps"].append({"step": wanted["label"], "bytes": ranks[0]["bytes"], "ranks": len(ranks), "wrong": [r["wrong"] for r in ranks],
                                 "first_wrong": next((r["first_wrong"] for r in ranks if r["first_wrong"] is not None), None),
                                 "relative_error": max(r["relative_error"] for r in ranks), "same_bits": len({r["sha256"] for r in ranks}) == 1,
                                 "corrupt": bool(wanted.get("corrupt")), "median_ms": max(r["median_ms"] for r in ranks),
                                 "max_ms": max(r["max_ms"] for r in ranks), "times_ms": ranks[0]["times_ms"], "bound_ms": round(bound, 2),
                                 "ring_ms": round(ring, 2), "degraded_ring_ms": round(degraded, 2)})
    for name in sorted(os.listdir(folder)):
        if name.startswith("nccl."):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as log:
                outcome["plugin_log"] += [line.strip()[:300] for line in log if "R2CCL" in line or "WARN" in line or "CollNet" in line][:40]
    outcome["counters"] = gpu_jobs.counters(folder)[0]
    try:
        with open(os.path.join(folder, "witness.json"), encoding="utf-8") as file:
            outcome["witness"] = json.load(file).get("faults", [])
    except (OSError, ValueError):
        outcome["witness"] = []
    outcome["why"] = judge(case, outcome)
    outcome["ok"] = not outcome["why"]
    return outcome


def judge(case, outcome):
    """What is not as it should be, in words; empty: nothing."""
    why = []
    if outcome["killed"]:
        why.append(outcome["killed"])
    why += [f"rank {end['rank']}: {end['error']}" for end in outcome["ends"] if end["error"]]
    if any(outcome["exit"]):
        why.append(f"exit statuses {outcome['exit']}")
    if len(outcome["ends"]) < case["nodes"]:
        why.append(f"{case['nodes'] - len(outcome['ends'])} ranks said nothing at the end")
    missing = [s["label"] for s in case["steps"] if s["label"] not in {o["step"] for o in outcome["steps"] if o["ranks"] == case["nodes"]} | set(outcome["left_out"])]
    if missing:
        why.append("not run by all ranks: " + ", ".join(missing))
    for done in outcome["steps"]:
        if done["corrupt"]:
            if sum(done["wrong"]) != 1:
                why.append(f"{done['step']}: {done['wrong']} wrong elements, 1 was made wrong")
            if done["same_bits"]:
                why.append(f"{done['step']}: all ranks have the same bits")
            continue
        if any(done["wrong"]):
            why.append(f"{done['step']}: wrong elements by rank {done['wrong']}, first in operation {done['first_wrong']}")
        if not done["same_bits"]:
            why.append(f"{done['step']}: the ranks' bits differ")
    struck = [f for f in outcome["witness"] if f.get("t0_ns")]
    if len(struck) != len(case["plan"]):
        why.append(f"{len(struck)} of {len(case['plan'])} faults took effect")
    took = outcome["algorithms"]
    coll = sum(n for name, n in took.items() if name.startswith("COLLNET"))
    if took and case["collnet"] == "all" and coll != sum(took.values()):
        why.append(f"NCCL took {took}, CollNet alone was expected")
    if case["collnet"] == "direct" and set(took) != {"COLLNET_DIRECT"}:
        why.append(f"NCCL took {took}, CollNetDirect alone was expected")
    if took and case["collnet"] == "none" and coll:
        why.append(f"NCCL took {took}, no CollNet was expected")
    if took and case["collnet"] == "some" and not coll:
        why.append(f"NCCL took {took}, CollNet was expected once the node was degraded")
    return why


def line(outcome):
    shown = [o for o in outcome["steps"] if o["step"] in ("before", "after", "after, eagerly", "healthy")]
    times = ", ".join(f"{o['step']} {o['median_ms']:.1f} ms (bound {o['bound_ms']:.1f}, ring {o['degraded_ring_ms']:.1f})" for o in shown)
    nccl = next((e["nccl"] for e in outcome["ends"]), "?")
    return (f"{'ok ' if outcome['ok'] else 'BAD'} {outcome['case']:24} {outcome['seconds']:5.1f} s NCCL {nccl} {outcome['algorithms'] or ''} {times}"
            + "".join(f"\n      {w}" for w in outcome["why"])
            + "".join(f"\n      left out: {step} ({why})" for step, why in outcome["left_out"].items()))


def compare(results):
    """Lines about pairs of cases: what mode 3 costs without a fault, and what it gains with one."""
    def median(case, label):
        outcome = results.get(case)
        return next((o["median_ms"] for o in outcome["steps"] if o["step"] == label), None) if outcome else None

    found = []
    for label in ("healthy", "healthy 1 MiB", "healthy 64 KiB"):
        pairs = [(median("healthy_migrate" + again, label), median("healthy_mode3" + again, label)) for again in ("", "_again")]
        ratios = [one / three for one, three in pairs if one and three]
        if ratios:
            found.append({"compare": f"rate of mode 3 beside mode 1, {label}", "ratios": [round(r, 4) for r in ratios],
                          "ratio": round(sum(ratios) / len(ratios), 4), "wanted": ">= 0.98"})
    names = {"lost": "one NIC of four lost", "eighth": "one NIC of eight lost", "half": "two NICs of four lost", "throttle": "a throttled NIC",
             "six_nodes": "six nodes, one NIC of four lost"}
    for ours, others in ((ours, f"{ours}_{mode}") for ours in names for mode in ("balance", "migrate")):
        three, other = median(f"{ours}_mode3", "after"), median(others, "after")
        if three and other:
            bound = next(o["bound_ms"] for o in results[f"{ours}_mode3"]["steps"] if o["step"] == "after")
            found.append({"compare": f"{names[ours]}: {others}", "mode3_ms": three, "other_ms": other, "bound_ms": bound,
                          "mode3_to_other": round(three / other, 4), "mode3_to_bound": round(three / bound, 4), "wanted": "mode3_to_other <= 1.02"})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "..", "build", "release"), help="build folder")
    parser.add_argument("--mbits", type=int, default=2000, help="rate of each virtual NIC, Mbit/s")
    parser.add_argument("--mib", type=int, default=64, help="size of the timed operations, MiB")
    parser.add_argument("--margin", type=int, help="R2CC_COLLNET_MARGIN (default: the plugin's)")
    parser.add_argument("--minutes", type=float, default=8, help="start no case after this time")
    parser.add_argument("--limit", type=float, default=75, help="time limit of one case, seconds")
    parser.add_argument("--nccl", default="", metavar="LIBNCCL", help="libnccl.so.2 to bind (default: PyTorch's)")
    parser.add_argument("--direct", action="store_true", help="also test CollNetDirect, which NCCL takes only where there is an NVSwitch: a topology file says so "
                        "(a node with one GPU sends nothing over it)")
    parser.add_argument("--only", type=comma_list.words, default=[], help="run only cases whose name contains one of these words (separated by commas)")
    parser.add_argument("--skip", type=comma_list.words, default=[], help="leave out cases whose name contains one of these words (separated by commas)")
    parser.add_argument("--out", default="allreduce.jsonl", help="file of the JSON lines")
    parser.add_argument("--keep", default="allreduce_logs", help="folder for the logs of cases that fail")
    parser.add_argument("--list", action="store_true", help="print the cases without running them")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    if arguments.nccl and not os.path.isfile(arguments.nccl):
        parser.error(f"--nccl {arguments.nccl}: there is no such file; give the path of a libnccl.so.2")
    chosen = [c for c in cases(arguments) if (not arguments.only or any(word in c["name"] for word in arguments.only))
              and not any(word in c["name"] for word in arguments.skip)]
    if arguments.list:
        for case in chosen:
            print(f"{case['name']:24} mode {case['mode']}, {case['nodes']} nodes, {len(case['steps'])} steps, {len(case['plan'])} faults")
        return 0
    begin, results, left_out = time.monotonic(), {}, []
    with gpu_jobs.shared_gpu(6, 1) as mps, open(arguments.out, "w", encoding="utf-8") as out:
        os.environ.update(mps)
        print(json.dumps({"host": gpu_jobs.host_facts(arguments.build), "mps": bool(mps), "mbits": arguments.mbits, "mib": arguments.mib, "margin": arguments.margin,
                          "date": gpu_jobs.origin.now()}), file=out, flush=True)
        for case in chosen:
            if time.monotonic() - begin > 60 * arguments.minutes:
                left_out.append(case["name"])
                continue
            folder = tempfile.mkdtemp(prefix="r2ccl-allreduce-")
            try:
                outcome = read_outcome(case, arguments, folder, run_case(case, arguments, folder))
                if not outcome["ok"]:
                    kept = os.path.join(arguments.keep, case["name"])
                    shutil.rmtree(kept, ignore_errors=True)
                    shutil.copytree(folder, kept)
                    outcome["kept"] = kept
                else:
                    del outcome["tails"]
                results[case["name"]] = outcome
                print(json.dumps(outcome), file=out, flush=True)
                print(line(outcome), flush=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        for said in compare(results):
            print(json.dumps(said), file=out, flush=True)
            print(json.dumps(said), flush=True)
        if left_out:
            print(json.dumps({"left_out": left_out}), file=out, flush=True)
            print("not run for lack of time: " + ", ".join(left_out), flush=True)
    if not all(outcome["ok"] for outcome in results.values()):
        return 1
    return 2 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
