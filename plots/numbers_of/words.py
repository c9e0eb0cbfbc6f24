# SPDX-License-Identifier: Apache-2.0
"""Numbers as words, and what several tables need: quantiles, intervals, rows of a set."""

import math
import statistics

import inputs
import tables

MODES = {"baseline": "0", "migrate": "1", "balance": "2", "allreduce": "3"}


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(field).replace("|", "\\|") for field in row) + " |" for row in rows]) + "\n"


def short(value, digits=3):
    """A number of three digits, '–' for what is not known, '∞' for a time that never came."""
    if value in (None, ""):
        return "–"
    value = float(value)
    if math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, digits - (whole if abs(value) >= 1 else 0))}f}"


def thousands(value):
    return f"{int(value):,}".replace(",", " ")


def mode(name):
    return MODES.get(name, name)


def rows_of(results, table, *sets):
    found = [row for row in tables.read(results, table) if row["set"] in sets]
    if not found:
        raise inputs.BadInput(f"{tables.path_of(results, table)}: has no rows of the set{'s' if len(sets) > 1 else ''} {', '.join(sets)}")
    return found


def student(freedom):
    """One-sided 95 % quantile of Student's distribution, by its expansion for many degrees of freedom (Abramowitz and Stegun, 26.7.5)."""
    z = 1.6448536
    return z + (z ** 3 + z) / (4 * freedom) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * freedom ** 2)


def student_both(freedom):
    """Two-sided 95 % quantile of Student's distribution, for few degrees of freedom, too: there it is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    def inside(angle):
        term = total = math.cos(angle) if freedom % 2 else 1.0
        for k in range(3 if freedom % 2 else 2, freedom, 2):
            term *= (k - 1) / k * math.cos(angle) ** 2
            total += term
        if freedom % 2:
            return 2 / math.pi * (angle + (math.sin(angle) * total if freedom > 1 else 0))
        return math.sin(angle) * total

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < 0.95 else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def median_of(rows, column, digits=3):
    values = [float(row[column]) for row in rows if row[column] != ""]
    return short(statistics.median(values), digits) if values else "–"


def from_to(values, digits=3):
    return f"{short(min(values), digits)}–{short(max(values), digits)}"


def median_between(values):
    """The interval that has the median with 95 % or more, by ranks alone: (the k-th least, the k-th greatest). None: there are too few values."""
    ordered, count = sorted(values), len(values)
    below, least = 0.0, 0
    for k in range(count // 2):
        below += math.comb(count, k) / 2**count
        if below > 0.025:
            break
        least = k + 1
    return (ordered[least - 1], ordered[-least]) if least else None


def mean_between(values):
    """The interval that has the mean with 95 % if the values are normally distributed. None: there are fewer than two."""
    if len(values) < 2:
        return None
    mean, error = statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))
    return mean - student_both(len(values) - 1) * error, mean + student_both(len(values) - 1) * error


def one_run(results, name, run, mode_name):
    found = [row for row in rows_of(results, "runs", name) if row["run"] == run and row["mode"] == mode_name]
    if not found:
        raise inputs.BadInput(f"{tables.path_of(results, 'runs')}: the set {name} has no run {run} in mode {mode_name}")
    return found[0]
