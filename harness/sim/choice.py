#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says how often the planner's choice for one AllReduce is slower, simulated, than the best of the algorithms.

    harness/sim/choice.py build/release/bin/r2bench [--nodes 3,4,6,8,16,32,64,128]

Runs `r2bench sim allreduce` for each number of nodes, lost fraction, number of degraded nodes, size, port rate and
latency. Prints for each number of nodes how many choices are more than 2 % slower than the best, the worst of them, and
the prediction of the choice over its simulated time. Times depend only on latency · rate / size, so one size and rate
stand for all with the same ratio. This takes about ten minutes of one core."""

import argparse
import json
import subprocess
import sys

LOST = (0.125, 0.25, 0.5)
DEGRADED = (1, 2, 3)
# (size, port rate, latency in µs): latency · rate / size from 0 to 4
NETWORKS = (("1GiB", "400Gbit/s", 0), ("1GiB", "25Gbit/s", 5), ("1GiB", "100Gbit/s", 5), ("1GiB", "400Gbit/s", 5),
            ("256MiB", "400Gbit/s", 5), ("64MiB", "400Gbit/s", 5), ("16MiB", "400Gbit/s", 5), ("4MiB", "100Gbit/s", 20),
            ("1MiB", "400Gbit/s", 2), ("1MiB", "400Gbit/s", 20), ("64KiB", "25Gbit/s", 20), ("64KiB", "400Gbit/s", 5))


def degraded_nodes(nodes, count, lost):
    """Evenly spread, node 0 first."""
    return ",".join(f"{i * nodes // count}:{lost}" for i in range(count))


def compared(r2bench, nodes, count, lost, network):
    size, rate, latency = network
    command = [r2bench, "sim", "allreduce", "--nodes", str(nodes), "--degraded", degraded_nodes(nodes, count, lost), "--bytes", size,
               "--rate", rate, "--latency", f"{latency} us", "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    algorithms = [algorithm for algorithm in result["algorithms"] if algorithm["eligible"]]
    best = min(algorithms, key=lambda algorithm: algorithm["simulated_s"])
    choice = next(algorithm for algorithm in algorithms if algorithm["name"] == result["chosen"])
    return {"slower": choice["simulated_s"] / best["simulated_s"], "predicted": choice["formula_s"] / choice["simulated_s"],
            "what": f"{nodes} nodes, {count} × {lost}, {' '.join(map(str, network))} µs: {choice['name']}, best {best['name']}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("r2bench", help="path of r2bench")
    parser.add_argument("--nodes", default="3,4,6,8,16,32,64,128", help="numbers of nodes")
    arguments = parser.parse_args()
    print("nodes  cases  > 2 %  > 10 %  worst  predicted / simulated")
    for nodes in map(int, arguments.nodes.split(",")):
        rows = [compared(arguments.r2bench, nodes, count, lost, network) for count in DEGRADED if count < nodes for lost in LOST for network in NETWORKS]
        worst = max(rows, key=lambda row: row["slower"])
        over = [sum(row["slower"] > limit for row in rows) for limit in (1.02, 1.10)]
        print(f"{nodes:5}  {len(rows):5}  {over[0]:5}  {over[1]:6}  {worst['slower']:5.2f}  {min(row['predicted'] for row in rows):.2f} … "
              f"{max(row['predicted'] for row in rows):.2f}   worst: {worst['what']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
