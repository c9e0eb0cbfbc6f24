#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""paper_result.py accepts a result that is right but slow, and none that is wrong."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = os.path.join(HERE, "../../results/reference/nic_down/result.json")


class PaperResultTest(unittest.TestCase):
    def look(self, change, figure=b"%PDF-1.4", **environment):
        """`figure`: None where it was not drawn."""
        with open(SAMPLE, encoding="utf-8") as file:
            result = json.load(file)
        change(result)
        with tempfile.TemporaryDirectory() as paper:
            files = {"reference/nic_down/result.json": json.dumps(result).encode(), "figures/timeline.pdf": figure, "logs/figures.log": b"why not\n"}
            for name, content in files.items():
                if content is None:
                    continue
                path = os.path.join(paper, name)
                os.makedirs(os.path.dirname(path))
                with open(path, "wb") as file:
                    file.write(content)
            made = subprocess.run([sys.executable, "-B", os.path.join(HERE, "paper_result.py"), paper, "vhca", "emulated"], capture_output=True, text=True, timeout=60,
                                  check=False, env={**os.environ, **environment})
        return made.returncode, made.stdout

    def miss(self, name):
        def change(result):
            each = next(each for each in result["expectations"] if each["name"] == name)
            each["ok"] = False
        return change

    def test_a_slow_machine_may_miss_a_time_and_nothing_else(self):
        self.assertEqual(self.look(lambda result: None)[0], 0)
        status, said = self.look(self.miss("migrate.detect_ms.p50"))
        self.assertEqual(status, 0, said)
        self.assertIn("missed on this slow machine: migrate.detect_ms.p50", said)
        for name in ("migrate.wrong_elements", "migrate.fault_witness", "baseline.error_names_nic"):
            status, said = self.look(self.miss(name))
            self.assertEqual(status, 1)
            self.assertIn(name, said)

    def test_ranks_that_were_killed_do_not_pass(self):
        def killed(result):
            for run in result["runs"]:
                run["outcome"] = "rank_died"
        status, said = self.look(killed)
        self.assertEqual(status, 1)
        self.assertIn("the outcomes are [('baseline', 'rank_died'), ('migrate', 'rank_died')]", said)
        self.assertEqual(self.look(lambda result: result.update(runs=[]))[0], 1)
        self.assertEqual(self.look(lambda result: result.update(expectations=[]))[0], 1)
        self.assertEqual(self.look(lambda result: result.update(evidence="rxe"))[0], 1)
        self.assertEqual(self.look(lambda result: None, figure=b"no figure")[0], 1)

    def test_a_figure_that_was_not_drawn_is_said_with_the_reason(self):
        status, said = self.look(lambda result: None, figure=None)
        self.assertEqual(status, 1)
        self.assertIn("FAILED: there is no figure", said)
        self.assertIn("why not", said)

    def test_it_is_recorded_under_the_name_of_the_system(self):
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "record.jsonl")
            for change, name in ((lambda result: None, "clean Debian 12"), (self.miss("migrate.wrong_elements"), "clean Ubuntu 24.04"),
                                 (lambda result: None, "")):
                self.look(change, R2BENCH_CLUSTER_RECORD=record, CLEAN_ROOT_NAME=name)
            with open(record, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
        self.assertEqual([(line["test"], line["hosts"], line["launcher"], line["verdict"]) for line in lines],
                         [("clean_root", "clean Debian 12", "local", "pass"), ("clean_root", "clean Ubuntu 24.04", "local", "fail")])
        self.assertGreater(lines[0]["met"], 0)


if __name__ == "__main__":
    unittest.main()
