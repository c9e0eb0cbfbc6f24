#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""whole_file.py: writers of one file at the same time, and writers that are killed."""

import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from whole_file import alone, whole_file  # noqa: E402

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


NOBODY = 65534


def as_another(action):
    """Whether it returns True, in a process of a user who may do less than root."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            status = 0 if action() else 1
        finally:
            os._exit(status)
    return os.waitpid(process, 0)[1] == 0


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

    def test_a_file_in_a_folder_that_cannot_be_written_is_written_in_place(self):
        self.write("longer than the newer one")
        self.file.chmod(0o666)
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o755)

        def writes():
            self.write("newer")
            return True
        self.assertTrue(as_another(writes))
        self.assertEqual(self.content(), "newer")
        self.file.chmod(0o444)
        self.assertFalse(as_another(writes))
        self.assertEqual(self.names(), ["figure.png"])

    @unittest.skipIf(os.geteuid() != 0, "gives a file to another user")
    def test_the_owner_is_kept(self):
        self.write("older")
        os.chown(self.file, NOBODY, NOBODY)
        self.file.chmod(0o640)
        self.write("newer")
        status = self.file.stat()
        self.assertEqual((status.st_uid, status.st_gid, status.st_mode & 0o777), (NOBODY, NOBODY, 0o640))

    @unittest.skipIf(os.geteuid() != 0, "writes a file of another user")
    def test_a_file_that_cannot_keep_its_owner_is_written_in_place(self):
        self.write("older")
        self.file.chmod(0o666)
        self.folder.chmod(0o777)

        def writes():
            self.write("newer")
            return True
        self.assertTrue(as_another(writes))
        self.assertEqual(self.content(), "newer")
        self.assertEqual(self.file.stat().st_uid, 0)
        self.assertEqual(self.names(), ["figure.png"])


class Alone(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "table.csv"
        self.lock = self.folder / ".table.csv.r2bench-lock"

    def is_locked(self):
        with open(self.lock, encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def test_a_link_is_another_name_of_the_file(self):
        (self.folder / "link").symlink_to("table.csv")
        for exists in (False, True):
            if exists:
                self.file.touch()
            with alone(str(self.folder / "link")):
                self.assertTrue(self.is_locked())
            self.assertFalse(self.lock.exists())

    def test_the_lock_of_another_user_is_one(self):
        self.lock.touch()
        self.lock.chmod(0o444)
        self.folder.chmod(0o777)

        def has_it():
            with alone(str(self.file)):
                return self.is_locked()
        self.assertTrue(as_another(has_it))
        self.assertFalse(self.lock.exists())

    def test_what_is_no_regular_file_has_none(self):
        os.mkfifo(self.folder / "pipe")
        for name in (str(self.folder / "pipe"), "/dev/null"):
            with alone(name):
                self.assertEqual([path.name for path in self.folder.iterdir()], ["pipe"])
                self.assertFalse(os.path.exists("/dev/.null.r2bench-lock"))

    def test_inode_numbers_may_change(self):
        with mock.patch("os.path.samestat", return_value=False):
            for _ in range(200):
                with whole_file(str(self.file)):
                    pass
            with alone(str(self.file)):
                self.assertTrue(self.is_locked())
        self.assertEqual([path.name for path in self.folder.iterdir()], ["table.csv"])


if __name__ == "__main__":
    unittest.main()
