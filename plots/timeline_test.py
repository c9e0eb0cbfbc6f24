#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""timeline.py on the reference result of nic_down and on variations of it: pictures come out, whatever is missing in the data, and no text
of the second panel covers another."""

import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = os.path.join(HERE, "..", "results", "reference", "nic_down")
sys.path.insert(0, HERE)

import style  # noqa: E402
import timeline  # noqa: E402

style.use()  # exit status 3 where matplotlib is missing


def sample():
    return timeline.load(os.path.join(SAMPLE, "result.json"))


def png_size(path):
    with open(path, "rb") as file:
        head = file.read(24)
    assert head[:8] == b"\x89PNG\r\n\x1a\n", path
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


class Timeline(unittest.TestCase):
    def setUp(self):
        style.use()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def draw(self, result, curves):
        style.save(timeline.draw((result, curves)), self.folder.name, "timeline")
        width, height = png_size(os.path.join(self.folder.name, "timeline.png"))
        self.assertGreaterEqual(width, 1400)
        self.assertGreaterEqual(height, 500)
        with open(os.path.join(self.folder.name, "timeline.pdf"), "rb") as file:
            content = file.read()
        self.assertTrue(content.startswith(b"%PDF"))
        self.assertGreater(len(content), 5000)

    def test_the_program_draws_a_stored_result(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "timeline.py"), "--out", self.folder.name,
                               os.path.join(SAMPLE, "result.json")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(png_size(os.path.join(self.folder.name, "timeline.png"))[0], 1000)
        self.assertGreater(os.path.getsize(os.path.join(self.folder.name, "timeline.pdf")), 5000)

    def test_a_missing_file_is_an_error_in_one_line(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "timeline.py"), "/nonexistent/result.json"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 64)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1)

    def test_a_run_without_faults_has_one_panel(self):
        result, curves = sample()
        for run in result["runs"]:
            run["faults"] = []
        self.assertEqual(len(timeline.draw((result, curves)).axes), 1)
        self.draw(result, curves)

    def test_a_run_that_was_cut_short_is_drawn(self):
        result, curves = sample()
        result["runs"] = result["runs"][:1]
        result["runs"][0]["outcome"] = "cancelled"
        curves["baseline"]["end_ms"] = None
        self.draw(result, curves)

    def test_the_limit_follows_the_nics_that_are_left(self):
        result, curves = sample()
        result["runs"] = [run for run in result["runs"] if run["mode"] == "migrate"]
        before = result["runs"][0]["metrics"]["throughput"]["before_gbps"]
        curves["migrate"]["limits"] = {"time_ms": [2000.0, 3000.0, 4000.0], "limit": [0.5, 0.25, 1.0]}
        for axes, zero, scale in zip(timeline.draw((result, curves)).axes, (0, timeline.first_fault(result["runs"][0])["t0_at_ms"]), (1000, 1)):
            dashed = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
            self.assertEqual(len(dashed), 1)
            for got, at in zip(dashed[0].get_xdata(), (2000, 3000, 4000)):
                self.assertAlmostEqual(got, (at - zero) / scale)
            for got, limit in zip(dashed[0].get_ydata(), (0.5, 0.25, 1, 1)):
                self.assertAlmostEqual(got, limit * before)
        curves["migrate"]["limits"] = {"time_ms": [], "limit": []}
        self.assertFalse([line for line in timeline.draw((result, curves)).axes[0].lines if line.get_drawstyle() == "steps-post"])

    def test_nothing_at_all_is_drawn_too(self):
        result, curves = sample()
        for curve in curves.values():
            curve["total"] = {"time_ms": [], "gbps": [], "open": []}
            curve["raw"] = {"time_ms": [], "bytes": [], "node": [], "nic": []}
        self.draw(result, curves)
        result["runs"] = []
        self.draw(result, {})

    def test_three_modes_with_marks(self):
        result, curves = sample()
        third = copy.deepcopy(result["runs"][1])
        third["mode"] = "balance"
        result["runs"].append(third)
        curves["balance"] = curves["migrate"]
        self.draw(result, curves)

    def test_names_of_marks_do_not_cover_each_other(self):
        result, curves = sample()
        for offsets in ((0.1, 0.2, 0.3), (0.4, 3.5, 12.3), (20, 41, 48), (5, 5, 200), (1, 160, 160), (400, 401, 402)):
            fault = result["runs"][1]["faults"][0]
            for key, offset in zip(("detected_at_ms", "migrated_at_ms", "recovered_at_ms"), offsets):
                fault[key] = fault["t0_at_ms"] + offset
            figure = timeline.draw((result, curves))
            figure.canvas.draw()
            texts = [t for t in figure.axes[1].texts if t.get_text()]
            self.assertGreaterEqual(len(texts), 4)
            boxes = [t.get_window_extent() for t in texts]
            for i, box in enumerate(boxes):
                self.assertLess(box.x1, figure.bbox.width, texts[i].get_text())
                for j in range(i):
                    self.assertFalse(box.overlaps(boxes[j]), (offsets, texts[i].get_text(), texts[j].get_text()))

    def test_a_setting_that_modes_do_not_share_is_said_for_each(self):
        result = sample()[0]
        self.assertIn(" · R2CC_SUSPECT_MS 4 · ", timeline.footer_of(result))
        result["runs"][1]["settings"]["R2CC_SUSPECT_MS"] = "50"
        self.assertIn(" · R2CC_SUSPECT_MS 4 (baseline), 50 (migrate) · ", timeline.footer_of(result))

    def test_of_a_command_no_operation_is_said(self):
        result = sample()[0]
        result["workload"].update(engine="exec", op=None, bytes=None, dtype=None)
        self.assertEqual(timeline.title_of(result), "nic_down: a command, 2 nodes × 4 NICs × 1 Gbit/s")

    def test_modes_never_share_a_colour(self):
        labels = ["baseline", "migrate", "migrate_noack", "x", "balance"]
        self.assertEqual(len(set(style.colours_of(labels).values())), len(labels))

    def test_the_centred_rate_is_exact(self):
        raw = {"time_ms": [float(t) for t in range(100)], "bytes": [125000] * 100}
        _, ys = timeline.sliding_rate(raw, 50.0, -20, 20, 10, False)
        self.assertTrue(all(abs(y - 1.0) <= 0.11 for y in ys))
        xs, ys = timeline.sliding_rate(raw, 99.0, 0, 30, 10, True)
        self.assertEqual(ys[-1], 0)
        self.assertEqual(xs[-1], 30)
        xs, _ = timeline.sliding_rate(raw, 99.0, -20, 30, 10, False)
        self.assertLessEqual(xs[-1], 0)


class Files(unittest.TestCase):
    def test_the_stored_result_is_small(self):
        for name in ("result.json", "timeline.json"):
            with open(os.path.join(SAMPLE, name), encoding="utf-8") as file:
                json.load(file)
            self.assertLess(os.path.getsize(os.path.join(SAMPLE, name)), 400_000)


if __name__ == "__main__":
    unittest.main()
