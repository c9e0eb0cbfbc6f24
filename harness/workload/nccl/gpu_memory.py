#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests GPU memory over the virtual HCA: unmodified NCCL, ranks that share one GPU under MPS, NICs that read and write GPU memory.

    harness/workload/nccl/gpu_memory.py --build build/release --out gpu_memory.json [--seconds N] [--jobs 3] [--only WORD,…]
    harness/workload/nccl/gpu_memory.py --pxn …     # two GPUs joined by NVLink: two nodes of two ranks, traffic over a neighbour's NIC

A NIC's writes stay invisible for a while unless a flush of the same NIC follows (VHCA_DELAY_VISIBILITY). A case holds if every element is
right, NCCL's log says GDRDMA for each connection, its faults fired, and traffic moved. Two controls flush too little on purpose, and must have
wrong elements. In the control in host memory, the log must say GDRDMA for no connection. With --pxn each NIC of a node is next to one of its
GPUs, and the log must also name connections that the proxy of another rank holds. Exit status: 0 all cases held, 1 a case did not, or there
was no time for it."""

import argparse
import concurrent.futures
import json
import os
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gpu_jobs  # noqa: E402
import gpu_topology  # noqa: E402
import comma_list  # noqa: E402  harness/base, which gpu_jobs adds

OPS = "allreduce,allgather,reducescatter,broadcast,alltoall,sendrecv"
GDR = {"R2CC_GPU_DIRECT": "1", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_NET_GDR_READ": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0",
       "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_GIN_ENABLE": "0", "VHCA_DMABUF": "0", "NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1",
       "NCCL_LAUNCH_ORDER_IMPLICIT": "1", "R2CC_FAIL_BOUND_MS": "15000"}
LATE = {"VHCA_DELAY_VISIBILITY": "20"}
HEAL = ", for: 400 ms"
# Ranks of a node reach each other over NVLink, and the NICs that are beside their neighbour's GPU.
PXN = {"NCCL_P2P_DISABLE": "0", "NCCL_SHM_DISABLE": "0", "NCCL_PXN_DISABLE": "0", "NCCL_P2P_PXN_LEVEL": "2"}


# One of four NICs lost or slow, for good, on ports that are the limit: Balance then spreads each channel's messages over the others.
SPREAD = {"mode": 2, "nics": 4, "rate": "2500 Mbit/s", "lasting": True, "spreads": True}


def pxn_cases(topology_file, topology_of_four):
    """Two nodes of two ranks on the same two GPUs. A file has two NICs beside the GPUs, the other one four."""
    found = []

    def add(name, env=None, **case):
        found.append({"name": name, "nodes": 2, "gpus": 2, "on_gpus": 2, "mode": 1, "ops": "alltoall,sendrecv,allreduce,allgather",
                      "late": True, "wants_wrong": False, "pxn": True, "env": GDR | PXN | LATE | {"NCCL_TOPO_FILE": topology_file} | (env or {})} | case)

    add("pxn_healthy")
    add("pxn_disabled", env={"NCCL_PXN_DISABLE": "1"}, pxn=False)
    for mode, label in ((1, "migrate"), (2, "balance")):
        for kind, extra in (("port_down", HEAL), ("blackhole", HEAL), ("qp_error", ", qp: all")):
            add(f"pxn_{kind}_{label}", mode=mode, fault=kind, extra=extra)
    add("pxn_port_down_lost_migrate", fault="port_down", lasting=True)
    add("pxn_port_down_lost_balance", mode=2, fault="port_down", lasting=True)
    add("pxn_four_nics_lost_balance", env={"NCCL_TOPO_FILE": topology_of_four}, fault="port_down", **SPREAD)
    return found


def cases():
    found = []

    def add(name, env=None, late=True, wrong=False, **case):
        found.append({"name": name, "nodes": 2, "gpus": 1, "mode": 1, "ops": OPS, "late": late, "wants_wrong": wrong,
                      "env": GDR | (LATE if late else {}) | (env or {})} | case)

    found.append({"name": "control_host_memory", "nodes": 2, "gpus": 1, "mode": 1, "ops": "allreduce", "late": False, "wants_wrong": False,
                  "gdr": False, "env": {k: v for k, v in GDR.items() if not k.startswith("R2CC_GPU") and "GDR" not in k}})
    add("healthy", late=False)
    add("healthy_late")
    add("healthy_dma_buf", late=False, env={"VHCA_DMABUF": "1"}, ops="allreduce,sendrecv")
    add("no_flush_is_wrong", wrong=True, env={"R2CC_GPU_FLUSH": "0", "NCCL_PROTO": "Simple", "VHCA_DELAY_VISIBILITY": "300"}, ops="allreduce")
    add("home_flush_is_wrong", wrong=True, env={"R2CC_GPU_FLUSH": "2", "NCCL_PROTO": "Simple", "VHCA_DELAY_VISIBILITY": "300"}, ops="allreduce",
        fault="port_down", lasting=True)
    for mode, label in ((1, "migrate"), (2, "balance")):
        for kind, extra in (("port_down", HEAL), ("blackhole", HEAL), ("qp_error", ", qp: all")):
            add(f"{kind}_{label}", mode=mode, fault=kind, extra=extra)
    for proto in ("Simple", "LL", "LL128"):
        add(f"port_down_{proto}", fault="port_down", extra=HEAL, env={"NCCL_PROTO": proto}, ops="allreduce,allgather,reducescatter,sendrecv")
        add(f"blackhole_{proto}_balance", mode=2, fault="blackhole", extra=HEAL, env={"NCCL_PROTO": proto}, ops="allreduce,allgather,reducescatter,sendrecv")
    add("port_down_lost_balance", mode=2, fault="port_down", lasting=True)
    add("four_nics_lost_balance", fault="port_down", **SPREAD)
    add("four_nics_slow_balance", fault="throttle", extra=", rate: 625 Mbit/s", **SPREAD)
    add("four_nodes_port_down", nodes=4, fault="port_down", extra=HEAL)
    add("four_nodes_qp_error_balance", nodes=4, mode=2, fault="qp_error", extra=", qp: all")
    return found


def judge(outcome, iters):
    case = outcome["case"]
    ranks = outcome["ranks"]
    wrong = sum(o["wrong"] for r in ranks if r for o in r["results"])
    whole = all(r and not r["error"] for r in ranks)
    gdr = outcome["gdr_lines"] > 0 and outcome["other_lines"] == 0
    if not case.get("gdr", True):
        gdr = outcome["gdr_lines"] == 0 and outcome["other_lines"] > 0
    struck = [f.get("t0_ns") for f in (outcome["witness"] or {}).get("faults", [])]
    fired = len(struck) == len(gpu_jobs.plan_of(case, iters)) and all(struck)
    if "pxn" in case:
        gdr = gdr and (outcome["pxn_lines"] > 0) == case["pxn"] and outcome["p2p_lines"] > 0
    fine = whole and gdr and fired and (wrong > 0 if case["wants_wrong"] else wrong == 0)
    words = ""
    if case.get("fault") in gpu_jobs.MOVING:
        moved, words = gpu_jobs.moved(outcome)
        fine = fine and moved
    if case.get("spreads"):
        lanes = int(outcome["counters"].get("r2ccl_lanes_started_total", 0))
        fine, words = fine and lanes >= 1, f"{words} lanes {lanes}"
    error = next((r["error"].splitlines()[0][:160] for r in ranks if r and r["error"]), "" if all(ranks) else "a rank has no result")
    text = (f"{case['name']:30} wrong {wrong} ({'wanted' if case['wants_wrong'] else '0 wanted'}) exit {outcome['exit']} "
            f"GDRDMA lines {outcome['gdr_lines']}, others {outcome['other_lines']}, over a neighbour's NIC {outcome.get('pxn_lines', 0)}, faults {len([s for s in struck if s])} {words} {outcome['seconds']:.0f} s {error}")
    return fine, wrong, gdr, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="folder with bin/ and lib/")
    parser.add_argument("--out", required=True, help="JSON file of the results")
    parser.add_argument("--list", action="store_true", help="print the cases without running them")
    parser.add_argument("--seconds", type=float, default=240, help="time for all cases; none is started in its last 20 s")
    parser.add_argument("--jobs", type=int, default=3, help="cases that run at the same time")
    parser.add_argument("--iters", type=int, default=15, help="operations per case")
    parser.add_argument("--bytes", type=int, default=8 << 20, help="size of an operation")
    parser.add_argument("--rate", default="20 Gbit/s", help="rate of each NIC")
    parser.add_argument("--limit", type=float, default=60, help="time limit of one case, seconds")
    parser.add_argument("--only", type=comma_list.words, default=[], help="run only cases whose name contains one of these words (separated by commas)")
    parser.add_argument("--pxn", action="store_true", help="run the cases with two GPUs per node instead; needs two GPUs joined by NVLink")
    arguments = parser.parse_args()
    arguments.gpus = 1
    with tempfile.TemporaryDirectory(prefix="r2ccl-topology-") as folder:
        if not arguments.pxn:
            return run(arguments, cases())
        gpus = gpu_topology.bus_ids()[:2]
        if len(gpus) < 2 and not arguments.list:
            parser.error(f"--pxn needs two GPUs; there are {len(gpus)}")
        paths = [os.path.join(folder, f"{nics}_nics.xml") for nics in (2, 4)]
        for path, nics in zip(paths, (2, 4)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(gpu_topology.topology(gpus, nics))
        return run(arguments, pxn_cases(*paths))


def run(arguments, all_cases):
    if arguments.list:
        for case in all_cases:
            print(case["name"])
        return 0
    begin = time.monotonic()
    lock = threading.Lock()
    results, good = [], True
    todo = [c for c in all_cases if not arguments.only or any(word in c["name"] for word in arguments.only)]

    def write(complete):
        with open(arguments.out + ".part", "w", encoding="utf-8") as file:  # what there is stays whole
            json.dump({"host": host, "rate": arguments.rate, "bytes": arguments.bytes, "iters": arguments.iters, "complete": complete,
                       "cases": results}, file, indent=1)
        os.replace(arguments.out + ".part", arguments.out)

    def one(case):
        nonlocal good
        if time.monotonic() - begin > arguments.seconds - 20:
            with lock:
                results.append({"name": case["name"], "skipped": True})
                write(False)
            print(f"skip {case['name']}: no time left", flush=True)
            return
        outcome = gpu_jobs.run_case(case | {"port": gpu_jobs.free_port()}, arguments)
        fine, wrong, gdr, text = judge(outcome, arguments.iters)
        with lock:
            good = good and fine
            small = {"name": case["name"], "as_expected": fine, "wrong": wrong, "wanted_wrong": case["wants_wrong"], "gdrdma": gdr,
                     "gdr_lines": outcome["gdr_lines"], "other_lines": outcome["other_lines"], "pxn_lines": outcome["pxn_lines"], "p2p_lines": outcome["p2p_lines"],
                     "nodes": case["nodes"], "gpus": case["gpus"], "flags": outcome["flags"][:6], "exit": outcome["exit"], "vhca": outcome["vhca"][:20],
                     "killed": outcome["killed"], "seconds": outcome["seconds"], "mode": case["mode"], "env": case["env"], "fault": case.get("fault"),
                     "counters": outcome["counters"], "witness": outcome["witness"],
                     "operations": [[{k: v for k, v in o.items() if k != "times_ms"} for o in r["results"]] if r else None for r in outcome["ranks"]],
                     "nccl": next((r["nccl"] for r in outcome["ranks"] if r), None)}
            if not fine or case["name"] in ("healthy", "pxn_healthy"):
                small["plugin_log"] = outcome["plugin_log"][:120]
                small["nccl_tails"] = outcome["nccl_tails"][:2]
                small["tails"] = outcome["tails"]
            results.append(small)
            write(False)
        print(("ok   " if fine else "BAD  ") + text, flush=True)

    with gpu_jobs.shared_gpu(2, 1) as mps:
        os.environ.update(mps)
        host = gpu_jobs.host_facts(arguments.build) | {"mps": bool(mps)}
        first, rest = todo[:2], todo[2:]
        for case in first:  # alone: whether it works at all
            one(case)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(one, rest))
        write(True)
    return 0 if good and not any(r.get("skipped") for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
