#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`doctor --first-day` on a machine without RDMA: what runs, what waits and why, and that it goes on where it was.

    first_day_test.py R2BENCH      exit status 77: this machine has RDMA devices, on which the steps would run
"""
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, "..", "..", "cloudlab", "FIRST_DAY.md")
r2bench = None
# Each package's 'Unverified on hardware': what a bullet says, and the steps that try it.
UNVERIFIED = {
    "harness/real/README.md": {"`real_ovs_drop` has not run": "real_ovs_drop real_switch_port real_pcie_remove",
                               "the same name after a rescan": "real_pcie_remove", "unmanaged switch": "real_link_down", "a job step that Slurm kills": "slurm"},
    "harness/hosts/README.md": {"srun was run with network namespaces and two guests only": "preflight slurm"},
    "harness/cluster/README.md": {"has run on soft RoCE only": "preflight pci"},
    "cloudlab/README.md": {"the portal's geni-lib": "portal", "root may log in": "portal", "`dcb maxrate`": "rate_limit",
                           "`setpci": "pci", "`nccl_tests.sh`": "nccl_tests", "systemd has started": "reboot"},
    "r2ccl/KNOWN_GAPS.md": {"a kernel tears down": "real_pcie_remove", "PCI_RELAXED_ORDERING": "gpu_memory", "The choice of a GID": "preflight", "`R2CC_GPU_DIRECT=1`": "gpu_memory pxn",
                            "`NCCL_IB_PKEY`": "pkey traffic_class two_subnets"},
}


def unverified(path):
    """The bullets of that section; a section without any is one."""
    with open(path, encoding="utf-8") as file:
        text = file.read().split("## Unverified on hardware\n", 1)[1].split("\n## ", 1)[0]
    return [" ".join(each.split()) for each in ("\n" + text).split("\n* ")[1:] or [text]]


def eventually(condition):
    limit = time.monotonic() + 20
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


class FirstDayTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "first_day")

    def first_day(self, *words, path="/usr/bin:/bin"):
        return subprocess.run([r2bench, "doctor", "--first-day", "--out", self.out, *words], capture_output=True, text=True, timeout=600,
                              check=False, env=dict(os.environ, PATH=path, NO_COLOR="1"))

    def states(self):
        with open(os.path.join(self.out, "steps.jsonl"), encoding="utf-8") as file:
            return {each["step"]: each["state"] for each in map(json.loads, file)}

    def names(self):
        shown = self.first_day().stdout.splitlines()
        return [line.split()[1] for line in shown if line.startswith(("  ✓ ", "  ✗ ", "  · "))]

    def test_looking_changes_nothing(self):
        made = self.first_day()
        self.assertEqual(made.returncode, 1)
        self.assertIn("the next one is preflight", made.stdout)
        self.assertIn("--first-day --run", made.stdout)
        self.assertFalse(os.path.exists(self.out))
        self.assertEqual(self.names()[0], "preflight")

    def test_what_risks_least_comes_first(self):
        names = self.names()
        for earlier, later in (("preflight", "no_fault"), ("no_fault", "nic_down"), ("nic_down", "real_link_down"),
                               ("gpu_memory", "real_link_down"), ("real_link_down", "real_pcie_remove"), ("real_pcie_remove", "reboot")):
            self.assertLess(names.index(earlier), names.index(later), f"{earlier}, {later}")

    def slow_step(self):
        """A --run whose step `pci`, sent a signal, cleans up until the file `go` is there; the folder of the step's files."""
        programs = os.path.join(os.path.dirname(self.out), "programs")
        os.mkdir(programs)
        for name in ("lspci", "setpci"):
            with open(os.path.join(programs, name), "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\ncd '{programs}'\ntrap 'touch told; while ! [ -e go ]; do sleep 0.1; done; touch cleaned; exit' HUP INT TERM\n"
                           "touch started; while :; do sleep 0.1; done\n")
            os.chmod(os.path.join(programs, name), 0o755)
        for step in ("preflight", "topology"):
            self.first_day("--skip", step)
        run = subprocess.Popen([r2bench, "doctor", "--first-day", "--out", self.out, "--run"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env=dict(os.environ, PATH=programs + ":/usr/bin:/bin", NO_COLOR="1"),
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        self.addCleanup(lambda: open(os.path.join(programs, "go"), "w", encoding="utf-8").close())
        self.assertTrue(eventually(lambda: os.path.exists(os.path.join(programs, "started"))))
        return run, programs

    def test_a_step_that_cleans_up_is_waited_for(self):
        for signals in ("HUP", "TERM"):
            with self.subTest(signals):
                self.setUp()
                run, files = self.slow_step()
                run.send_signal(getattr(signal, "SIG" + signals))
                self.assertTrue(eventually(lambda: os.path.exists(os.path.join(files, "told"))))
                time.sleep(0.5)  # in which it would end
                self.assertIsNone(run.poll())
                with open(os.path.join(files, "go"), "w", encoding="utf-8"):
                    pass
                out, _ = run.communicate(timeout=60)
                self.assertEqual(run.returncode, 128 + getattr(signal, "SIG" + signals), out)
                self.assertTrue(os.path.exists(os.path.join(files, "cleaned")), out)
                self.assertEqual(self.states()["pci"], "failed")

    def test_no_other_run_begins_while_anything_of_a_step_lives(self):
        run, files = self.slow_step()
        run.send_signal(signal.SIGINT)
        self.assertTrue(eventually(lambda: os.path.exists(os.path.join(files, "told"))))
        run.send_signal(signal.SIGINT)  # the second one ends r2bench at once
        self.assertEqual(run.wait(60), -signal.SIGINT)
        second = self.first_day("--run")
        self.assertEqual(second.returncode, 64, second.stdout)
        self.assertIn("or a step of one still runs", second.stderr)
        self.assertFalse(os.path.exists(os.path.join(files, "cleaned")))
        with open(os.path.join(files, "go"), "w", encoding="utf-8"):
            pass

        def is_free():
            folder = os.open(self.out, os.O_RDONLY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            finally:
                os.close(folder)
            return True
        self.assertTrue(eventually(is_free))
        self.assertTrue(os.path.exists(os.path.join(files, "cleaned")))

    def test_a_folder_that_cannot_be_is_told_with_the_way_out(self):
        with open(self.out, "w", encoding="utf-8"):
            pass
        for words in (["--run"], ["--skip", "preflight"]):
            made = self.first_day(*words)
            self.assertEqual(made.returncode, 64, made.stdout)
            self.assertRegex(made.stderr, r"first_day: cannot be .*; choose another folder with --out")

    def test_a_step_ends_with_ctrl_c_and_no_second_one_runs_beside_it(self):
        programs = os.path.join(os.path.dirname(self.out), "programs")
        started = os.path.join(programs, "started")
        os.mkdir(programs)
        for name in ("lspci", "setpci"):
            with open(os.path.join(programs, name), "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho $$ >'{started}.new'; mv '{started}.new' '{started}'; exec sleep 60\n")
            os.chmod(os.path.join(programs, name), 0o755)
        path = programs + ":/usr/bin:/bin"
        for step in ("preflight", "topology"):
            self.first_day("--skip", step)
        with subprocess.Popen([r2bench, "doctor", "--first-day", "--out", self.out, "--run"], env=dict(os.environ, PATH=path, NO_COLOR="1"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
            self.addCleanup(first.kill)
            self.assertTrue(eventually(lambda: os.path.exists(started)))
            with open(started, encoding="utf-8") as file:
                program = int(file.read())
            second = self.first_day("--run", path=path)
            self.assertEqual(second.returncode, 64, second.stdout)
            self.assertIn("another r2bench doctor --first-day works in this folder", second.stderr)
            self.assertNotIn("pci.log.1", os.listdir(self.out))
            first.send_signal(signal.SIGINT)
            out, _ = first.communicate(timeout=60)
        self.assertEqual(first.returncode, 130, out)
        self.assertIn("interrupted", out)
        self.assertFalse(os.path.exists(f"/proc/{program}"))
        self.assertEqual(self.states()["pci"], "failed")

    def test_a_step_that_fails_ends_the_run_keeps_its_log_and_is_tried_again(self):
        for _ in range(2):
            made = self.first_day("--run")
            self.assertEqual(made.returncode, 1)
            self.assertEqual(self.states(), {"preflight": "failed"})
            self.assertIn("the next one is preflight", made.stdout)
        self.assertEqual(sorted(os.listdir(self.out)), ["preflight", "preflight.1", "preflight.log", "preflight.log.1", "steps.jsonl"])
        with open(os.path.join(self.out, "preflight.log"), encoding="utf-8") as file:
            self.assertIn("no RDMA device", file.read())
        with open(os.path.join(self.out, "preflight", "cluster.json"), encoding="utf-8") as file:
            self.assertFalse(json.load(file)["ready"])

    def test_it_goes_on_where_it_was_to_the_end(self):
        waited, calls = set(), 0
        while calls < 80:
            calls += 1
            made = self.first_day("--run")
            if made.returncode == 0:
                break
            step = made.stdout.split("the next one is ")[1].split(".")[0]
            if "waits: by hand" in made.stdout:
                waited.add(step)
                # With the values of its variables: a person is to type it.
                told = made.stdout.split("waits: by hand: ")[1].split("\n    then: ")[0]
                self.assertNotRegex(told, r"\$[A-Z]")
                if step != "portal":
                    self.assertIn(os.path.basename(r2bench), told)
                self.first_day("--done", step)
            else:
                if step == "real_link_down":
                    self.assertIn("waits: it changes this machine: --allow-real-faults", made.stdout)
                    waited.add(step)
                else:
                    self.assertEqual(self.states()[step], "failed", made.stdout)
                    # For want of a device: not of an empty folder, which runs and the table of conformance need.
                    self.assertNotIn("is not empty", made.stdout)
                self.first_day("--skip", step)
        self.assertEqual(made.returncode, 0, made.stdout)
        self.assertIn("Send back: tar czf first_day.tar.gz", made.stdout)
        states = self.states()
        self.assertEqual(states["topology"], "done")
        self.assertEqual(states["nccl_host_memory"], "left out")
        self.assertEqual(states["real_ovs_drop"], "left out")
        self.assertEqual(states["preflight"], "skipped")
        self.assertEqual(states["reboot"], "done")
        self.assertEqual(waited, {"slurm", "rate_limit", "real_link_down", "real_switch_port", "real_pcie_remove", "portal", "reboot"})
        self.assertEqual(sorted(states), sorted(self.names()))
        made = self.first_day("--again", "topology")
        self.assertEqual(made.returncode, 1)
        self.assertIn("the next one is topology", made.stdout)

    def test_whatever_is_unverified_on_hardware_has_its_step(self):
        root, names = os.path.join(HERE, "..", ".."), self.names()
        there = subprocess.run(["grep", "-rl", "--include=*.md", "^## Unverified on hardware", "cloudlab", "faultinject", "harness", "r2ccl"], cwd=root,
                               capture_output=True, text=True, check=False).stdout.split()
        self.assertEqual(sorted(there), sorted(UNVERIFIED))
        for path, steps in UNVERIFIED.items():
            for bullet in unverified(os.path.join(root, path)):
                matching = [words for words in steps if words in bullet]
                self.assertTrue(matching, f"{path}: no step of --first-day tries: {bullet}")
                for name in " ".join(steps[words] for words in matching).split():
                    self.assertIn(name, names)
            for words in steps:
                self.assertTrue(any(words in bullet for bullet in unverified(os.path.join(root, path))), f"{path} no longer has: {words}")

    def test_bad_words_and_a_bad_file_are_told(self):
        self.assertIn("there is no step 'fly'; there are preflight", self.first_day("--skip", "fly").stderr)
        self.assertIn("--hosts: 'a;b' is no name of a host", self.first_day("--hosts", "a;b").stderr)
        self.assertIn("--run-options: '--shorter 10; reboot'", self.first_day("--run-options", "--shorter 10; reboot").stderr)
        os.makedirs(self.out)
        with open(os.path.join(self.out, "steps.jsonl"), "w", encoding="utf-8") as file:
            file.write('{"step": "topology", "state": "done"}\nnonsense\n')
        made = self.first_day()
        self.assertEqual(made.returncode, 64)
        self.assertIn("steps.jsonl:2:", made.stderr)

    def test_the_page_is_what_the_program_prints_and_names_scenarios_that_there_are(self):
        printed = self.first_day("--markdown").stdout
        with open(PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), printed, "r2bench doctor --first-day --markdown >cloudlab/FIRST_DAY.md")
        for line in printed.splitlines():
            if line.startswith('"$R2BENCH" run '):
                self.assertTrue(os.path.exists(os.path.join(HERE, "../../scenarios", line.split()[2] + ".yaml")), line)
                checked = subprocess.run(["sh", "-n", "-c", line], capture_output=True, text=True, check=False)
                self.assertEqual(checked.returncode, 0, line + checked.stderr)


if __name__ == "__main__":
    r2bench = os.path.abspath(sys.argv.pop())
    if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
        print("skipped: there are RDMA devices here, on which the steps would run")
        sys.exit(77)
    unittest.main()
