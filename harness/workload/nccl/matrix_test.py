#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""matrix.py without GPUs: what it plans, and what it makes of outcomes, made up here."""

import argparse
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import matrix  # noqa: E402  pylint: disable=wrong-import-position

ITERS = 30
CASES = {case["name"]: case for case in matrix.cases(4, "/other/libnccl.so.2")}


def outcome(name, **changes):
    """Of that case, as it should be."""
    case = CASES[name]
    ranks = case["nodes"] * case["gpus"]
    struck = [{"t0_ns": 1000 + k} for k in range(len(matrix.plan_of(case, ITERS)))]
    operation = {"op": "allreduce", "wrong": 0, "median_ms": 1, "max_ms": 2}
    found = {"case": case, "seconds": 12.0, "killed": False, "exit": [0] * ranks, "plugin_log": [], "moved_lines": 3, "aborts": [],
             "ranks": [{"nccl": "2.28.9", "error": None, "results": [operation]} for _ in range(ranks)], "witness": {"faults": struck},
             "counters": {"r2ccl_path_failures_total": 4.0, "r2ccl_migrations_total": 8.0, "r2ccl_replayed_segments_total": 2.0},
             "processes_counted": ranks}
    if case.get("abort"):
        found |= {"exit": [matrix.ABORTED] * ranks, "aborts": [{"rank": r, "in_operation": True, "seconds_to_end": 2.5} for r in range(ranks)]}
        for rank in found["ranks"]:
            rank |= {"aborted": True, "results": []}
    return found | changes


def fine(name, **changes):
    return matrix.judge(outcome(name, **changes), ITERS)[0]


class Plan(unittest.TestCase):
    def test_every_fault_is_declared_and_only_those_that_take_a_path_have_to_move_traffic(self):
        struck = {case["fault"] for case in CASES.values() if case.get("fault")}
        self.assertEqual(struck - set(matrix.fault_kinds.KINDS), set())
        self.assertEqual(struck - matrix.MOVING, {"throttle"})

    def test_every_case_has_a_name_of_its_own(self):
        names = [case["name"] for case in matrix.cases(4, "/other")]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({"port_flap", "blackhole_ll", "blackhole_single_gpu_nodes", "qp_error_single_gpu_nodes", "blackhole_other_nccl", "port_down_lost",
                              "abort_in_migration", "blackhole_baseline", "blackhole_nccl_ib"}, set(names))

    def test_a_fault_in_each_operation(self):
        self.assertEqual(matrix.plan_of(CASES["healthy_migrate"], ITERS), [])
        lines = matrix.plan_of(CASES["port_down"], ITERS)
        self.assertEqual([line.split("iter: ")[1].split("}")[0] for line in lines], ["12", "44", "76", "108", "140"])
        self.assertIn("target: node1/nic0, kind: port_down, for: 400 ms}", lines[1])
        self.assertEqual(len(matrix.plan_of(CASES["port_flap"], ITERS)), 5)
        self.assertEqual(matrix.plan_of(CASES["port_down_lost"], ITERS), ["- {at: {iter: 4}, target: node1/nic0, kind: port_down}"])

    def test_an_abort_finds_no_nic_left(self):
        first, second = matrix.plan_of(CASES["abort_in_migration"], ITERS)
        self.assertIn("iter: 12}", first)
        self.assertIn("target: node1/nic0, kind: port_down}", first)
        self.assertEqual(second, "- {after: first, target: node1/nic1, kind: blackhole}")
        self.assertEqual(CASES["abort_in_migration"].get("nics", 2), 2)


class Judge(unittest.TestCase):
    def test_as_it_should_be(self):
        for name, case in CASES.items():
            if case["net"] == "r2ccl" and case["mode"] >= 1 or not case.get("fault"):
                self.assertTrue(fine(name), name)

    def test_a_survivor_must_have_moved_traffic(self):
        idle = {"r2ccl_path_failures_total": 0.0, "r2ccl_migrations_total": 0.0}
        for name in ("port_down", "port_flap", "blackhole_ll", "qp_error", "port_down_balance", "port_down_lost", "blackhole_single_gpu_nodes"):
            self.assertFalse(fine(name, counters=idle), name)
            self.assertFalse(fine(name, counters={"r2ccl_path_failures_total": 3.0}), name)  # left a path, and found no other
            self.assertFalse(fine(name, counters={}, processes_counted=1, moved_lines=0), name)
            self.assertTrue(fine(name, counters={}, processes_counted=1, moved_lines=1), name)
        self.assertTrue(fine("one_of_four_slow_balance", counters=idle))  # slow is no failure
        self.assertTrue(fine("healthy_migrate", counters=idle))

    def test_what_a_survivor_must_not_show(self):
        self.assertFalse(fine("port_down", exit=[0, 0, 0, 1]))
        self.assertFalse(fine("port_down", witness={"faults": [{"t0_ns": 1}] * 4}))
        self.assertFalse(fine("port_down", witness={"faults": [{"t0_ns": 1}] * 4 + [{"t0_ns": 0}]}))
        wrong = outcome("port_down")
        wrong["ranks"][2]["results"][0]["wrong"] = 1
        self.assertFalse(matrix.judge(wrong, ITERS)[0])

    def test_without_resilience_the_job_ends_and_says_why(self):
        for name in ("port_down_baseline", "blackhole_baseline", "port_down_nccl_ib", "blackhole_nccl_ib"):
            broken = [{"nccl": "2.28.9", "error": "DistBackendError: NCCL", "results": []}] + [None] * 3
            told = ["NCCL WARN NET/R2CCL: NIC failed: …", "… status=IBV_WC_RETRY_EXC_ERR(12) …"]
            self.assertTrue(fine(name, ranks=broken, exit=[3, 134, 134, 134], plugin_log=told), name)
            self.assertFalse(fine(name, ranks=broken, exit=[3, 134, 134, 134]), name)
            self.assertFalse(fine(name, ranks=broken, exit=[3, 134, 134, -9], plugin_log=told, killed=True), name)
            self.assertFalse(fine(name, plugin_log=told), name)

    def test_an_abort_ends_every_process_by_itself(self):
        name = "abort_in_migration"
        aborts = outcome(name)["aborts"]
        self.assertFalse(fine(name, exit=[4, 4, 4, 0]))
        self.assertFalse(fine(name, exit=[4, 4, 4, 134]))  # a crash
        self.assertFalse(fine(name, killed=True))
        self.assertFalse(fine(name, aborts=aborts[:3]))
        self.assertFalse(fine(name, aborts=aborts[:3] + [aborts[3] | {"seconds_to_end": 20.5}]))
        self.assertFalse(fine(name, aborts=aborts[:3] + [aborts[3] | {"in_operation": False}]))
        self.assertFalse(fine(name, counters={"r2ccl_path_failures_total": 0.0}))  # no migration had begun
        self.assertTrue(fine(name, counters={}, plugin_log=["NET/R2CCL: NIC a of x to NIC a of y failed: silent; 2 channels without another way"]))
        self.assertFalse(fine(name, witness={"faults": [{"t0_ns": 1}]}))
        late = outcome(name)
        late["ranks"][1]["error"] = "the abort failed: …"
        self.assertFalse(matrix.judge(late, ITERS)[0])


RANK = """#!/bin/sh
folder=$(dirname "$NCCL_DEBUG_FILE")
while [ $# -gt 0 ]; do [ "$1" = --witness ] && echo '{"faults": [{"t0_ns": 7}]}' > "$2"; shift; done
echo 'NET/R2CCL: a channel went on' > "$folder/nccl.here.$RANK.log"
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
            case = CASES["port_down"] | {"nodes": 2, "gpus": 1, "port": 29500, "ops": "allreduce"}
            found = matrix.run_case(case, arguments)
        self.assertTrue(found["killed"])  # rank 1 sleeps on
        self.assertEqual(found["exit"], [0, -9])
        self.assertEqual([rank and rank["nccl"] for rank in found["ranks"]], ["2.28.9", None])
        self.assertEqual(found["witness"], {"faults": [{"t0_ns": 7}]})
        self.assertEqual((found["gdr_lines"], found["other_lines"], found["moved_lines"]), (2, 0, 2))
        self.assertEqual((found["counters"], found["processes_counted"]), ({"r2ccl_migrations_total": 2.0}, 2))
        self.assertEqual(found["vhca"], ["vhca: a word"] * 2)
        self.assertEqual(set(outcome("port_down")) - set(found), set())


class Facts(unittest.TestCase):
    def test_counters_are_added_up(self):
        with tempfile.TemporaryDirectory() as folder:
            for pid, value in ((11, 2), (12, 3)):
                with open(os.path.join(folder, f"counters-{pid}.prom"), "w", encoding="utf-8") as file:
                    file.write(f'# TYPE r2ccl_migrations_total counter\nr2ccl_migrations_total{{nic="vhca0"}} {value}\nr2ccl_migrations_total{{nic="vhca1"}} 1\n')
            self.assertEqual(matrix.counters(folder), ({"r2ccl_migrations_total": 7.0}, 2))

    def test_what_is_missing_is_unknown(self):
        self.assertEqual(matrix.said(["/nowhere/nvidia-smi"]), "unknown")
        facts = matrix.host_facts("/nowhere")
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
                self.assertEqual(matrix.gpus_usable(), usable, visible)
        os.environ["PATH"] = "/nowhere"
        self.assertEqual(matrix.gpus_usable(), 1)


if __name__ == "__main__":
    unittest.main()
