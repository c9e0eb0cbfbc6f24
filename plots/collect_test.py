#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables: what collect.py puts into them, what it refuses, and that those of the tree are whole, small and name no machine's paths."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "..", "results")
SAMPLE = os.path.join(RESULTS, "reference", "nic_down")
sys.path.insert(0, HERE)

import tables  # noqa: E402


def read(folder, name):
    with open(os.path.join(folder, "tables", name + ".csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Collect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def call(self, *arguments):
        return subprocess.run([sys.executable, "-B", os.path.join(HERE, "collect.py"), *arguments, "--results", self.folder], capture_output=True, text=True, check=False)

    def changed(self, name, change):
        with open(os.path.join(SAMPLE, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
        change(result)
        place = os.path.join(self.folder, "runs", name)
        os.makedirs(place)
        with open(os.path.join(place, "result.json"), "w", encoding="utf-8") as file:
            json.dump(result, file)
        return place

    def test_the_stored_rows_of_nic_down_are_those_of_its_result(self):
        done = self.call("run", "again", SAMPLE, "--command", "r2bench run nic_down")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("runs", "faults"):
            mine = [{**row, "set": "reference"} for row in read(self.folder, name)]
            self.assertEqual(mine, [row for row in read(RESULTS, name) if row["set"] == "reference" and row["run"] == "nic_down"])
            self.assertEqual(len(mine), 2)
        origin, = read(self.folder, "provenance")
        with open(os.path.join(SAMPLE, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertEqual(origin["machine"], "{cpu}, {kernel}".format(**result["environment"]))
        self.assertEqual(origin["commit"], result["environment"]["revision"])
        self.assertEqual((origin["evidence"], origin["fabric"], origin["date"], origin["tables"]),
                         ("emulated", "vhca", result["started_at"][:10], "runs faults"))

    def test_a_row_says_why_a_recovery_is_not_known(self):
        def without_rate(result):
            result["runs"][1]["faults"][0] |= {"recover_ms": None, "why_no_rate_before": "it struck first"}

        place = self.changed("early", without_rate)
        self.assertEqual(self.call("run", "set", place, "--command", "x").returncode, 0)
        self.assertEqual([(row["recover_ms"] == "", row["why_no_rate_before"]) for row in read(self.folder, "faults") if row["mode"] == "migrate"], [(True, "it struck first")])

    def test_renewals_say_when_what_was_open_and_how_long_the_slowest_took(self):
        def renewed(result):
            result["matrix"] = {"workload.renew.delay": "10 ms", "workload.renew.iter": "20"}
            result["environment"] |= {"nccl": "2.32.3", "gpu": "1 × NVIDIA H200, compute capability 9.0"}
            result["runs"] = result["runs"][:1]
            for place, rank in enumerate(result["runs"][0]["ranks"]):
                result["runs"][0]["metrics"]["values"] = {"renewed_in_migration": 1}
                rank["renewal"] = {"iteration": 20, "operation_open": place == 0, "ranks": 2, "renew_ms": 500.0 + place}

        place = self.changed("abort", renewed)
        with open(os.path.join(place, "scenario.yaml"), "w", encoding="utf-8") as file:
            file.write("workload: {engine: nccl, renew: {by: abort, iter: 20, delay: 10 ms}}\n")
        done = self.call("renewals", "set", place, "--command", "x")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = read(self.folder, "renewals")
        self.assertEqual((row["by"], row["delay_ms"], row["iter"], row["nccl"], row["open"], row["ranks_after"], row["renew_ms"], row["in_migration"]),
                         ("abort", "10", "20", "2.32.3", "1", "2", "501", "1"))

    def test_a_row_says_what_the_result_says(self):
        self.call("run", "one", SAMPLE, "--command", "x")
        with open(os.path.join(SAMPLE, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
        for row, run in zip(read(self.folder, "runs"), result["runs"]):
            recovery = run["metrics"]["recovery"]
            self.assertEqual((row["mode"], row["outcome"]), (run["mode"], run["outcome"]))
            for column, wanted in (("recover_max_ms", recovery["recover_ms"]["max"]), ("detect_p50_ms", recovery["detect_ms"]["p50"]), ("error_ms", run["error_ms"]),
                                   ("retained", run["metrics"]["throughput"]["retained"]), ("nics_lost", 1), ("planned", 1)):
                self.assertEqual(row[column], tables.text(wanted), column)
            if run["outcome"] == "ok":
                rates = sorted(run["row"]["size_bytes"] / ms / 1e6 for ms in run["iteration_ms"])  # two ranks: busbw is algbw
                self.assertAlmostEqual(float(row["busbw_p50_gbytes"]), (rates[len(rates) // 2 - 1] + rates[len(rates) // 2]) / 2, places=2)

    def test_a_rate_that_the_ports_did_not_limit_is_told(self):
        def rates(**changes):
            def change(result):
                throughput = result["runs"][1]["metrics"]["throughput"]
                throughput.update({key: value for key, value in changes.items() if value != "gone"})
                for key in [key for key, value in changes.items() if value == "gone"]:
                    del throughput[key]
            return change

        cases = {"sound": (rates(held_up=None), "ports"), "said": (rates(held_up="something else held the job up"), "other"),
                 "older": (rates(retained=0.67, held_up="gone"), "other"), "slow": (rates(before_gbps=6.7, held_up="gone"), "other"), "unlimited": (rates(ports_gbps=None, held_up=None), ""),
                 "oldest": (rates(rounds="gone", ports_gbps="gone", held_up="gone"), "")}
        for name, (change, wanted) in cases.items():
            done = self.call("run", name, self.changed(name, change), "--command", "x")
            self.assertEqual(done.returncode, 0, done.stderr)
            row = next(row for row in read(self.folder, "runs") if row["set"] == name and row["mode"] == "migrate")
            self.assertEqual(row["before_limited_by"], wanted, name)

    def test_the_stored_rows_that_retain_more_than_their_limit_are_marked(self):
        beyond = [row for row in read(RESULTS, "runs") if row["retained"] and float(row["limit"]) > 0 and float(row["retained"]) > 1.1 * float(row["limit"])]
        self.assertTrue(beyond)
        self.assertEqual({row["before_limited_by"] for row in beyond}, {"other"})

    def test_a_set_is_replaced_and_others_stay(self):
        for name in ("one", "two", "one"):
            self.assertEqual(self.call("run", name, SAMPLE, "--command", "x").returncode, 0)
        self.assertEqual([row["set"] for row in read(self.folder, "runs")], ["one", "one", "two", "two"])
        self.assertEqual([row["set"] for row in read(self.folder, "provenance")], ["one", "two"])

    def test_of_several_that_write_a_table_at_the_same_time_no_row_is_lost(self):
        script = "import sys; sys.path.insert(0, sys.argv[1]); import tables\nfor number in range(20): tables.replace(sys.argv[2], 'provenance', sys.argv[3] + str(number), [{}])"
        writers = [subprocess.Popen([sys.executable, "-B", "-c", script, HERE, self.folder, name]) for name in "abcdef"]
        for writer in writers:
            self.assertEqual(writer.wait(), 0)
        self.assertEqual(len(read(self.folder, "provenance")), 6 * 20)
        self.assertEqual(os.listdir(os.path.join(self.folder, "tables")), ["provenance.csv"])

    def test_a_table_that_cannot_be_written_to_its_end_stays_as_it_was(self):
        tables.write(self.folder, "provenance", [{"set": "one"}])

        class Full:
            def __str__(self):
                raise OSError("No space left on device")
        with self.assertRaises(OSError):
            tables.write(self.folder, "provenance", [{"set": "two"}, {"set": Full()}])
        self.assertEqual([row["set"] for row in read(self.folder, "provenance")], ["one"])
        self.assertEqual(os.listdir(os.path.join(self.folder, "tables")), ["provenance.csv"])

    def test_evidence_does_not_mix_within_a_set(self):
        other = self.changed("other", lambda result: result.update(evidence="hardware"))
        done = self.call("run", "one", SAMPLE, other, "--command", "x")
        self.assertEqual(done.returncode, 64)
        self.assertIn("differ in evidence (emulated, hardware)", done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "tables")))

    def test_another_machine_within_a_set_has_to_be_said_for_all(self):
        other = self.changed("other", lambda result: result["environment"].update(cpu="another"))
        refused = self.call("run", "one", SAMPLE, other, "--command", "x")
        self.assertEqual(refused.returncode, 64)
        self.assertIn("differ in machine (", refused.stderr)
        self.assertIn("--machine", refused.stderr)
        self.assertEqual(self.call("run", "one", SAMPLE, other, "--command", "x", "--machine", "two machines").returncode, 0)
        self.assertEqual([row["machine"] for row in read(self.folder, "provenance")], ["two machines"])

    def test_an_origin_that_is_not_known_is_asked_for(self):
        done = self.call("run", "one", SAMPLE)
        self.assertEqual(done.returncode, 64)
        self.assertIn("give --command", done.stderr)
        done = self.call("gate", "one", os.path.join(SAMPLE, "result.json"))
        self.assertEqual(done.returncode, 64)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "tables")))

    def test_what_is_no_result_is_an_error_in_one_line(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        foreign = self.changed("foreign", lambda result: result.pop("runs"))
        for path, words in ((empty, "there is no result.json in it"), (foreign, "no result of r2bench run"), ("/nonexistent.json", "No such file")):
            done = self.call("run", "one", path, "--command", "x")
            self.assertEqual(done.returncode, 64)
            self.assertIn(words, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1)

    def test_mode_3_inside_nccl_keeps_the_relative_error(self):
        path = os.path.join(self.folder, "allreduce.jsonl")
        step = {"step": "after", "bytes": 1 << 26, "wrong": [0, 0], "median_ms": 119.5, "max_ms": 125.0, "bound_ms": 107.4, "relative_error": 2.5e-08}
        lines = [{"host": {"commit": "abc", "cpus": 16}, "mbits": 2000, "mib": 64, "date": "2026-01-02T03:04:05Z"},
                 {"case": "lost_mode3", "ok": True, "nodes": 4, "mode": 3, "plan": ["- {kind: port_down}"], "ends": [{"nccl": "2.28.9"}], "env": {}, "steps": [step]}]
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        done = self.call("mode3", "m", path, "--command", "x")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = read(self.folder, "nccl")
        self.assertEqual((row["relative_error"], row["median_ms"], row["wrong"], row["fault"]), ("2.5e-08", "119.5", "0", "port_down"))

    def test_a_case_of_many_steps_becomes_one_row(self):
        path = os.path.join(self.folder, "many.jsonl")
        steps = [{"step": f"s{k}", "bytes": 4 * k, "wrong": [0, 1 if k == 3 else 0], "median_ms": 1, "max_ms": k, "relative_error": k * 1e-8} for k in range(12)]
        steps.append({"step": "corrupted on purpose", "bytes": 9999, "wrong": [0, 1], "median_ms": 1, "max_ms": 99, "relative_error": 1, "corrupt": True})
        case = {"case": "variants_chain", "ok": False, "nodes": 2, "mode": 3, "plan": [], "ends": [{"nccl": "2.28.9"}], "env": {}, "steps": steps}
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in ({"host": {"kernel": "Linux 6.1", "cpus": 2, "commit": "abc"}, "mbits": 2000, "date": "2026-01-02T00:00:00Z"}, case))
            file.write(json.dumps({**case, "case": "dead", "steps": [], "ends": []}) + "\n")
        done = self.call("mode3", "m", path, "--command", "x")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, dead = read(self.folder, "nccl")
        self.assertEqual([dead[key] for key in ("case", "as_expected", "step", "wrong")], ["dead", "0", "", "0"])
        self.assertEqual([row[key] for key in ("step", "bytes", "wrong", "median_ms", "max_ms", "relative_error")], ["12 steps", "44", "1", "", "11", "1.1e-07"])

    def test_matrix_cells_and_empty_fields_become_rows(self):
        path = os.path.join(self.folder, "matrix.json")
        cell = {"cell": "qp_error/close/AllReduce/both", "verdict": "fail", "outcome": "error", "struck": 2, "attempts": 1, "migrations": 3, "replayed": 4, "checked": 5,
                "wrong": 0, "lost": 0, "duplicated": 0, "error_ms": 512.25, "why": "a test failed; the plugin said: NET/R2CCL: it ended, and 'why' has a comma"}
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schema_version": 1, "cells": [cell], "empty": [{"fault": "noop", "moment": "close", "why": "nothing is open"}, {"fault": "noop", "moment": "connect", "end": "both", "why": "one waits"}],
                       "provenance": {"command": "r2bench matrix", "evidence": "emulated", "started": "2026-01-02T03:04:05Z", "revision": "abc", "kernel": "Linux 6.1.0-9-build"}}, file)
        self.assertEqual(self.call("matrix", "m", path).returncode, 0)
        first, second, third = read(self.folder, "matrix")
        self.assertEqual([first[key] for key in ("fault", "moment", "op", "end", "verdict", "error_ms", "why")],
                         ["qp_error", "close", "AllReduce", "both", "fail", "512.25", "it ended, and 'why' has a comma"])
        self.assertEqual((second["fault"], second["verdict"], second["op"], second["end"]), ("noop", "empty", "", ""))
        self.assertEqual((third["moment"], third["verdict"], third["end"]), ("connect", "empty", "both"))
        self.assertEqual(read(self.folder, "provenance")[0]["machine"], "Linux 6.1")
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        table["provenance"]["interrupted"] = "13 of 21 cells were not run"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(table, file)
        done = self.call("matrix", "half", path)
        self.assertEqual(done.returncode, 64)
        self.assertIn("13 of 21 cells were not run", done.stderr)

    def test_of_a_step_of_the_night_the_last_end_counts_with_its_commit(self):
        path = os.path.join(self.folder, "record.jsonl")
        lines = [{"nightly": "2026-01-02T00:00:00Z", "size": "short", "commit": "abc"}]
        for step, status in (("ci", 0), ("gate", 1)):
            lines += [{"step": step, "size": "short", "began": "2026-01-02T00:00:00Z"}, {"step": step, "size": "short", "ended": "2026-01-02T00:00:09Z", "status": status, "seconds": 9}]
        lines += [{"nightly": "2026-01-03T00:00:00Z", "size": "short", "commit": "abd"}, {"step": "gate", "size": "short", "ended": "2026-01-03T00:00:05Z", "status": 0, "seconds": 5},
                  {"step": "hosts", "size": "short", "began": "2026-01-03T00:00:05Z"}]
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        done = self.call("nightly", "n", path, "--command", "x")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([(row["step"], row["commit"], row["status"], row["seconds"]) for row in read(self.folder, "nightly")], [("ci", "abc", "0", "9"), ("gate", "abd", "0", "5")])
        origin = read(self.folder, "provenance")[0]
        self.assertEqual((origin["commit"], origin["date"]), ("abc abd", "2026-01-03"))

    def test_of_a_case_of_a_cluster_the_last_line_counts(self):
        path = os.path.join(self.folder, "record.jsonl")
        case = {"test": "env_test", "evidence": "emulated", "hosts": "2 namespaces", "launcher": "env", "scenario": "nic_down", "verdict": "fail", "fabric": None,
                "expectations": None, "met": None, "clock_bound_ms": None, "date": "2026-01-02", "commit": "abc", "machine": "Linux 6.1", "cores": 2}
        lines = [case, case | {"scenario": "blackhole"}, case | {"verdict": "pass", "fabric": "vhca", "expectations": 7, "met": 6, "clock_bound_ms": 0.25, "commit": "abd"}]
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        done = self.call("cluster", "c", path, "--command", "x")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([(row["scenario"], row["verdict"], row["met"], row["clock_bound_ms"]) for row in read(self.folder, "cluster")],
                         [("nic_down", "pass", "6", "0.25"), ("blackhole", "fail", "", "")])
        self.assertEqual(read(self.folder, "provenance")[0]["commit"], "abd abc")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(case | {"evidence": "rxe", "hosts": "2 guests"}) + "\n")
        self.assertEqual(self.call("cluster", "c", path, "--command", "x").returncode, 64)


class Stored(unittest.TestCase):
    def test_every_set_has_one_origin_and_every_origin_its_rows(self):
        origins = read(RESULTS, "provenance")
        names = [origin["set"] for origin in origins]
        self.assertEqual(len(names), len(set(names)))
        held = {}
        for name in set(tables.COLUMNS) - {"provenance"}:
            for row in read(RESULTS, name):
                held.setdefault(row["set"], set()).add(name)
        self.assertEqual(set(names), set(held))
        for origin in origins:
            self.assertLessEqual(set(origin["tables"].split()), held[origin["set"]] | {"faults"})
            for column in ("evidence", "date", "commit", "command"):
                self.assertTrue(origin[column], (origin["set"], column))
            self.assertLessEqual(set(origin["evidence"].split(", ")), {"simulated", "emulated", "rxe", "hardware"})

    def test_the_stored_run_is_small_and_names_no_build_of_a_kernel_and_no_path_of_a_machine(self):
        size = 0
        for folder, folders, names in os.walk(RESULTS):
            folders[:] = [name for name in folders if name != "runs"]
            for name in names:
                path = os.path.join(folder, name)
                size += os.path.getsize(path)
                if not name.endswith((".png", ".pdf")):
                    with open(path, encoding="utf-8") as file:
                        found = re.search(r"/(?:proc|home|root|work|tmp)/\S*|\b\d+\.\d+\.\d+-[\w.-]*(?:amd64|generic|fc)\b\S*", file.read())
                    self.assertIsNone(found, f"{path}: {found and found.group(0)}")
        self.assertLess(size, 2_000_000)

    def test_a_table_that_was_cut_off_is_named_with_its_line(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(RESULTS, "tables"), os.path.join(folder, "tables"))
            path = tables.path_of(folder, "runs")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            with open(path, "w", encoding="utf-8") as file:
                file.write(text[:len(text) // 2].rsplit(",", 3)[0])
            with self.assertRaisesRegex(Exception, r"runs\.csv:\d+: was cut off"):
                tables.read(folder, "runs")


if __name__ == "__main__":
    unittest.main()
