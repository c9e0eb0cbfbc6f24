#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""whole_file.py: writers of one file at the same time, and writers that are killed."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from whole_file import whole_file  # noqa: E402

WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from whole_file import whole_file
with whole_file(sys.argv[2]) as part:
    with open(part, "w") as file:
        file.write("half")
    print("begun", flush=True)
    sys.stdin.read()
    with open(part, "a") as file:
        file.write(", whole")
"""


class WholeFile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "figure.png"

    def half_written(self):
        writer = subprocess.Popen([sys.executable, "-B", "-c", WRITER, HERE, str(self.file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def end():
            writer.kill()
            writer.wait()
            writer.stdin.close()
            writer.stdout.close()
        self.addCleanup(end)
        self.assertEqual(writer.stdout.readline(), b"begun\n")
        return writer

    def write(self, text):
        with whole_file(str(self.file)) as part:
            pathlib.Path(part).write_text(text, encoding="utf-8")

    def content(self):
        return self.file.read_text(encoding="utf-8")

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_an_error_leaves_what_was_there(self):
        self.write("older")
        with self.assertRaises(ZeroDivisionError), whole_file(str(self.file)) as part:
            pathlib.Path(part).write_text("half", encoding="utf-8")
            raise ZeroDivisionError
        self.assertEqual(self.content(), "older")
        self.assertEqual(self.names(), ["figure.png"])

    def test_links_are_followed_and_permissions_kept(self):
        self.write("older")
        self.file.chmod(0o640)
        link = self.folder / "link"
        link.symlink_to("figure.png")
        with whole_file(str(link)) as part:
            pathlib.Path(part).write_text("newer", encoding="utf-8")
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.content(), "newer")
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o640)

    def test_a_writer_that_lives_keeps_its_part(self):
        other = self.half_written()
        self.write("newer")
        self.assertEqual(self.content(), "newer")
        self.assertEqual(self.names(), [".figure.png.r2bench-part", "figure.png"])
        other.stdin.close()
        self.assertEqual(other.wait(), 0)
        self.assertEqual(self.content(), "half, whole")
        self.assertEqual(self.names(), ["figure.png"])

    def test_what_a_killed_writer_has_left_is_removed_by_the_next_one(self):
        first, second = self.half_written(), self.half_written()
        second.kill()
        second.wait()
        self.assertEqual(self.names(), [".figure.png.r2bench-part", ".figure.png.r2bench-part2"])
        self.write("newer")
        self.assertEqual(self.names(), [".figure.png.r2bench-part", "figure.png"])
        first.kill()
        first.wait()
        self.write("newest")
        self.assertEqual(self.names(), ["figure.png"])

    def test_what_others_have_made_stays(self):
        (self.folder / ".figure.png.part").write_text("theirs", encoding="utf-8")
        (self.folder / ".figure.png.r2bench-part").mkdir()
        self.write("newer")
        self.assertEqual(self.names(), [".figure.png.part", ".figure.png.r2bench-part", "figure.png"])
        with self.assertRaises(FileNotFoundError), whole_file(str(self.folder / "none" / "figure.png")):
            pass


if __name__ == "__main__":
    unittest.main()
