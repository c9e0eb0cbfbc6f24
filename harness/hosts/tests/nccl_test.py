#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The engine nccl over two hosts, with mpirun and with torchrun's environment. CUDA and NCCL are stand-ins (harness/workload/nccl/testing);
runner, agents and the rank program are the real ones. Ranks of both hosts form a communicator and every element is compared; a
communicator that one host cannot make, and an error in the middle of the job, end it on both hosts and are told with the rank; nothing is
left.

    nccl_test.py R2BENCH STANDIN_FOLDER
"""

import json
import subprocess
import sys

import recorder
from env_test import PLACES, SECRET, start
from namespaces import Hosts, fail, need

SCENARIO = """
version: 1
name: nccl_hosts
fabric: {kind: vhca, nodes: 2, ranks_per_node: 2, nics_per_node: 2}
workload: {engine: nccl, op: allreduce, dtype: float32, bytes: 1 MiB, iters: 20, warmup: 2, verify: true, library: FOLDER/libnccl.so.2}
modes: [migrate, balance]
env: {STANDIN_CUDA_GPUS: 2, STANDIN_NCCL_FAULT: "KIND"}
timeouts: {setup: 60 s, stall: 20 s}
expect:
  all: {outcome: ok, correctness: exact}
"""
# What the stand-in does in rank 1 of a communicator: the outcome, the exit status, and what the error says.
CASES = {"none": ("ok", 0, ""), "init": ("error", 1, "stand-in: no network"), "async@9": ("error", 1, "NCCL"), "corrupt@9": ("ok", 1, "")}


def over_mpirun(r2bench, hosts, environment, arguments):
    ended = subprocess.run([*hosts.enter("h0"), r2bench, "run", *arguments, "--launcher", "mpi", "--hosts", "h0,h1"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=240, env=dict(hosts.environment(), **environment))
    return ended.returncode, ended.stdout


def over_env(r2bench, hosts, environment, arguments):
    processes = [start(r2bench, hosts, *place, arguments, R2BENCH_JOB_SECRET=SECRET, **environment) for place in PLACES]
    said = [process.communicate(timeout=240)[0] for process in processes]
    return processes[0].returncode, said[0]


def one_case(r2bench, standin, hosts, launcher, over, fault):
    outcome, status, error = CASES[fault]
    recorder.begin("emulated", hosts.in_words(), launcher, f"nccl_{fault.split('@')[0]}")
    scenario, out = hosts.folder / "scenario.yaml", hosts.folder / f"{launcher}-{fault}"
    scenario.write_text(SCENARIO.replace("FOLDER", standin).replace("KIND", fault if fault != "none" else ""))
    ended, said = over(r2bench, hosts, {"LD_LIBRARY_PATH": standin}, [str(scenario), "--no-plot", "--quiet", "--out", str(out)])
    if not (out / "result.json").exists():
        fail(f"{launcher}, {fault}: no result (status {ended}):\n{said}")
    result = json.loads((out / "result.json").read_text())
    if ended != status or [run["outcome"] for run in result["runs"]] != [outcome] * 2:
        fail(f"{launcher}, {fault}: status {ended}, {[(run['outcome'], run['error']) for run in result['runs']]}:\n{said}")
    for run in result["runs"]:
        places = [(host["name"], host["first_node"], host["nodes"]) for host in run["hosts"]["list"]]
        if places != [("h0", 0, 1), ("h1", 1, 1)] or len(run["ranks"]) != 4:
            fail(f"{launcher}, {fault}: {len(run['ranks'])} ranks on {places}")
        if error not in (run["error"] or ""):
            fail(f"{launcher}, {fault}: the error does not say {error!r}, but {run['error']!r}")
        correctness = run["metrics"]["correctness"]
        if outcome == "ok" and (correctness["wrong_elements"] > 0) != (fault == "corrupt@9"):
            fail(f"{launcher}, {fault}: {correctness}")
    hosts.expect_nobody(f"after {launcher}, {fault}")
    recorder.passed(result if fault == "none" else None)
    print(f"{launcher}, {fault}: {outcome}, on both hosts")


def mps_is_refused(r2bench, standin, hosts):
    """It would be started on the first host only."""
    scenario = hosts.folder / "scenario.yaml"
    scenario.write_text(SCENARIO.replace("FOLDER", standin).replace("KIND", "").replace("verify: true", "verify: true, mps: true"))
    status, said = over_mpirun(r2bench, hosts, {}, [str(scenario), "--no-plot", "--quiet", "--out", str(hosts.folder / "mps")])
    if status != 64 or "starts CUDA's MPS on this machine only" not in said:
        fail(f"mps over mpirun: status {status}\n{said}")
    print("mpi: MPS is refused")


def main():
    r2bench, standin = sys.argv[1:3]
    need(("mpirun", "openmpi-bin"), ("ip", "iproute2"), ("nsenter", "util-linux"))
    with Hosts(2) as hosts:
        for launcher, over in (("mpi", over_mpirun), ("env", over_env)):
            for fault in CASES:
                one_case(r2bench, standin, hosts, launcher, over, fault)
        mps_is_refused(r2bench, standin, hosts)


if __name__ == "__main__":
    main()
