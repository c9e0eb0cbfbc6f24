#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nic_down, blackhole and k_of_8_nics over two hosts with kernels of their own (two guests with soft RoCE) end as on one machine
with soft RoCE; a real loss of a link and a real loss of packets are made on the host whose NIC it is, and put back.

    two_guests_test.py R2BENCH [env|mpi|slurm [NAME…]]

env: the same command runs in both guests with the environment that torchrun gives. mpi: one command in the first guest; mpirun
starts the agent in the other through remote_shell.py. slurm: a real Slurm of both guests (guest_slurm.sh). On the guests' own
devices (`--fabric verbs`). NAME: these scenarios only. Skipped (77) where the system is not Debian, of whose kernel the guests
are made, or a package is missing.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "fabric" / "tests"))
import recorder  # noqa: E402
from mpirun_test import verdicts  # noqa: E402
from slurm_cluster import CONFIGURATION  # noqa: E402
from rxe_smoke import fail as say_failed, guests_of, on_debian, wait_for  # noqa: E402

PATIENCE = 1500  # s: soft RoCE under emulation, on a busy machine

# Times are those of an emulated machine (a tick late is 8 ms there); sizes are what its soft RoCE carries in seconds, and in minutes
# where others compile beside. `stall`: there, too, the job is waited for until its rate after the fault is known.
NIC_DOWN = """
version: 1
name: nic_down
fabric: {kind: verbs, nodes: 2, ranks_per_node: 1, nics_per_node: 4}
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 1 MiB, iters: 60, verify: true}
modes: [baseline, migrate]
env: {NCCL_IB_TIMEOUT: 18, NCCL_IB_RETRY_CNT: 6}
timeouts: {job: 1200 s, stall: 120 s}
faults:
  - {at: {iter: 20}, target: node1/nic0, kind: port_down}
expect:
  all: {fault_witness: ">= 1", wrong_elements: 0}
  baseline: {outcome: error}
  migrate: {outcome: ok, correctness: exact}
"""
BLACKHOLE = NIC_DOWN.replace("nic_down", "blackhole").replace("port_down", "blackhole")
K_OF_8 = """
version: 1
name: k_of_8_nics
fabric: {kind: verbs, nodes: 2, ranks_per_node: 1, nics_per_node: 8}
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 1 MiB, iters: 60, verify: true}
modes: [migrate, balance]
env: {NCCL_IB_TIMEOUT: 18, NCCL_IB_RETRY_CNT: 6}
timeouts: {job: 1200 s, stall: 120 s}
faults:
  - {at: {iter: 20}, target: "node1/nic[0-2]", kind: port_down}
expect:
  all: {fault_witness: ">= 1", wrong_elements: 0, outcome: ok, correctness: exact}
"""
# Struck in the guest whose NIC it is, by the guard of that host, and put back.
REAL_LINK_DOWN = NIC_DOWN.replace("nic_down", "real_link_down").replace("kind: port_down", "kind: real_link_down, for: 3 s").replace(
    "[baseline, migrate]", "[migrate]").replace("  baseline: {outcome: error}\n", "").replace("iters: 60", "iters: 100")
REAL_TC = REAL_LINK_DOWN.replace("real_link_down", "real_tc").replace("kind: real_tc,", "kind: real_tc, loss: 100 %,")
SCENARIOS = ((NIC_DOWN, 4), (BLACKHOLE, 4), (K_OF_8, 8), (REAL_LINK_DOWN, 4), (REAL_TC, 4))

GUEST_SLURM = str(pathlib.Path(__file__).resolve().parent / "guest_slurm.sh")
REMOTE_SHELL = str(pathlib.Path(__file__).resolve().parent / "remote_shell.py")


def over_env(words, _folder):
    """The commands of both guests."""
    both = []
    for rank in range(2):
        both += ["::"] * rank + ["env", f"RANK={rank}", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=node0", "MASTER_PORT=29400",
                                 "R2BENCH_JOB_SECRET=of this test, and long enough", *words, "--launcher", "env"]
    return both


def over_mpi(words, _folder):
    python = "/usr/bin/python3"
    return ["env", f"OMPI_MCA_plm_rsh_agent={REMOTE_SHELL}", "OMPI_MCA_plm=rsh", "OMPI_MCA_ras=^slurm", "OMPI_MCA_oob_tcp_if_include=r2switch",
            python, REMOTE_SHELL, "then", *words, "--launcher", "mpi", "--hosts", "node0,node1", "::", python, REMOTE_SHELL, "serve"]


def over_slurm(words, folder):
    for name in ("slurm.conf", "munge.key", "ended"):
        (folder / name).unlink(missing_ok=True)
    nodes = "".join(f"NodeName={name} NodeHostname={name} CPUs=1 State=UNKNOWN\n" for name in ("node0", "node1"))
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder="/run/slurm", nodes=nodes).replace("SlurmctldHost=h0", "SlurmctldHost=node0"))
    (folder / "munge.key").write_bytes(os.urandom(64))
    return [GUEST_SLURM, str(folder), *words, "--launcher", "slurm", "::", GUEST_SLURM, str(folder)]


def on_one_machine(r2bench, folder, text, nics):
    """The same text in one guest that has both nodes: what the two guests are compared with."""
    name = text.split("name: ")[1].split()[0]
    scenario, out = folder / f"{name}.yaml", folder / f"{name}-one"
    scenario.write_text(text)
    command = [r2bench, "guest", "--guests", "1", "--nics", str(nics), "--write", str(folder), "--", r2bench, "run", str(scenario), "--no-plot", "--quiet",
               "--out", str(out), "--allow-real-faults"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if not (out / "result.json").exists():
        fail(f"{name} on one machine: no result (status {ended.returncode}):\n{ended.stdout[-6000:]}\n{ended.stderr}")
    return json.loads((out / "result.json").read_text())


def run(commands, r2bench, folder, text, nics, more=()):
    name = text.split("name: ")[1].split()[0]
    scenario, out = folder / f"{name}.yaml", folder / name
    scenario.write_text(text)
    command = [r2bench, "guest", "--guests", "2", "--nics", str(nics), "--write", str(folder), "--",
               *commands([r2bench, "run", str(scenario), "--no-plot", "--quiet", "--out", str(out), *more], folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if not (out / "result.json").exists():
        fail(f"{name}: no result (status {ended.returncode}):\n{ended.stdout[-6000:]}\n{ended.stderr}")
    return json.loads((out / "result.json").read_text()), ended


def check(result, ended, alone):
    name = result["scenario"]
    if not verdicts(result) or verdicts(result) != verdicts(alone):
        fail(f"{name}, on one machine and on two:\n{json.dumps([alone['expectations'], result['expectations']], indent=1)}\n{ended.stdout[-6000:]}")
    if result["verdict"] != "pass" or ended.returncode != 0:
        fail(f"{name}: {result['verdict']}, status {ended.returncode}\n{json.dumps(result['expectations'], indent=1)}\n{ended.stdout[-6000:]}")
    if result["evidence"] != "rxe":
        fail(f"{name}: evidence {result['evidence']}, not rxe")
    for one in result["runs"]:
        places = [(host["first_node"], host["nodes"]) for host in one["hosts"]["list"]]
        if places != [(0, 1), (1, 1)]:
            fail(f"{name}: the nodes live at {places}")
        if not 0 < one["hosts"]["clock_bound_ms"]:
            fail(f"{name}: the clocks of two kernels are not known exactly: {one['hosts']}")
    print(f"{name}: {[(one['mode'], one['outcome']) for one in result['runs']]}, clocks ± "
          f"{max(one['hosts']['clock_bound_ms'] for one in result['runs']):.1f} ms, pass", flush=True)


def fail(why):
    recorder.failed()
    say_failed(why)


def check_put_back(result, out):
    """The second host made the change, said so, and put it back."""
    said = {}
    for line in (out / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        said.setdefault(event.get("event"), []).append(event.get("source"))
    for name in ("will_change", "real_fault", "put_back"):
        if said.get(name) != ["node1"]:
            fail(f"{result['scenario']}: '{name}' was said by {said.get(name)}, not once by node1")


def main():
    if not on_debian():
        print("skipped: the guest is made of Debian's kernel package, and this is not Debian")
        return 77
    os.environ.pop("R2BENCH_RXE_HERE", None)
    r2bench = os.path.abspath(sys.argv[1])
    launcher = sys.argv[2] if len(sys.argv) > 2 else "env"
    for program, package in {"env": (), "mpi": (("mpirun", "openmpi-bin"),), "slurm": (("srun", "slurm-wlm"), ("slurmctld", "slurm-wlm"), ("munged", "munge"))}[launcher]:
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin"):
            print(f"skipped: {program} is missing: apt-get install {package}")
            return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for text, nics in SCENARIOS:
            scenario = text.split("name: ")[1].split()[0]
            if sys.argv[3:] and scenario not in sys.argv[3:]:
                continue
            real = scenario.startswith("real_")
            recorder.begin("rxe", "2 guests", launcher, scenario)
            result, ended = run({"env": over_env, "mpi": over_mpi, "slurm": over_slurm}[launcher], r2bench, folder, text, nics, ("--allow-real-faults",) if real else ())
            check(result, ended, on_one_machine(r2bench, folder, text, nics))
            if real:
                check_put_back(result, folder / scenario)
            recorder.passed(result)
    wait_for(lambda: not guests_of(os.getpid()), "the guests' end")
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
