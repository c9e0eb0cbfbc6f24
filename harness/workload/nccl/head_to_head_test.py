#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""head_to_head.py on results that are made up and on a runner that is made up: the plan, the measures, and going on where it stopped."""

import contextlib
import io
import itertools
import json
import os
import re
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import head_to_head  # noqa: E402
import head_to_head_rows as rows_of  # noqa: E402


def arguments(*argv):
    return head_to_head.parse(list(argv))


def result(lengths, faults=(), outcome="ok", gap=1.0, **more):
    """A result.json whose operations follow each other with `gap` ms between; `faults`: (t0, healed) in ms."""
    begins, now = [], 0.0
    for length in lengths:
        begins.append(now)
        now += length + gap
    stalled = [n for b, n in zip(begins, lengths) if faults and b + n > faults[0][0]]
    run = {"outcome": outcome, "error": None, "error_ms": None, "iteration_ms": lengths, "iteration_begin_ms": begins, "duration_s": 5,
           "faults": [{"t0_at_ms": t0, "healed_at_ms": healed} for t0, healed in faults],
           "metrics": {"correctness": {"wrong_elements": 0, "checked_elements": 10}, "faults": {"planned": len(faults)},
                       "recovery": {"migrations": 2, "recover_ms": {"max": None}}},
           "row": {"busbw_gbytes": 1.0}, "ranks": [{"cpu_s": 0.25}, {"cpu_s": 0.5}]}
    if outcome == "ok" and stalled:
        run["stall_ms"] = max(stalled)
    return {"runs": [run | more], "evidence": "emulated", "environment": {"nccl": "2.32.3"}}


class Measures(unittest.TestCase):
    def test_without_a_fault_only_the_pace_is_known(self):
        found = head_to_head.measure(result([50, 50, 50, 20, 20, 22]))
        self.assertEqual(found["before_ms"], 20)  # the first three connect
        self.assertEqual((found["stall_ms"], found["retained"], found["used_again_ms"]), (None, None, None))
        self.assertEqual(found["cpu_s"], 0.75)

    def test_a_stall_is_told_from_the_pace_after_it(self):
        lengths = [20] * 10 + [1100] + [40] * 10
        found = head_to_head.measure(result(lengths, [(10 * 21 + 5, None)]))
        self.assertEqual((found["before_ms"], found["stall_ms"], found["after_ms"], found["retained"]), (20, 1100, 40, 0.5))

    def test_use_of_the_repaired_nic_shows_in_the_pace(self):
        lengths = [20] * 10 + [33] * 10 + [33] * 5 + [20] * 30
        healed = 10 * 21 + 10 * 34
        found = head_to_head.measure(result(lengths, [(10 * 21 + 5, healed)]))
        self.assertAlmostEqual(found["used_again_ms"], 5 * 34)
        self.assertAlmostEqual(found["restored"], 1.0)
        self.assertAlmostEqual(found["retained"], 20 / 33)

    def test_a_nic_that_is_never_used_again_has_no_such_time(self):
        found = head_to_head.measure(result([20] * 10 + [40] * 30, [(10 * 21 + 5, 400.0)]))
        self.assertIsNone(found["used_again_ms"])
        self.assertEqual(found["restored"], 0.5)

    def test_a_job_that_ended_in_an_error_survives_nothing(self):
        found = head_to_head.measure(result([20] * 11, [(10 * 21 + 5, None)], outcome="error", error="NCCL said so", error_ms=540.0))
        self.assertEqual((found["survives"], found["stall_ms"], found["error_ms"], found["error"]), (False, None, 540.0, "NCCL said so"))

    def test_two_transports_that_take_turns_are_compared_pair_by_pair_and_in_every_order(self):
        # What the rank does: 16 operations of a pair, 0000 1111 1111 0000; when all pairs had a turn, 1111 0000 0000 1111.
        lengths = []
        for begins in (0, 1):
            for factor in (1.0, 2.0):  # the second pair is slower on both sides
                for side in (begins, 1 - begins, 1 - begins, begins):
                    lengths += 4 * [factor * (11.0 if side == 0 else 10.0)]
        lengths.append(500.0)  # of a turn that is not whole
        job = result(lengths)
        job["runs"][0]["ranks"] = [{"cpu_by_side_s": [3.0, 2.0]}, {"cpu_by_side_s": [1.0, 2.0]}]
        found = head_to_head.measure(job, copies=2)
        self.assertEqual(found["side_ms"], [11.0, 22.0])
        self.assertEqual(found["other_ms"], [10.0, 20.0])
        self.assertAlmostEqual(found["ratio"], 1.1)
        self.assertEqual(found["cpu_ratio"], 1.0)
        self.assertNotIn("ratio", head_to_head.measure(job))

    def test_each_job_of_the_table_beside_gives_every_order_the_same_operations(self):
        for copies, rate in itertools.product(("1", "2", "4", "8"), ("0", "10000")):
            for row in rows_of.plan(arguments("--table", "beside", "--copies", copies, "--mbits", rate)):
                self.assertEqual(row["iters"] % (2 * rows_of.TURNS * int(copies)), 0, row["id"])
                self.assertGreaterEqual(row["warmup"], 2 * int(copies))  # each communicator connects before it is timed
                self.assertIn(f", copies: {copies}}}", rows_of.scenario(row, "x"))

    def test_the_turns_of_a_job_can_be_told(self):
        for row in rows_of.plan(arguments("--table", "beside", "--copies", "4", "--turns", "24")):
            self.assertEqual(row["iters"], 24 * rows_of.TURNS)
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            arguments("--table", "beside", "--turns", "24")
        self.assertIn("--turns 24: a multiple of 16 is needed", said.getvalue())

    def test_one_command_has_the_turns_and_copies_of_each_size_at_a_rate(self):
        rows = rows_of.plan(arguments("--table", "beside", "--mbits", "10000", "--seeds", "1,2"))
        found = {row["bytes"]: (row["iters"] // rows_of.TURNS, row["copies"]) for row in rows}
        self.assertEqual(set(found), set(rows_of.TURNS_OF_SIZE))
        self.assertEqual([found[size] for size in (8, 32 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30)],
                         [(384, 8), (384, 8), (384, 8), (384, 8), (128, 8), (64, 8), (16, 8), (8, 4), (4, 2)])
        self.assertEqual(len({row["id"] for row in rows}), 2 * 3 * len(found))
        for row in rows:
            self.assertEqual(row["iters"] % (2 * rows_of.TURNS * row["copies"]), 0, row["id"])
            self.assertEqual(row["warmup"], 4 * row["copies"])
            self.assertLess(2 * row["iters"] * row["bytes"] / (2 * 10e9 / 8), 60, row["id"])  # s, at half the ports' rate

    def test_turns_or_copies_that_are_told_replace_those_of_a_rate(self):
        one = ("--table", "beside", "--mbits", "10000", "--sizes", "1GiB,256MiB", "--seeds", "1")
        self.assertEqual({(row["iters"] // rows_of.TURNS, row["copies"]) for row in rows_of.plan(arguments(*one, "--turns", "32"))}, {(32, 4), (32, 2)})
        self.assertEqual({(row["iters"] // rows_of.TURNS, row["copies"]) for row in rows_of.plan(arguments(*one, "--copies", "8"))}, {(16, 8)})
        self.assertEqual({(row["iters"] // rows_of.TURNS, row["copies"]) for row in rows_of.plan(arguments(*one, "--copies", "1"))}, {(8, 1), (4, 1)})

    def test_only_the_sizes_that_are_asked_for(self):
        rows = rows_of.plan(arguments("--table", "beside", "--turns", "384", "--sizes", "8B,512B,4KiB,32KiB", "--seeds", "1"))
        self.assertEqual([row["bytes"] for row in rows[::3]], [8, 512, 4096, 32 << 10])
        self.assertEqual({row["iters"] for row in rows}, {384 * rows_of.TURNS})
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            arguments("--table", "beside", "--sizes", "8B,3B")
        self.assertIn("3B: the table has 8B, 512B, 4KiB, 32KiB, ", said.getvalue())

    def test_the_id_has_the_turns_where_they_are_not_those_of_the_size(self):
        def ids(*more):
            return {row["id"] for row in rows_of.plan(arguments("--table", "beside", "--seeds", "1", *more))}
        self.assertIn("beside/none/migrate_beside_ib/allreduce/1MiB/8copies/seed1", ids())
        self.assertIn("beside/none/migrate_beside_ib/allreduce/1MiB/8copies/384turns/seed1", ids("--turns", "384"))
        self.assertIn("beside/none/migrate_beside_ib/allreduce/64MiB/8copies/10000mbits/seed1", ids("--mbits", "10000"))
        self.assertIn("beside/none/migrate_beside_ib/allreduce/1GiB/2copies/4turns/10000mbits/seed1", ids("--mbits", "10000"))
        settings = [(), ("--turns", "384"), ("--turns", "192"), ("--copies", "4"), ("--mbits", "10000"), ("--mbits", "10000", "--turns", "32"), ("--mbits", "20000")]
        known = {}
        for one in settings:
            for row in rows_of.plan(arguments("--table", "beside", "--seeds", "1", *one)):
                setting = (row["transport"], row["bytes"], row["iters"], row["copies"], row["mbits"])
                self.assertEqual(known.setdefault(row["id"], setting), setting)

    def test_an_older_file_whose_ids_lack_the_turns_is_continued(self):
        rows = rows_of.plan(arguments("--table", "beside", "--mbits", "10000", "--seeds", "1"))
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for row in rows:
                file.write(json.dumps(row | {"id": re.sub(r"/\d+turns", "", row["id"])}) + "\n")
            file.flush()
            self.assertLessEqual({row["id"] for row in rows}, head_to_head.read_done(file.name))

    def test_nics_of_the_table_beside_can_have_a_rate(self):
        for row in rows_of.plan(arguments("--table", "beside", "--mbits", "20000")):
            self.assertIn("/20000mbits/", row["id"])
            self.assertIn(", nic_rate: 20000 Mbit/s}", rows_of.scenario(row, "x"))
        for row in rows_of.plan(arguments("--table", "beside")):
            self.assertNotIn("mbits", row["id"])
            self.assertNotIn("nic_rate", rows_of.scenario(row, "x"))
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            arguments("--table", "beside", "--mbits", "-1")
        self.assertIn("--mbits -1: a rate in Mbit/s is needed", said.getvalue())

    def test_predictions_are_ranges_and_words(self):
        found = {"survives": True, "wrong": 0, "stall_ms": 33.0}
        self.assertTrue(head_to_head.came_true({"survives": True, "stall_ms": [20, 70]}, found))
        self.assertFalse(head_to_head.came_true({"stall_ms": [40, 70]}, found))
        self.assertFalse(head_to_head.came_true({"survives": False}, found))
        self.assertFalse(head_to_head.came_true({"stall_ms": [0, 70]}, found | {"stall_ms": None}))
        self.assertIsNone(head_to_head.came_true(None, found))


class Plan(unittest.TestCase):
    LIBRARIES = ("--libraries", "2.30.7=/a", "--libraries", "2.23.4=/b")

    def test_every_row_has_a_name_of_its_own_and_a_prediction(self):
        with open(head_to_head.PREDICTIONS, encoding="utf-8") as file:
            predictions = json.load(file)
        for extra in ((), ("--quick",), ("--mode3",), ("--upstream", "/theirs/libnccl.so.2")):
            rows = rows_of.plan(arguments(*self.LIBRARIES, *extra))
            self.assertEqual(len({row["id"] for row in rows}), len(rows))
            for row in rows:
                if row["transport"] != "r2ccl_allreduce":
                    self.assertIsNotNone(rows_of.prediction(predictions, row), row["id"])

    def test_rows_with_eight_nics_have_predictions_of_their_own(self):
        with open(head_to_head.PREDICTIONS, encoding="utf-8") as file:
            predictions = json.load(file)
        found = {(row["nics"], row["transport"], row["op"]): rows_of.prediction(predictions, row)["retained"] for row in rows_of.plan(arguments("--table", "retained"))}
        self.assertEqual(found[4, "r2ccl_balance", "allgather"], [0.72, 0.8])
        for (nics, transport, op), (low, high) in found.items():
            if nics == 8 and transport != "ib_failover":
                limit = 7 / 8 if transport == "r2ccl_balance" else 1 / 2 if op in ("sendrecv", "alltoall") else 2 / 3
                self.assertTrue(low < limit < high, (nics, transport, op))

    def test_upstream_runs_its_own_library_under_each_fault(self):
        rows = [row for row in rows_of.plan(arguments("--table", "faults", "--upstream", "/theirs/libnccl.so.2", "--library", "/nccl.so")) if row["seed"] == 1]
        for name in rows_of.UPSTREAM:
            theirs = [row for row in rows if row["transport"] == name and not row["heal_ms"]]
            self.assertEqual([row["fault"] for row in theirs], list(rows_of.FAULTS))
            self.assertEqual({row["library"] for row in theirs}, {"/theirs/libnccl.so.2"})
            self.assertIn("transport: ib, env: {NCCL_IB_MERGE_NICS: 0", rows_of.scenario(theirs[0], "row"))
        self.assertEqual({row["library"] for row in rows if row["transport"] not in rows_of.UPSTREAM}, {"/nccl.so"})

    def test_upstream_is_given_the_time_that_its_receiver_waits(self):
        for row in rows_of.plan(arguments("--table", "faults", "--upstream", "/theirs/libnccl.so.2", "--library", "/nccl.so")):
            stall = int(re.search(r"stall: (\d+) s", rows_of.scenario(row, "row")).group(1))
            job = int(re.search(r"job: (\d+) s", rows_of.scenario(row, "row")).group(1))
            self.assertLess(stall, job)
            if row["transport"] == "upstream":
                self.assertGreater(stall, 32 + 20)  # more than one such wait
                self.assertGreater(row["expected_s"], 32)
            else:
                self.assertEqual(stall, 21)

    def test_transports_take_turns(self):
        rows = [row for row in rows_of.plan(arguments("--table", "faults")) if row["fault"] == "throttle" and row["seed"] == 2]
        self.assertEqual([row["transport"] for row in rows], rows_of.HEAD_TO_HEAD)

    def test_each_transport_is_the_first_of_a_size_in_one_of_four_seeds(self):
        rows = rows_of.plan(arguments("--table", "cost", "--seeds", "1,2,3,4"))
        for count in {row["bytes"] for row in rows}:
            turns = [[row["transport"] for row in rows if row["bytes"] == count and row["seed"] == seed] for seed in (1, 2, 3, 4)]
            self.assertEqual([turn[0] for turn in turns], rows_of.COST)
            self.assertEqual([sorted(turn) for turn in turns], [sorted(rows_of.COST)] * 4)

    def test_the_cost_is_measured_on_as_many_ranks_as_asked_for(self):
        rows = rows_of.plan(arguments("--table", "cost", "--seeds", "1", "--nodes", "4", "--ranks-per-node", "2"))
        self.assertTrue(all("/4x2/" in row["id"] for row in rows))
        self.assertIn("nodes: 4, ranks_per_node: 2,", rows_of.scenario(rows[0], "row"))
        self.assertIn("nodes: 2, ranks_per_node: 1,", rows_of.scenario(rows_of.plan(arguments("--table", "cost"))[0], "row"))

    def test_fewer_than_two_nodes_or_one_rank_are_refused(self):
        for wrong in (("--nodes", "0"), ("--nodes", "1"), ("--nodes", "-2"), ("--ranks-per-node", "0"), ("--ranks-per-node", "-1"), ("--nodes", "-2", "--ranks-per-node", "-1")):
            said = io.StringIO()
            with self.subTest(wrong=wrong), contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                arguments(*wrong)
            self.assertIn("at least 2 nodes of 1 rank", said.getvalue())

    def test_numbers_and_patterns_that_select_nothing_are_refused(self):
        for wrong, why in ((("--iters", "-5"), "at least 1 operation"), (("--iters", "0"), "at least 1 operation"), (("--only", "("), "not a regular expression")):
            said = io.StringIO()
            with self.subTest(wrong=wrong), contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                arguments(*wrong)
            self.assertIn(why, said.getvalue())

    def test_every_fault_has_three_seeds_on_four_transports(self):
        rows = [row for row in rows_of.plan(arguments("--table", "faults")) if not row["heal_ms"]]
        self.assertEqual(len(rows), len(rows_of.FAULTS) * 3 * 4)

    def test_quick_begins_with_what_tells_most_and_fits(self):
        rows = rows_of.plan(arguments("--quick", *self.LIBRARIES))
        self.assertEqual({row["fault"] for row in rows[:12]}, {"port_down", "blackhole", "qp_error_node1"})
        self.assertLess(sum(row["expected_s"] for row in rows[:40]), 500)

    def test_scenarios_are_accepted_by_r2bench(self):
        build = os.environ.get("R2BENCH_BUILD")
        if not build:
            self.skipTest("R2BENCH_BUILD names no build")
        import subprocess
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for number, row in enumerate(rows_of.plan(arguments(*self.LIBRARIES, "--upstream", "/theirs/libnccl.so.2"))):
                if row["seed"] == 1:
                    files.append(os.path.join(folder, f"row{number}.yaml"))
                    with open(files[-1], "w", encoding="utf-8") as file:
                        file.write(rows_of.scenario(row, f"row{number}"))
            done = subprocess.run([os.path.join(build, "bin", "r2bench"), "validate", *files], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(folder.name, "out.jsonl")
        os.makedirs(os.path.join(folder.name, "bin"))
        program = os.path.join(folder.name, "bin", "r2bench")
        with open(os.path.join(folder.name, "canned.json"), "w", encoding="utf-8") as file:
            json.dump(result([20] * 25 + [33] * 40, [(25 * 21 + 3, None)]), file)
        with open(program, "w", encoding="utf-8") as file:  # refuses throttle, as a runner that fails would
            file.write(f"""#!/bin/sh
[ "$1" = run ] || exit 0
echo "$2 captures ${{R2BENCH_CAPTURE:-everything}}" >> {folder.name}/calls
grep -q throttle "$2" && {{ echo broken >&2; exit 70; }}
while [ "$1" != --out ]; do shift; done
mkdir -p "$2" && cp {folder.name}/canned.json "$2/result.json"
""")
        os.chmod(program, stat.S_IRWXU)
        self.environment = dict(os.environ)
        os.environ["PATH"] = "/usr/bin:/bin"  # no MPS
        self.addCleanup(os.environ.update, self.environment)

    def run_it(self, *more):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = head_to_head.main(["--table", "faults", "--seeds", "1", "--build", self.folder, "--out", self.out, *more])
        return status, said.getvalue()

    def lines(self):
        with open(self.out, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def calls(self):
        with open(os.path.join(self.folder, "calls"), encoding="utf-8") as file:
            return len(file.readlines())

    def test_rows_are_written_once_and_a_failed_one_is_tried_again(self):
        status, said = self.run_it("--only", "/(port_down|throttle)/r2ccl_migrate/allreduce/64MiB/seed")
        self.assertEqual(status, 1)
        self.assertIn("broken", said)
        rows = [line for line in self.lines() if "id" in line]
        self.assertEqual([row["fault"] for row in rows], ["port_down"])
        self.assertTrue(rows[0]["as_predicted"])
        self.assertEqual(self.calls(), 2)
        self.run_it("--only", "/(port_down|throttle)/r2ccl_migrate/allreduce/64MiB/seed")
        self.assertEqual(self.calls(), 3)

    def test_messages_are_recorded_only_where_the_cost_is_not_compared(self):
        for table, only, captures in (("faults", "/port_down/r2ccl_migrate/allreduce/64MiB/seed", "everything"), ("cost", "/r2ccl_migrate/allreduce/8B/seed", "operations"),
                                      ("beside", "/migrate_beside_ib/allreduce/8B/", "operations")):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                head_to_head.main(["--table", table, "--seeds", "1", "--build", self.folder, "--out", self.out, "--only", only])
            with open(os.path.join(self.folder, "calls"), encoding="utf-8") as file:
                self.assertTrue(file.readlines()[-1].endswith(f"captures {captures}\n"), table)

    def test_a_line_that_was_cut_off_is_made_again(self):
        self.run_it("--only", "/port_down/r2ccl_migrate/allreduce/64MiB/seed")
        with open(self.out, "rb+") as file:
            file.truncate(os.path.getsize(self.out) - 20)
        self.run_it("--only", "/port_down/r2ccl_migrate/allreduce/64MiB/seed")
        self.assertEqual(self.calls(), 2)
        self.assertEqual(len([line for line in self.lines() if "id" in line]), 1)

    def test_rows_with_fewer_operations(self):
        only = "/port_down/r2ccl_migrate/allreduce/64MiB/seed"
        self.run_it("--only", only, "--iters", "50")
        (row,) = [line for line in self.lines() if "id" in line]
        self.assertEqual((row["iters"], row["warmup"]), (50, 12))
        self.assertEqual(row["expected_s"], rows_of.expected_s(row))

    def test_no_row_begins_that_would_end_after_the_limit(self):
        status, _ = self.run_it("--limit", "0.001")
        self.assertEqual(status, 1)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "calls")))


if __name__ == "__main__":
    unittest.main()
