#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every program of the tree answers --help with its usage on standard output and exit status 0, wherever it is called. Python programs
do so with nothing but Python's own library installed.

    help_test.py REPOSITORY"""

import ast
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import unittest

repository = None
NOT_SOURCE = {"build", "results", "third_party", "__pycache__"}
# They have no command line, or one that only another file of the tree calls.
NOT_FOR_USERS = {
    "harness/fabric/guest/init.sh": "process 1 of the guest",
    "harness/hosts/tests/guest_slurm.sh": "run by two_guests_test.py inside the guest",
    "cloudlab/tests/two_nodes.sh": "run by two_nodes.py inside the guest",
}
UNKNOWN_IS_64 = [".ci/no_excuse", ".ci/run", "cloudlab/autorun.sh", "cloudlab/reproduce.sh", "cloudlab/setup.sh", "harness/fabric/guest/rxe_net.sh"]


def source_files():
    """(path from the repository's root, first line) of its source files that are no C++."""
    for folder, folders, files in os.walk(repository):
        folders[:] = [name for name in folders if name not in NOT_SOURCE and (name == ".ci" or not name.startswith("."))]
        for name in files:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not (name.endswith((".py", ".sh")) or os.access(path, os.X_OK)):
                continue
            with open(path, "rb") as file:
                yield os.path.relpath(path, repository), file.readline().decode(errors="replace")


def parses_options(path):
    """Whether it is a program (it tests __name__) that calls argparse, or the shared command line of the figures."""
    with open(os.path.join(repository, path), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    is_program = any(isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in tree.body)
    called = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    return is_program and bool(called & {"ArgumentParser", "run_main"})


def python_programs():
    return sorted(path for path, first in source_files() if (path.endswith(".py") or "python" in first) and parses_options(path))


def shell_programs():
    return sorted(path for path, first in source_files() if first.startswith("#!") and first.rstrip().endswith("sh") and path not in NOT_FOR_USERS)


def call(command):
    """Its end, and what it left in the empty folder in which it ran."""
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", "COLUMNS": "120"}
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(command, cwd=folder, env={**environment, "HOME": folder, "R2CCL_SETUP_ROOT": folder}, stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=60, check=False)
        return ended, os.listdir(folder)


class HelpTest(unittest.TestCase):
    def assert_helps(self, commands):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for command, (ended, left) in zip(commands, pool.map(call, commands)):
                with self.subTest(command=" ".join(command[-2:])):
                    self.assertEqual((ended.returncode, ended.stderr, left), (0, "", []))
                    self.assertIn(os.path.basename(command[-2]), ended.stdout)

    def test_python_programs_need_only_pythons_own_library(self):
        programs = python_programs()
        for path in (".ci/prose", "harness/workload/exec/torch_steps.py", "plots/busbw.py", "plots/timeline.py"):
            self.assertIn(path, programs)
        self.assertGreater(len(programs), 35)
        # -S: site-packages and dist-packages are not searched.
        self.assert_helps([[sys.executable, "-B", "-S", "-s", os.path.join(repository, path), "--help"] for path in programs])

    def test_shell_programs_print_their_usage(self):
        programs = shell_programs()
        for path in ("r2bench", ".ci/nightly", "cloudlab/setup.sh", "cloudlab/reproduce.sh"):
            self.assertIn(path, programs)
        self.assert_helps([[os.path.join(repository, path), option] for path in programs if path != "r2bench" for option in ("--help", "-h")])

    def test_unknown_words_are_a_wrong_command_line(self):
        for path in UNKNOWN_IS_64:
            with self.subTest(program=path):
                ended, _ = call([os.path.join(repository, path), "--what"])
                self.assertEqual((ended.returncode, ended.stdout), (64, ""), ended.stderr)
                self.assertIn(os.path.basename(path), ended.stderr)

    def test_those_that_are_left_out_exist(self):
        for path in NOT_FOR_USERS:
            self.assertTrue(os.path.isfile(os.path.join(repository, path)), path)


if __name__ == "__main__":
    repository = os.path.abspath(sys.argv.pop(1))
    unittest.main()
