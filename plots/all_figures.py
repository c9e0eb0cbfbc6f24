#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws every figure of the project from the tables in results/. Prints a line per figure: its file, or the command that makes its data.

    python3 plots/all_figures.py --results results --out results/figures      (or: r2bench plot --all)

Exit status: 0; 1 with --strict if a figure has no data; 64 if a file cannot be used."""

import argparse
import os
import sys

import inputs
import style

import beside
import busbw
import channels
import fault_matrix
import head_to_head
import recovery_cdf
import retained
import stall
import t_over_t0
import timeline

FIGURES = [timeline, recovery_cdf, busbw, busbw.Mode3, retained, stall, t_over_t0, channels, fault_matrix, *head_to_head.IN_RESULTS, beside]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="folder of the results (default: results)")
    parser.add_argument("--out", default=".", help="folder of the figures")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a figure has no data")
    arguments = parser.parse_args()
    style.use()
    missing, bad = 0, 0
    for module in FIGURES:
        try:
            data = module.data(arguments.results)
            style.save(module.draw(data), arguments.out, module.NAME, style.digest(data))
            print(os.path.join(arguments.out, module.NAME) + ".png, .pdf")
        except inputs.NoData as error:
            missing += 1
            print(f"{module.NAME}: no data: run {error}")
        except inputs.BadInput as error:
            bad += 1
            print(f"{module.NAME}: {error}")
        except (KeyError, TypeError, ValueError) as error:
            bad += 1
            print(f"{module.NAME}: a file of {arguments.results} has unexpected content: {error!r}")
        style.close()
    print(f"{len(FIGURES) - missing - bad} of {len(FIGURES)} figures made" + (f", {missing} without data" if missing else "")
          + (f", {bad} from files that cannot be used" if bad else ""))
    return inputs.BAD_INPUT if bad else 1 if missing and arguments.strict else 0


if __name__ == "__main__":
    sys.exit(main())
