#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./r2bench test --help` and `./r2bench build --help` explain the launcher's commands without building anything; so does
`./r2bench --help` while r2bench is not built.

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
        for command in ("test", "build", None):
            for option in ("--help", "-h"):
                with self.subTest(command=command, option=option), tempfile.TemporaryDirectory() as folder:
                    copy = shutil.copy(launcher, folder)
                    words = [option] if command is None else [command, option]
                    ended = subprocess.run([copy, "--no-install", *words], capture_output=True, text=True, timeout=60)
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                    self.assertIn(f"./r2bench {command or 'run'}", ended.stdout)
                    self.assertIn("R2BENCH_PRESET", ended.stdout)
                    self.assertEqual("not built yet" in ended.stdout, command is None)
                    self.assertEqual(os.listdir(folder), ["r2bench"])

    def test_help_is_that_of_r2bench_once_it_is_built(self):
        with tempfile.TemporaryDirectory() as folder:
            def program(path, text):
                path = os.path.join(folder, path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(path, 0o755)

            copy = shutil.copy(launcher, folder)
            program("build/release/bin/r2bench", '#!/bin/sh\necho "the program: $*"\n')
            program("tools/cmake", "#!/bin/sh\n")  # nothing is out of date, and no package is missing
            program("tools/dpkg-query", '#!/bin/sh\nshift 2\nfor package; do echo "$package installed"; done\n')
            ended = subprocess.run([copy, "--no-install", "--help"], capture_output=True, text=True, timeout=60,
                                   env={"PATH": f"{folder}/tools:/usr/bin:/bin"})
            self.assertEqual((ended.returncode, ended.stdout), (0, "the program: --help\n"), ended.stderr)


if __name__ == "__main__":
    launcher = os.path.abspath(sys.argv.pop(1))
    unittest.main()
