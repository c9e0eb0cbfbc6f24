# SPDX-License-Identifier: Apache-2.0
"""Jobs of several 'nodes' (NCCL_HOSTID) on this machine's GPUs, each node with its own virtual NICs: what gpu_memory.py, allreduce_matrix.py and
head_to_head.py share. A job of run_case() is PyTorch with unmodified NCCL (collectives.py), started through `r2bench exec`; every element is
compared. What ranks printed, NCCL's logs, the plugin's counters (R2CC_METRICS) and the injector's witness come back as one dict."""

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "faultinject"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "base"))
import fault_kinds  # noqa: E402
import origin  # noqa: E402

MOVING = fault_kinds.names(moves_traffic=True)  # kinds after which traffic has to move in modes 1 and 2
MOVED = re.compile(r"\d channels? migrated")  # the plugin's words; r2ccl/OPERATING.md
PROXY_OF_ANOTHER = re.compile(r" via NET/R2CCL/\d+\(\d+\)")  # NCCL's word for PXN: the NIC, and the rank whose proxy uses it


# Quits the daemon and removes its folder, $0, when its user has ended, however that came about (harness/run/mps.cc does the same).
MPS_KEEPER = "cat >/dev/null; echo 'quit -t 5' | timeout -k 5 60 nvidia-cuda-mps-control >/dev/null 2>&1; rm -rf -- \"$0\""


def struck_iteration(k, iters):
    """The iteration in which the k-th operation's fault strikes: a third of the way through."""
    return k * (iters + 2) + 2 + iters // 3


def plan_of(case, iters):
    """Lines of a fault plan. One fault in each operation; the target alternates between NICs and nodes. `lasting`: one alone, soon after the
    beginning, for good."""
    kind, extra = case.get("fault"), case.get("extra", "")
    if kind is None:
        return []
    if case.get("lasting"):
        return [f"- {{at: {{iter: 4}}, target: node1/nic0, kind: {kind}{extra}}}"]
    return [f"- {{at: {{iter: {struck_iteration(k, iters)}}}, phase: {{up_to: 8 ms}}, target: node{k % 2}/nic{k // 2 % 2}, kind: {kind}{extra}}}"
            for k in range(case["ops"].count(",") + 1)]


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
    mps = {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(folder, "pipe"), "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "log")}
    for path in mps.values():
        os.mkdir(path)
    # Not with the marks of a job whose command this may be: its end would kill the daemon, and the keeper before it has cleaned up.
    env = {name: value for name, value in os.environ.items() if name not in ("R2BENCH_MEMBER", "R2BENCH_COMMAND")} | mps
    with subprocess.Popen(["sh", "-c", MPS_KEEPER, folder], stdin=subprocess.PIPE, env=env, start_new_session=True) as keeper:  # its pipe ends with us
        try:
            try:
                started = subprocess.run([control, "-d"], env=env, timeout=60, check=False).returncode == 0
            except subprocess.TimeoutExpired:
                started = False
            yield mps if started else {}
        finally:
            keeper.stdin.close()


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
    env |= {"NCCL_NET_PLUGIN": os.path.join(lib, "libnccl-net-r2ccl.so"), "NCCL_NET": "R2CCL", "R2CC_MODE": str(case["mode"]),
            "R2CC_METRICS": os.path.join(folder, "counters-%p.prom")}
    return env | case.get("env", {})


def run_name(case):
    """Of the case's fabric and hosts: another program's ranks of the same case must not join them."""
    return f"{case['name']}-{os.getpid()}"


def free_port():
    """One on which nobody listens now, for the ranks' first meeting."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_rank(rank, case, arguments, folder, plan_file):
    """The process of one rank; rank 0 holds the fabric and, where there is a plan, the fault board."""
    node = rank // case["gpus"]
    command = [os.path.join(arguments.build, "bin", "r2bench"), "exec", "--fabric", "vhca", "--name", run_name(case),
               "--nodes", str(case["nodes"]), "--nics", str(case.get("nics", 2)), "--rate", case.get("rate", arguments.rate), "--node", f"node{node}"]
    if rank == 0 and plan_file:
        command += ["--plan", plan_file, "--witness", os.path.join(folder, "witness.json")]
    command += ["--", sys.executable, os.path.join(HERE, "collectives.py"), "--ops", case["ops"], "--iters", str(arguments.iters),
                "--bytes", str(arguments.bytes), "--timeout", "40"]
    env = {**os.environ, **environment(case, arguments, folder), "RANK": str(rank), "LOCAL_RANK": str(rank % case.get("on_gpus", arguments.gpus)),
           "NCCL_HOSTID": f"{run_name(case)}-node{node}"}
    with open(os.path.join(folder, f"rank{rank}.log"), "w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=os.setpgrp, env=env)


def wait_for(ranks, deadline):
    """Whether some had to be killed: at the deadline, or a minute after the first one that failed."""
    first_end, killed = None, False
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
    return killed


def said_by_ranks(folder, count):
    """What the ranks printed: results, the virtual HCA's lines, and the end of the rest."""
    found = {"ranks": [], "tails": [], "vhca": []}
    for rank in range(count):
        with open(os.path.join(folder, f"rank{rank}.log"), encoding="utf-8", errors="replace") as log:
            text = log.read()
        lines = [line for line in text.splitlines() if line.startswith('{"rank"')]
        found["vhca"] += [line for line in text.splitlines() if line.startswith("vhca:")][:20]
        found["ranks"].append(json.loads(lines[-1]) if lines else None)
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
        found["moved_lines"] += sum(MOVED.search(line) is not None for line in lines)
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
        killed = wait_for(ranks, begin + arguments.limit)
        outcome = {"case": {k: v for k, v in case.items() if k != "port"}, "seconds": round(time.monotonic() - begin, 1),
                   "killed": killed, "exit": [p.returncode for p in ranks]}
        outcome["counters"], outcome["processes_counted"] = counters(folder)
        return outcome | said_by_ranks(folder, len(ranks)) | said_by_nccl(folder) | {"witness": witness_of(folder)}
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
