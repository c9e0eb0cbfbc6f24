#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./r2bench test --help` and `./r2bench build --help` explain the launcher's commands without building anything.

    launcher_test.py LAUNCHER      the script at the top of the repository"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

launcher = None


class LauncherTest(unittest.TestCase):
    def test_help_of_its_own_commands_builds_nothing(self):
        for command in ("test", "build"):
            for option in ("--help", "-h"):
                with self.subTest(command=command, option=option), tempfile.TemporaryDirectory() as folder:
                    copy = shutil.copy(launcher, folder)
                    ended = subprocess.run([copy, "--no-install", command, option], capture_output=True, text=True, timeout=60)
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                    self.assertIn(f"./r2bench {command}", ended.stdout)
                    self.assertIn("R2BENCH_PRESET", ended.stdout)
                    self.assertEqual(os.listdir(folder), ["r2bench"])


if __name__ == "__main__":
    launcher = os.path.abspath(sys.argv.pop(1))
    unittest.main()
