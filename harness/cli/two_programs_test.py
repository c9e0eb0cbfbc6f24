#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""r2bench runs scenarios on this machine by itself, and becomes r2bench-tools for everything else: the same process, with the same
words and the tools' exit status. Both print the same help.

    two_programs_test.py FOLDER      the folder with r2bench and r2bench-tools"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

folder = None
SCENARIO = "version: 1\nname: one\nmodes: [migrate]\nfabric: {kind: %s}\nworkload: {engine: cpu}\n"


class TwoProgramsTest(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)
        os.mkdir(os.path.join(self.place, "bin"))
        self.r2bench = shutil.copy(os.path.join(folder, "r2bench"), os.path.join(self.place, "bin"))

    def tools(self, script):
        path = os.path.join(self.place, "bin", "r2bench-tools")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)

    def call(self, *words):
        return subprocess.run([self.r2bench, *words], capture_output=True, text=True, cwd=self.place, timeout=60)

    def test_both_print_the_same_help_and_version(self):
        for option in ("--help", "--version"):
            one, other = (subprocess.run([os.path.join(folder, program), option], capture_output=True, text=True, timeout=60)
                          for program in ("r2bench", "r2bench-tools"))
            self.assertEqual((one.returncode, one.stdout), (0, other.stdout))
        help_of_tools = subprocess.run([os.path.join(folder, "r2bench"), "sim", "--help"], capture_output=True, text=True, timeout=60)
        self.assertEqual(help_of_tools.returncode, 0)
        self.assertIn("--reduction-rate", help_of_tools.stdout)

    def test_it_becomes_the_tools_with_the_same_words(self):
        with open(os.path.join(self.place, "rxe.yaml"), "w", encoding="utf-8") as file:
            file.write(SCENARIO % "rxe")
        with open(os.path.join(self.place, "plain.yaml"), "w", encoding="utf-8") as file:
            file.write(SCENARIO % "vhca")
        self.tools('printf "%s|" "$@"; exit 7')
        for words in (["sim", "allreduce", "a b"], ["exec", "--node", "node0", "--", "true", "--help"], ["host-agent", "mpi"], ["list", "--nonsense"],
                      ["run", "rxe.yaml"], ["run", "plain.yaml", "--fabric", "rxe"], ["run", "plain.yaml", "--launcher", "mpi"],
                      ["run", "plain.yaml", "--dry-run"], ["run", "--hosts", "a", "plain.yaml"]):
            with self.subTest(words=words):
                ended = self.call(*words)
                self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (7, "".join(word + "|" for word in words), ""))

    def test_it_is_the_same_process(self):
        self.tools('echo "$$ $(readlink /proc/$$/fd/0)"; kill -TERM $$; sleep 60')
        with subprocess.Popen([self.r2bench, "doctor"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as started:
            told, _ = started.communicate(timeout=60)
        self.assertEqual((told, started.returncode), (f"{started.pid} /dev/null\n", -signal.SIGTERM))

    def test_it_needs_no_tools_for_what_is_its_own(self):
        with open(os.path.join(self.place, "wrong.yaml"), "w", encoding="utf-8") as file:
            file.write("version: 1\nnmae: one\n")
        self.tools("exit 7")
        for words, status in ((["run", "wrong.yaml"], 64), (["run"], 64), (["run", "--help"], 0), (["lst"], 64), ([], 64)):
            with self.subTest(words=words):
                self.assertEqual(self.call(*words).returncode, status)

    def test_it_says_how_to_get_tools_that_are_missing(self):
        ended = self.call("list")
        self.assertEqual((ended.returncode, ended.stdout), (64, ""))
        self.assertIn("`./r2bench build` builds it", ended.stderr)
        self.assertIn("bin/r2bench-tools", ended.stderr)


if __name__ == "__main__":
    folder = os.path.abspath(sys.argv.pop(1))
    unittest.main()
