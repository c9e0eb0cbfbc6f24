#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""allreduce_table.py with a runner that is made up: what it asks for, and what it makes of the answers."""

import contextlib
import csv
import io
import os
import re
import stat
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import allreduce_table as table  # noqa: E402  pylint: disable=wrong-import-position

# Keeps each scenario. A healthy ring on nodes of eight NICs is slow where a node's rate is above 4 x 1200 Mbit/s, on those of four above 4 x 1600.
RUNNER = """#!{python} -IS
import json, os, re, sys
if sys.argv[1] == "sim":  # of 512 segments one second, of others two
    print(json.dumps({{"chosen": "ring", "algorithms": [{{"name": "ring", "simulated_s": 7}}, {{"name": "mix", "simulated_s": 1 if "--segments 8 --exactly --pieces 64 --rails 4" in " ".join(sys.argv) else 2}}]}}))
    sys.exit(0)
if sys.argv[1] != "run":
    sys.exit(1)
text = open(sys.argv[2]).read()
print(text, file=open("{folder}/asked", "a"))
out = sys.argv[sys.argv.index("--out") + 1]
os.makedirs(out)
nics, rate, iters = (float(re.search(key + r": ([\\d.]+)", text)[1]) for key in ("nics_per_node", "nic_rate", "iters"))
nodes, size = (int(re.search(key + r": (\\d+)", text)[1]) for key in ("nodes", "bytes"))
took = 2 * (nodes - 1) / nodes * size / (nics * rate * 1e6 / 8) * 1e3
took = max(took, 0.1)
if nics * rate / 4 > (1200 if nics == 8 else 1600):
    took *= 1.1
times = [took] * int(iters)
beside = re.search(r"beside: (\\w+)", text)
if beside:  # four of the mode, eight of the other, four of the mode; then the other begins. Before the loss the mode takes three times as long.
    sides = "0000111111110000" + "1111000000001111"
    cost = {{"migrate": 1, "balance": 2, "allreduce": 1.2}}
    at = int((re.search(r"iter: (\\d+)", text) or [0, 0])[1])
    mode = cost[re.search(r"mode: (\\w+)", text)[1]]
    times = [took * (cost[beside[1]] if sides[i % 32] == "1" else mode * (3 if i < at else 1)) for i in range(int(iters))]
elif size == 512:  # Balance takes twice as long as the ring, and mode 3 1.2 times
    times = [took * {{"migrate": 1, "balance": 2, "allreduce": 1.2}}[re.search(r"mode: (\\w+)", text)[1]]] * int(iters)
begins = [0.0]
for time in times[:-1]:
    begins.append(begins[-1] + time)
log = os.path.join(out, "rank0.log")
print("[0] NCCL INFO NET/R2CCL: AllReduce of 4096 KiB among 3 nodes, plan 1: mix of 8 segments. Why." if "mode: allreduce" in text else "nothing", file=open(log, "w"))
result = {{"ranks": [{{"log": "rank0.log"}}], "outcome": "ok", "error": None, "iteration_ms": times, "iteration_begin_ms": begins, "metrics": {{"correctness": {{"exact": True}}, "faults": {{"witnessed": int("faults:" in text)}}}}}}
json.dump({{"runs": [result]}}, open(os.path.join(out, "result.json"), "w"))
"""


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.runner = os.path.join(self.folder, "r2bench")
        with open(self.runner, "w", encoding="utf-8") as file:
            file.write(RUNNER.format(python=sys.executable, folder=self.folder))
        os.chmod(self.runner, stat.S_IRWXU)

    def call(self, *arguments):
        """(rows of the table, scenarios that were asked for, what was said)."""
        said, argv = io.StringIO(), sys.argv
        sys.argv = ["allreduce_table.py", *arguments, "--r2bench", self.runner, "--rounds", "1", "--out", self.folder]
        try:
            with contextlib.redirect_stdout(said):
                self.status = table.main()
        finally:
            sys.argv = argv
        with open(os.path.join(self.folder, "asked"), encoding="utf-8") as file:
            asked = file.read().split("version: 1")[1:]
        with open(os.path.join(self.folder, arguments[0] + ".csv"), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file)), asked, said.getvalue()

    def test_the_rate_is_found_with_as_many_nics_as_the_row_has(self):
        rows, asked, _ = self.call("sizes", "--lost", "1/8,1/4", "--largest", "32", "--iters", "48")
        self.assertEqual(self.status, 0)
        self.assertEqual({(row["lost"], row["mbits"]) for row in rows}, {("1/8", "1200"), ("1/4", "1600")})
        tried = [re.search(r"nics_per_node: (\d+), nic_rate: ([\d.]+)", text).groups() for text in asked if "faults:" not in text]
        self.assertIn(("8", "1000.0"), tried)  # 4 x 2000 Mbit/s a node
        self.assertIn(("4", "2000"), tried)

    def test_mode_3_runs_with_the_products_margin_unless_told(self):
        _, asked, _ = self.call("sizes", "--lost", "1/4", "--largest", "8", "--mbits", "1600")
        self.assertFalse([text for text in asked if "R2CC_COLLNET_MARGIN" in text])
        rows, asked, _ = self.call("sizes", "--lost", "1/4", "--largest", "8", "--mbits", "1600", "--margin", "100")
        self.assertTrue([text for text in asked if "R2CC_COLLNET_MARGIN: 100" in text])
        self.assertEqual({row["margin"] for row in rows}, {"100"})

    def test_large_operations_are_few(self):
        _, asked, _ = self.call("sizes", "--lost", "0", "--largest", "1024", "--mbits", "1600")
        iters = {int(re.search(r"bytes: (\d+)", text)[1]): int(re.search(r"iters: (\d+)", text)[1]) for text in asked}
        self.assertEqual((iters[8], iters[128 << 20], iters[1 << 30]), (16663, 24, 9))

    def test_small_operations_run_in_more_and_longer_jobs_when_told(self):
        rows, asked, _ = self.call("sizes", "--lost", "0", "--largest", "128", "--mbits", "1600", "--small-iters", "500", "--small-rounds", "3")
        self.assertEqual({int(row["bytes"]): int(row["jobs"]) for row in rows}, {8 << (3 * k): 3 if k < 7 else 1 for k in range(9)})
        self.assertEqual({int(re.search(r"iters: (\d+)", text)[1]) for text in asked if "bytes: 8 B" in text}, {500})

    def test_what_comes_shortly_after_the_loss_does_not_count(self):
        self.assertEqual(table.settled_from([0.1 * i for i in range(9000)], 3000), 8000)  # half a second
        self.assertEqual(table.settled_from([100.0 * i for i in range(30)], 9), 16)  # a third of the rest
        self.assertEqual(table.settled_from([0.1 * i for i in range(3000)], 1000), 3000)
        with open(os.path.join(self.folder, "sizes.csv"), "w", encoding="utf-8"):
            pass
        rows, _, said = self.call("sizes", "--lost", "1/4", "--bytes", "8", "--mbits", "400", "--small-iters", "3000")
        self.assertEqual((rows, self.status), ([], 1))
        self.assertIn("ended within 500 ms of the loss", said)

    def test_sizes_in_bytes_replace_the_usual_ones(self):
        rows, asked, _ = self.call("sizes", "--nodes", "4", "--mbits", "400", "--lost", "1/2", "--bytes", "512,4096", "--small-iters", "9000")
        self.assertEqual({row["bytes"] for row in rows}, {"512", "4096"})
        self.assertEqual(len(asked), 6)
        self.assertEqual([row["ratios"] for row in rows if row["bytes"] == "512"], ["", "", "1.2"])  # to the ring; Balance takes twice as long
        self.assertEqual(table.ratios([{"round": 0, "t_ms": 3.0}, {"round": 2, "t_ms": 1.0}], [{"round": 1, "t_ms": 9.0}, {"round": 2, "t_ms": 2.0}]), "0.5")
        for of, arguments, why in (("sizes", ["--largest", "0"], "no size to measure: --largest"), ("sizes", ["--bytes", "0"], "take at least 1"),
                                   ("sizes", ["--bytes", "8,x"], "--bytes: entry 2 of '8,x' is no whole number"), ("sizes", ["--bytes", "8,,16"], "--bytes: entry 2 of '8,,16' is empty"),
                                   ("sizes", ["--nodes", "4,"], "--nodes: entry 2 of '4,' is empty"), ("sizes", ["--nodes", "1"], "--nodes takes numbers from 2 on"),
                                   ("sizes", ["--lost", "0,,1/4"], "--lost: entry 2"), ("sizes", ["--lost", "1/3"], "--lost takes 0, 1/8, 1/4, 1/2, not 1/3"),
                                   ("sizes", ["--only", "ring,"], "--only: entry 2"), ("sizes", ["--only", "rnig"], "not rnig"), ("algorithms", ["--bytes", "8"], "--bytes is for sizes"),
                                   ("algorithms", ["--mib", "0"], "--mib and --bytes take at least 1")):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                self.call(of, "--nodes", "4", "--mbits", "400", *arguments)
            self.assertIn(why, said.getvalue())

    def test_operations_of_two_modes_in_one_job_are_told_apart(self):
        rows, asked, said = self.call("turns", "--nodes", "4", "--mbits", "400", "--lost", "0,1/4", "--bytes", "512", "--small-iters", "9000")
        self.assertEqual(self.status, 0, said)
        ratio = {"mode3_beside_ring": 1.2, "mode3_beside_balance": 0.6, "balance_beside_ring": 2, "ring_beside_ring": 1}
        self.assertEqual({(row["lost"], row["algorithm"]): float(row["ratios"]) for row in rows}, {(lost, of): value for lost in ("0", "1/4") for of, value in ratio.items()})
        for row in rows:
            self.assertAlmostEqual(float(row["ratios_before"]), ratio[row["algorithm"]] * (3 if row["lost"] == "1/4" else 1))
            self.assertAlmostEqual(float(row["t_ms"]), 0.1 * {"m": 1.2, "b": 2, "r": 1}[row["algorithm"][0]])  # of its own operations
        self.assertEqual([re.search(r"mode: (\w+), .*beside: (\w+)", text).groups() for text in asked[:4]],
                         [("allreduce", "migrate"), ("allreduce", "balance"), ("balance", "migrate"), ("migrate", "migrate")])
        self.assertEqual({re.search(r"iters: (\d+)", text)[1] for text in asked}, {"9024"})  # whole rounds of 32
        self.assertEqual({re.search(r"iter: (\d+)", text)[1] for text in asked if "faults:" in text}, {"3008"})  # a multiple of 32

    def test_jobs_of_two_modes_have_whole_rounds_and_enough_operations(self):
        _, asked, _ = self.call("turns", "--lost", "0", "--largest", "1024", "--mbits", "1600", "--small-iters", "97", "--only", "balance_beside_ring")
        iters = {int(re.search(r"bytes: (\d+)", text)[1]): int(re.search(r"iters: (\d+)", text)[1]) for text in asked}
        self.assertEqual((iters[8], iters[128 << 20], iters[1 << 30]), (128, 96, 96))

    def test_a_job_of_two_modes_that_ends_too_early_is_an_error(self):
        with open(os.path.join(self.folder, "turns.csv"), "w", encoding="utf-8"):
            pass
        rows, _, said = self.call("turns", "--lost", "1/4", "--bytes", "512", "--mbits", "400", "--small-iters", "96")
        self.assertEqual((rows, self.status), ([], 1))
        self.assertIn("ended within 500 ms of the loss", said)

    def test_idle_counts_only_the_cpus_of_this_program(self):
        mine = os.sched_getaffinity(0)
        all_of_them = table.cpu_times()[1]
        try:
            os.sched_setaffinity(0, {min(mine)})
            one = table.cpu_times()[1]
        finally:
            os.sched_setaffinity(0, mine)
        self.assertLess(one, all_of_them * 1.5 / len(mine) if len(mine) > 1 else all_of_them + 1e6)

    def test_a_job_is_compared_with_the_simulation_of_what_it_took(self):
        def job(*plans, algorithm="mode3", forced="", more=()):
            return {"algorithm": algorithm, "plans": ["mode 3: plan 1: from the tuner's operation 5 on AllReduce of 8388608 bytes and more goes over CollNet: why"]
                    + ["AllReduce of %d KiB among 3 nodes, plan %d: %s of %d segments" % plan + forced + ". With node 1 at 50 %, ..." for plan in plans] + list(more)}
        size = 64 << 20
        mix = (4096, 1, "mix", 2)
        self.assertEqual(table.taken([job((4096, 0, "ring", 1), mix)], size), ("mix", 2, 16))
        self.assertEqual(table.taken([job(mix), job(mix)], size), ("mix", 2, 16))
        self.assertEqual(table.taken([job(mix, (4096, 2, "unequal_ring", 8))], size), ("unequal_ring", 8, 16))
        self.assertEqual(table.taken([job(mix, (512, 1, "ring", 1))], size), ("mix", 2, 16), "what is left over for the last piece")
        self.assertEqual(table.taken([job((3072, 1, "mix", 2))], 4 << 20), ("mix", 2, 2))
        self.assertIsNone(table.taken([job((4096, 0, "ring", 1))], size), "no plan since the loss: NCCL's ring under Balance")
        self.assertIsNone(table.taken([job()], size))
        for stays in ("mode 3: plan 2: from the tuner's operation 9 on AllReduce stays with NCCL's own choice, on Balance: why",
                      "mode 3: communicator 7232626e63680001, AllReduce 9 (67108864 bytes), plan 2: NCCL's own choice"):
            self.assertIsNone(table.taken([job(mix, more=[stays])], size))
            self.assertEqual(table.taken([job(mix, (4096, 3, "mix", 4), more=[stays])], size), ("mix", 4, 16))
        self.assertIsNone(table.taken([job(mix), job((4096, 1, "four_stage", 2))], size), "jobs that differ")
        self.assertIsNone(table.taken([job(mix), job()], size))
        self.assertEqual(table.taken([job((4096, 0, "ring", 1), algorithm="ring", forced=" (R2CC_ALGORITHM)")], size), ("ring", 1, 16))
        self.assertIsNone(table.taken([job(mix, algorithm="four_stage")], size), "there is no such schedule, and the planner has chosen")

    def test_the_table_has_the_simulated_time(self):
        found, _, _ = self.call("algorithms", "--nodes", "3", "--mbits", "400", "--mib", "256", "--lost", "1/2", "--iters", "9", "--only", "mode3,balance,mix")
        self.assertEqual(self.status, 0)
        rows = {row["algorithm"]: row for row in found}
        self.assertEqual(rows["mode3"]["simulated_ms"], "1000.0", "64 pieces of 8 segments")
        self.assertAlmostEqual(float(rows["mode3"]["t_to_simulated"]), float(rows["mode3"]["t_ms"]) / 1000, places=3)
        self.assertEqual((rows["balance"]["simulated_ms"], rows["mix"]["simulated_ms"]), ("", ""), "no plan, and none that was forced")

    def test_the_words_are_those_of_the_plugin(self):
        core = os.path.join(os.path.dirname(os.path.abspath(table.__file__)), "..", "..", "r2ccl", "collective", "host")
        with open(os.path.join(core, "group.cc"), encoding="utf-8") as file:
            self.assertIn("AllReduce of %llu KiB among %u nodes, plan %llu: %s of %u segments%s%s", file.read())
        with open(os.path.join(core, "selection.cc"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"stays with NCCL's own choice(?s:.*)plan %\" PRIu64 \": %s\"(?s:.*)\"NCCL's own choice\"")

    def test_what_there_was_no_time_for_is_said(self):
        with open(os.path.join(self.folder, "asked"), "w", encoding="utf-8"), open(os.path.join(self.folder, "sizes.csv"), "w", encoding="utf-8"):
            pass
        rows, asked, said = self.call("sizes", "--lost", "0", "--largest", "8", "--mbits", "1600", "--minutes", "0")
        self.assertEqual((rows, asked, self.status), ([], [], 1))
        self.assertIn("not run for lack of time", said)


if __name__ == "__main__":
    unittest.main()
