#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""allreduce_matrix.py without GPUs: what it plans, and what it makes of what ranks would leave."""

import argparse
import glob
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import allreduce_matrix as matrix  # noqa: E402  pylint: disable=wrong-import-position

ARGUMENTS = argparse.Namespace(mib=64, mbits=2000, direct=True, margin=None, nccl="", build="/nowhere")
CASES = {case["name"]: case for case in matrix.cases(ARGUMENTS)}
BYTES = {"int8": 1, "uint8": 1, "float8e4m3": 1, "float8e5m2": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}


def outcome(name, algorithm="COLLNET_CHAIN", change=lambda said: None, struck=True, exits=None):
    """What read_outcome() makes of a case whose ranks left what they should, but for `change`."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(case["nodes"]):
            lines = []
            for step in case["steps"]:
                corrupt = step.get("corrupt")
                said = {"step": step["label"], "rank": rank, "bytes": step["count"] * BYTES[step["dtype"]] * step.get("together", 1),
                        "wrong": 1 if corrupt and rank == 1 else 0, "first_wrong": 0 if corrupt and rank == 1 else None, "iterations": step["iters"],
                        "relative_error": 0, "first_iteration": 0, "median_ms": 100.0, "max_ms": 120.0, "times_ms": [100.0],
                        "sha256": "b" if corrupt and rank == 1 else "a"}
                change(said)
                lines.append(json.dumps(said))
            lines += ["something else", json.dumps({"end": True, "rank": rank, "nccl": "2.28.9", "torch": "2.11", "error": None})]
            with open(os.path.join(folder, f"rank{rank}.log"), "w", encoding="utf-8") as log:
                log.write("\n".join(lines))
        with open(os.path.join(folder, "nccl.host.1.log"), "w", encoding="utf-8") as log:
            log.write(f"host:1:2 [0] NCCL INFO AllReduce: 67108864 Bytes -> Algo {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..3}}\n")
        with open(os.path.join(folder, "witness.json"), "w", encoding="utf-8") as file:
            json.dump({"faults": [{"t0_ns": 5 if struck else 0} for _ in case["plan"]]}, file)
        return matrix.read_outcome(case, ARGUMENTS, folder, (exits or [0] * case["nodes"], None, 12.0))


def wanted(name):
    """An algorithm that the case expects."""
    return {"none": "RING", "direct": "COLLNET_DIRECT"}.get(CASES[name]["collnet"], "COLLNET_CHAIN")


class Plan(unittest.TestCase):
    def test_cases_cover_what_an_application_may_do(self):
        self.assertLessEqual({"lost_mode3", "half_mode3", "throttle_mode3", "six_nodes_mode3", "two_degraded_mode3", "graph_chain", "graph_ring",
                              "nonblocking_mode3", "heals_mode3", "lost_direct"}, set(CASES))
        steps = CASES["variants_chain"]["steps"]
        self.assertEqual(len({s["label"] for s in steps}), len(steps))
        self.assertLessEqual({"sum", "prod", "min", "max", "avg", "premulsum"}, {s["op"] for s in steps})
        self.assertTrue(any(s.get("how") == "in_place" for s in steps) and any(s.get("corrupt") for s in steps))

    def test_environment_asks_for_collnet_in_mode_3_alone(self):
        three = matrix.environment(CASES["lost_mode3"], ARGUMENTS, "/tmp")
        self.assertEqual((three["R2CC_MODE"], three["NCCL_COLLNET_ENABLE"], three["WORLD_SIZE"]), ("3", "1", "4"))
        self.assertNotIn("R2CC_COLLNET_MARGIN", three)  # the product's own
        given = argparse.Namespace(**vars(ARGUMENTS) | {"margin": 100})
        self.assertEqual(matrix.environment(CASES["lost_mode3"], given, "/tmp")["R2CC_COLLNET_MARGIN"], "100")
        self.assertNotIn("NCCL_COLLNET_ENABLE", matrix.environment(CASES["lost_balance"], ARGUMENTS, "/tmp"))

    def test_direct_has_a_topology_with_a_switch(self):
        with tempfile.TemporaryDirectory() as folder:
            env = matrix.environment(CASES["lost_direct"], ARGUMENTS, folder)
            with open(env["NCCL_TOPO_FILE"], encoding="utf-8") as file:
                self.assertTrue(file.read().startswith("<system"))
            self.assertEqual(env["NCCL_ALGO"], "allreduce:collnetdirect")
            self.assertNotIn("NCCL_TOPO_FILE", matrix.environment(CASES["lost_mode3"], ARGUMENTS, folder))

    def test_limits_are_the_bound_and_the_ring(self):
        bound, ring, degraded = matrix.limits(CASES["lost_mode3"], ARGUMENTS, 1_000_000_000)  # 1 s for a node's ports
        self.assertAlmostEqual(bound, 1000 * 6 / 3.75)
        self.assertAlmostEqual(ring, 1500)
        self.assertAlmostEqual(degraded, 2000)
        self.assertAlmostEqual(matrix.limits(CASES["eighth_mode3"], ARGUMENTS, 1_000_000_000)[2], 1500 / 0.875)

    def commands_of(self, name, **more):
        """The words after `r2bench` with which the ranks of a case are started."""
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "bin"))
            program = os.path.join(folder, "bin", "r2bench")
            with open(program, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho \"$@\" > {folder}/said.$$\n")
            os.chmod(program, 0o700)
            arguments = argparse.Namespace(**vars(ARGUMENTS) | {"build": folder, "limit": 5} | more)
            case = {case["name"]: case for case in matrix.cases(arguments)}[name]
            matrix.run_case(case, arguments, folder)
            found = []
            for said in glob.glob(os.path.join(folder, "said.*")):
                with open(said, encoding="utf-8") as file:
                    found.append(file.read())
            self.assertEqual(len(found), case["nodes"])
            return found

    def test_more_nics_share_the_rate_of_a_node(self):
        for name, nics, rate in (("eighth_mode3", 8, 1000), ("lost_mode3", 4, 2000)):
            for said in self.commands_of(name):
                self.assertIn(f"--nics {nics} --rate {rate} Mbit/s", said)

    def test_two_programs_at_once_have_fabrics_of_their_own(self):
        for said in self.commands_of("lost_mode3"):
            self.assertIn(f"--name lost_mode3-{os.getpid()} ", said)

    def test_ranks_bind_the_library_that_is_named(self):
        for library in ("", "/other/libnccl.so.2"):
            for said in self.commands_of("half_balance", nccl=library):
                self.assertEqual("--nccl /other/libnccl.so.2" in said, bool(library))

    def test_every_degraded_case_has_its_rings_beside_it(self):
        for ours in ("lost", "eighth", "half", "throttle", "six_nodes"):
            plans = {json.dumps([CASES[f"{ours}_{mode}"][key] for key in ("plan", "nodes", "nics", "left")]) for mode in ("mode3", "balance", "migrate")}
            self.assertEqual(len(plans), 1, ours)


class Judge(unittest.TestCase):
    def test_as_it_should_be(self):
        for name in CASES:
            said = outcome(name, wanted(name))
            self.assertEqual(said["why"], [], name)
            self.assertIn(name, matrix.line(said))

    def test_wrong_elements_and_bits(self):
        def wrong(said):
            if said["rank"] == 2 and said["step"] == "struck":
                said["wrong"], said["first_wrong"] = 3, 1
        self.assertIn("wrong elements", " ".join(outcome("lost_mode3", change=wrong)["why"]))
        self.assertIn("bits differ", " ".join(outcome("lost_mode3", change=lambda s: s.update(sha256=str(s["rank"])))["why"]))

    def test_a_corruption_that_is_not_caught(self):
        self.assertTrue(outcome("variants_chain", change=lambda s: s.update(wrong=0, sha256="a"))["why"])

    def test_steps_that_an_old_nccl_lacks(self):
        def old(ranks):
            def lacks(said):
                if said["step"].startswith("float8") and said["rank"] in ranks:
                    said["left_out"] = "NCCL 2.23.4 has no float8"
            return lacks
        said = outcome("variants_chain", change=old(range(4)))
        self.assertEqual((said["why"], set(said["left_out"])), ([], {"float8e4m3 sum", "float8e5m2 sum"}))
        self.assertNotIn("float8e4m3 sum", [step["step"] for step in said["steps"]])
        self.assertIn("left out: float8e4m3 sum", matrix.line(said))
        self.assertIn("not run by all ranks: float8e4m3 sum", " ".join(outcome("variants_chain", change=old([1]))["why"]))

    def test_faults_algorithms_and_ends(self):
        self.assertTrue(outcome("lost_mode3", struck=False)["why"])
        self.assertTrue(outcome("lost_mode3", algorithm="RING")["why"])
        self.assertTrue(outcome("healthy_mode3")["why"])
        self.assertFalse(outcome("lost_balance", algorithm="RING")["why"])
        self.assertTrue(outcome("lost_direct")["why"])
        self.assertTrue(outcome("lost_mode3", exits=[0, 0, 3, 0])["why"])
        self.assertEqual(outcome("lost_mode3", algorithm="3")["algorithms"], {"COLLNET_CHAIN": 1})

    def test_comparisons(self):
        results = {name: outcome(name, wanted(name)) for name in CASES}
        lines = matrix.compare(results)
        self.assertIn({"compare": "rate of mode 3 beside mode 1, healthy", "ratios": [1.0, 1.0], "ratio": 1.0, "wanted": ">= 0.98"}, lines)
        self.assertTrue(any(l["compare"].startswith("six nodes") and l["mode3_to_other"] == 1 for l in lines))


if __name__ == "__main__":
    unittest.main()
