#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a table of AllReduce algorithms by number of nodes, lost fraction of a node's capacity, and number of degraded nodes.

    harness/sim/sweep.py build/release/bin/r2bench --out build/sim

Runs `r2bench sim allreduce` (flow simulator; latency 0 and 1 GiB, so that times are ratios of volumes) and writes
allreduce.csv, with the times relative to the fault-free ring (t0). With K = 64 segments only the planner's choice is
simulated. This takes minutes. At the end it prints the command that puts the table into results/."""

import argparse
import csv
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "base"))
import origin  # noqa: E402

NODES = (4, 8, 16, 64, 128)
LOST = (0.125, 0.25, 0.5)
COLUMNS = ("nodes", "lost", "degraded", "segments", "algorithm", "chosen", "formula_t0", "simulated_t0", "bound_t0", "simulated_bound")


def stragglers(nodes, count):
    """Evenly spread, node 0 first."""
    return [i * nodes // count for i in range(count)]


def rows(r2bench, nodes, lost, count, segments):
    command = [r2bench, "sim", "allreduce", "--nodes", str(nodes), "--bytes", "1GiB", "--latency", "0", "--segments", str(segments), "--json",
               "--degraded", ",".join(f"{node}:{lost}" for node in stragglers(nodes, count))]
    if segments == 64:
        command.append("--only-chosen")
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    t0 = result["fault_free_ring_s"]
    for algorithm in result["algorithms"]:
        yield (nodes, lost, count, segments, algorithm["name"], int(algorithm["name"] == result["chosen"]),
               *(f"{value:.4f}" for value in (algorithm["formula_s"] / t0, algorithm["simulated_s"] / t0, result["bound_s"] / t0,
                                              algorithm["simulated_s"] / result["bound_s"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("r2bench", help="path of r2bench")
    parser.add_argument("--out", default="build/sim", help="folder of the table")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    with open(os.path.join(arguments.out, "allreduce.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for nodes in NODES:
            for count in (1, 2 if nodes < 16 else 4):
                for lost in LOST:
                    for segments in (32, 64):
                        writer.writerows(rows(arguments.r2bench, nodes, lost, count, segments))
                        file.flush()
                        print(nodes, count, lost, segments, file=sys.stderr)
    print(f"into the tables of results/: plots/collect.py sim allreduce {arguments.out}/allreduce.csv --commit {origin.of_program(arguments.r2bench)} "
          f"--date {origin.today()}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
