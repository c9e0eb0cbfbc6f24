#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""t_over_t0.py on the committed table and on made-up ones; and that the table holds what the README says of it."""

import csv
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "..", "results", "tables", "allreduce.csv")
sys.path.insert(0, HERE)

import style  # noqa: E402
import t_over_t0  # noqa: E402

style.use()  # exit status 3 where matplotlib is missing


def program(*arguments):
    return subprocess.run([sys.executable, os.path.join(HERE, "t_over_t0.py"), *arguments], capture_output=True, text=True, check=False)


class TOverT0(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_the_program_draws_the_committed_table(self):
        done = program("--out", self.folder, TABLE)
        self.assertEqual(done.returncode, 0, done.stderr)
        for kind, least in (("png", 10000), ("pdf", 5000)):
            self.assertGreater(os.path.getsize(os.path.join(self.folder, "t_over_t0." + kind)), least)

    def test_the_planners_choice_is_near_the_bound_everywhere(self):
        with open(TABLE, encoding="utf-8", newline="") as file:
            chosen = [row for row in csv.DictReader(file) if row["chosen"] == "1"]
        self.assertEqual(len(chosen), 5 * 2 * 3 * 2)
        for row in chosen:
            self.assertLessEqual(float(row["simulated_bound"]), 1.035 if row["segments"] == "32" else 1.02, row)

    def test_every_algorithm_is_there_and_none_beats_the_bound(self):
        for point in t_over_t0.load(TABLE).values():
            self.assertEqual(set(point), set(t_over_t0.ALGORITHMS) | {"bound"})
            self.assertGreaterEqual(min(point.values()), point["bound"] * 0.995)

    def test_a_table_without_such_rows_and_a_missing_file_are_errors_in_one_line(self):
        path = os.path.join(self.folder, "empty.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("nodes,lost,degraded,segments,algorithm,chosen,formula_t0,simulated_t0,bound_t0,simulated_bound\n")
        for bad in (path, "/nonexistent/allreduce.csv"):
            done = program(bad)
            self.assertEqual(done.returncode, 64)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
