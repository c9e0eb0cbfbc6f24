#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nic_down, blackhole and k_of_8_nics (k = 1, 3 and 7) over mpirun on two hosts end as on one machine. Faults that are armed while the
job runs strike on the host of their target. A command (engine exec) is told its place on both hosts.

    mpirun_test.py R2BENCH
"""

import json
import shutil
import subprocess
import sys

import recorder
from cleanup_test import Job
from late_arm import armed_late
from namespaces import Hosts, fail, need

# Rates that a busy machine holds, and bounds that it keeps: what is shown is that several hosts make no difference.
NIC_DOWN = """
version: 1
name: nic_down
fabric: {kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 4, nic_rate: 100 Mbit/s}
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 2 MiB, iters: 60, verify: true}
modes: [baseline, migrate]
env: {NCCL_IB_TIMEOUT: 14}
faults:
  - {at: {iter: 20}, target: node1/nic0, kind: port_down}
expect:
  all: {fault_witness: ">= 1", wrong_elements: 0}
  baseline: {outcome: error, error_names_nic: yes}
  migrate:
    outcome: ok
    correctness: exact
    detect_ms.p50: "<= wakeup + 500 ms"
    recover_ms.max: "<= floor + wakeup + 1 s"
    retained_bw: ">= 0.8 * limit"
"""
BLACKHOLE = NIC_DOWN.replace("nic_down", "blackhole").replace("port_down", "blackhole").replace(", error_names_nic: yes", "").replace(
    "correctness: exact", "correctness: exact\n    detected_by: watchdog")
K_OF_8 = """
version: 1
name: k_of_8_nics-3
fabric: {kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 8, nic_rate: 50 Mbit/s}
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 2 MiB, iters: 60, verify: true}
modes: [migrate, balance]
faults:
  - {at: {iter: 20}, target: "node1/nic[0-2]", kind: port_down}
expect:
  all: {fault_witness: ">= 1", wrong_elements: 0, outcome: ok, correctness: exact}
  migrate: {retained_bw: ">= 0.8 * limit"}
  balance: {retained_bw: ">= 0.8 * limit"}
"""
K_OF_8_ALL = tuple(K_OF_8.replace("k_of_8_nics-3", f"k_of_8_nics-{k}").replace("nic[0-2]", "nic0" if k == 1 else f"nic[0-{k - 1}]") for k in (1, 3, 7))
ALL = (NIC_DOWN, BLACKHOLE, *K_OF_8_ALL)

EXEC = """
version: 1
name: exec_places
fabric: {kind: vhca, nodes: 2, ranks_per_node: 2, nics_per_node: 2}
workload:
  engine: exec
  command: 'echo on $(hostname) RANK=$RANK WORLD_SIZE=$WORLD_SIZE LOCAL_RANK=$LOCAL_RANK MASTER_ADDR=$MASTER_ADDR'
modes: [migrate]
expect:
  all: {outcome: ok}
"""

RATE_TRIES = 6  # a busy machine judges rates differently from run to run, or cannot tell them


def run(r2bench, scenario, out, before=(), after=(), environment=None):
    ended = subprocess.run([*before, r2bench, "run", str(scenario), "--no-plot", "--quiet", "--out", str(out), *after],
                           capture_output=True, text=True, timeout=240, env=environment)
    if not (out / "result.json").exists():
        fail(f"{scenario.name} {after}: no result (status {ended.returncode}):\n{ended.stdout}\n{ended.stderr}")
    return json.loads((out / "result.json").read_text()), ended.stdout


def verdicts(result):
    """Without the rates, which a busy machine may miss on both."""
    return {e["name"]: e["ok"] for e in result["expectations"] if not e["name"].endswith("retained_bw")}


def main():
    r2bench = sys.argv[1]
    need(("mpirun", "openmpi-bin"), ("ip", "iproute2"), ("nsenter", "util-linux"))
    with Hosts(2) as hosts:
        as_on_one_machine(r2bench, hosts, "mpi", lambda scenario, out: run(
            r2bench, scenario, out, hosts.enter("h0"), ["--launcher", "mpi", "--hosts", "h0,h1"], hosts.environment()))
        commands_know_their_places(r2bench, hosts)
        recorder.begin("emulated", hosts.in_words(), "mpi", "armed_late")
        armed_late(r2bench, Job(r2bench, hosts, hosts.folder / "armed_late"))
        hosts.expect_nobody("after armed_late")
        recorder.passed()
        print("armed_late: three faults struck where they should")


def commands_know_their_places(r2bench, hosts):
    scenario, out = hosts.folder / "exec.yaml", hosts.folder / "exec"
    scenario.write_text(EXEC)
    recorder.begin("emulated", hosts.in_words(), "mpi", "exec_places")
    result, report = run(r2bench, scenario, out, hosts.enter("h0"), ["--launcher", "mpi", "--hosts", "h0,h1"], hosts.environment())
    if result["verdict"] != "pass":
        fail(f"exec_places: {result['verdict']}:\n{report}")
    check_hosts(result, out, report)
    said = [(out / rank["log"]).read_text() for rank in result["runs"][0]["ranks"]]
    for rank, text in enumerate(said):
        wanted = f"on h{rank // 2} RANK={rank} WORLD_SIZE=4 LOCAL_RANK={rank % 2} MASTER_ADDR=h0\n"
        if wanted not in text:
            fail(f"rank {rank} was not told {wanted!r}, but {said}")
    if len(said) != 4:
        fail(f"{len(said)} ranks")
    hosts.expect_nobody("after exec_places")
    recorder.passed(result)
    print("exec_places: four commands knew their places")


def as_on_one_machine(r2bench, hosts, launcher, on_hosts, daemons=(), texts=ALL):
    """The scenarios, with the same verdict on this machine and on the two hosts. `on_hosts(scenario, out)`: runs one there,
    returns its result and its report. `daemons`: who stays."""
    for number, text in enumerate(texts):
        scenario = hosts.folder / "scenario.yaml"
        scenario.write_text(text)
        recorder.begin("emulated", hosts.in_words(), launcher, text.split("name: ")[1].split()[0])
        ours, theirs = hosts.folder / f"{number}-local", hosts.folder / f"{number}-{launcher}"
        for _ in range(RATE_TRIES):
            local, _ = run(r2bench, scenario, ours)
            shutil.rmtree(theirs, ignore_errors=True)
            several, report = on_hosts(scenario, theirs)
            check_hosts(several, theirs, report)
            hosts.expect_nobody(f"after {local['scenario']}", daemons)
            # A fault that was not seen to take effect, or came after the last iteration, proves nothing: once more.
            if local["verdict"] == several["verdict"] and None not in (*verdicts(local).values(), *verdicts(several).values()):
                break
            print(f"{local['scenario']}: {local['verdict']} {local.get('doubts')} on one machine, {several['verdict']} {several.get('doubts')} on two hosts: once more")
        else:
            # The last word of a machine that was busy all the time: a rate that cannot be told is no other verdict.
            if "unknown" not in (local["verdict"], several["verdict"]):
                fail(f"{local['scenario']}: with the rates {local['verdict']} on one machine, {several['verdict']} on two hosts, {RATE_TRIES} times:\n"
                     + "\n".join(f"{place}: {each['name']} {each['got']} {each['detail']}" for place, result in (("one machine", local), ("two hosts", several))
                                 for each in result["expectations"] if not each["ok"]) + f"\n{local.get('doubts')} {several.get('doubts')}")
        if not verdicts(several):
            fail(f"{local['scenario']}: no expectation was judged")
        if verdicts(local) != verdicts(several) or not all(verdicts(several).values()):
            fail(f"{local['scenario']}, on one machine and on two hosts:\n{json.dumps([verdicts(local), verdicts(several)], indent=1)}\n"
                 + "\n".join(str(result.get("doubts")) for result in (local, several)))
        print(f"{local['scenario']}: {len(verdicts(several))} expectations met on both; with the rates {local['verdict']} on one machine, "
              f"{several['verdict']} on two hosts")
        recorder.passed(several)


def check_hosts(result, folder, report):
    """Who lived where, how exactly times are known, and that everything was gathered."""
    for run_of_mode in result["runs"]:
        hosts = run_of_mode["hosts"]
        places = [(host["name"], host["first_node"], host["nodes"]) for host in hosts["list"]]
        if places != [("h0", 0, 1), ("h1", 1, 1)]:
            fail(f"the nodes live at {places}")
        bounds = [host["clock_bound_ms"] for host in hosts["list"]]
        # Both have this machine's clock: the offset is what is not known, and no more than the bound.
        if not all(0 < bound < 50 for bound in bounds) or not all(abs(host["clock_offset_ms"]) <= host["clock_bound_ms"] for host in hosts["list"]):
            fail(f"the clocks: {hosts}")
        if abs(hosts["clock_bound_ms"] - sum(bounds)) > 1e-6:
            fail(f"between hosts {hosts['clock_bound_ms']} ms, of {bounds}")
        for rank in run_of_mode["ranks"]:
            if not (folder / rank["log"]).exists():
                fail(f"{rank['label']} has no log {rank['log']}")
    if "host h1 with 1 node, clock ±" not in " ".join(report.split()):  # lines are wrapped
        fail(f"the report does not name the hosts:\n{report}")


if __name__ == "__main__":
    main()
