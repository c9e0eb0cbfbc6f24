#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./r2bench test --help` and `./r2bench build --help` explain the launcher's commands without building anything; so does
`./r2bench --help` while r2bench is not built. A run that needs the engine cpu alone builds no other engine's programs. What
only figures need is installed while the compiler runs.

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
            ended = in_a_built_copy(folder, "--help")
            self.assertEqual((ended.returncode, ended.stdout), (0, "the program: --help\n"), ended.stderr)

    def test_everything_is_built_unless_a_run_needs_less(self):
        with tempfile.TemporaryDirectory() as folder:
            texts = {"cpu": "workload: {engine: cpu}", "default": "faults: [{kind: port_down}]", "nccl": "workload: {engine: nccl}",
                     "exec": "workload:\n  engine: 'exec'", "real": "faults: [{kind: real_tc}]",
                     "rxe": "fabric: {kind: rxe}", "verbs": "fabric: {kind: verbs}"}
            file = {}
            for name, text in texts.items():
                file[name] = os.path.join(folder, f"the one {len(file)}.yaml")
                with open(file[name], "w", encoding="utf-8") as scenario:
                    scenario.write(f"version: 1\n{text}\n")
            less = [[], ["--help"], ["--version"], ["run", file["cpu"]], ["run", file["default"]], ["run", file["cpu"], file["default"]]]
            all_of_it = [["run", file[name]] for name in ("nccl", "exec", "real", "rxe", "verbs")]
            all_of_it += [["run", file["cpu"], file["nccl"]], ["run", file["cpu"], "--fabric", "rxe"], ["run", file["cpu"], "--set", "a=b"],
                          ["run"], ["run", "nic_down"], ["run", folder + "/missing.yaml"], ["run", folder], ["doctor"],
                          ["explain", file["cpu"]], ["build"]]
            for target, commands in (("runtime_cpu", less), ("runtime", all_of_it)):
                for words in commands:
                    with self.subTest(words=words):
                        ended = in_a_built_copy(folder, *words)
                        self.assertEqual(ended.returncode, 0, ended.stderr)
                        with open(os.path.join(folder, "build/release.log"), encoding="utf-8") as log:
                            self.assertEqual([line.split()[-1] for line in log if line.startswith("cmake --build")], [target])

    def test_what_ubsan_finds_ends_a_test(self):
        with tempfile.TemporaryDirectory() as folder:
            for before, after in ((None, ""), ("halt_on_error=0", ":halt_on_error=0")):  # the last word counts
                with self.subTest(before=before):
                    ended = in_a_built_copy(folder, "test", environment={} if before is None else {"UBSAN_OPTIONS": before})
                    self.assertEqual(ended.stdout, f"ctest with halt_on_error=1:print_stacktrace=1{after}\n", ended.stderr)

    def test_packages_of_figures_are_installed_while_it_builds(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(os.path.join(folder, "meet"))  # each of the two waits until the other is there
            apt = f'case "$*" in *matplotlib*) read -r word < {folder}/meet;; esac; echo "$*" >> {folder}/installed'
            cmake = f'case "$*" in --build*) echo building > {folder}/meet;; esac'
            ended = in_a_built_copy(folder, "doctor", missing=("g++", "python3-matplotlib"), apt=apt, cmake=cmake)
            self.assertEqual((ended.returncode, ended.stdout), (0, "the program: doctor\n"), ended.stderr)
            with open(os.path.join(folder, "installed"), encoding="utf-8") as installed:
                self.assertEqual([line.split()[-1] for line in installed], ["g++", "python3-matplotlib"])

    def test_nothing_runs_if_packages_of_figures_cannot_be_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = in_a_built_copy(folder, "doctor", missing=["python3-matplotlib"], apt="echo no such package; exit 100")
            self.assertEqual((ended.returncode, ended.stdout), (70, ""), ended.stderr)
            self.assertIn("no such package", ended.stderr)
            self.assertIn("cannot be installed", ended.stderr)

    def test_it_names_all_missing_packages_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = in_a_built_copy(folder, "doctor", missing=("g++", "python3-matplotlib"))
            self.assertEqual((ended.returncode, ended.stdout), (70, ""), ended.stderr)
            self.assertIn("apt-get install --no-install-recommends g++ python3-matplotlib\n", ended.stderr)


def in_a_built_copy(folder, *words, missing=(), apt=None, cmake=":", environment=None):
    """Runs the launcher in a copy where r2bench is built and nothing is out of date. No package is missing but those named, which
    the shell's commands `apt` would install; without them the launcher installs nothing."""
    def program(path, text):
        path = os.path.join(folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    copy = shutil.copy(launcher, folder)
    program("build/release/bin/r2bench", '#!/bin/sh\necho "the program: $*"\n')
    program("tools/cmake", f'#!/bin/sh\necho "cmake $*"\n{cmake}\n')
    program("tools/ctest", '#!/bin/sh\necho "ctest with $UBSAN_OPTIONS"\n')
    program("tools/dpkg-query", '#!/bin/sh\nshift 2\nfor package; do\n  case " $MISSING " in *" $package "*) ;; '
                                '*) echo "$package installed";; esac\ndone\n')
    program("tools/apt-get", f"#!/bin/sh\n{apt}\n")
    program("tools/sudo", '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n')
    return subprocess.run([copy, *(["--no-install"] if apt is None else []), *words], capture_output=True, text=True, timeout=60,
                          env={"PATH": f"{folder}/tools:/usr/bin:/bin", "MISSING": " ".join(missing), **(environment or {})})


if __name__ == "__main__":
    launcher = os.path.abspath(sys.argv.pop(1))
    unittest.main()
