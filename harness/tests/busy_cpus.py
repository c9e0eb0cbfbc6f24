#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks share one CPU, and a NIC is lost: the host engine of mode 3, which was predicted to be faster than NCCL's
ring under Balance, lacks CPU time and is slower. All ranks must go back to the ring, from the same operation on. Then
every AllReduce is forced over the engine, the NIC comes back, and one of another node is lost: where no node is
degraded no engine may yield, and the ranks must go on to agree on plans.

    busy_cpus.py R2BENCH FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

SCENARIO = """version: 1
name: busy_cpus
seed: 5
fabric: {kind: vhca, nodes: 4, ranks_per_node: 1, nics_per_node: 4, nic_rate: 300 Mbit/s}
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 64 MiB, iters: ITERS, warmup: 2, verify: true, collnet: COLLNET}
modes: [allreduce]
env: {NCCL_DEBUG: INFO}
timeouts: {setup: 120 s, stall: 60 s, job: 280 s}
faults:
"""
LOST = """  - {at: {iter: 3}, target: node1/nic0, kind: port_down}
"""
HEALS = """  - {at: {iter: 1}, target: node1/nic0, kind: port_down, for: 1 s}
  - {at: {iter: 12}, target: node2/nic1, kind: port_down}
"""
RANKS = 4
SAID = re.compile(r"mode 3: communicator [0-9a-f]+, AllReduce (\d+) \(\d+ bytes\), plan (\d+): (over CollNet|NCCL's own choice)")
YIELDS = re.compile(r"AllReduces over the host engine take ([0-9.]+) times as long as over NCCL's ring .* for ([0-9]+) s\.")
AGREED = re.compile(r"mode 3 \(.*\): (.*); epoch (\d+) from operation")


def said_by(text):
    """(what the tuner of a rank answered and from which AllReduce on, in order; the yields of its engine), by its log."""
    return [(int(number), answer) for number, _, answer in SAID.findall(text)], [(float(times), int(seconds)) for times, seconds in YIELDS.findall(text)]


def flaws(run, logs):
    """What is wrong with the run; `logs`: what said_by() found, by rank."""
    if run["outcome"] != "ok" or not run["metrics"]["correctness"]["exact"]:
        return [f"outcome {run['outcome']}: {run['error']}"]
    found = [] if run["metrics"]["faults"]["witnessed"] == 1 else ["the fault did not take effect"]
    answers = [log[0] for log in logs]
    if len(answers) != RANKS or any(answer != answers[0] for answer in answers):
        return found + [f"the ranks' tuners did not answer alike: {answers}"]
    kinds = [answer for _, answer in answers[0]]
    if "over CollNet" not in kinds:
        return found + ["no AllReduce went over CollNet"]
    if not any(log[1] for log in logs) or kinds[-1] != "NCCL's own choice":
        return found + [f"no rank's engine yields: {kinds}"]
    warmup = 2
    began = [number - warmup for number, answer in answers[0] if answer == "over CollNet"][0]
    ended = [number - warmup for number, answer in answers[0] if answer == "NCCL's own choice" and number - warmup > began][0]
    slow, after = (statistics.median(run["iteration_ms"][a:b]) for a, b in ((began, ended), (ended, None)))
    print(f"over CollNet {slow:.0f} ms (operations {began} to {ended - 1}), after that {after:.0f} ms")
    if after > 0.95 * slow:
        found.append(f"NCCL's ring takes {after:.0f} ms, the engine took {slow:.0f}: it yielded without a gain")
    said = [times for log in logs for times, _ in log[1]]
    if not all(0.6 < times * after / slow < 1.6 for times in said):
        found.append(f"the engine took {slow / after:.2f} times as long as the ring, its ranks say {said}")
    return found


def flaws_of_healed(run, texts):
    """What is wrong with a run in which all AllReduces are forced over the engine, the only degraded node heals, and then one more is degraded."""
    if run["outcome"] != "ok" or not run["metrics"]["correctness"]["exact"]:
        return [f"outcome {run['outcome']}: {run['error']}"]
    found = [] if run["metrics"]["faults"]["witnessed"] == 2 else ["not all faults took effect"]
    for rank, text in enumerate(texts):
        agreed = [(int(epoch), words) for words, epoch in AGREED.findall(text)]
        if not any(words.startswith("all nodes are healthy") for _, words in agreed) or "node 2" not in agreed[-1][1]:
            found.append(f"rank {rank}'s plans end with {agreed[-2:]}")
        healthy = re.search(r"all nodes are healthy; epoch \d+ from(.*?); epoch \d+ from", text, re.DOTALL)
        if healthy is None or YIELDS.search(healthy[1]):
            found.append(f"rank {rank}'s engine yields while no node is degraded")
    return found


def run_job(r2bench, folder, iters, collnet, faults):
    """(the run of result.json, the log of each rank)."""
    folder.mkdir(parents=True)
    text = SCENARIO.replace("ITERS", str(iters)).replace("COLLNET", collnet) + faults
    (folder / "busy_cpus.yaml").write_text(text, encoding="utf-8")
    subprocess.run([r2bench, "run", str(folder / "busy_cpus.yaml"), "--quiet", "--no-plot", "--out", str(folder / "out")], check=False)
    run = json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))["runs"][0]
    return run, [(folder / "out" / rank["log"]).read_text(encoding="utf-8", errors="replace") for rank in run["ranks"]]


def main():
    r2bench, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    run, texts = run_job(r2bench, folder / "lost", 24, "auto", LOST)
    found = flaws(run, [said_by(text) for text in texts])
    run, texts = run_job(r2bench, folder / "heals", 20, "force", HEALS)
    found += flaws_of_healed(run, texts)
    for flaw in found:
        print("wrong: " + flaw)
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 64)
    sys.exit(main())
