#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified NCCL on GPUs over virtual NICs, with and without R2CCL, under the same faults: one call, one JSON file.

Needs a machine with GPUs, PyTorch and a build of this project. Each case is a job of several 'nodes' on this host
(NCCL_HOSTID), each with its own virtual NICs, started through `r2bench exec`. Every element is compared. A case that
survives a fault which has to move traffic must also have moved some: by the plugin's counters (R2CC_METRICS), or its log where a
process left none. Exit status: 0 all cases came out as they should, 1 not.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "faultinject"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "base"))
import fault_kinds  # noqa: E402
import origin  # noqa: E402

OPS = ["allreduce", "allgather", "reducescatter", "alltoall", "sendrecv"]
MOVING = fault_kinds.names(moves_traffic=True)  # kinds after which traffic has to move in modes 1 and 2
ABORT_BOUND_S = 20  # from the abort of its communicators to a process's end
ABORTED = 4  # collectives.py's exit status then
MOVED = " went on"  # the plugin's words; r2ccl/OPERATING.md
PROXY_OF_ANOTHER = re.compile(r" via NET/R2CCL/\d+\(\d+\)")  # NCCL's word for PXN: the NIC, and the rank whose proxy uses it


def struck_iteration(k, iters):
    """The iteration in which the k-th operation's fault strikes: a third of the way through."""
    return k * (iters + 2) + 2 + iters // 3


def plan(kind, ops, iters, extra="", lasting=False, abort=False):
    """Lines of a fault plan. One fault in each operation; the target alternates between NICs and nodes. `lasting`: one alone, soon after the
    beginning, for good. `abort`: one alone, for good, and as soon as a channel begins to leave that NIC its node's other one falls silent: the
    migration finds no path, and is under way when the communicators are aborted."""
    if kind is None:
        return []
    if lasting:
        return [f"- {{at: {{iter: 4}}, target: node1/nic0, kind: {kind}{extra}}}"]
    if abort:
        return [f"- {{name: first, at: {{iter: {struck_iteration(0, iters)}}}, phase: {{up_to: 8 ms}}, target: node1/nic0, kind: {kind}{extra}}}",
                "- {after: first, target: node1/nic1, kind: blackhole}"]
    return [f"- {{at: {{iter: {struck_iteration(k, iters)}}}, phase: {{up_to: 8 ms}}, target: node{k % 2}/nic{k // 2 % 2}, kind: {kind}{extra}}}"
            for k in range(ops)]


def plan_of(case, iters):
    return plan(case.get("fault"), case["ops"].count(",") + 1, iters, case.get("extra", ""), case.get("lasting", False), case.get("abort", False))


def said(command, **options):
    """What a program prints, or 'unknown' when it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, **options)
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def host_facts(build):
    """Where and with what this was measured."""
    gpus = said(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    rows = [[word.strip() for word in line.split(",")] for line in gpus.splitlines()] if gpus != "unknown" else []
    return {"kernel": platform.release(), "cpus": os.cpu_count(), "cpus_usable": len(os.sched_getaffinity(0)),
            "commit": origin.of_checkout(HERE), "build": said([os.path.join(build, "bin", "r2bench"), "--version"]),
            "gpus": [row[0] for row in rows] or "unknown", "driver": sorted({row[-1] for row in rows}) or "unknown",
            "pytorch": said([sys.executable, "-c", "import torch; print(torch.__version__, 'CUDA', torch.version.cuda)"])}


def gpus_usable():
    """How many GPUs a process of this one's environment sees, by nvidia-smi, which shows all, and CUDA_VISIBLE_DEVICES; 1 where there is none."""
    everything = len(said(["nvidia-smi", "--list-gpus"]).splitlines()) if shutil.which("nvidia-smi") else 1
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return everything if named is None else max(1, min(everything, len([word for word in named.split(",") if word.strip()])))


@contextlib.contextmanager
def shared_gpu(ranks, gpus):
    """Has CUDA's MPS serve processes that share a GPU, so that they run side by side and not in turns (an operation then takes 18 ms or more).
    Yields what their environment needs: nothing where the user has an MPS of their own. MPS changes no setting of the GPU; it ends with this."""
    control = shutil.which("nvidia-cuda-mps-control")
    if ranks <= gpus or not control or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="r2ccl-mps-")
    env = {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(folder, "pipe"), "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "log")}
    for path in env.values():
        os.mkdir(path)
    started = subprocess.run([control, "-d"], env={**os.environ, **env}, check=False).returncode == 0
    try:
        yield env if started else {}
    finally:
        if started:
            subprocess.run([control], input="quit -t 5\n", text=True, env={**os.environ, **env}, timeout=60, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def counters(folder):
    """Sums of the plugin's counters over all processes, without labels; and how many processes left some."""
    sums, files = {}, 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".prom"):
            continue
        files += 1
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            for line in file:
                if line.startswith("r2ccl_") and len(line.split()) == 2:
                    series, value = line.split()
                    key = series.split("{")[0]
                    sums[key] = sums.get(key, 0) + float(value)
    return sums, files


def environment(case, arguments, folder):
    lib = os.path.join(arguments.build, "lib")
    env = {"NCCL_NVLS_ENABLE": "0", "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN",
           "NCCL_DEBUG_FILE": os.path.join(folder, "nccl.%h.%p.log"), "NCCL_IB_TIMEOUT": "14",
           "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(case["port"]),
           "WORLD_SIZE": str(case["nodes"] * case["gpus"])}
    if case["net"] == "r2ccl":
        env |= {"NCCL_NET_PLUGIN": os.path.join(lib, "libnccl-net-r2ccl.so"), "NCCL_NET": "R2CCL", "R2CC_MODE": str(case["mode"]),
                "R2CC_METRICS": os.path.join(folder, "counters-%p.prom")}
    else:  # NCCL's own transport; what it needs on virtual NICs is in harness/vhca/README.md
        env |= {"NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none", "NCCL_IB_GID_INDEX": "1", "NCCL_IB_MERGE_NICS": "0",
                "NCCL_GIN_TYPE": "2", "NCCL_GIN_ENABLE": "0"}
    return env | case.get("env", {})


def start_rank(rank, case, arguments, folder, plan_file):
    """The process of one rank; rank 0 holds the fabric and, where there is a plan, the fault board."""
    node = rank // case["gpus"]
    command = [os.path.join(arguments.build, "bin", "r2bench"), "exec", "--fabric", "vhca", "--name", case["name"],
               "--nodes", str(case["nodes"]), "--nics", str(case.get("nics", 2)), "--rate", case.get("rate", arguments.rate), "--node", f"node{node}"]
    if rank == 0 and plan_file:
        command += ["--plan", plan_file, "--witness", os.path.join(folder, "witness.json")]
    command += ["--", sys.executable, os.path.join(HERE, "collectives.py"), "--ops", case["ops"], "--iters", str(arguments.iters),
                "--bytes", str(arguments.bytes), "--timeout", "40", *case.get("args", [])]
    if case.get("abort"):
        command += ["--abort-at", str(struck_iteration(0, arguments.iters))]
    env = {**os.environ, **environment(case, arguments, folder), "RANK": str(rank), "LOCAL_RANK": str(rank % case.get("on_gpus", arguments.gpus)),
           "NCCL_HOSTID": f"{case['name']}-node{node}"}
    with open(os.path.join(folder, f"rank{rank}.log"), "w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=os.setpgrp, env=env)


def wait_for(ranks, deadline):
    """(when each ended, had they to be killed): at the deadline, or a minute after the first one that failed."""
    first_end = None
    killed = False
    ended = [None] * len(ranks)
    while any(p.poll() is None for p in ranks):
        ended = [at or (time.monotonic() if p.poll() is not None else None) for at, p in zip(ended, ranks)]
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
    return [at or time.monotonic() for at in ended], killed


def said_by_ranks(folder, ended):
    """What the ranks printed: results, aborts, the virtual HCA's lines, and the end of the rest."""
    found = {"ranks": [], "tails": [], "vhca": [], "aborts": []}
    for rank, end in enumerate(ended):
        with open(os.path.join(folder, f"rank{rank}.log"), encoding="utf-8", errors="replace") as log:
            text = log.read()
        lines = [line for line in text.splitlines() if line.startswith('{"rank"')]
        found["vhca"] += [line for line in text.splitlines() if line.startswith("vhca:")][:20]
        found["ranks"].append(json.loads(lines[-1]) if lines else None)
        aborts = [json.loads(line) for line in text.splitlines() if line.startswith('{"aborting"')]
        if aborts:
            found["aborts"].append({"rank": rank, "in_operation": aborts[-1]["in_operation"], "seconds_to_end": round(end - aborts[-1]["monotonic"], 2)})
        found["tails"].append([line for line in text.splitlines() if not line.startswith('{"rank"')][-25:])
    return found


def said_by_nccl(folder):
    """What NCCL and the plugin logged: how they connected, and whether traffic moved."""
    found = {"plugin_log": [], "moved_lines": 0, "gdr_lines": 0, "other_lines": 0, "pxn_lines": 0, "p2p_lines": 0, "flags": [], "nccl_tails": []}
    for name in sorted(os.listdir(folder)):
        if not name.startswith("nccl."):
            continue
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as log:
            all_lines = [line.strip() for line in log]
        found["nccl_tails"].append(all_lines[:25] + ["..."] + all_lines[-60:])
        vias = [line for line in all_lines if " via NET/R2CCL/" in line]
        found["gdr_lines"] += sum("/GDRDMA" in line for line in vias)
        found["other_lines"] += sum("/GDRDMA" not in line for line in vias)
        found["pxn_lines"] += sum(PROXY_OF_ANOTHER.search(line) is not None for line in vias)
        found["p2p_lines"] += sum(" via P2P/" in line for line in all_lines)
        found["flags"] += [line for line in all_lines if "GPU Direct RDMA" in line or "DMA-BUF" in line or "GDR" in line and "via" not in line][:4]
        lines = [line for line in all_lines if ("R2CCL" in line and " via " not in line) or "WARN" in line]
        found["plugin_log"] += lines[:60]
        found["moved_lines"] += sum(MOVED in line for line in lines)
    return found


def witness_of(folder):
    try:
        with open(os.path.join(folder, "witness.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def run_case(case, arguments):
    folder = tempfile.mkdtemp(prefix="r2ccl-nccl-")
    ranks = []
    try:
        faults = plan_of(case, arguments.iters)
        plan_file = os.path.join(folder, "plan.yaml") if faults else None
        if faults:
            with open(plan_file, "w", encoding="utf-8") as file:
                file.write("\n".join(faults) + "\n")
        begin = time.monotonic()
        for rank in range(case["nodes"] * case["gpus"]):
            ranks.append(start_rank(rank, case, arguments, folder, plan_file))
            if rank == 0:
                time.sleep(0.3)  # the fabric is its
        ended, killed = wait_for(ranks, begin + arguments.limit)
        outcome = {"case": {k: v for k, v in case.items() if k != "port"}, "seconds": round(time.monotonic() - begin, 1),
                   "killed": killed, "exit": [p.returncode for p in ranks]}
        outcome["counters"], outcome["processes_counted"] = counters(folder)
        return outcome | said_by_ranks(folder, ended) | said_by_nccl(folder) | {"witness": witness_of(folder)}
    finally:
        for p in ranks:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        shutil.rmtree(folder, ignore_errors=True)


def moved(outcome):
    """(did traffic leave a path that failed, and find another one; in words): by the counters where every process left some, else by the log,
    which tells of migrations that began."""
    if outcome["processes_counted"] < len(outcome["exit"]):
        return outcome["moved_lines"] >= 1, f"migrations begun {outcome['moved_lines']} (no counters)"
    left, ended, again = (int(outcome["counters"].get(f"r2ccl_{name}_total", 0)) for name in ("path_failures", "migrations", "replayed_segments"))
    return left >= 1 and ended >= 1, f"paths left {left}, migrations {ended}, segments sent again {again}"


def path_was_left(outcome):
    """Whether a migration began; where the communicator was aborted in the middle of it, none ended."""
    counted = outcome.get("counters", {}).get("r2ccl_path_failures_total", 0) >= 1
    return counted or any(" failed: " in line for line in outcome["plugin_log"])


def judge(outcome, iters):
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
    fired = len(struck) == len(plan_of(case, iters)) and all(struck)
    resilient = case["net"] == "r2ccl" and case["mode"] >= 1
    if not fired:
        text += "  (a fault did not strike)"
    if case.get("abort"):
        # The process ends by itself, as any other does, while its channels look for a path. What it had compared by then is right.
        slowest = max((a["seconds_to_end"] for a in outcome["aborts"]), default=None)
        text += f"  ended at most {slowest} s after the abort"
        return (fired and wrong == 0 and not outcome["killed"] and len(outcome["aborts"]) == len(ranks)
                and all(a["in_operation"] and a["seconds_to_end"] <= ABORT_BOUND_S for a in outcome["aborts"])
                and path_was_left(outcome) and all(r and r.get("aborted") and not r["error"] for r in ranks)
                and all(c == ABORTED for c in outcome["exit"])), text
    if resilient or not case.get("fault"):
        fine = whole and wrong == 0 and fired and all(c == 0 for c in outcome["exit"])
        if resilient and case.get("fault") in MOVING:
            traffic_moved, words = moved(outcome)
            text += "  " + words
            fine = fine and traffic_moved
        return fine, text
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
    add("port_flap", fault="port_flap", extra=", down: 30 ms, up: 60 ms, count: 3")
    add("port_down_lost", fault="port_down", lasting=True)
    add("blackhole_simple", fault="blackhole", extra=heal, env={"NCCL_PROTO": "Simple"})
    add("blackhole_ll", fault="blackhole", extra=heal, env={"NCCL_PROTO": "LL"})
    add("blackhole_tree", fault="blackhole", extra=heal, env={"NCCL_ALGO": "allreduce:tree"}, ops="allreduce,allreduce")
    add("qp_error", fault="qp_error", extra=", qp: all")
    add("graphs_two_communicators", fault="port_down", extra=heal, ops="allreduce,allgather,reducescatter", args=["--graph", "--two"])
    if len(shapes) > 1:
        single = {"nodes": shapes[1][0], "gpus": shapes[1][1]}
        add("port_down_single_gpu_nodes", fault="port_down", extra=heal, **single)
        add("blackhole_single_gpu_nodes", fault="blackhole", extra=heal, **single)
        add("qp_error_single_gpu_nodes", fault="qp_error", extra=", qp: all", **single)
    if other_nccl:
        add("port_down_other_nccl", fault="port_down", extra=heal, env={"LD_PRELOAD": other_nccl})
        add("blackhole_other_nccl", fault="blackhole", extra=heal, env={"LD_PRELOAD": other_nccl})
    # PyTorch's own watchdog would end the process for the same failure.
    add("abort_in_migration", fault="port_down", abort=True, ops="allreduce",
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "R2CC_FAIL_BOUND_MS": "60000"})
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
    add("blackhole_baseline", fault="blackhole", mode=0, ops="allreduce")
    add("blackhole_nccl_ib", fault="blackhole", net="ib", ops="allreduce")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "..", "build", "release"))
    parser.add_argument("--gpus", type=int, required=True, help="1: two nodes share it, through CUDA's MPS where it is installed")
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
    with shared_gpu(2, arguments.gpus) as mps:
        os.environ.update(mps)
        return run_cases(arguments, wanted, unwanted, bool(mps))


def run_cases(arguments, wanted, unwanted, mps):
    """All cases, one after the other; 0 when all are as expected."""
    results, good = [], True
    default_nccl = set()
    host = host_facts(arguments.build) | {"mps": mps}
    for number, case in enumerate(cases(arguments.gpus, arguments.other_nccl)):
        if wanted and not any(word in case["name"] for word in wanted) or any(word in case["name"] for word in unwanted):
            continue
        outcome = run_case(case | {"port": 29500 + number}, arguments)
        fine, text = judge(outcome, arguments.iters)
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
            json.dump({"host": host, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                       "rate": arguments.rate, "bytes": arguments.bytes, "iters": arguments.iters, "cases": results}, file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
