#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers of READMEs: those of the tree are what the tables say, and what is not is found."""

import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "..", "results")
sys.path.insert(0, HERE)

import inputs  # noqa: E402
import number_tables  # noqa: E402
from numbers_of import bench, gpus, transports, words  # noqa: E402
import readme_numbers  # noqa: E402
import tables  # noqa: E402


class ReadmeNumbers(unittest.TestCase):
    def call(self, *arguments):
        return subprocess.run([sys.executable, "-B", os.path.join(HERE, "readme_numbers.py"), *arguments], capture_output=True, text=True, check=False)

    def test_a_name_that_two_modules_use_is_an_error(self):
        with unittest.mock.patch.dict(transports.BLOCKS, {"matrix": transports.head_to_head}):
            with self.assertRaisesRegex(ValueError, "transports.py: another module of numbers_of has matrix, too"):
                number_tables.named("BLOCKS")

    def test_the_tree_says_what_the_tables_say(self):
        done = self.call("--check")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_files_of_the_tree_are_looked_at(self):
        self.assertLessEqual({"README.md", "results/README.md", "harness/vhca/README.md"}, set(readme_numbers.markdown_files()))

    def test_every_block_with_rows_is_used_and_no_other(self):
        used = set()
        for name in readme_numbers.markdown_files():
            with open(os.path.join(readme_numbers.ROOT, name), encoding="utf-8") as file:
                used |= set(re.findall(r"^<!-- numbers: ([\w-]+) -->", file.read(), re.MULTILINE))
        self.assertEqual(used, {name for name, make in number_tables.BLOCKS.items() if len(make(RESULTS).splitlines()) > 2})

    def test_costs_compare_rows_of_one_seed_and_take_a_size_from_the_first_set_that_has_it(self):
        def row(size, transport, seed, ms):
            return {"table": "cost", "transport": transport, "bytes": size, "seed": seed, "before_ms": ms, "busbw": 1, "cpu_s": 1}

        with tempfile.TemporaryDirectory() as results:
            os.mkdir(os.path.join(results, "tables"))
            tables.replace(results, "head_to_head", "two_gpus_60", [
                row(512, name, seed, ms) for seed in range(1, 11) for name, ms in (("ib", 10), ("r2ccl_migrate", 10 + seed))])
            tables.replace(results, "head_to_head", "two_gpus_cost", [
                row(8, "ib", 1, 1), row(8, "ib", 2, 4), row(8, "ib", 3, 2), row(8, "r2ccl_migrate", 1, 2), row(8, "r2ccl_migrate", 2, 2), row(8, "r2ccl_migrate", 3, 3)])
            tables.replace(results, "head_to_head", "two_gpus", [
                row(8, "ib", 1, 1), row(8, "r2ccl_migrate", 1, 9), row(64, "ib", 1, 1), row(64, "r2ccl_balance", 1, 5)])
            found = transports.head_to_head_cost_spread(results).splitlines()[2:]
            self.assertEqual([line.split(" | ")[:7] for line in found],
                             [["| 8 B", "NCCL's IB", "3", "2.00", "1.00–4.00", "1.00", "–"], ["| 8 B", "R2CCL mode 1", "3", "2.00", "2.00–3.00", "1.50", "–"],
                              ["| 64 B", "NCCL's IB", "1", "1.00", "1.00–1.00", "1.00", "–"], ["| 64 B", "R2CCL mode 2", "1", "5.00", "5.00–5.00", "5.00", "–"],
                              ["| 512 B", "NCCL's IB", "10", "10.0", "10.0–10.0", "1.00", "–"], ["| 512 B", "R2CCL mode 1", "10", "15.5", "11.0–20.0", "1.55", "1.20–1.90"]])
            self.assertEqual((transports.sizes_where(results, lambda ratio: ratio > 1), transports.sizes_where(results, lambda ratio: ratio < 1)), ("2", "0"))

    def test_a_retained_rate_that_the_ports_did_not_limit_and_a_verdict_that_is_no_pass_are_marked(self):
        def row(mode, lost, verdict, before_limited_by):
            return {"set": "k_of_8_nics", "mode": mode, "nics_lost": lost, "verdict": verdict, "before_limited_by": before_limited_by, "retained": 0.4, "limit": 0.375}

        with tempfile.TemporaryDirectory() as results:
            clean = [row("migrate", 1, "pass", "ports"), row("balance", 1, "pass", "ports")]
            tables.write(results, "runs", clean)
            self.assertEqual(bench.retained(results).splitlines()[2:], ["| 1 | 0.400 | 0.375 | 0.400 | 0.375 |"])
            tables.write(results, "runs", clean + [row("migrate", 5, "unknown", "ports"), row("balance", 5, "unknown", "other")])
            found = bench.retained(results).splitlines()[2:]
            self.assertEqual(found[:2], ["| 1 | 0.400 | 0.375 | 0.400 | 0.375 |", "| 5 | 0.400 (unknown) | 0.375 | 0.400\\* (unknown) | 0.375 |"])
            self.assertIn("A verdict that is not a pass is in parentheses; a run has one verdict for both modes.", found)
            self.assertTrue(any(line.startswith("\\* This is not the rate that") for line in found), found)

    def test_walks_whose_log_of_events_was_checked_stand_apart(self):
        def row(date, counting, walks, failed=0):
            return {"set": "w", "date": date, "commit": "c", "fabric": "vhca", "mode": "migrate", "counting": counting, "walks": walks, "faults": walks * 40, "path_changes": walks * 10,
                    "failed": failed}

        with tempfile.TemporaryDirectory() as results:
            tables.write(results, "walks", [row("2026-11-21", "any", 2), row("2026-11-22", "replayed", 3), row("2026-11-22", "replayed", 1), row("2026-11-23", "replayed", 5, 1) | {"unknown": 2, "slow": 3}])
            self.assertEqual(bench.walks(results).splitlines()[2:],
                             ["| vhca | 1 | any | no | 2 | 80 | 20 | 0 | – | – |", "| vhca | 1 | replayed | no | 4 | 160 | 40 | 0 | – | – |",
                              "| vhca | 1 | replayed | yes | 5 | 200 | 50 | 1 | 2 | 3 |"])
            self.assertEqual(bench.walks_with_counted_logs(results), "0")
            tables.write(results, "walks", [row("2026-11-26", "replayed", 3), row("2026-11-27", "replayed", 5), row("2026-11-28", "replayed", 6)])
            self.assertEqual(bench.walks_with_counted_logs(results), "11")

    def test_the_date_of_each_walk_tells_whether_its_commit_checked_the_log(self):
        def git(*words):
            return subprocess.run(["git", "-C", readme_numbers.ROOT, *words], capture_output=True, check=False).returncode

        try:
            whole = git("cat-file", "-e", "646d3ac0^{commit}") + git("cat-file", "-e", "4745bfdb^{commit}") == 0
        except OSError:
            whole = False
        if not whole:
            self.skipTest("the history is not here")
        for row in tables.read(RESULTS, "walks"):
            commit = row["commit"].removesuffix("-dirty")
            self.assertEqual(git("cat-file", "-e", f"{commit}^{{commit}}"), 0, commit)
            self.assertEqual(git("merge-base", "--is-ancestor", "646d3ac0", commit) == 0, row["date"] > bench.LOGS_CHECKED_AFTER, row)
            self.assertEqual(git("merge-base", "--is-ancestor", "4745bfdb", commit) == 0, row["date"] > bench.LOGS_COUNTED_AFTER, row)

    def test_faults_are_counted_by_the_times_that_they_have(self):
        def row(name, sampled, migrate_ms, recover_ms):
            return {"set": name, "sampled": sampled, "migrate_ms": migrate_ms, "recover_ms": recover_ms}

        with tempfile.TemporaryDirectory() as results:
            tables.write(results, "faults", [row("a", 1, 2.5, 3.5), row("a", 1, None, 0), row("a", 1, None, None), row("b", 1, None, None), row("a", 0, None, None), row("c", 1, 1, 1)])
            self.assertEqual(gpus.fault_times(results, "a", "b"), {"all": 5, "sampled": 4, "recovered": 2})

    def test_a_recovery_without_a_rate_before_it_is_left_out_with_its_reason_and_its_detection_counts(self):
        why = "it struck before an operation had ended, so that no rate before it is known"

        def row(kind, detect_ms, recover_ms, no_rate=None):
            return {"set": "speed", "kind": kind, "sampled": 1, "detect_ms": detect_ms, "recover_ms": recover_ms, "why_no_rate_before": no_rate, "floor_ms": 2}

        with tempfile.TemporaryDirectory() as results:
            tables.write(results, "faults", [row("port_down", 0.1, 10), row("port_down", 0.3, None, why), row("qp_error", 0.1, 10), row("qp_error", 0.1, None), row("blackhole", 5, None, why)])
            tables.write(results, "runs", [{"set": "speed", "run": run, "verdict": verdict} for run, verdict in (("a", "pass"), ("b", "fail"), ("c", "unknown"))])
            down, broken, hole, _, others, _, note = bench.recovery_times(results).splitlines()[2:]
            self.assertEqual(down, "| `port_down` | 2 | 0.100 | 0.300 | 10.0 | 10.0 | 10.0 | 10.0 | 2.00 |")
            self.assertEqual(broken, "| `qp_error` | 2 | 0.100 | 0.100 | 10.0 | ∞ | ∞ | ∞ | 2.00 |", "it never came")
            self.assertEqual(hole, "| `blackhole` | 1 | 5.00 | 5.00 | – | – | – | – | 2.00 |")
            self.assertEqual(others, "Of the 3 runs of this set, 2 did not pass: `b` (fail), `c` (unknown).")
            self.assertEqual(note, f"The recovery of 2 of these faults is left out: {why} (2).")

    def test_a_fault_that_was_never_recovered_from_has_no_time(self):
        with tempfile.TemporaryDirectory() as results:
            tables.write(results, "runs", [{"set": "x", "run": "down", "mode": "migrate", "recover_max_ms": 2001, "unrecovered": unrecovered} for unrecovered in ("1", "0", None)])
            self.assertEqual([line.split(" | ")[6] for line in bench.runs(results, "x").splitlines()[2:]], ["never", "2001", "2001"])

    def test_pairs_of_several_jobs_are_pooled_as_if_they_were_of_one(self):
        generator = random.Random(1)
        losses = [[generator.gauss(0.3, 5) for _ in range(64)] for _ in range(4)]
        upper = lambda values: statistics.mean(values) + words.student(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
        with tempfile.TemporaryDirectory() as results:
            rows = [{"set": "x", "pairs": len(values), "busbw_loss_pct": statistics.mean(values), "busbw_loss_upper95_pct": upper(values)} for values in losses]
            rows += [{"set": "x"}, {"set": "y", "pairs": 9, "busbw_loss_pct": 50.0, "busbw_loss_upper95_pct": 60.0}]
            tables.write(results, "runs", rows)
            mean, bound = bench.pooled_loss(results, "x")
        together = [loss for values in losses for loss in values]
        self.assertAlmostEqual(mean, statistics.mean(together), places=4)
        self.assertAlmostEqual(bound - mean, upper(together) - mean, delta=0.02 * (bound - mean))

    def test_the_interval_of_a_median_is_of_ranks(self):
        self.assertIsNone(words.median_between([1, 2, 3, 4, 5]))  # the least and the greatest have it with 94 % only
        self.assertEqual(words.median_between([6, 5, 4, 3, 2, 1]), (1, 6))
        self.assertEqual(words.median_between(range(1, 61)), (22, 39))  # as in tables of the binomial distribution

    def test_the_interval_of_a_mean_is_students(self):
        for freedom, quantile in ((1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (7, 2.3646), (8, 2.3060), (30, 2.0423), (121, 1.9798)):
            self.assertAlmostEqual(words.student_both(freedom), quantile, places=4, msg=str(freedom))
        self.assertIsNone(words.mean_between([1.0]))
        low, high = words.mean_between([1.0, 2.0, 3.0, 4.0])
        self.assertAlmostEqual(low, 2.5 - 3.1824 * (5 / 3) ** 0.5 / 2, places=4)
        self.assertAlmostEqual(low + high, 5)

    def test_a_number_that_was_changed_is_found_and_written_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            marked = "at most 9.9<!--n:mode3.most-->\ntimes\n<!-- numbers: gate -->\nold\n<!-- end -->\n"
            with open(path, "w", encoding="utf-8") as file:
                file.write(marked)
            done = self.call("--check", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{path}:1: is not what the tables say", done.stdout)
            self.assertEqual(self.call(path).returncode, 0)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            self.assertIn(f"at most {number_tables.NUMBERS['mode3.most'](RESULTS)}<!--n:mode3.most-->\ntimes\n", text)
            self.assertIn("| 2 ms | 20 | 20 | 43.6 |\n<!-- end -->", text)
            self.assertEqual(self.call("--check", path).returncode, 0)

    def test_a_mark_that_nobody_knows_is_an_error_with_its_line(self):
        with self.assertRaisesRegex(inputs.BadInput, "page.md:2: no number is called 'speed.of.light'; there are .*mode3.most"):
            readme_numbers.written("first\n3<!--n:speed.of.light-->\n", RESULTS, "page.md")

    def test_numbers_typed_by_hand_are_found_outside_of_marks_and_code(self):
        for text, wanted in (("took 12.5 ms", ["12.5 ms"]), ("lost 3 % of it", ["3 %"]), ("`12.5` and 2.2<!--n:mode3.most-->", []), ("    sleep 0.5", []),
                             ("NCCL 2.28.9, Linux 6.18, NCCL 2.23 to 2.32, v8", []), ("<!-- bounds -->\n3 ms\n<!-- end -->\n4 ms", ["4 ms"]), ("| 0.5 |", ["0.5"]), ("[a](b-1.5.md)", []), ("it was 17.5.", ["17.5"]),
                             ("after 570 ms, then", ["570 ms"]), ("all 36 rows had 0 wrong elements", ["36 rows", "0 wrong"]), ("a ring of 16 ranks", []),
                             ("within ten\nseconds", ["ten seconds"]), ("takes a second, a second NIC fails", ["a second"]), ("2 to 4 MiB, 20 Gbit/s", ["2 to 4 MiB", "20 Gbit/s"]),
                             ("0.5<!--n:mode3.most-->\n1<!--n:mode3.most--> or 3 s", ["3 s"]), ("3 sockets, 4 switches, 8 NICs", [])):
            self.assertEqual([found for _, found in readme_numbers.unmarked(text)], wanted, text)
        self.assertEqual(readme_numbers.unmarked("one\n\ntook 5 ms"), [(3, "5 ms")])

    def test_a_stated_number_is_let_through_only_within_its_phrase(self):
        text = "at most 2 ms of\nwake-up, and later 2 ms"
        self.assertEqual(readme_numbers.unmarked(text, ["at most 2 ms of wake-up"]), [(2, "2 ms")])

    def test_a_stated_phrase_may_have_code_in_it_and_begin_its_line(self):
        self.assertEqual(readme_numbers.unmarked("`stall` (15 s) and 3 s", ["`stall` (15 s)"]), [(1, "3 s")])
        self.assertEqual(readme_numbers.unmarked("<!-- metrics: of x -->\n| upper 95 % bound |\n<!-- /metrics -->\n2 s"), [(4, "2 s")])

    def test_a_stated_number_dies_with_its_page_or_with_its_evidence(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "code.h"), "w", encoding="utf-8") as file:
                file.write("constexpr double\n  kCapMs = 2;\n")
            row = {"text": "at most 2 ms", "file": "code.h", "evidence": "double kCapMs = 2;"}
            self.assertEqual(readme_numbers.stale("it takes at\nmost 2 ms", [row], folder), [])
            self.assertRegex(readme_numbers.stale("it takes at most 3 ms", [row], folder)[0], "no longer says 'at most 2 ms'")
            self.assertRegex(readme_numbers.stale("at most 2 ms", [row | {"evidence": "kCapMs = 3;"}], folder)[0], "code.h no longer has 'kCapMs = 3;'")
            self.assertRegex(readme_numbers.stale("at most 2 ms", [row | {"file": "gone.h"}], folder)[0], "gone.h no longer has")
            self.assertRegex(readme_numbers.stale("at most some", [row | {"text": "at most"}], folder)[0], "has no number that needs it")

    def test_settings_and_bounds_need_evidence(self):
        head = "page,text,kind,file,evidence\n"
        for line in ("README.md,5 ms,setting,,", "README.md,5 ms,guess,a,b", "other.md,5 ms,definition,,", "README.md,5 ms,definition,a,b"):
            with tempfile.TemporaryDirectory() as folder:
                os.mkdir(os.path.join(folder, "plots"))
                with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as file:
                    file.write("It takes 5 ms.\n")
                with open(os.path.join(folder, readme_numbers.STATED), "w", encoding="utf-8") as file:
                    file.write(head + line + "\n")
                with self.assertRaisesRegex(inputs.BadInput, "'5 ms' needs a page of the tree"):
                    readme_numbers.read_stated(folder)

    def test_a_number_typed_by_hand_into_a_page_of_the_tree_fails_the_check(self):
        stated = readme_numbers.read_stated()
        for name in readme_numbers.markdown_files():
            with open(os.path.join(readme_numbers.ROOT, name), encoding="utf-8") as file:
                text = file.read()
            phrases = [row["text"] for row in stated.get(name, [])]
            self.assertEqual(readme_numbers.unmarked(text, phrases), [], name)
            self.assertEqual([found for _, found in readme_numbers.unmarked(text + "\nIt takes 123 ms.\n", phrases)], ["123 ms"], name)
            self.assertEqual(readme_numbers.stale(text, stated.get(name, [])), [], name)


if __name__ == "__main__":
    unittest.main()
