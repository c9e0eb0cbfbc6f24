#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_memory.py judges a case by all that it asks for: each of them, missing, fails it."""

import copy
import os
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gpu_memory  # noqa: E402
import gpu_jobs  # noqa: E402
import gpu_topology  # noqa: E402

GOOD = {"case": {"name": "a", "fault": "port_down", "extra": "", "wants_wrong": False, "nodes": 2, "gpus": 1, "lasting": True},
        "ranks": [{"error": "", "results": [{"wrong": 0}]}] * 2, "gdr_lines": 4, "other_lines": 0, "exit": [0, 0], "seconds": 1.0,
        "witness": {"faults": [{"t0_ns": 5}]}}


class Judge(unittest.TestCase):
    def setUp(self):
        self.outcome = copy.deepcopy(GOOD)
        self.kept = gpu_memory.gpu_jobs.moved, gpu_memory.gpu_jobs.plan_of
        gpu_memory.gpu_jobs.moved = lambda outcome: (outcome.get("moves", True), "moved")
        gpu_memory.gpu_jobs.plan_of = lambda case, iters: [{}]

    def tearDown(self):
        gpu_memory.gpu_jobs.moved, gpu_memory.gpu_jobs.plan_of = self.kept

    def fine(self):
        return gpu_memory.judge(self.outcome, 15)[0]

    def test_a_case_holds(self):
        self.assertTrue(self.fine())

    def test_a_wrong_element_fails_it_but_where_it_is_wanted(self):
        self.outcome["ranks"][1]["results"][0]["wrong"] = 1
        self.assertFalse(self.fine())
        self.outcome["case"]["wants_wrong"] = True
        self.assertTrue(self.fine())

    def test_a_control_that_finds_nothing_fails(self):
        self.outcome["case"]["wants_wrong"] = True
        self.assertFalse(self.fine())

    def test_a_connection_through_the_host_fails_it(self):
        self.outcome["other_lines"] = 1
        self.assertFalse(self.fine())

    def test_a_log_without_connections_fails_it(self):
        self.outcome["gdr_lines"] = 0
        self.assertFalse(self.fine())

    def test_a_fault_without_effect_fails_it(self):
        self.outcome["witness"]["faults"][0]["t0_ns"] = 0
        self.assertFalse(self.fine())

    def test_traffic_that_did_not_move_fails_it(self):
        self.outcome["moves"] = False
        self.assertFalse(self.fine())

    def test_a_case_that_has_to_spread_needs_lanes(self):
        self.outcome["case"]["spreads"] = True
        for counters, fine in (({}, False), ({"r2ccl_lanes_started_total": 0.0}, False), ({"r2ccl_lanes_started_total": 3.0}, True)):
            self.assertEqual(gpu_memory.judge(self.outcome | {"counters": counters}, 15)[0], fine)

    def test_balance_has_four_nics_where_it_has_to_spread(self):
        spreading = [case for case in gpu_memory.cases() + gpu_memory.pxn_cases("two", "four") if case.get("spreads")]
        self.assertEqual([case["name"] for case in spreading], ["four_nics_lost_balance", "four_nics_slow_balance", "pxn_four_nics_lost_balance"])
        for case in spreading:
            self.assertEqual((case["mode"], case["nics"], len(gpu_jobs.plan_of(case, 15))), (2, 4, 1))
        self.assertEqual(spreading[-1]["env"]["NCCL_TOPO_FILE"], "four")

    def test_a_rank_with_an_error_fails_it(self):
        self.outcome["ranks"][0]["error"] = "lost"
        self.assertFalse(self.fine())

    def test_a_neighbours_nic_must_be_used_where_it_is_asked_for(self):
        self.outcome["case"]["pxn"] = True
        for over_neighbour, over_nvlink, fine in ((4, 8, True), (0, 8, False), (4, 0, False)):
            self.outcome |= {"pxn_lines": over_neighbour, "p2p_lines": over_nvlink}
            self.assertEqual(self.fine(), fine)
        self.outcome |= {"case": self.outcome["case"] | {"pxn": False}, "p2p_lines": 8}
        self.assertFalse(self.fine())

    def test_nccls_log_tells_whose_proxy_sends(self):
        words = gpu_jobs.PROXY_OF_ANOTHER
        self.assertTrue(words.search("Channel 00/0 : 0[0] -> 3[1] [send] via NET/R2CCL/1(1)/GDRDMA"))
        self.assertFalse(words.search("Channel 00/0 : 0[0] -> 2[0] [send] via NET/R2CCL/0/GDRDMA"))

    def test_each_nic_is_beside_one_gpu(self):
        system = ElementTree.fromstring(gpu_topology.topology(["0000:04:00.0", "0000:05:00.0"], 4))
        beside = {bridge.find("pci[@class='0x030200']").get("busid"): [net.get("name") for net in bridge.iter("net")] for bridge in system.find("cpu")}
        self.assertEqual(beside, {"0000:04:00.0": ["vhca0", "vhca2"], "0000:05:00.0": ["vhca1", "vhca3"]})

    def test_a_switch_is_at_the_other_end_of_nvlinks_where_it_is_asked_for(self):
        gpus = ["0000:04:00.0", "0000:05:00.0"]
        self.assertEqual(list(ElementTree.fromstring(gpu_topology.topology(gpus, 4)).iter("nvlink")), [])
        links = list(ElementTree.fromstring(gpu_topology.topology(gpus, 0, nvswitch=True)).iter("nvlink"))
        self.assertEqual([link.get("tclass") for link in links], ["0x068000"] * 2)

    def test_the_topology_command_needs_a_gpu(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, os.path.join(HERE, "gpu_topology.py"), "--nvswitch"]
            none = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": folder})
            self.assertEqual((none.returncode, none.stdout), (1, ""))
            self.assertIn("0 of 1 GPUs", none.stderr)
            with open(os.path.join(folder, "nvidia-smi"), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho 0, GPU-a1, 00000000:0F:00.0\necho 1, GPU-a2, 00000000:1F:00.0\n")
            os.chmod(file.name, 0o755)
            one = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": folder})
            self.assertEqual(one.stdout, gpu_topology.topology(["0000:0f:00.0"], 0, nvswitch=True))
            for visible, gpus in (("1", ["1f"]), ("GPU-a2,0", ["1f", "0f"]), ("1,2,0", ["1f"]), ("GPU-a", []), ("", [])):
                two = subprocess.run(command + ["--gpus", str(len(gpus) or 1)], capture_output=True, text=True, check=False, env={"PATH": folder, "CUDA_VISIBLE_DEVICES": visible})
                self.assertEqual((two.returncode, two.stdout), (0, gpu_topology.topology([f"0000:{bus}:00.0" for bus in gpus], 0, nvswitch=True)) if gpus else (1, ""), visible)
            self.assertIn("0 of 1 GPUs, of those in CUDA_VISIBLE_DEVICES", two.stderr)
            for wrong in ("0", "-1", "two"):
                none = subprocess.run(command + ["--gpus", wrong], capture_output=True, text=True, check=False, env={"PATH": folder})
                self.assertEqual((none.returncode, none.stdout), (2, ""))
                self.assertIn("no number of GPUs: at least 1", none.stderr)

    def test_the_cases_have_names_of_their_own(self):
        for more, one in (([], "home_flush_is_wrong"), (["--pxn"], "pxn_disabled")):
            names = subprocess.run([sys.executable, os.path.join(HERE, "gpu_memory.py"), "--build", "none", "--out", "none", "--list", *more],
                                   capture_output=True, text=True, check=True).stdout.split()
            self.assertEqual(len(names), len(set(names)))
            self.assertIn(one, names)


if __name__ == "__main__":
    unittest.main()
