#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the plugin's throughput with that of perftest's ib_write_bw on the same virtual HCA.

Each pair of runs is `ib_write_bw`, then unlimited.yaml (registered buffers, nothing verified) with the same number of bytes
per operation. With `--op broadcast`, two ranks move data in one direction, as ib_write_bw does. With `--op sendrecv` they move
data in both directions, as `ib_write_bw -b` does, with one difference: perftest's two directions are independent and each is
timed separately, whereas those of SendRecv wait for each other, so the slower one counts twice. Prints each pair, and the mean
ratio with its 95 % confidence interval. Exit status: 0 the mean ratio is at least --least, 1 it is not, 64 something is missing
or failed."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

from perftest_pairs import average_gbits, interval95

HERE = os.path.dirname(os.path.abspath(__file__))
def perftest(build, size, iterations, both):
    """Gbit/s, of both directions together if there are two."""
    tool = ["ib_write_bw", "-d", "vhca0", "-x", "1", "-s", str(size), "-n", str(iterations), "-F", "--report_gbits",
            "-p", str(20000 + os.getpid() % 12000)] + (["-b"] if both else [])
    command = [os.path.join(build, "bin", "vhca-exec"), "--nodes", "2", "--nics", "1", "--", *tool, "::", *tool, "127.0.0.1"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    gbits = average_gbits(output, size)
    if gbits is not None:
        return gbits
    sys.exit(f"ib_write_bw printed no row for {size} bytes:\n{output}")


def ours(build, size, iterations, mode, op):
    """Gbit/s, of both directions together if there are two."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        subprocess.run([os.path.join(build, "bin", "r2bench"), "run", os.path.join(HERE, "unlimited.yaml"), "--quiet",
                        "--no-plot", "--modes", mode, "--set", f"workload.op={op}", "--set", f"workload.bytes={size} B", "--set", f"workload.iters={iterations}",
                        "--out", out], capture_output=True, text=True, timeout=180, check=True)
        with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
            run = json.load(file)["runs"][0]
        return (2 if op == "sendrecv" else 1) * 8 * run["row"]["busbw_gbytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"), help="build folder")
    parser.add_argument("--pairs", type=int, default=10, help="number of pairs of runs")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="bytes of an operation, and of each WRITE of ib_write_bw")
    parser.add_argument("--gib", type=float, default=6, help="data that each run moves in each direction, in GiB")
    parser.add_argument("--op", choices=["broadcast", "sendrecv"], default="broadcast", help="operation of the plugin")
    parser.add_argument("--mode", default="baseline", help="mode of the plugin: baseline or migrate")
    parser.add_argument("--least", type=float, default=0.9, help="smallest mean ratio (plugin / ib_write_bw) that passes")
    arguments = parser.parse_args()
    if shutil.which("ib_write_bw") is None:
        print("ib_write_bw is missing: apt-get install perftest", file=sys.stderr)
        return 64
    for program in ("vhca-exec", "r2bench"):
        if not os.access(os.path.join(arguments.build, "bin", program), os.X_OK):
            print(f"{arguments.build}/bin/{program} is missing: build it, or name another folder with --build", file=sys.stderr)
            return 64
    iterations = max(10, int(arguments.gib * (1 << 30) / arguments.bytes))
    ratios = []
    print("pair  ib_write_bw  r2ccl (Gbit/s)  ratio")
    for pair in range(arguments.pairs):
        try:
            peer = perftest(arguments.build, arguments.bytes, iterations, arguments.op == "sendrecv")
            own = ours(arguments.build, arguments.bytes, iterations, arguments.mode, arguments.op)
        except subprocess.CalledProcessError as error:
            print(f"{' '.join(error.cmd)} ended with {error.returncode}:\n{error.stdout}{error.stderr}", file=sys.stderr)
            return 64
        ratios.append(own / peer)
        print(f"{pair + 1:4}  {peer:11.2f}  {own:14.2f}  {ratios[-1]:.3f}", flush=True)
    mean, half = interval95(ratios)
    print(f"ratio {mean:.3f}, 95 % interval {mean - half:.3f} to {mean + half:.3f}; wanted: at least {arguments.least}")
    return 0 if mean >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
