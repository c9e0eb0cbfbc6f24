#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what resilience costs a message without a failure: channel_bench in modes 0, 1 and 2, which alternate.

    r2ccl/bench/modes.py build/release --rounds 12 --out FILE.json

For messages of 8 bytes the script measures the time from post to done, one message at a time; for 1 MiB the CPU time, that is CPU time per
byte. For each size and mode it prints the ratio to mode 0 of the same round: the geometric mean over the rounds, and the upper end of the 95 %
interval (Student's t). Different rounds are not compared, because other programs may use the machine. Exit status: 0; 1 if an upper end is
more than --most percent above mode 0; 64 bad arguments.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys

# Student's t, 97.5 %, by degrees of freedom.
T = [0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09]
MODES = {"0": "baseline", "1": "migrate", "2": "balance"}


def one_run(program, mode, seconds):
    """{size in bytes: (ns of wall time, ns of CPU time)} of a message."""
    done = subprocess.run([program, "--benchmark_filter=channel_message", f"--benchmark_min_time={seconds}", "--benchmark_format=json"],
                          env=os.environ | {"R2CC_MODE": mode}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return {int(b["name"].split("/")[1]): (b["real_time"], b["cpu_time"]) for b in json.loads(done.stdout)["benchmarks"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="build folder")
    parser.add_argument("--rounds", type=int, default=12, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=0.2, help="duration of each measurement")
    parser.add_argument("--most", type=float, default=None, help="largest upper end that passes, in percent above mode 0")
    parser.add_argument("--out", help="JSON file for all measurements")
    arguments = parser.parse_args()
    program = os.path.join(arguments.build, "bin", "channel_bench")
    if not os.access(program, os.X_OK) or not 2 <= arguments.rounds:
        print(f"{program} has to be there, and --rounds at least 2", file=sys.stderr)
        return 64
    rounds = []
    for r in range(arguments.rounds):
        order = list(MODES) if r % 2 == 0 else list(MODES)[::-1]
        rounds.append({mode: one_run(program, mode, arguments.seconds) for mode in order})
    rows, worst = [], 0
    print(f"{'bytes':>8}  {'measure':8}  {'mode 0 ns':>10}  {'mode':9}  {'ratio':>6}  upper 95 %")
    for size in sorted(rounds[0]["0"]):
        for index, measure in enumerate(("time", "CPU")):
            for mode in ("1", "2"):
                logs = [math.log(r[mode][size][index] / r["0"][size][index]) for r in rounds]
                half = T[min(len(logs) - 1, len(T) - 1)] * statistics.stdev(logs) / math.sqrt(len(logs))
                ratio, upper = math.exp(statistics.mean(logs)), math.exp(statistics.mean(logs) + half)
                base = statistics.median(r["0"][size][index] for r in rounds)
                rows.append({"bytes": size, "measure": measure, "mode": MODES[mode], "baseline_ns": base, "ratio": ratio, "upper_95": upper})
                print(f"{size:>8}  {measure:8}  {base:>10.1f}  {MODES[mode]:9}  {ratio:6.3f}  {upper:6.3f}")
                worst = max(worst, upper)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"rounds": arguments.rounds, "seconds": arguments.seconds, "rows": rows}, file, indent=1)
    return int(arguments.most is not None and 100 * (worst - 1) > arguments.most)


if __name__ == "__main__":
    sys.exit(main())
