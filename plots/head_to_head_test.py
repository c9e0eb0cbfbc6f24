#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""head_to_head.py on made-up lines: what tables and figures say is what the lines say."""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import head_to_head  # noqa: E402
import inputs  # noqa: E402
import style  # noqa: E402

style.use()  # exit status 3 where matplotlib is missing


def line(table, transport, fault, seed=1, op="allreduce", count=1 << 26, heal=0, version="", **result):
    base = {"survives": True, "outcome": "ok", "wrong": 0, "before_ms": 20.0, "stall_ms": None, "retained": None, "restored": None, "used_again_ms": None,
            "error_ms": None, "busbw": 3.0, "cpu_s": 0.5, "error": None}
    return {"id": f"{table}/{fault}/{transport}/{op}/{count}/{version}/{heal}/{seed}", "table": table, "transport": transport, "fault": fault, "seed": seed,
            "op": op, "bytes": count, "heal_ms": heal, "version": version, "result": base | result, "evidence": "emulated",
            "environment": {"nccl": "2.32.3"}, "as_predicted": True}


LINES = [{"host": {"gpus": ["NVIDIA H100"]}},
         line("faults", "ib", "port_down", survives=False, outcome="error", error_ms=540.0, error="ended"),
         line("faults", "ib_failover", "port_down", stall_ms=1125.0, retained=0.6),
         line("faults", "r2ccl_migrate", "port_down", 1, stall_ms=33.0, retained=0.61),
         line("faults", "r2ccl_migrate", "port_down", 2, stall_ms=35.0, retained=0.63, wrong=2),
         line("faults", "r2ccl_migrate", "port_down", 3, stall_ms=40.0, retained=0.62),
         line("faults", "r2ccl_migrate", "port_down", 1, heal=1000, stall_ms=33.0, used_again_ms=900.0, restored=0.99),
         line("retained", "r2ccl_balance", "port_down", op="alltoall", retained=0.74),
         line("versions", "r2ccl_migrate", "blackhole", version="2.23.4", stall_ms=36.0),
         line("timeouts", "ib_failover", "port_down", version="default", stall_ms=68000.0),
         line("cost", "ib", "", count=1 << 20, before_ms=0.5, busbw=2.0), line("cost", "r2ccl_migrate", "", count=1 << 20, before_ms=0.55, busbw=1.9),
         line("cost", "ib", "", 2, count=1 << 20, before_ms=0.8), line("cost", "r2ccl_migrate", "", 2, count=1 << 20, before_ms=0.72),
         line("cost", "ib", "", 3, count=1 << 20, before_ms=0.5), line("cost", "r2ccl_migrate", "", 3, count=1 << 20, before_ms=0.5),
         line("cost", "ib", "", count=8, before_ms=0.1), line("cost", "r2ccl_balance", "", count=8, before_ms=0.102)]


class HeadToHead(unittest.TestCase):
    def setUp(self):
        style.use()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(style.close)
        self.folder = folder.name

    def written(self, lines, name="lines.jsonl"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in lines)
        return path

    def program(self, *arguments):
        return subprocess.run([sys.executable, os.path.join(HERE, "head_to_head.py"), "--out", self.folder, *arguments], capture_output=True, text=True, check=False)

    def test_points_are_the_lines_and_the_ended_are_hollow(self):
        drawn = style.drawn(head_to_head.draw_stall(head_to_head.read([self.written(LINES)])))
        self.assertEqual(sorted(x for x, _ in drawn["data:stall:r2ccl_migrate:on"]), [33, 35, 40])
        self.assertEqual([x for x, _ in drawn["data:stall:ib:ended"]], [540])
        self.assertNotIn("data:stall:ib:on", drawn)

    def test_collectives_and_faults_share_the_panel_of_what_is_kept(self):
        drawn = style.drawn(head_to_head.draw_retained(head_to_head.read([self.written(LINES)])))
        self.assertEqual([x for x, _ in drawn["data:retained:r2ccl_balance:on"]], [0.74])
        self.assertEqual(len(drawn["data:retained:r2ccl_migrate:on"]), 3)

    def test_each_row_has_the_limit_of_the_nics_that_are_left(self):
        rows = [line("faults", "r2ccl_balance", fault, retained=0.5) for fault in ("port_down", "all_but_one", "throttle")]
        rows += [line("retained", "r2ccl_balance", "port_down", op="alltoall", retained=0.74), {**line("retained", "r2ccl_balance", "port_down", 2, op="allgather", retained=0.88), "nics": 8}]
        drawn = style.drawn(head_to_head.draw_retained(head_to_head.read([self.written(rows)])))
        self.assertEqual({gid.removeprefix("data:limit:"): points[0][0] for gid, points in drawn.items() if gid.startswith("data:limit:")},
                         {"port down": 0.5, "all NICs but one": 0.25, "a quarter of the rate": 0.625, "alltoall": 0.75, "allgather, 1 of 8": 0.875})

    def test_cost_is_the_median_of_the_seeds_ratios_to_nccls_transport(self):
        figure = head_to_head.draw_cost(head_to_head.read([self.written(LINES)]))
        drawn = style.drawn(figure)
        (_, latency), = drawn["data:latency:r2ccl_balance"]
        (_, bandwidth), = drawn["data:busbw:r2ccl_migrate"]
        self.assertAlmostEqual(float(latency), 1.02)
        self.assertAlmostEqual(float(bandwidth), 1.0)  # of 1.1, 0.9 and 1.0
        self.assertNotIn("data:latency:ib", drawn)
        self.assertIn("at most 3 seeds", " ".join(text.get_text().replace("\n", " ") for text in figure.texts))

    def test_all_seeds_of_all_sets_are_drawn_and_the_foot_names_the_machines(self):
        table = head_to_head.of_results(os.path.join(HERE, "..", "results"))
        self.assertEqual({row["set"] for row in table["rows"] if "four_gpus" in row["set"]}, set(), "nodes of several ranks have a table of their own")
        self.assertEqual({row["seed"] for row in table["rows"] if row["table"] == "faults"}, {1, 2, 3})
        figure = head_to_head.draw_stall(table)
        self.assertEqual(len(style.drawn(figure)["data:stall:r2ccl_balance:on"]),
                         sum(row["table"] == "faults" and row["transport"] == "r2ccl_balance" and not row["heal_ms"] and row["result"]["stall_ms"] is not None for row in table["rows"]))
        said = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
        self.assertIn("H100", said)
        self.assertIn("H200", said)

    def test_what_is_retained_counts_where_the_ports_are_slowest(self):
        fast, slow = line("retained", "r2ccl_balance", "port_down", 1, op="alltoall", retained=0.79), line("retained", "r2ccl_balance", "port_down", 2, op="alltoall", retained=0.74)
        drawn = style.drawn(head_to_head.draw_retained(head_to_head.read([self.written([{**fast, "mbits": 5000}, {**slow, "mbits": 2500}])])))
        self.assertEqual([x for x, _ in drawn["data:retained:r2ccl_balance:on"]], [0.74])

    def test_tables_have_medians_and_sums_of_what_was_wrong(self):
        self.assertEqual(self.program(self.written(LINES)).returncode, 0)
        with open(os.path.join(self.folder, "head_to_head.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("| port down | R2CCL, live migration | 3 of 3 | 2 | 20.0 | 35 | – | 0.62 | – | – | 3 of 3 |", text)
        self.assertIn("| port down | NCCL's IB transport | 0 of 1 | 0 | 20.0 | – | 540 |", text)
        self.assertIn("| port down, repaired | R2CCL, live migration | 1 of 1 | 0 | 20.0 | 33 | – | – | 0.99 | 900 |", text)
        self.assertIn("| 1 MiB | R2CCL, live migration | 0.550 | 1.000 | 3.00 | 0.50 |", text)
        self.assertIn("NVIDIA H100", text)
        with open(os.path.join(self.folder, "head_to_head.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), len(LINES) - 1)
        self.assertEqual(rows[0]["error"], "ended")
        for name in head_to_head.FIGURES:
            self.assertGreater(os.path.getsize(os.path.join(self.folder, name + ".png")), 5000)

    def test_marks_stay_in_their_row_whatever_the_number_of_transports(self):
        _, axes = style.pyplot.subplots()
        head_to_head.by_rows(axes, ["one", "two"], [(name, transport, 1, False) for name in ("one", "two") for transport in head_to_head.TRANSPORTS], "x")
        places = [place for line in axes.lines if str(line.get_gid()).startswith("data:") for place in line.get_ydata()]
        self.assertEqual(len(places), 2 * len(head_to_head.TRANSPORTS))
        self.assertEqual(len(set(places)), len(places))
        self.assertLess(max(abs(place - round(place)) for place in places), 0.45)

    def test_a_row_that_was_run_again_counts_once(self):
        again = self.written([line("faults", "ib_failover", "port_down", stall_ms=1200.0)], "later.jsonl")
        table = head_to_head.read([self.written(LINES), again])
        self.assertEqual([r["result"]["stall_ms"] for r in table["rows"] if r["transport"] == "ib_failover" and r["table"] == "faults"], [1200.0])

    def test_what_is_missing_or_foreign_is_said(self):
        self.assertEqual(self.program(self.written(LINES[:1])).returncode, 1)
        foreign = self.program(self.written([{"x": 1}]))
        self.assertEqual(foreign.returncode, inputs.BAD_INPUT)
        self.assertIn("lines.jsonl:1:", foreign.stderr)
        self.assertEqual(self.program("/nonexistent").returncode, inputs.BAD_INPUT)


if __name__ == "__main__":
    unittest.main()
