# SPDX-License-Identifier: Apache-2.0
"""Interleaved pairs of perftest runs and what may be said of their ratio. Used by the scripts beside it."""

import math
import re

# Student's t, two-sided 95 %, by degrees of freedom; beyond the table the normal distribution is near enough.
STUDENT = [math.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09]
# The same, one-sided.
STUDENT_UPPER = [math.inf, 6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78, 1.77, 1.76, 1.75, 1.75, 1.74, 1.73, 1.73]


def average_gbits(output, size):
    """The average bandwidth in the row for `size` bytes of a perftest run with --report_gbits; None: there is no such row."""
    for line in output.splitlines():
        row = re.fullmatch(r"\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*", line)
        if row and int(row[1]) == size:
            return float(row[4])
    return None


def mean_and_error(values):
    """Mean and standard error of the mean; the error of fewer than two values is infinite."""
    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, math.inf
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)


def interval95(values):
    """Mean and the half width of its two-sided 95 % interval."""
    mean, error = mean_and_error(values)
    n = len(values)
    return mean, error * (STUDENT[n - 1] if n - 1 < len(STUDENT) else 1.96)


def upper95(values):
    """Mean and the upper 95 % bound of the mean (one-sided)."""
    mean, error = mean_and_error(values)
    n = len(values)
    return mean, mean + error * (STUDENT_UPPER[n - 1] if n - 1 < len(STUDENT_UPPER) else 1.645)
