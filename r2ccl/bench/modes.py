#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what resilience costs a message without a failure: channel_bench in modes 0, 1 and 2, which alternate.

    r2ccl/bench/modes.py build/release --rounds 12 --out FILE.json
    r2ccl/bench/modes.py build/release --lost

For each size of a message the script measures the time from post to done, one message at a time, and the CPU time. For each size and mode it
prints the ratio to mode 0 of the same round: the geometric mean over the rounds, and the upper end of the 95 % interval (Student's t). Different
rounds are not compared, because other programs may use the machine. With --lost the channel's NIC, one of eight, has lost its link, and modes 1
and 2 are compared: in mode 1 another NIC carries the messages, in mode 2 the seven others do. Exit status: 0; 1 if an upper end is more than
--most percent above the mode that is compared with; 64 bad arguments; 69 a program is not there or failed.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

# Student's t, 97.5 %, by degrees of freedom.
T = [0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09]
MODES = {"0": "baseline", "1": "migrate", "2": "balance"}


def one_run(command, mode, seconds):
    """{size in bytes: (ns of wall time, ns of CPU time)} of a message."""
    done = subprocess.run([*command, "--benchmark_filter=channel_message", f"--benchmark_min_time={seconds}", "--benchmark_min_warmup_time=0.3",
                           "--benchmark_format=json"],
                          env=os.environ | {"R2CC_MODE": mode}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return {int(b["name"].split("/")[1]): (b["real_time"], b["cpu_time"]) for b in json.loads(done.stdout)["benchmarks"]}


def was_lost(path):
    """By the injector's witness of the last run, which is removed."""
    with open(path, encoding="utf-8") as file:
        faults = json.load(file)["faults"]
    os.remove(path)
    return bool(faults) and all(fault["t0_ns"] for fault in faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="build folder")
    parser.add_argument("--rounds", type=int, default=12, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=0.2, help="duration of each measurement")
    parser.add_argument("--lost", action="store_true", help="with a lost NIC")
    parser.add_argument("--most", type=float, default=None, help="largest upper end that passes, in percent above the mode that is compared with")
    parser.add_argument("--out", help="JSON file for all measurements")
    arguments = parser.parse_args()
    program = os.path.join(arguments.build, "bin", "channel_bench")
    if arguments.rounds < 2:
        print("--rounds must be at least 2", file=sys.stderr)
        return 64
    with tempfile.TemporaryDirectory() as folder:
        command, (base, *others) = [program], list(MODES)
        if arguments.lost:
            base, *others = "1", "2"
            plan = os.path.join(folder, "lost.yaml")
            with open(plan, "w", encoding="utf-8") as file:
                file.write("- {at: {wr: 1000}, target: node0/nic0, kind: port_down}\n")
            command = [os.path.join(arguments.build, "bin", "r2bench"), "exec", "--fabric", "vhca", "--nodes", "1", "--nics", "8", "--node", "node0", "--plan", plan,
                       "--witness", os.path.join(folder, "witness.json"), "--quiet", "--", program]
        rounds = []
        try:
            for r in range(arguments.rounds):
                order = [base, *others] if r % 2 == 0 else [base, *others][::-1]
                rounds.append({})
                for mode in order:
                    rounds[-1][mode] = one_run(command, mode, arguments.seconds)
                    if arguments.lost and not was_lost(os.path.join(folder, "witness.json")):
                        print("modes.py: the NIC was not lost, so nothing was measured", file=sys.stderr)
                        return 69
        except (OSError, subprocess.SubprocessError) as error:
            print(f"modes.py: {error}; build the benchmark with 'cmake --build {arguments.build} --target channel_bench'", file=sys.stderr)
            return 69
    rows, worst = [], 0
    print(f"{'bytes':>8}  {'measure':8}  {'mode ' + base + ' ns':>10}  {'mode':9}  {'ratio':>6}  upper 95 %")
    for size in sorted(rounds[0][base]):
        for index, measure in enumerate(("time", "CPU")):
            for mode in others:
                logs = [math.log(r[mode][size][index] / r[base][size][index]) for r in rounds]
                half = T[min(len(logs) - 1, len(T) - 1)] * statistics.stdev(logs) / math.sqrt(len(logs))
                ratio, upper = math.exp(statistics.mean(logs)), math.exp(statistics.mean(logs) + half)
                took = statistics.median(r[base][size][index] for r in rounds)
                rows.append({"bytes": size, "measure": measure, "mode": MODES[mode], "baseline_ns": took, "ratio": ratio, "upper_95": upper})
                print(f"{size:>8}  {measure:8}  {took:>10.1f}  {MODES[mode]:9}  {ratio:6.3f}  {upper:6.3f}")
                worst = max(worst, upper)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"rounds": arguments.rounds, "seconds": arguments.seconds, "rows": rows}, file, indent=1)
    return int(arguments.most is not None and 100 * (worst - 1) > arguments.most)


if __name__ == "__main__":
    sys.exit(main())
