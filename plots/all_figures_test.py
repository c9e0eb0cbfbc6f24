#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""all_figures.py: that it makes every figure, what it says of data that is not there and of files that cannot be used; and that the figures in
results/figures are drawn from the tables beside them."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "..", "results")
sys.path.insert(0, HERE)

import all_figures  # noqa: E402
import busbw  # noqa: E402
import fault_matrix  # noqa: E402
import inputs  # noqa: E402
import style  # noqa: E402
import tables  # noqa: E402

style.use()  # exit status 3 where matplotlib is missing


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def call(self, *arguments):
        return subprocess.run([sys.executable, "-B", os.path.join(HERE, "all_figures.py"), "--out", self.folder, *arguments], capture_output=True, text=True, check=False)

    def test_a_folder_that_is_missing_is_made_and_one_that_cannot_be_is_an_error_in_one_line(self):
        def one(out):
            return subprocess.run([sys.executable, "-B", os.path.join(HERE, "fault_matrix.py"), "--results", RESULTS, "--out", out],
                                  capture_output=True, text=True, check=False)
        new = os.path.join(self.folder, "a", "b")
        self.assertEqual(one(new).returncode, 0)
        self.assertTrue(os.path.exists(os.path.join(new, "fault_matrix.png")))
        file = os.path.join(new, "fault_matrix.png")
        done = one(file)
        self.assertEqual(done.returncode, 64)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1)
        self.assertIn(file + ": fault_matrix cannot be written there", done.stderr)

    def test_every_figure_is_made_or_says_what_makes_its_data(self):
        done = self.call("--results", RESULTS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        made = 0
        for module in all_figures.FIGURES:
            line = next(line for line in done.stdout.splitlines() if module.NAME in line)
            if "no data: run " in line:
                self.assertTrue("r2bench" in line or "sweep.py" in line or "allreduce_table.py" in line or "head_to_head.py" in line, line)
                continue
            made += 1
            with open(os.path.join(self.folder, module.NAME + ".pdf"), "rb") as file:
                content = file.read()
            self.assertTrue(content.startswith(b"%PDF"))
            self.assertIn(b"/FontFile2", content)  # embedded TrueType: text stays text
            self.assertNotIn(b"/Type3", content)
            self.assertGreater(os.path.getsize(os.path.join(self.folder, module.NAME + ".png")), 5000)
        self.assertGreaterEqual(made, 6)
        self.assertIn(f"{made} of {len(all_figures.FIGURES)} figures made", done.stdout)

    def test_without_data_each_figure_names_its_command_and_strict_fails(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        done = self.call("--results", empty)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("no data: run "), len(all_figures.FIGURES), done.stdout)
        self.assertEqual(self.call("--results", empty, "--strict").returncode, 1)

    def test_a_file_that_cannot_be_used_is_named_and_the_others_are_drawn(self):
        results = os.path.join(self.folder, "results")
        place = os.path.join(results, "tables")
        shutil.copytree(os.path.join(RESULTS, "tables"), place)
        path = os.path.join(place, "matrix.csv")
        header = ",".join(tables.COLUMNS["matrix"])
        for content, words in (("hello,world\n1,2\n", ": is no table of matrix"), (header + "\nmode1,noop,conn", ":2: was cut off"), ("", ": is no table of matrix"),
                               (header.replace("verdict", "judgement") + "\n", "it has no column 'verdict'")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            with self.assertRaises(inputs.BadInput) as caught:
                fault_matrix.data(results)
            self.assertIn(path, str(caught.exception))
            self.assertIn(words, str(caught.exception))
        done = self.call("--results", results)  # with the last of them
        self.assertEqual(done.returncode, 64, done.stdout)
        line = next(line for line in done.stdout.splitlines() if line.startswith("fault_matrix"))
        self.assertIn(path, line)
        self.assertIn(words, line)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "t_over_t0.png")))


class Kept(unittest.TestCase):
    """The figures in results/figures are drawn from the tables beside them: a table that changes needs `r2bench plot --all`."""

    def test_each_figure_was_drawn_from_the_tables_as_they_are(self):
        for module in all_figures.FIGURES:
            source = style.digest(module.data(RESULTS))
            for kind in ("png", "pdf"):
                self.assertEqual(style.drawn_from(os.path.join(RESULTS, "figures", f"{module.NAME}.{kind}")), source,
                                 f"{module.NAME}.{kind} was drawn from other data; run r2bench plot --all --out results/figures")

    def test_there_are_no_others(self):
        self.assertEqual(set(os.listdir(os.path.join(RESULTS, "figures"))), {f"{module.NAME}.{kind}" for module in all_figures.FIGURES for kind in ("png", "pdf")})

    def test_a_row_that_changes_changes_the_digest(self):
        with tempfile.TemporaryDirectory() as results:
            os.mkdir(os.path.join(results, "tables"))
            for name in ("allreduce_sizes", "provenance"):
                shutil.copy(os.path.join(RESULTS, "tables", name + ".csv"), os.path.join(results, "tables"))
            before = style.digest(busbw.Mode3.data(results))
            self.assertEqual(before, style.digest(busbw.Mode3.data(RESULTS)))
            rows = tables.read(results, "allreduce_sizes")
            row = next(row for row in rows if row["set"] == busbw.Mode3.SETS[0])
            row["t_ms"] = float(row["t_ms"]) * 1.001
            tables.write(results, "allreduce_sizes", rows)
            self.assertNotEqual(style.digest(busbw.Mode3.data(results)), before)


if __name__ == "__main__":
    unittest.main()
