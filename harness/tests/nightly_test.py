#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
""".ci/nightly itself, in a copy where small programs stand for r2bench: what it skips and says of it, what it counts, its summary."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = "bash basename cat cut date dirname env git grep mkdir nproc printf python3 readlink rm sed sh sleep tail taskset tee timeout tr".split()
NCCL = ["run_nccl_abort", "run_nccl_blackhole", "run_nccl_graph", "run_nccl_port_down", "run_nccl_qp_error", "run_nccl_revoke", "run_nccl_shrink"]
GPU = NCCL + ["run_exec_all_reduce_perf", "run_exec_torchrun"]
DRIVER = any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg"))

# As ctest writes it.
CTEST = """
100% tests passed, 0 tests failed out of {of}

Total Test time (real) =   0.05 sec

The following tests did not run:
{lines}
"""
RESULT = {"seed": 1, "verdict": "pass", "runs": [{
    "mode": "migrate", "r2cc_mode": 1, "outcome": "ok", "trace_lost": 0,
    "metrics": {"correctness": {"exact": True}, "recovery": {"wakeup_p99_ms": 0.5}},
    "faults": [{"name": "n", "kind": "qp_error", "target": "node1/nic0", "detected_by": "event", "detect_ms": 0.1, "migrate_ms": 1.0,
                "recover_ms": 2.0, "blackout_ms": 2.0, "floor_ms": 1.0, "window_ms": 4.0, "limit": 0.5, "before_gbps": 8.0, "after_gbps": 4.0,
                "witnessed": True, "sampled": True, "why_not_sampled": None}] * 3}]}


class Nightly(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "nightly", self.root / ".ci" / "nightly")
        shutil.copytree(ROOT / "scenarios", self.root / "scenarios")
        (self.root / "harness").mkdir()
        for folder in ("base", "bench"):
            shutil.copytree(ROOT / "harness" / folder, self.root / "harness" / folder)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            # A python3 on PATH may be a launcher, which does not work from here.
            found = sys.executable if tool == "python3" else shutil.which(tool)
            self.assertTrue(found, tool)
            (self.bin / tool).symlink_to(found)
        self.r2bench("exit 0")

    def r2bench(self, script):
        self.program(self.root / "r2bench", script)

    def program(self, path, script="exit 0"):
        path.write_text("#!/usr/bin/env bash\n" + script + "\n", encoding="utf-8")
        path.chmod(0o755)

    def call(self, *arguments, status=0):
        ran = subprocess.run([self.root / ".ci" / "nightly", *arguments], env={"PATH": str(self.bin), "NIGHTLY_SIZE": "short"},
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(ran.returncode, status, ran.stdout + ran.stderr)
        return ran.stdout, ran.stderr

    def listed(self):
        """Each step's reason to be skipped, None where it would run."""
        steps = {}
        for line in self.call("--list")[0].splitlines():
            name, _, reason = line.partition(" (skipped: ")
            steps[name] = reason.removesuffix(")") or None
        return steps

    def record(self):
        with open(self.root / "build" / "nightly" / "record.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @unittest.skipIf(DRIVER, "this machine has an NVIDIA driver")
    def test_what_needs_a_gpu_is_skipped_where_there_is_none(self):
        steps = self.listed()
        self.assertEqual({name: steps[name] for name in GPU}, dict.fromkeys(GPU, "there is no NVIDIA driver"))
        self.assertIsNone(steps["run_nic_down"])
        self.assertIsNone(steps["run_exec_command"])
        out, err = self.call("run_nccl_abort", "run_nic_down")
        self.assertIn("=== run_nccl_abort skipped: there is no NVIDIA driver", err)
        self.assertIn("1 steps passed, 0 failed, 1 were skipped", out)
        lines = self.record()
        self.assertIn({"step": "run_nccl_abort", "size": "short", "skipped": "there is no NVIDIA driver"}, lines)
        self.assertNotIn("run_nccl_abort", [line.get("step") for line in lines if "began" in line])
        self.assertEqual({key: lines[-1][key] for key in ("passed", "failed", "skipped")}, {"passed": 1, "failed": 0, "skipped": 1})

    def test_only_skipped_steps_are_no_failure_and_an_unknown_name_is(self):
        self.assertEqual(self.listed()["fuzz_plan"], "there is no clang++")
        self.assertIn("0 steps passed, 0 failed, 6 were skipped", self.call("fuzz_*")[0])
        self.call("no_such_step", status=64)

    def test_soft_roce_and_clean_systems_are_skipped_where_they_cannot_be_had(self):
        steps = self.listed()
        debian = "ID=debian\n" in pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
        for name in ("run_congested_rxe", "rxe_tests", "rxe_run_real_tc", "hosts_two_guests", "hosts_two_guests_mpirun", "hosts_two_guests_slurm",
                     "hosts_real_exits"):
            self.assertEqual(steps[name] is None, debian, name)
        clean = [name for name in steps if name.startswith("cloudlab_clean_")]
        self.assertEqual(sorted(clean), sorted("cloudlab_clean_" + system + kind for system, kinds in
                                               (("debian", ("", "_reboots", "_rxe")), ("ubuntu", ("", "_reboots", "_rxe")), ("ubuntu_24", ("", "_rxe"))) for kind in kinds))
        for name in clean:
            self.assertEqual(steps[name], "there is no debootstrap" if os.geteuid() == 0 else "only root can make a clean system")
        self.program(self.bin / "debootstrap")
        if os.geteuid() == 0:
            self.assertIsNone(self.listed()["cloudlab_clean_debian"])

    def test_what_needs_cores_is_skipped_where_there_are_fewer(self):
        for cores, reason in ((2, "what it expects takes 4 cores, and it has 2"), (4, None)):
            (self.bin / "nproc").unlink()
            self.program(self.bin / "nproc", f"echo {cores}")
            steps = self.listed()
            self.assertEqual(steps["run_allreduce_degraded"], reason)
            self.assertEqual(steps["run_allreduce_two_degraded"], reason)
            self.assertIsNone(steps["run_allreduce_replan"])
            (self.bin / "nproc").unlink()
            (self.bin / "nproc").symlink_to(shutil.which("nproc"))

    def test_in_the_short_form_a_verdict_that_is_unknown_is_no_failure(self):
        for status, failed in ((0, 0), (2, 0), (1, 1), (3, 1)):
            self.r2bench(f"exit {status}")
            self.assertIn(f"{1 - failed} steps passed, {failed} failed", self.call("run_qp_error", status=failed)[0])
            self.assertEqual([line["status"] for line in self.record() if "status" in line][-1], status)
        self.r2bench("exit 2")
        self.call("gate", status=1)
        ran = subprocess.run([self.root / ".ci" / "nightly", "run_qp_error"], env={"PATH": str(self.bin)}, capture_output=True, text=True,
                             timeout=60, check=False)
        self.assertIn("run_qp_error (2)", ran.stdout)
        self.assertEqual(ran.returncode, 1)

    def test_a_step_all_of_whose_tests_were_skipped_has_not_passed(self):
        both = CTEST.format(of=2, lines="\t 97 - hosts_mpirun (Skipped)\n\t 98 - hosts_env (Skipped)")
        self.r2bench(f"cat <<'END'\n{both}\nEND")
        self.assertIn("0 steps passed, 0 failed, 1 were skipped", self.call("hosts")[0])
        self.assertEqual([line["skipped"] for line in self.record() if "step" in line and "skipped" in line],
                         ["its tests say so (build/nightly/hosts.log)"])
        one = CTEST.format(of=2, lines="\t 97 - hosts_mpirun (Skipped)")
        self.r2bench(f"cat <<'END'\n{one}\nEND")
        self.assertIn("1 steps passed, 0 failed, 0 were skipped", self.call("hosts")[0])
        self.r2bench(f"cat <<'END'\n{both}\nEND\nexit 8")
        out, _ = self.call("hosts", status=1)
        self.assertIn("0 steps passed, 1 failed, 0 were skipped", out)
        self.assertIn("    hosts (8)", out)

    def test_the_faults_of_all_runs_are_told_together_at_the_end(self):
        (self.root / "result.json").write_text(json.dumps(RESULT), encoding="utf-8")
        # run SCENARIO --out FOLDER …
        self.r2bench('mkdir -p "$4" && sed "s/\\"seed\\": 1/\\"seed\\": $$/" "${0%/*}/result.json" >"$4/result.json"')
        out, _ = self.call("run_qp_error", "run_ack_lost", "run_silent_port_down")
        self.assertRegex(out, r"qp_error +migrate +6 +6 +0 +6 +0\.10 ")
        self.assertIn("qp_error, migrate", (self.root / "build" / "nightly" / "summary.txt").read_text(encoding="utf-8"))
        self.assertIn("3 steps passed", out)
        # Another night's runs are not this one's.
        self.r2bench("exit 0")
        self.assertNotIn("qp_error  migrate", self.call("run_qp_error")[0])

    @unittest.skipIf((os.cpu_count() or 1) < 2, "two lanes need two cores")
    def test_a_night_in_lanes_that_is_cut_off_ends_with_its_steps(self):
        ended_by_itself = 'test "$(basename "$2")" = qp_error.yaml && exit 0; '
        self.r2bench(ended_by_itself + "exec sleep 300")
        for number, group in ((signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGINT, True)):
            night = self.night_in_lanes("run_blackhole", "run_nic_down", "run_qp_error", "run_ack_lost")
            out = None
            for _ in range(6):
                (os.killpg if group else os.kill)(night.pid, number)
                try:
                    out, _ = night.communicate(timeout=5)
                    break
                except subprocess.TimeoutExpired:
                    pass  # bash ignores a Ctrl-C at which a command of its own ends by itself: as a person would, again
            self.assertIsNotNone(out, "the night does not end")
            self.assertEqual(night.returncode, 128 + number, out[-2000:])
            self.assertIn("=== nightly: interrupted", out)
            self.assertLess(len(out), 5000)
            self.assertEqual(self.left_behind(), [], "a step outlives its night")
            (self.root / "build" / "nightly" / "record.jsonl").unlink()

    @unittest.skipIf((os.cpu_count() or 1) < 2, "two lanes need two cores")
    def test_a_night_in_lanes_that_is_killed_leaves_no_step(self):
        self.r2bench("exec sleep 300")
        night = self.night_in_lanes("run_blackhole", "run_nic_down")
        night.kill()
        night.communicate(timeout=30)
        until = time.monotonic() + 30
        while self.left_behind() and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(self.left_behind(), [], "a step outlives its night")

    def night_in_lanes(self, *steps):
        """A night in two lanes, both of which have begun a step."""
        night = subprocess.Popen([self.root / ".ci" / "nightly", *steps],
                                 env={"PATH": str(self.bin), "NIGHTLY_SIZE": "short", "NIGHTLY_LANES": "2"}, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(night.kill)
        until = time.monotonic() + 30
        while sum("began" in line for line in self.record_so_far()) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        return night

    def left_behind(self):
        """Processes whose working directory is the copy of this test."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(entry / "cwd") == str(self.root):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def record_so_far(self):
        try:
            return self.record()
        except (OSError, ValueError):
            return []


if __name__ == "__main__":
    unittest.main()
