#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers of READMEs: those of the tree are what the tables say, and what is not is found."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "..", "results")
sys.path.insert(0, HERE)

import inputs  # noqa: E402
import number_tables  # noqa: E402
import readme_numbers  # noqa: E402


class ReadmeNumbers(unittest.TestCase):
    def call(self, *arguments):
        return subprocess.run([sys.executable, "-B", os.path.join(HERE, "readme_numbers.py"), *arguments], capture_output=True, text=True, check=False)

    def test_the_tree_says_what_the_tables_say(self):
        done = self.call("--check")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_files_of_the_tree_are_looked_at(self):
        self.assertLessEqual({"README.md", "results/README.md", "harness/vhca/README.md"}, set(readme_numbers.markdown_files()))

    def test_every_block_is_used_and_has_rows(self):
        used = set()
        for name in readme_numbers.markdown_files():
            with open(os.path.join(readme_numbers.ROOT, name), encoding="utf-8") as file:
                used |= set(re.findall(r"^<!-- numbers: ([\w-]+) -->", file.read(), re.MULTILINE))
        self.assertEqual(used, set(number_tables.BLOCKS))
        for name, make in number_tables.BLOCKS.items():
            self.assertGreater(len(make(RESULTS).splitlines()), 2, name)

    def test_a_number_that_was_changed_is_found_and_written_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            marked = "at most 9.9<!--n:mode3.most-->\ntimes\n<!-- numbers: gate -->\nold\n<!-- end -->\n"
            with open(path, "w", encoding="utf-8") as file:
                file.write(marked)
            done = self.call("--check", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{path}:1: is not what the tables say", done.stdout)
            self.assertEqual(self.call(path).returncode, 0)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            self.assertIn(f"at most {number_tables.NUMBERS['mode3.most'](RESULTS)}<!--n:mode3.most-->\ntimes\n", text)
            self.assertIn("| 2 ms | 20 | 20 | 43.6 |\n<!-- end -->", text)
            self.assertEqual(self.call("--check", path).returncode, 0)

    def test_a_mark_that_nobody_knows_is_an_error_with_its_line(self):
        with self.assertRaisesRegex(inputs.BadInput, "page.md:2: no number is called 'speed.of.light'; there are .*mode3.most"):
            readme_numbers.written("first\n3<!--n:speed.of.light-->\n", RESULTS, "page.md")

    def test_numbers_typed_by_hand_are_found_outside_of_marks_and_code(self):
        for text, wanted in (("took 12.5 ms", ["12.5"]), ("lost 3 % of it", ["3 %"]), ("`12.5` and 2.2<!--n:mode3.most-->", []), ("    sleep 0.5", []),
                             ("Linux 2.28.9, 200 runs, v8", []), ("| 0.5 |", ["0.5"]), ("[a](b-1.5.md)", []), ("it was 17.5.", ["17.5"])):
            self.assertEqual([found for _, found in readme_numbers.unmarked(text)], wanted, text)


if __name__ == "__main__":
    unittest.main()
