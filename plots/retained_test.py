#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""retained.py on the stored results of k_of_8_nics and on made-up ones."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "..", "results")
SAMPLE = os.path.join(RESULTS, "reference", "nic_down", "result.json")
sys.path.insert(0, HERE)

import collect  # noqa: E402
import retained  # noqa: E402
import style  # noqa: E402

style.use()  # exit status 3 where matplotlib is missing


def program(*arguments):
    return subprocess.run([sys.executable, os.path.join(HERE, "retained.py"), *arguments], capture_output=True, text=True, check=False)


class Retained(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def changed(self, change, name="result.json"):
        with open(SAMPLE, encoding="utf-8") as file:
            result = json.load(file)
        change(result)
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file)
        return path

    def test_patterns_name_nics(self):
        self.assertEqual(collect.nic_numbers("nic3"), {3})
        self.assertEqual(collect.nic_numbers("nic[0-2,5]"), {0, 1, 2, 5})
        self.assertIsNone(collect.nic_numbers("nic*"))

    def test_nics_lost_are_those_of_faults_that_last(self):
        result = {"fabric": {"nics_per_node": 4}}
        fault = {"kind": "port_down", "target": "node1/nic[0-1]", "witnessed": True, "healed_at_ms": None}
        for change, lost in (({}, 2), ({"target": "node1/nic*"}, 4), ({"healed_at_ms": 5.0}, 0), ({"witnessed": False}, 0), ({"kind": "throttle"}, 0)):
            self.assertEqual(collect.nics_lost(result, {"faults": [{**fault, **change}]}), lost, change)
        self.assertEqual(collect.nics_lost(result, {"faults": [fault, {**fault, "target": "node0/nic3"}, {**fault, "target": "node1/nic3"}]}), 3)

    def test_the_stored_set_has_one_to_seven_lost_nics_in_both_modes(self):
        table = retained.data(RESULTS)
        modes = table["modes"]
        self.assertEqual(table["nics"], 8)
        self.assertTrue(table["job"].startswith("allreduce"))
        for mode in ("migrate", "balance"):
            self.assertEqual(sorted(modes[mode]), [1, 2, 3, 4, 5, 6, 7])
        for lost, points in modes["balance"].items():
            self.assertAlmostEqual(points[0][1], (8 - lost) / 8)

    def test_the_program_draws_results(self):
        done = program("--out", self.folder, SAMPLE)
        self.assertEqual(done.returncode, 0, done.stderr)
        for kind, least in (("png", 10000), ("pdf", 5000)):
            self.assertGreater(os.path.getsize(os.path.join(self.folder, "retained." + kind)), least)

    def test_results_of_different_jobs_do_not_mix(self):
        other = self.changed(lambda result: result["workload"].update(op="alltoall"))
        done = program("--out", self.folder, SAMPLE, other)
        self.assertEqual(done.returncode, 64)
        self.assertIn("another job", done.stderr)

    def test_a_run_with_a_wrong_element_counts_for_nothing(self):
        def spoil(result):
            for run in result["runs"]:
                run["metrics"]["correctness"]["exact"] = False
        done = program("--out", self.folder, self.changed(spoil))
        self.assertEqual(done.returncode, 64)
        self.assertIn("no result has a retained bandwidth", done.stderr)

    def test_runs_that_failed_are_counted_at_the_foot(self):
        def fail(result):
            for run in result["runs"]:
                if run["mode"] == "migrate":
                    run["metrics"]["correctness"]["exact"] = False
        good = self.changed(lambda result: result.update(runs=[run for run in result["runs"] if run["mode"] == "migrate"]))
        self.assertNotIn("left out", retained.footnote(retained.load([good])))
        spoilt = self.changed(fail, "spoilt.json")
        self.assertIn(" · 1 run failed, left out (1 migrate)", retained.footnote(retained.load([good, spoilt])))

    def test_a_missing_file_is_an_error_in_one_line(self):
        done = program("/nonexistent/result.json")
        self.assertEqual(done.returncode, 64)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
