#!/usr/bin/env python3
"""Unmodified NCCL on GPUs over virtual NICs, with and without R2CCL, under the same faults: one call, one JSON file.

Needs a machine with GPUs, PyTorch and a build of this project. Each case is a job of several 'nodes' on this host
(NCCL_HOSTID), each with its own virtual NICs, started through `r2bench exec`. Every element is compared. Exit status: 0
all cases came out as they should, 1 not.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OPS = ["allreduce", "allgather", "reducescatter", "alltoall", "sendrecv"]


def plan(kind, ops, iters, extra="", lasting=False):
    """One fault in each operation, a third of the way through; the target alternates between NICs and nodes. `lasting`:
    one alone, soon after the beginning, for good."""
    if kind is None:
        return None
    if lasting:
        return f"- {{at: {{iter: 4}}, target: node1/nic0, kind: {kind}{extra}}}\n"
    lines = []
    for k in range(ops):
        at = k * (iters + 2) + 2 + iters // 3
        lines.append(f"- {{at: {{iter: {at}}}, phase: {{up_to: 8 ms}}, target: node{k % 2}/nic{k // 2 % 2}, kind: {kind}{extra}}}")
    return "\n".join(lines) + "\n"


def environment(case, arguments, folder):
    lib = os.path.join(arguments.build, "lib")
    env = {"NCCL_NVLS_ENABLE": "0", "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN",
           "NCCL_DEBUG_FILE": os.path.join(folder, "nccl.%h.%p.log"), "NCCL_IB_TIMEOUT": "14",
           "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(case["port"]),
           "WORLD_SIZE": str(case["nodes"] * case["gpus"])}
    if case["net"] == "r2ccl":
        env |= {"NCCL_NET_PLUGIN": os.path.join(lib, "libnccl-net-r2ccl.so"), "NCCL_NET": "R2CCL", "R2CC_MODE": str(case["mode"])}
    else:  # NCCL's own transport; what it needs on virtual NICs is in harness/vhca/README.md
        env |= {"NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none", "NCCL_IB_GID_INDEX": "1", "NCCL_IB_MERGE_NICS": "0",
                "NCCL_GIN_TYPE": "2", "NCCL_GIN_ENABLE": "0"}
    return env | case.get("env", {})


def run_case(case, arguments):
    folder = tempfile.mkdtemp(prefix="r2ccl-nccl-")
    ranks = []
    try:
        faults = plan(case.get("fault"), case["ops"].count(",") + 1, arguments.iters, case.get("extra", ""), case.get("lasting", False))
        plan_file = os.path.join(folder, "plan.yaml")
        if faults:
            with open(plan_file, "w", encoding="utf-8") as file:
                file.write(faults)
        env = {**os.environ, **environment(case, arguments, folder)}
        begin = time.monotonic()
        for rank in range(case["nodes"] * case["gpus"]):
            node = rank // case["gpus"]
            command = [os.path.join(arguments.build, "bin", "r2bench"), "exec", "--fabric", "vhca", "--name", case["name"],
                       "--nodes", str(case["nodes"]), "--nics", str(case.get("nics", 2)), "--rate", case.get("rate", arguments.rate), "--node", f"node{node}"]
            if rank == 0 and faults:
                command += ["--plan", plan_file, "--witness", os.path.join(folder, "witness.json")]
            command += ["--", sys.executable, os.path.join(HERE, "collectives.py"), "--ops", case["ops"], "--iters", str(arguments.iters),
                        "--bytes", str(arguments.bytes), "--timeout", "40", *case.get("args", [])]
            with open(os.path.join(folder, f"rank{rank}.log"), "w", encoding="utf-8") as log:
                ranks.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=os.setpgrp,
                                              env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank % arguments.gpus),
                                                   "NCCL_HOSTID": f"{case['name']}-node{node}"}))
            if rank == 0:
                time.sleep(0.3)  # the fabric is its
        deadline = begin + arguments.limit
        killed = False
        first_end = None
        while any(p.poll() is None for p in ranks):
            if first_end is None and any(p.poll() not in (None, 0) for p in ranks):
                first_end = time.monotonic()
            late = first_end is not None and time.monotonic() > first_end + 60
            if time.monotonic() > deadline or late:
                killed = True
                for p in ranks:
                    if p.poll() is None:
                        os.killpg(p.pid, signal.SIGKILL)
                break
            time.sleep(0.05)
        for p in ranks:
            p.wait()
        outcome = {"case": {k: v for k, v in case.items() if k != "port"}, "seconds": round(time.monotonic() - begin, 1),
                   "killed": killed, "exit": [p.returncode for p in ranks], "ranks": [], "plugin_log": [], "tails": []}
        for rank in range(len(ranks)):
            with open(os.path.join(folder, f"rank{rank}.log"), encoding="utf-8", errors="replace") as log:
                text = log.read()
            lines = [line for line in text.splitlines() if line.startswith('{"rank"')]
            outcome["ranks"].append(json.loads(lines[-1]) if lines else None)
            outcome["tails"].append([line for line in text.splitlines() if not line.startswith('{"rank"')][-25:])
        for name in sorted(os.listdir(folder)):
            if name.startswith("nccl."):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as log:
                    outcome["plugin_log"] += [line.strip() for line in log if "R2CCL" in line or "WARN" in line][:60]
        try:
            with open(os.path.join(folder, "witness.json"), encoding="utf-8") as file:
                outcome["witness"] = json.load(file)
        except (OSError, ValueError):
            outcome["witness"] = None
        return outcome
    finally:
        for p in ranks:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        shutil.rmtree(folder, ignore_errors=True)


def judge(outcome):
    """(as it should be, one line)"""
    case = outcome["case"]
    ranks = outcome["ranks"]
    whole = all(r and not r["error"] for r in ranks)
    wrong = sum(o["wrong"] for r in ranks if r for o in r["results"])
    nccl = next((r["nccl"] for r in ranks if r), "?")
    text = f"{case['name']:28} NCCL {nccl} exit {outcome['exit']} wrong {wrong} {outcome['seconds']:.0f} s"
    if whole:
        slow = [f"{o['op']} {o['median_ms']:.1f}/{o['max_ms']:.0f}" for o in ranks[0]["results"]]
        text += "  median/max ms: " + ", ".join(slow)
    else:
        text += "  " + next((r["error"].splitlines()[0][:120] for r in ranks if r and r["error"]), "no result")
    struck = [f.get("t0_ns") for f in (outcome["witness"] or {}).get("faults", [])]
    strikes = 1 if case.get("lasting") else case["ops"].count(",") + 1
    fired = not case.get("fault") or (len(struck) == strikes and all(struck))
    survives = case["net"] == "r2ccl" and case["mode"] >= 1 or not case.get("fault")
    if survives:
        return whole and wrong == 0 and fired and all(c == 0 for c in outcome["exit"]), text
    # Without resilience: a network that failed says so, and the job ends by itself.
    told = [line for line in outcome["plugin_log"] if "NIC failed" in line or "IBV_WC_RETRY_EXC_ERR" in line]
    return fired and bool(told) and not outcome["killed"] and wrong == 0 and not whole, text


def cases(gpus, other_nccl):
    everything = ",".join(OPS)
    shapes = [(2, gpus // 2), (gpus, 1)] if gpus >= 4 else [(2, 1)]
    found = []

    def add(name, **case):
        found.append({"name": name, "nodes": shapes[0][0], "gpus": shapes[0][1], "net": "r2ccl", "mode": 1, "ops": everything} | case)

    heal = ", for: 400 ms"
    add("healthy_migrate")
    add("healthy_baseline", mode=0)
    add("healthy_nccl_ib", net="ib")
    add("port_down", fault="port_down", extra=heal)
    add("port_down_ll", fault="port_down", extra=heal, env={"NCCL_PROTO": "LL"})
    add("blackhole_simple", fault="blackhole", extra=heal, env={"NCCL_PROTO": "Simple"})
    add("blackhole_tree", fault="blackhole", extra=heal, env={"NCCL_ALGO": "allreduce:tree"}, ops="allreduce,allreduce")
    add("qp_error", fault="qp_error", extra=", qp: all")
    add("graphs_two_communicators", fault="port_down", extra=heal, ops="allreduce,allgather,reducescatter", args=["--graph", "--two"])
    if len(shapes) > 1:
        add("port_down_single_gpu_nodes", fault="port_down", extra=heal, nodes=shapes[1][0], gpus=shapes[1][1])
    if other_nccl:
        add("port_down_other_nccl", fault="port_down", extra=heal, env={"LD_PRELOAD": other_nccl})
    # Balance: the same faults, and four NICs of which one is lost or slow from the fifth operation on. Operations of the
    # second kind have it throughout: their median tells what is left.
    add("healthy_balance", mode=2)
    add("port_down_balance", mode=2, fault="port_down", extra=heal)
    add("blackhole_balance", mode=2, fault="blackhole", extra=heal)
    add("qp_error_balance", mode=2, fault="qp_error", extra=", qp: all")
    add("graphs_balance", mode=2, fault="port_down", extra=heal, ops="allreduce,allgather,reducescatter", args=["--graph", "--two"])
    four = {"nics": 4, "rate": "5 Gbit/s", "ops": "allreduce,allreduce"}
    add("four_nics_migrate", **four)
    for mode, label in ((1, "migrate"), (2, "balance")):
        add(f"one_of_four_lost_{label}", mode=mode, fault="port_down", lasting=True, **four)
        add(f"one_of_four_slow_{label}", mode=mode, fault="throttle", extra=", rate: 1250 Mbit/s", lasting=True, **four)
    add("port_down_baseline", fault="port_down", mode=0, ops="allreduce")
    add("port_down_nccl_ib", fault="port_down", net="ib", ops="allreduce")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "..", "build", "release"))
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--iters", type=int, default=40)
    parser.add_argument("--rate", default="40 Gbit/s", help="of each virtual NIC")
    parser.add_argument("--limit", type=float, default=150, help="seconds for one case")
    parser.add_argument("--other-nccl", default="", help="libnccl.so.2 of another version, for one more case")
    parser.add_argument("--only", default="", help="cases whose name contains this, or one of these (commas)")
    parser.add_argument("--skip", default="", help="cases whose name contains this, or one of these, are left out (with --only too)")
    parser.add_argument("--out", default="nccl_matrix.json")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    wanted, unwanted = ([word for word in words.split(",") if word] for words in (arguments.only, arguments.skip))
    results, good = [], True
    default_nccl = set()
    for number, case in enumerate(cases(arguments.gpus, arguments.other_nccl)):
        if wanted and not any(word in case["name"] for word in wanted) or any(word in case["name"] for word in unwanted):
            continue
        outcome = run_case(case | {"port": 29500 + number}, arguments)
        fine, text = judge(outcome)
        versions = {r["nccl"] for r in outcome["ranks"] if r}
        if "other_nccl" in case["name"] and versions & default_nccl:
            fine, text = False, text + "  (the same NCCL as the other cases)"
        elif not default_nccl:
            default_nccl = versions
        good = good and fine
        outcome["as_expected"] = fine
        results.append(outcome)
        print(("ok   " if fine else "BAD  ") + text, flush=True)
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"host": {"kernel": platform.release(), "cpus": os.cpu_count()}, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                       "rate": arguments.rate, "bytes": arguments.bytes, "iters": arguments.iters, "cases": results}, file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
