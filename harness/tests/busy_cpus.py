#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks share one CPU, and a NIC is lost: the host engine of mode 3, which was predicted to be faster than NCCL's
ring under Balance, lacks CPU time and is slower. All ranks must go back to the ring, from the same operation on.

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
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 64 MiB, iters: 24, warmup: 2, verify: true}
modes: [allreduce]
env: {NCCL_DEBUG: INFO}
timeouts: {setup: 120 s, stall: 60 s, job: 280 s}
faults:
  - {at: {iter: 3}, target: node1/nic0, kind: port_down}
"""
RANKS = 4
SAID = re.compile(r"mode 3: communicator [0-9a-f]+, AllReduce (\d+) \(\d+ bytes\), plan (\d+): (over CollNet|NCCL's own choice)")
YIELDS = re.compile(r"AllReduces over the host engine take ([0-9.]+) times as long as over NCCL's ring .* for ([0-9]+) s\.")


def said_by(path):
    """(what the tuner of a rank answered and from which AllReduce on, in order; the yields of its engine)."""
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
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
    if any(times < 1.08 or seconds < 30 for log in logs for times, seconds in log[1]):
        found.append(f"a yield without a reason: {logs}")
    warmup = 2
    began = [number - warmup for number, answer in answers[0] if answer == "over CollNet"][0]
    ended = [number - warmup for number, answer in answers[0] if answer == "NCCL's own choice" and number - warmup > began][0]
    if ended - began < 4:
        found.append(f"it yields after {ended - began} operations, less than the four that it takes")
    slow, after = (statistics.median(run["iteration_ms"][a:b]) for a, b in ((began, ended), (ended, None)))
    print(f"over CollNet {slow:.0f} ms (operations {began} to {ended - 1}), after that {after:.0f} ms")
    if after > 0.95 * slow:
        found.append(f"NCCL's ring takes {after:.0f} ms, the engine took {slow:.0f}: it yielded without a gain")
    return found


def main():
    r2bench, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "busy_cpus.yaml").write_text(SCENARIO, encoding="utf-8")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    subprocess.run([r2bench, "run", str(folder / "busy_cpus.yaml"), "--quiet", "--no-plot", "--out", str(folder / "out")], check=False)
    run = json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))["runs"][0]
    found = flaws(run, [said_by(folder / "out" / rank["log"]) for rank in run["ranks"]])
    for flaw in found:
        print("wrong: " + flaw)
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 64)
    sys.exit(main())
