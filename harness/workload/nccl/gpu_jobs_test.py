#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_jobs.py without GPUs: what it plans, and what it makes of what ranks leave."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_jobs  # noqa: E402  pylint: disable=wrong-import-position

ITERS = 30
CASE = {"name": "port_down", "nodes": 2, "gpus": 1, "mode": 1, "ops": "allreduce,allgather,reducescatter,alltoall,sendrecv", "fault": "port_down",
        "extra": ", for: 400 ms"}


class Plan(unittest.TestCase):
    def test_a_fault_in_each_operation(self):
        self.assertEqual(gpu_jobs.plan_of(CASE | {"fault": None}, ITERS), [])
        lines = gpu_jobs.plan_of(CASE, ITERS)
        self.assertEqual([line.split("iter: ")[1].split("}")[0] for line in lines], ["12", "44", "76", "108", "140"])
        self.assertEqual([line.split("target: ")[1].split(",")[0] for line in lines], ["node0/nic0", "node1/nic0", "node0/nic1", "node1/nic1", "node0/nic0"])
        self.assertIn("kind: port_down, for: 400 ms}", lines[1])

    def test_a_lasting_fault_strikes_once(self):
        self.assertEqual(gpu_jobs.plan_of(CASE | {"lasting": True, "extra": ""}, ITERS), ["- {at: {iter: 4}, target: node1/nic0, kind: port_down}"])


class Moved(unittest.TestCase):
    def test_traffic_has_moved_when_a_path_was_left_and_a_migration_ended(self):
        def moved(processes=2, lines=0, **counters):
            return gpu_jobs.moved({"exit": [0, 0], "processes_counted": processes, "moved_lines": lines,
                                   "counters": {f"r2ccl_{name}_total": count for name, count in counters.items()}})[0]

        self.assertTrue(moved(path_failures=4.0, migrations=8.0))
        self.assertFalse(moved(path_failures=3.0))  # left a path, and found no other
        self.assertFalse(moved(migrations=1.0, lines=3))
        self.assertTrue(moved(processes=1, lines=1))  # a process left no counters: the log counts
        self.assertFalse(moved(processes=1, path_failures=4.0, migrations=8.0))

    def test_a_throttle_moves_no_traffic(self):
        self.assertLessEqual({"port_down", "port_flap", "blackhole", "qp_error"}, gpu_jobs.MOVING)
        self.assertNotIn("throttle", gpu_jobs.MOVING)


RANK = """#!/bin/sh
folder=$(dirname "$NCCL_DEBUG_FILE")
while [ $# -gt 0 ]; do [ "$1" = --witness ] && echo '{"faults": [{"t0_ns": 7}]}' > "$2"; shift; done
echo 'NET/R2CCL: 1 channel migrated' > "$folder/nccl.here.$RANK.log"
echo 'Channel 00/0 : 0[0] -> 1[1] via NET/R2CCL/0/GDRDMA' >> "$folder/nccl.here.$RANK.log"
echo 'r2ccl_migrations_total 1' > "$folder/counters-$RANK.prom"
echo 'vhca: a word'
[ "$RANK" = 1 ] && exec sleep 60
echo '{"rank": 0, "nccl": "2.28.9", "error": null, "results": []}'
"""


class Case(unittest.TestCase):
    def test_a_case_is_what_its_ranks_printed_and_left(self):
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(os.path.join(build, "bin"))
            program = os.path.join(build, "bin", "r2bench")
            with open(program, "w", encoding="utf-8") as file:
                file.write(RANK)
            os.chmod(program, 0o755)
            arguments = argparse.Namespace(build=build, iters=ITERS, bytes=1024, rate="1 Gbit/s", gpus=1, limit=2)
            case = CASE | {"port": 29500, "ops": "allreduce"}
            found = gpu_jobs.run_case(case, arguments)
        self.assertTrue(found["killed"])  # rank 1 sleeps on
        self.assertEqual(found["exit"], [0, -9])
        self.assertEqual([rank and rank["nccl"] for rank in found["ranks"]], ["2.28.9", None])
        self.assertEqual(found["witness"], {"faults": [{"t0_ns": 7}]})
        self.assertEqual((found["gdr_lines"], found["other_lines"], found["moved_lines"]), (2, 0, 2))
        self.assertEqual((found["counters"], found["processes_counted"]), ({"r2ccl_migrations_total": 2.0}, 2))
        self.assertEqual(found["vhca"], ["vhca: a word"] * 2)


class Facts(unittest.TestCase):
    def test_counters_are_added_up(self):
        with tempfile.TemporaryDirectory() as folder:
            for pid, value in ((11, 2), (12, 3)):
                with open(os.path.join(folder, f"counters-{pid}.prom"), "w", encoding="utf-8") as file:
                    file.write(f'# TYPE r2ccl_migrations_total counter\nr2ccl_migrations_total{{nic="vhca0"}} {value}\nr2ccl_migrations_total{{nic="vhca1"}} 1\n')
            self.assertEqual(gpu_jobs.counters(folder), ({"r2ccl_migrations_total": 7.0}, 2))

    def test_what_is_missing_is_unknown(self):
        self.assertEqual(gpu_jobs.said(["/nowhere/nvidia-smi"]), "unknown")
        facts = gpu_jobs.host_facts("/nowhere")
        self.assertEqual(facts["build"], "unknown")
        self.assertLessEqual({"kernel", "cpus", "commit", "build", "gpus", "driver", "pytorch"}, set(facts))

    def test_gpus_that_are_hidden_do_not_count(self):
        kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "nvidia-smi")
            with open(program, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho 'GPU 0: one'\necho 'GPU 1: another'\n")
            os.chmod(program, 0o700)
            os.environ["PATH"] = folder + ":/usr/bin:/bin"
            for visible, usable in ((None, 2), ("0", 1), ("0,1", 2), ("GPU-a3e9", 1), ("", 1), ("0,1,2", 2)):
                if visible is not None:
                    os.environ["CUDA_VISIBLE_DEVICES"] = visible
                self.assertEqual(gpu_jobs.gpus_usable(), usable, visible)
        os.environ["PATH"] = "/nowhere"
        self.assertEqual(gpu_jobs.gpus_usable(), 1)


HOLDER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import gpu_jobs
with gpu_jobs.shared_gpu(2, 1) as mps:
    print(os.path.dirname(mps["CUDA_MPS_PIPE_DIRECTORY"]), flush=True)
    sys.stdin.read()
"""


class Mps(unittest.TestCase):
    """With a control program that keeps a diary, and a process in place of the daemon."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        program = os.path.join(self.folder, "nvidia-cuda-mps-control")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ncd '{self.folder}'\nif [ \"$1\" = -d ]; then env >environment; else cat >quit; fi\n")
        os.chmod(program, 0o700)

    def holder(self):
        """A process that uses MPS, and MPS's folder."""
        environment = {**os.environ, "PATH": self.folder + ":" + os.environ["PATH"], "R2BENCH_COMMAND": "an outer job", "R2BENCH_MEMBER": "another"}
        environment.pop("CUDA_MPS_PIPE_DIRECTORY", None)
        process = subprocess.Popen([sys.executable, "-B", "-c", HOLDER, os.path.dirname(os.path.abspath(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env=environment)

        def end():
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.addCleanup(end)
        return process, process.stdout.readline().strip()

    def wait_for_quit(self, folder):
        limit = time.monotonic() + 30
        while os.path.exists(folder) and time.monotonic() < limit:
            time.sleep(0.01)
        self.assertFalse(os.path.exists(folder))
        with open(os.path.join(self.folder, "quit"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "quit -t 5\n")

    def test_it_ends_with_its_user(self):
        process, folder = self.holder()
        self.assertTrue(os.path.isdir(os.path.join(folder, "pipe")))
        process.stdin.close()
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertFalse(os.path.exists(folder))  # by then
        self.wait_for_quit(folder)

    def test_it_ends_with_a_user_that_is_killed(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            process, folder = self.holder()
            process.send_signal(number)
            process.wait()
            self.wait_for_quit(folder)

    def test_it_is_no_part_of_an_outer_job(self):
        self.holder()
        with open(os.path.join(self.folder, "environment"), encoding="utf-8") as file:
            names = {line.split("=")[0] for line in file}
        self.assertIn("CUDA_MPS_PIPE_DIRECTORY", names)
        self.assertFalse(names & {"R2BENCH_COMMAND", "R2BENCH_MEMBER"})


if __name__ == "__main__":
    unittest.main()
