#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every figure: what matplotlib drew is what the results say, read here by other means than the figures read them."""

import csv
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "..", "results")
sys.path.insert(0, HERE)

import busbw  # noqa: E402
import channels  # noqa: E402
import collect  # noqa: E402
import fault_matrix  # noqa: E402
import inputs  # noqa: E402
import recovery_cdf  # noqa: E402
import retained  # noqa: E402
import stall  # noqa: E402
import style  # noqa: E402
import tables  # noqa: E402
import t_over_t0  # noqa: E402
import timeline  # noqa: E402

style.use()  # exit status 3 where matplotlib is missing


def load(*parts):
    with open(os.path.join(RESULTS, *parts), encoding="utf-8") as file:
        return json.load(file)


def rows(table, **wanted):
    """The rows of a table that have these values, read without tables.py."""
    with open(os.path.join(RESULTS, "tables", table + ".csv"), encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[column] == value for column, value in wanted.items())]


def text_of(figure):
    return " ".join(text.get_text().replace("\n", " ") for text in figure.texts)


class Drawn(unittest.TestCase):
    def setUp(self):
        style.use()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(style.close)
        self.folder = folder.name

    def assert_points(self, got, wanted, delta=1e-7):
        self.assertEqual(len(got), len(wanted))
        for (x, y), (wanted_x, wanted_y) in zip(got, wanted):
            self.assertAlmostEqual(float(x), float(wanted_x), delta=delta)
            self.assertAlmostEqual(float(y), float(wanted_y), delta=delta)

    def sample(self, name, *changes):
        """A result of nic_down's live migration for each change, put into tables below the test's own folder as the set `name`."""
        places = []
        for number, change in enumerate(changes):
            result = load("reference", "nic_down", "result.json")
            result["runs"] = [run for run in result["runs"] if run["mode"] == "migrate"]
            change(result)
            places.append(os.path.join(self.folder, "runs", f"{name}-{number}"))
            os.makedirs(places[-1])
            with open(os.path.join(places[-1], "result.json"), "w", encoding="utf-8") as file:
                json.dump(result, file)
        collect.collect(self.folder, name, *collect.of_runs(places), {"command": "a test"})

    def test_timeline(self):
        figure = timeline.draw(timeline.data(RESULTS))
        drawn = style.drawn(figure)
        curves = {mode["mode"]: mode for mode in load("reference", "nic_down", "timeline.json")["modes"]}
        result = load("reference", "nic_down", "result.json")
        for run in result["runs"]:
            mode, raw = run["mode"], curves[run["mode"]]["raw"]
            t0, window = run["faults"][0]["t0_at_ms"], max(2.0, run["faults"][0]["floor_ms"])
            points = drawn[f"data:fault:{mode}"]
            self.assertGreater(len(points), 100)
            for x, y in points[::37]:
                delivered = sum(size for t, size in zip(raw["time_ms"], raw["bytes"]) if x - window / 2 < t - t0 <= x + window / 2)
                self.assertAlmostEqual(y, delivered * 8 / (window * 1e-3) / 1e9)
            total = curves[mode]["total"]
            self.assertLessEqual(max(y for _, y in drawn[f"data:whole:{mode}"]), max(total["gbps"]) + 1e-9)
            self.assertLessEqual(drawn[f"data:whole:{mode}"][-1][0] * 1000, total["time_ms"][-1] + curves[mode]["bin_ms"])
        self.assertIn("evidence: emulated", text_of(figure))

    def test_recovery_cdf(self):
        figure = recovery_cdf.draw(recovery_cdf.data(RESULTS))
        faults = {}
        for fault in rows("faults", set="speed", mode="migrate", sampled="1"):
            faults.setdefault(fault["kind"], []).append({key: float(fault[key]) for key in ("detect_ms", "migrate_ms", "recover_ms")})
        self.assertEqual(set(faults), {"port_down", "qp_error", "blackhole"})
        drawn = style.drawn(figure)
        self.assertEqual(len(drawn), 9)
        for kind, own in faults.items():
            share = [(i + 1) / len(own) for i in range(len(own))]
            for phase, times in (("detect", [f["detect_ms"] for f in own]), ("migrate", [f["detect_ms"] + f["migrate_ms"] for f in own]),
                                 ("ramp", [max(f["recover_ms"], f["detect_ms"] + f["migrate_ms"]) for f in own])):
                self.assert_points(drawn[f"data:{kind}:{phase}"][1:], list(zip(sorted(times), share)), delta=2e-3)
        self.assertIn("evidence: emulated", text_of(figure))

    def test_a_fault_that_never_recovered_keeps_the_distribution_below_1(self):
        fault = {"run": "one", "mode": "migrate", "kind": "qp_error", "sampled": True, "detect_ms": 1.0, "migrate_ms": 2.0, "floor_ms": 1.0}
        collect.collect(self.folder, recovery_cdf.SET, {"faults": [{**fault, "recover_ms": ms} for ms in (3.5, None, 4.0, 4.5)]},
                        {"evidence": "emulated", "fabric": "vhca", "date": "2026-01-01", "commit": "0"}, {"command": "a test"})
        points = style.drawn(recovery_cdf.draw(recovery_cdf.data(self.folder)))["data:qp_error:ramp"]
        self.assert_points(points[1:], [(3.5, 0.25), (4.0, 0.5), (4.5, 0.75)])

    def test_a_fault_without_a_rate_before_it_is_left_out_of_the_distribution_and_named(self):
        fault = {"run": "one", "mode": "migrate", "kind": "qp_error", "sampled": True, "detect_ms": 1.0, "migrate_ms": 2.0, "floor_ms": 1.0}
        faults = [{**fault, "recover_ms": 3.5}, {**fault, "recover_ms": None, "why_no_rate_before": "no rate"}, {**fault, "recover_ms": 4.0}]
        collect.collect(self.folder, recovery_cdf.SET, {"faults": faults}, {"evidence": "emulated", "fabric": "vhca", "date": "2026-01-01", "commit": "0"}, {"command": "a test"})
        figure = recovery_cdf.draw(recovery_cdf.data(self.folder))
        self.assert_points(style.drawn(figure)["data:qp_error:ramp"][1:], [(3.5, 0.5), (4.0, 1.0)])
        self.assertIn("left out: 1 fault without a rate before it", text_of(figure))

    def test_busbw(self):
        def of(size, times):
            def change(result):
                run = result["runs"][0]
                result["workload"]["bytes"] = size
                run["row"].update(size_bytes=size, algbw_gbytes=1.0, busbw_gbytes=1.5)
                run["iteration_ms"] = times
            return change
        self.sample("busbw_sizes", of(1 << 22, [40.0, 50.0, 60.0, 70.0]), of(1 << 20, [10.0, 20.0, 40.0]))
        table = busbw.data(self.folder)
        figure = busbw.draw(table)
        for (x, y), (wanted_x, wanted_y) in zip(style.drawn(figure)["data:migrate"], [(1 << 20, 1.5 * (1 << 20) / 20e6), (1 << 22, 1.5 * (1 << 22) / 60e6)]):
            self.assertEqual(x, wanted_x)
            self.assertAlmostEqual(y / wanted_y, 1, places=4)
        self.assertAlmostEqual(table["ports"], 0.5)
        self.assertIn("evidence: emulated", text_of(figure))

    def test_busbw_draws_the_stored_medians(self):
        drawn = style.drawn(busbw.draw(busbw.data(RESULTS)))
        for mode in ("baseline", "migrate", "balance"):
            stored = rows("runs", set="busbw_sizes", mode=mode)
            self.assertEqual(len(stored), 8)
            self.assert_points(drawn[f"data:{mode}"], sorted((int(row["bytes"]), float(row["busbw_p50_gbytes"])) for row in stored))

    def test_busbw_of_mode_3_is_the_volume_over_the_time(self):
        path = os.path.join(self.folder, "sizes.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("nodes,lost,bytes,mbits,margin,algorithm,jobs,t_ms,t0_ms,bound_ms,to_better_of_ring_and_balance,ratios,cpu_idle\n")
            for lost, size, algorithm, t in (("0", 1 << 20, "ring", 4.0), ("1/4", 1 << 30, "mode3", 2000.0), ("1/4", 1 << 20, "mode3", 2.0), ("1/4", 1 << 20, "balance", 3.0)):
                file.write(f"4,{lost},{size},1600,,{algorithm},3,{t},1.5,1.5,0.9,,0.7\n")
        found, origin = collect.of_sizes([path])
        collect.collect(self.folder, "mode3_sizes_3", found, origin, {"command": "a test", "date": "2026-01-01", "commit": "abc"})
        figure = busbw.Mode3.draw(busbw.Mode3.data(self.folder))
        drawn = style.drawn(figure)
        self.assert_points(drawn["data:1/4:mode3"], [(1 << 20, 1.5 * 2**20 / 2e6), (1 << 30, 1.5 * 2**30 / 2e9)])
        self.assert_points(drawn["data:1/4:balance"], [(1 << 20, 1.5 * 2**20 / 3e6)])
        self.assert_points(drawn["data:0:ring"], [(1 << 20, 1.5 * 2**20 / 4e6)])
        self.assert_points(drawn["data:0:bound"], [(1 << 20, 2**20 / 1e6)])
        self.assertIn("evidence: emulated", text_of(figure))

    def test_busbw_leaves_wrong_data_out(self):
        self.sample("busbw_sizes", lambda result: result["runs"][0]["metrics"]["correctness"].update(exact=False))
        with self.assertRaises(inputs.NoData):
            busbw.data(self.folder)

    def test_numbers_without_an_origin_are_not_drawn(self):
        self.sample("busbw_sizes", lambda result: None)
        tables.write(self.folder, "provenance", [])
        with self.assertRaisesRegex(inputs.BadInput, "no line for the set 'busbw_sizes'"):
            busbw.data(self.folder)

    def test_retained(self):
        figure = retained.draw(retained.data(RESULTS))
        wanted = {}
        for row in rows("runs", set="k_of_8_nics"):
            last = int(row["run"].replace("k_of_8_nics-node1nic0", "").lstrip("-") or 0)
            wanted.setdefault(row["mode"], []).append((last + 1, float(row["retained"]), float(row["limit"])))
        drawn = style.drawn(figure)
        self.assertEqual(set(wanted), {"migrate", "balance"})
        for mode, points in wanted.items():
            points.sort()
            self.assert_points(drawn[f"data:retained:{mode}"], [(0, 1)] + [(k, r) for k, r, _ in points])
            self.assert_points(drawn[f"data:limit:{mode}"], [(0, 1)] + [(k, limit) for k, _, limit in points])
        self.assertIn("evidence: emulated", text_of(figure))

    def test_stall(self):
        figure = stall.draw(stall.data(RESULTS))
        drawn = {}
        for gid, points in style.drawn(figure).items():
            drawn[gid] = sorted(round(float(x), 6) for x, _ in points)
        runs = {name: {row["mode"]: row for row in rows("runs", run=name) if row["set"] in stall.SETS} for _, name in stall.RUNS}
        gaps = [float(modes["migrate"]["blackout_max_ms"]) for modes in runs.values()]
        self.assertEqual(drawn["data:cpu:migrate:on"], sorted(round(gap, 6) for gap in gaps))
        self.assertEqual(drawn["data:cpu:baseline:ended"], sorted(round(float(modes["baseline"]["error_ms"]), 6) for modes in runs.values() if "baseline" in modes))
        self.assertEqual(drawn["data:cpu:baseline:on"], [])
        self.assertEqual(drawn["data:cpu:perftest:ended"], sorted(round(float(row["after_ms"]), 6) for row in rows("programs", program="ib_write_bw") if row["fault"] in stall.LINES))
        longest = [max(float(row["max_ms"]) for row in rows("nccl", set="nccl_four_gpus", case=name, op="allreduce"))
                   for name in ("port_down_balance", "blackhole_balance", "qp_error_balance")]
        self.assertEqual(drawn["data:nccl:balance:on"], sorted(round(ms, 6) for ms in longest))
        for ms in drawn["data:nccl:nccl_ib:ended"]:
            self.assertTrue(90e3 < ms < 109e3, ms)
        self.assertIn("evidence: emulated", text_of(figure))

    def test_t_over_t0(self):
        figure = t_over_t0.draw(t_over_t0.data(RESULTS))
        drawn = style.drawn(figure)
        simulated = rows("allreduce", segments="32", degraded="1")
        for index, mine, other, fixed in ((1, "lost", "nodes", "16"), (0, "nodes", "lost", "0.5")):
            for name in t_over_t0.ALGORITHMS:
                wanted = sorted((float(row[mine]), float(row["simulated_t0"])) for row in simulated if row["algorithm"] == name and float(row[other]) == float(fixed))
                self.assertGreater(len(wanted), 2)
                self.assert_points(drawn[f"data:{index}:{name}"], wanted)
            bounds = sorted({(float(row[mine]), float(row["bound_t0"])) for row in simulated if float(row[other]) == float(fixed)})
            self.assert_points(drawn[f"data:{index}:bound"], bounds)
        self.assertIn("evidence: simulated", text_of(figure))

    def test_recovery_channels(self):
        def of(number, recovers):
            def change(result):
                result["workload"]["channels"] = number
                run = result["runs"][0]
                one = run["faults"][0]
                run["faults"] = [{**one, "recover_ms": ms, "detect_ms": ms / 100} for ms in recovers]
                run["faults"].append({**one, "sampled": False, "recover_ms": 1.0})
            return change
        self.sample("recovery_channels", of(2, [20.0, 30.0, 40.0]), of(8, [25.0, 35.0]))
        drawn = style.drawn(channels.draw(channels.data(self.folder)))
        self.assert_points(drawn["data:recover"], [(2, 20), (2, 30), (2, 40), (8, 25), (8, 35)])
        self.assert_points(drawn["data:detect"], [(2, 0.2), (2, 0.3), (2, 0.4), (8, 0.25), (8, 0.35)])
        self.assert_points(drawn["median:recover"], [(2, 30), (8, 30)])

    def test_recovery_channels_have_the_detection_of_a_fault_without_a_rate_before_it(self):
        def change(result):
            run = result["runs"][0]
            one = run["faults"][0]
            run["faults"] = [{**one, "recover_ms": 20.0, "detect_ms": 1.0}, {**one, "recover_ms": None, "detect_ms": 3.0, "why_no_rate_before": "no rate"}]
        self.sample("recovery_channels", change)
        figure = channels.draw(channels.data(self.folder))
        drawn = style.drawn(figure)
        self.assertEqual([y for _, y in drawn["data:recover"]], [20.0])
        self.assertEqual([y for _, y in drawn["data:detect"]], [1.0, 3.0])
        self.assertEqual([y for _, y in drawn["median:recover"]], [20.0])
        self.assertIn("1 without a rate before it", text_of(figure))

    def test_fault_matrix(self):
        figure = fault_matrix.draw(fault_matrix.data(RESULTS))
        for axes, name in zip(figure.axes, ("mode1", "mode2")):
            table = rows("matrix", set=name)
            faults = list(dict.fromkeys(cell["fault"] for cell in table))
            moments = ["connect", "first_message", "mid_message", "last_segment", "replay", "failback", "close"]
            self.assertEqual(set(moments), {cell["moment"] for cell in table})
            image = axes.images[0].get_array()
            self.assertEqual(image.shape, (len(faults), len(moments)))
            self.assertEqual([label.get_text() for label in figure.axes[0].get_yticklabels()], faults)  # both panels share them
            empty = {(cell["fault"], cell["moment"]) for cell in table if cell["verdict"] == "empty"}
            for i, fault in enumerate(faults):
                for j, moment in enumerate(moments):
                    own = [cell for cell in table if (cell["fault"], cell["moment"]) == (fault, moment) and cell["verdict"] != "empty"]
                    state = fault_matrix.ORDER[int(image[i][j])]
                    if not own:
                        self.assertEqual(state, "empty")
                        self.assertIn((fault, moment), empty)
                    elif any(cell["verdict"] == "fail" for cell in own):
                        self.assertEqual(state, "fails")
                    elif any(cell["verdict"] == "missed" for cell in own):
                        self.assertEqual(state, "missed")
                    else:
                        self.assertEqual(state, "explained" if any(cell["outcome"] == "error" for cell in own) else "survives")
            counted = [text.get_text() for text in axes.texts]
            self.assertEqual(sum(int(of) - int(holds) for holds, of in (text.split("/") for text in counted)), sum(cell["verdict"] in ("fail", "missed") for cell in table))
        self.assertIn("evidence: emulated", text_of(figure))


if __name__ == "__main__":
    unittest.main()
