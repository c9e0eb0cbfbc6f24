#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares r2ccl's spreading of traffic over rails with the optimum of the linear program, over random machines.

The program: minimise T, where x[g][i] is what group g sends over rail i, sum_i x[g][i] = its demand, and on each rail the
sum of x[g][i] * cost[g][i] is at most capacity[i] * T; cost is 1 on a group's own sockets' rails and far_cost elsewhere.
T is not asked to be less than what the busiest rail takes when all is well and everything is at home.

Usage: shares_lp_test.py PROGRAM (testing/shares_program.cc)
"""

import random
import subprocess
import sys

from scipy.optimize import linprog

INSTANCES = 600


def instance(g):
    """Rails dealt to one, two or four sockets in blocks, some lost or slow; a group of memory per socket, or memory that is near everywhere."""
    rails = g.choice([2, 4, 6, 8])
    sockets = g.choice([s for s in (1, 2, 4) if s <= rails])
    socket = [i * sockets // rails for i in range(rails)]
    nominal = [g.choice([1, 1, 1, 2, 4]) for _ in range(rails)]
    capacity = [n * g.choice([0, 0.1, 0.25, 0.5, 1, 1, 1, 1]) for n in nominal]
    if not any(capacity):
        capacity[g.randrange(rails)] = 1
    groups = []
    for s in range(sockets):
        far = sum(1 << i for i in range(rails) if socket[i] != s)
        groups.append((far, [g.choice([0, 1, 1, 2]) if socket[i] == s or g.random() < 0.2 else 0 for i in range(rails)]))
    if not any(any(demand) for _, demand in groups):
        groups[0][1][0] = 1
    return rails, g.choice([1, 1.25, 2, 4]), capacity, nominal, groups


def optimum(rails, far_cost, capacity, nominal, groups):
    n = len(groups) * rails
    cost = [[far_cost if far >> i & 1 else 1 for i in range(rails)] for far, _ in groups]
    equal = [[1.0 if k // rails == g else 0.0 for k in range(n)] + [0.0] for g in range(len(groups))]
    most = [[float(cost[k // rails][i]) if k % rails == i else 0.0 for k in range(n)] + [-float(capacity[i])] for i in range(rails)]
    healthy = max(sum(demand[i] for _, demand in groups) / nominal[i] for i in range(rails))
    found = linprog([0.0] * n + [1.0], A_ub=most, b_ub=[0.0] * rails, A_eq=equal, b_eq=[float(sum(d)) for _, d in groups],
                    bounds=[(0, None)] * n + [(healthy, None)], method="highs")
    assert found.status == 0, found.message
    return found.fun


def main():
    g = random.Random(7)
    instances = [instance(g) for _ in range(INSTANCES)]
    text = "".join(" ".join(str(x) for x in [rails, far_cost, *capacity, *nominal, len(groups)] + [y for far, d in groups for y in [far, *d]]) + "\n"
                   for rails, far_cost, capacity, nominal, groups in instances)
    out = subprocess.run([sys.argv[1]], input=text, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    assert len(out) == 2 * INSTANCES, len(out)
    wrong, worst, crossing = 0, 1.0, 0
    for number, one in enumerate(instances):
        planned, reached, best = float(out[2 * number]), float(out[2 * number + 1]), optimum(*one)
        worst = max(worst, reached / best)
        crossing += len(one[4]) > 1 and one[1] > 1
        if abs(planned / best - 1) > 1e-6 or reached > best * (1 + 1e-6):
            wrong += 1
            print(f"instance {number} {one}: planned {planned}, reached {reached}, the program's optimum is {best}")
    print(f"{INSTANCES} machines ({crossing} where crossing sockets costs something): {wrong} not at the optimum; the worst takes {worst:.9f} of its time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
