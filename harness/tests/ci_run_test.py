#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
""".ci/run itself, in a copy where small programs stand for r2bench, cmake and ctest: the build that runs beside the tests
decides nothing and ends with the script, whatever ends it."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Configures a folder where the first target takes as long as COMPILER and the others take no time.
CMAKE = """
echo "cmake $*" >>calls
case $1 in
  --preset)
    mkdir -p build/tsan
    { printf 'rule compile\\n  command = %s\\nbuild FIRST: compile\\n' "$COMPILER"; printf 'build OTHERS: phony\\n'; } >build/tsan/build.ninja ;;
  --build) exec ninja -C "$2" "${@:4}" ;;
esac
"""


def is_running(pid):
    try:
        return not re.search(r"\) Z ", pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False


def wait_for(condition, what):
    end = time.monotonic() + 30
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within 30 s: {what}")
        time.sleep(0.02)
    return found


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for folder in (".ci", "bin", "build", "scenarios"):
            (self.root / folder).mkdir()
        shutil.copy(ROOT / ".ci" / "run", self.root / ".ci" / "run")
        for name in ("prose", "spdx"):
            self.program(f".ci/{name}")
        self.program(".ci/no_excuse", '[ "$1" = --test ]')  # whatever fails has an excuse
        self.let_tests("echo 100% tests passed")
        self.program("bin/ctest", 'echo "ctest $*" >>calls')
        targets = re.search(r"^core=\((.*?)\)", (self.root / ".ci" / "run").read_text(encoding="utf-8"), re.S | re.M).group(1).split()
        self.program("bin/cmake", CMAKE.replace("FIRST", targets[0]).replace("OTHERS", " ".join(targets[1:])))
        self.compiler = self.root / "compiler"
        self.compile("echo $$ >>compilers; touch config_test")

    def program(self, path, script="exit 0"):
        (self.root / path).write_text("#!/usr/bin/env bash\n" + script + "\n", encoding="utf-8")
        (self.root / path).chmod(0o755)

    def let_tests(self, script):
        self.program("r2bench", 'echo "r2bench $*" >>calls\n[[ $* == "test -LE long" ]] || exit 0\n' + script)

    def compile(self, script):
        self.program("compiler", script)

    def start(self):
        environment = dict(os.environ, PATH=f"{self.root / 'bin'}:{os.environ['PATH']}", COMPILER=str(self.compiler))
        ran = subprocess.Popen([self.root / ".ci" / "run"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(ran.stdout.close)
        self.addCleanup(lambda: ran.poll() is None and os.killpg(ran.pid, signal.SIGKILL))
        return ran

    def end(self, ran, status):
        out = ran.communicate(timeout=60)[0]
        self.assertEqual(ran.returncode, status, out)
        return out

    def calls(self):
        return (self.root / "calls").read_text(encoding="utf-8").splitlines()

    def compilers(self):
        path = self.root / "build" / "tsan" / "compilers"
        return [int(pid) for pid in path.read_text(encoding="utf-8").split()] if path.exists() else []

    def assert_no_compiler(self):
        # They are told at once, and end when they get a core: they have no priority.
        wait_for(lambda: not any(is_running(pid) for pid in self.compilers()), "the compilers end")

    def test_builds_beside_the_tests(self):
        self.compile("echo $$ >>compilers; ps -o class= $$ >class; touch config_test")
        self.let_tests("until grep -sq config_test build/tsan/.ninja_log; do sleep 0.02; done; echo 100% tests passed")
        self.end(self.start(), 0)
        self.assertEqual(len(self.compilers()), 1)
        self.assertEqual((self.root / "build" / "tsan" / "class").read_text(encoding="utf-8").strip(), "IDL")
        self.assertEqual([call.split()[:2] for call in self.calls()[-3:]],
                         [["r2bench", "test"], ["cmake", "--build"], ["ctest", "--test-dir"]])

    def test_what_was_not_built_beside_the_tests_is_built_then(self):
        self.compile("echo $$ >>compilers; [ -e second ] || { touch second; exec sleep 120; }; touch config_test")
        self.let_tests("until [ -e build/tsan/second ]; do sleep 0.02; done; echo 100% tests passed")
        self.end(self.start(), 0)
        self.assertEqual(len(self.compilers()), 2)
        self.assert_no_compiler()

    def test_only_the_build_in_sight_decides(self):
        self.compile("echo $$ >>compilers; [ -e second ] || { touch second; exit 1; }; touch config_test")
        self.let_tests("until [ -e build/tsan/second ]; do sleep 0.02; done; echo 100% tests passed")
        self.end(self.start(), 0)
        self.compile("echo it cannot be compiled; exit 1")
        (self.root / "build" / "tsan" / "config_test").unlink()
        self.assertIn("it cannot be compiled", self.end(self.start(), 1))

    def test_without_priorities_the_build_comes_later(self):
        self.program("bin/chrt", "exit 1")
        self.end(self.start(), 0)
        self.assertEqual(len(self.compilers()), 1)

    def test_repeats_what_failed_without_the_build(self):
        self.compile("echo $$ >>compilers; [ -e second ] || { touch second; exec sleep 120; }; touch config_test")
        self.program("r2bench", """
case $* in
  "test -LE long") until [ -e build/tsan/second ]; do sleep 0.02; done; exit 8 ;;
  "test --rerun-failed") ps -o stat= -p "$(cat build/tsan/compilers)" >again; echo 100% tests passed ;;
esac""")
        self.assertIn("and then, of what had failed", self.end(self.start(), 0))
        self.assertIn((self.root / "again").read_text(encoding="utf-8")[:1], ("", "Z"))

    def test_ends_the_build_when_the_tests_fail(self):
        self.compile("echo $$ >>compilers; exec sleep 120")
        self.program(".ci/no_excuse")
        self.let_tests("until [ -s build/tsan/compilers ]; do sleep 0.02; done; exit 8")
        self.end(self.start(), 1)
        self.assert_no_compiler()

    def test_ends_the_build_when_it_is_told_to_end(self):
        for number, to_group in (signal.SIGINT, True), (signal.SIGHUP, True), (signal.SIGTERM, True), (signal.SIGTERM, False):
            with self.subTest(signal=number, to_group=to_group):
                (self.root / "build" / "tsan" / "compilers").unlink(missing_ok=True)
                self.compile("echo $$ >>compilers; exec sleep 120")
                self.let_tests("echo $$ >tests; exec sleep 20")
                ran = self.start()
                wait_for(self.compilers, "the build has begun")
                wait_for((self.root / "tests").exists, "the tests have begun")
                (os.killpg if to_group else os.kill)(ran.pid, number)
                ran.wait(timeout=30)
                self.assertEqual(ran.returncode, -number)
                self.assert_no_compiler()
                if not to_group:  # nobody told the tests
                    os.kill(int((self.root / "tests").read_text(encoding="utf-8")), signal.SIGKILL)
                (self.root / "tests").unlink()


if __name__ == "__main__":
    unittest.main()
