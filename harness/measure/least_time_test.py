#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares least_time() of harness/measure/limits.h with the optimum that scipy finds for the linear program, on random nodes:
least_time_test.py PROGRAM [--instances N] [--seed N]. Exits with 3 when scipy is missing."""

import argparse
import math
import random
import subprocess
import sys


def random_node(rng):
    """(far_cost, demand per socket, [(capacity, socket) per NIC]); some sockets have no NIC or no demand, some NICs are
    dead, at least one is not."""
    sockets = rng.randint(1, 4)
    far_cost = rng.choice([1.0, 1.25, 2.0, 4.0, rng.uniform(1, 10)])
    while True:
        demand = [rng.choice([0.0, 1.0, 4.0, rng.uniform(0, 8)]) for _ in range(sockets)]
        nics = [(rng.choice([0.0, 1.0, 1.0, 1.0, rng.uniform(0.05, 1)]), rng.randrange(sockets))
                for _ in range(rng.randint(1, 12))]
        if sum(demand) > 0 and any(capacity > 0 for capacity, _ in nics):
            return far_cost, demand, nics


def optimum(linprog, far_cost, demand, nics):
    """The linear program as it stands in limits.h. Variables: x[s][i] for every socket and NIC, then T."""
    sockets, count = len(demand), len(nics)
    size = sockets * count + 1
    equal, wanted, at_most = [], [], []
    for s in range(sockets):
        row = [0.0] * size
        for i in range(count):
            row[s * count + i] = 1.0
        equal.append(row)
        wanted.append(demand[s])
    bounds = [(0, None)] * size
    for i, (capacity, socket) in enumerate(nics):
        row = [0.0] * size
        for s in range(sockets):
            row[s * count + i] = 1.0 if s == socket else far_cost
            if capacity == 0:
                bounds[s * count + i] = (0, 0)
        row[-1] = -capacity
        at_most.append(row)
    solved = linprog([0.0] * (size - 1) + [1.0], A_ub=at_most, b_ub=[0.0] * count, A_eq=equal, b_eq=wanted,
                     bounds=bounds, method="highs")
    assert solved.status == 0, solved.message
    return solved.fun


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--instances", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        from scipy.optimize import linprog  # after the options, so that --help answers without scipy
    except ImportError:
        print("scipy is missing; install python3-scipy", file=sys.stderr)
        sys.exit(3)
    rng = random.Random(arguments.seed)
    nodes = [random_node(rng) for _ in range(arguments.instances)]
    lines = []
    for far_cost, demand, nics in nodes:
        numbers = [far_cost, len(demand), *demand, len(nics)]
        for nic in nics:
            numbers += nic
        lines.append(" ".join(repr(n) for n in numbers))
    said = subprocess.run([arguments.program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True,
                          timeout=60).stdout.split()
    assert len(said) == len(nodes), (len(said), len(nodes))
    wrong = crossing = 0
    for node, line, word in zip(nodes, lines, said):
        best = optimum(linprog, *node)
        crossing += best < optimum(linprog, 1e6, *node[1:]) * (1 - 1e-6)
        if not math.isclose(float(word), best, rel_tol=1e-6, abs_tol=1e-9):
            wrong += 1
            print(f"{line}: the program says {word}, the linear program {best}")
    print(f"{len(nodes)} nodes, of which {crossing} are better off across sockets; {wrong} differ")
    # Nodes at which nothing crosses would show nothing.
    sys.exit(0 if wrong == 0 and crossing >= len(nodes) // 10 else 1)


if __name__ == "__main__":
    main()
