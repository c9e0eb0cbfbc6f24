#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what R2CCL costs beside NCCL's own IB transport, without NCCL's kernels and without a GPU: the cpu workload over both, over
virtual NICs without a limit, in one job whose operations take turns. The IB transport is that of a libnccl with its symbol table, such as
PyPI's (`pip download --no-deps nvidia-nccl-cu13`). The control is the IB transport beside itself.

    harness/bench/beside_nccl_ib.py --library /path/libnccl.so.2 --jobs 8 --out FILE.json

For each size and mode: the ratio of the times of operations, and that of the CPU times of both ranks; the mean over the jobs with its 95 %
interval (Student's t). AllReduces of two nodes; jobs of all modes and sizes take turns. Exit status: 0, or 69: a job failed."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = {"8 B": (8, 32000), "512 B": (512, 32000), "4 KiB": (4 << 10, 24000), "16 KiB": (16 << 10, 16000), "64 KiB": (64 << 10, 9600), "1 MiB": (1 << 20, 2560)}  # bytes, operations
MODES = {"migrate": "{{mode: migrate, beside: {ib}}}", "balance": "{{mode: balance, beside: {ib}}}",
         "control": "{{mode: baseline, label: control, plugin: '{library}', beside: baseline}}"}
# Student's t, two-sided, 95 %, from one degree of freedom on.
T = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086]


def scenario(size, mode, library):
    iters = SIZES[size][1]
    one = MODES[mode].format(ib=f"{{mode: baseline, plugin: '{library}'}}", library=library)
    return (f"version: 1\nname: beside_nccl_ib\nfabric: {{kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 2, nic_rate: unlimited}}\n"
            f"workload: {{engine: cpu, op: allreduce, bytes: {size}, iters: {iters}, warmup: {max(8, iters // 40)}, verify: false}}\nmodes: [{one}]\n"
            f"expect: {{all: {{outcome: ok, beside_operations: {iters}}}}}\n")


def one_job(build, size, mode, library):
    """The ratios of the times and of the CPU times, and the time of the other side's operations in µs."""
    with tempfile.TemporaryDirectory(prefix="r2ccl-beside-") as folder:
        path, out = os.path.join(folder, "beside.yaml"), os.path.join(folder, "out")
        with open(path, "w", encoding="utf-8") as file:
            file.write(scenario(size, mode, library))
        done = subprocess.run([os.path.join(build, "bin", "r2bench"), "run", path, "--quiet", "--no-plot", "--out", out], capture_output=True, text=True, check=False,
                              env={**os.environ, "R2BENCH_CAPTURE": "operations"})
        if done.returncode != 0:
            raise OSError(f"{size}, {mode}: r2bench ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}")
        with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
    run = result["runs"][0]
    cpu = [sum(rank["cpu_by_side_s"][side] for rank in run["ranks"]) for side in (0, 1)]
    return run["metrics"]["beside"]["ratio"], cpu[0] / cpu[1], 1e6 * cpu[1] / (SIZES[size][1] / 2)


def interval(values):
    mean = statistics.mean(values)
    half = T[min(len(values) - 2, len(T) - 1)] * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libnccl.so.2, 2.23 to 2.32, with its symbol table")
    parser.add_argument("--build", default=os.path.join(HERE, "../../build/release"), help="folder with bin/ and lib/ (default: build/release)")
    parser.add_argument("--jobs", type=int, default=5, metavar="N", help="jobs of each size and mode, at least 2 (default: 5)")
    parser.add_argument("--sizes", default=",".join(SIZES), help=f"of {', '.join(SIZES)}; separated by commas")
    parser.add_argument("--out", help="also write the ratios to this JSON file")
    arguments = parser.parse_args()
    sizes = [size.strip() for size in arguments.sizes.split(",")]
    if arguments.jobs < 2:
        parser.error("--jobs: an interval needs 2 at least")
    if unknown := [size for size in sizes if size not in SIZES]:
        parser.error(f"--sizes: '{unknown[0]}' is none of {', '.join(SIZES)}")
    if not os.access(arguments.library, os.R_OK):
        parser.error(f"--library: {arguments.library} cannot be read")
    library = os.path.abspath(arguments.library)
    found = {(size, mode): [] for size in sizes for mode in MODES}
    try:
        for job in range(arguments.jobs):
            for size in sizes:
                for mode in list(MODES)[:: 1 if job % 2 == 0 else -1]:
                    found[size, mode].append(one_job(arguments.build, size, mode, library))
            print(f"{job + 1} of {arguments.jobs} jobs of each kind", file=sys.stderr, flush=True)
    except (OSError, KeyError, ValueError) as error:
        print(f"beside_nccl_ib.py: {error}", file=sys.stderr)
        return 69
    rows = []
    print(f"{'size':>7}  {'mode':8}  {'measure':8}  {'ratio':>6}  95 % interval")
    for (size, mode), jobs in found.items():
        for index, measure in enumerate(("time", "CPU time")):
            ratio, low, high = interval([job[index] for job in jobs])
            print(f"{size:>7}  {mode:8}  {measure:8}  {ratio:6.4f}  {low:.4f} to {high:.4f}")
            rows.append({"benchmark": f"cpu workload beside NCCL's IB: {measure} of an AllReduce", "bytes": SIZES[size][0], "mode": "ib" if mode == "control" else mode,
                         "ratio": ratio, "ratio_low95": low, "ratio_high95": high})
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"jobs": arguments.jobs, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
