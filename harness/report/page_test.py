#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `r2bench report` in a real browser, used as a person would: read, filter, zoom, keys, themes, paper.

    page_test.py R2BENCH [FOLDER FOR SCREENSHOTS]

Needs Chromium with its driver, and Selenium (Debian: chromium, chromium-driver, python3-selenium). Ends with 77, and says what is missing,
where it cannot run."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
RUN = os.path.join(HERE, "testing", "run")
NIC_DOWN = os.path.join(HERE, "..", "..", "results", "reference", "nic_down")
EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select
except ImportError:
    print("skipped: no Selenium (python3-selenium)")
    sys.exit(SKIPPED)

CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
DRIVER = shutil.which("chromedriver")
# Ubuntu's chromium-browser is a script that wants a snap.
if CHROMIUM and subprocess.run([CHROMIUM, "--version"], capture_output=True, check=False).returncode != 0:
    CHROMIUM = None
if not CHROMIUM or not DRIVER:
    print("skipped: no Chromium" if not CHROMIUM else "skipped: no chromedriver")
    sys.exit(SKIPPED)

R2BENCH = os.path.abspath(sys.argv[1])
SHOTS = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None


def load(folder, name="result.json"):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = holder.name
        evil = os.path.join(cls.folder, "evil")
        shutil.copytree(RUN, evil)
        result = load(evil)
        result["scenario"] = result["description"] = EVIL
        result["verdict"] = "fail"
        result["expectations"][0].update(ok=False, got=EVIL)
        result["expectations"][1].update(ok=None)
        result["runs"][1]["metrics"]["throughput"]["held_up"] = EVIL
        result["runs"][1]["metrics"]["faults"]["dropped"] = {EVIL: 2}
        with open(os.path.join(evil, "result.json"), "w", encoding="utf-8") as file:
            json.dump(result, file)
        with open(os.path.join(evil, "events.jsonl"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        lines[0] = json.dumps({**json.loads(lines[0]), "text": EVIL})
        with open(os.path.join(evil, "events.jsonl"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        lost = os.path.join(cls.folder, "lost")  # no fault of migrate was recovered from; the metric has how long that was waited for
        shutil.copytree(RUN, lost)
        result = load(lost)
        run = next(run for run in result["runs"] if run["mode"] == "migrate")
        for fault in run["faults"]:
            fault["recover_ms"] = fault["recovered_at_ms"] = None
        run["metrics"]["faults"]["unrecovered"] = sum(fault["sampled"] for fault in run["faults"])
        run["metrics"]["recovery"]["recover_ms"] = {"n": 1, "p50": 1000, "p95": 1000, "p99": 1000, "max": 1000}
        with open(os.path.join(lost, "result.json"), "w", encoding="utf-8") as file:
            json.dump(result, file)
        slow = os.path.join(cls.folder, "slow")  # the first recovery took 40 ms more by the wall clock
        shutil.copytree(RUN, slow)
        result = load(slow)
        next(f for run in result["runs"] for f in run["faults"] if f["recovered_at_ms"] is not None)["recovered_at_ms"] += 40
        with open(os.path.join(slow, "result.json"), "w", encoding="utf-8") as file:
            json.dump(result, file)
        command = os.path.join(cls.folder, "command")
        shutil.copytree(RUN, command)
        result = load(command)
        result["workload"].update(engine="exec", op=None, dtype=None, bytes=None, command=["all_reduce_perf", "-b", "8"])
        with open(os.path.join(command, "result.json"), "w", encoding="utf-8") as file:
            json.dump(result, file)
        for name, results in (("command", [command]), ("lost", [lost]), ("slow", [slow]), ("one", [RUN]), ("two", [RUN, NIC_DOWN]), ("evil", [evil])):
            subprocess.run([R2BENCH, "report", *results, "-o", os.path.join(cls.folder, name + ".html")], check=True, capture_output=True)
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1300,1000",
                         "--user-data-dir=" + os.path.join(cls.folder, "profile")):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(service=Service(DRIVER), options=options)
        cls.addClassCleanup(cls.browser.quit)

    def open(self, name):
        self.browser.get("file://" + os.path.join(self.folder, name + ".html"))
        self.assertEqual([entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"], [])

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        found = self.all(selector)
        self.assertGreaterEqual(len(found), 1, selector)
        return found[0]

    def style(self, selector, name):
        return self.browser.execute_script("return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, name)

    def press(self, *keys):
        webdriver.ActionChains(self.browser).send_keys(*keys).perform()

    def media(self, **media):
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items() if name != "media"]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media.get("media", ""), "features": features})
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"media": "", "features": []})

    def shot(self, name):
        if SHOTS:
            os.makedirs(SHOTS, exist_ok=True)
            self.browser.save_screenshot(os.path.join(SHOTS, name + ".png"))

    def range(self):
        return self.one("#timeline output.range").text

    def test_verdict_and_expectations_are_those_of_the_result(self):
        self.open("one")
        result = load(RUN)
        self.assertEqual(self.one(".verdict .word").text, result["verdict"])
        self.assertIn("evidence: emulated (vhca)", self.one(".verdict").text)
        rows = self.all("#expectations tbody tr")
        self.assertEqual(len(rows), len(result["expectations"]))
        for row, expectation in zip(rows, result["expectations"]):
            self.assertIn(expectation["name"], row.text)
            self.assertIn("holds", row.text)
        self.shot("light")

    def test_only_what_does_not_hold(self):
        self.open("evil")
        self.one("#expectations input[type=checkbox]").click()
        rows = self.all("#expectations tbody tr")
        self.assertEqual(["does not" in rows[0].text, "unknown" in rows[1].text, len(rows)], [True, True, 2])
        self.one("#expectations input[type=checkbox]").click()
        self.assertEqual(len(self.all("#expectations tbody tr")), len(load(RUN)["expectations"]))

    def test_the_event_log_is_filtered_by_mode_kind_and_words(self):
        self.open("one")
        with open(os.path.join(RUN, "events.jsonl"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        count = lambda: self.one("#events output.count").text
        self.assertEqual(count(), f"{len(events)} of {len(events)} events")
        Select(self.all("#events select")[0]).select_by_visible_text("migrate")
        Select(self.all("#events select")[1]).select_by_visible_text("fence_started")
        wanted = [e for e in events if e["mode"] == "migrate" and e["event"] == "fence_started"]
        self.assertEqual(count(), f"{len(wanted)} of {len(events)} events")
        rows = self.all("#events tbody tr")
        self.assertEqual([row.find_elements(By.TAG_NAME, "td")[4].text for row in rows], [e["text"] for e in wanted])
        self.one("#search").send_keys("completion")
        self.assertEqual(len(self.all("#events tbody tr")), sum("completion" in e["text"] for e in wanted))
        next(button for button in self.all("#events button") if button.text == "Clear").click()
        self.assertEqual(count(), f"{len(events)} of {len(events)} events")

    def test_an_event_moves_the_timeline_to_its_time(self):
        self.open("one")
        Select(self.all("#events select")[1]).select_by_visible_text("migration_done")
        row = self.one("#events tbody tr")
        at = float(row.find_elements(By.TAG_NAME, "td")[0].text)
        row.click()
        low, high = self.browser.execute_script("return runs[0].chart.view")
        self.assertTrue(low < at < high and high - low <= 400, (low, at, high))
        self.assertIn("now", row.get_attribute("class"))

    def test_the_timeline_zooms_by_keys_buttons_and_dragging(self):
        self.open("one")
        whole = self.range()
        chart = self.one("#timeline svg.timeline")
        self.assertEqual(len(self.all("#timeline path.curve")), 2)
        self.browser.execute_script("arguments[0].focus()", chart)
        self.press("+")
        zoomed = self.range()
        self.assertNotEqual(zoomed, whole)
        self.press(Keys.ARROW_RIGHT)
        self.assertNotEqual(self.range(), zoomed)
        self.press("0")
        self.assertEqual(self.range(), whole)
        next(button for button in self.all("#timeline button") if button.text == "Next fault").click()
        fault = load(RUN)["runs"][0]["faults"][0]["t0_at_ms"]
        low, high = self.browser.execute_script("return runs[0].chart.view")
        self.assertTrue(low < fault < high, (low, fault, high))
        self.assertLess(high - low, 4001)
        self.assertGreaterEqual(len(self.all("#timeline path.mark.fault")), 1)
        self.shot("zoomed")
        self.press("0")
        self.browser.execute_script("runs[0].chart.show(0, 1e9)")
        webdriver.ActionChains(self.browser).move_to_element_with_offset(chart, -100, 0).click_and_hold().move_by_offset(60, 0).release().perform()
        low, high = self.browser.execute_script("return runs[0].chart.view")
        self.assertLess(high - low, self.browser.execute_script("return runs[0].chart.end") / 4)

    def test_curves_are_the_rates_of_the_timeline(self):
        self.open("one")
        curve = load(RUN, "timeline.json")["modes"][1]
        points = self.browser.execute_script("const c = runs[0].timeline.modes[1]; return rateOf(c, 0, runs[0].chart.end, false)")
        self.assertGreater(len(points), 50)
        total, bins = curve["total"], curve["bin_ms"]
        width = 2 * (points[0][0] - total["time_ms"][0])
        for middle, rate in points[3:40:7]:
            own = [(g, o) for t, g, o in zip(total["time_ms"], total["gbps"], total["open"]) if middle - width / 2 <= t < middle + width / 2]
            self.assertAlmostEqual(rate, sum(g * o for g, o in own) / sum(o for _, o in own), delta=0.05 * rate + bins * 1e-3)

    def test_recovery_bars_are_the_phases_of_each_fault(self):
        self.open("one")
        faults = [f for run in load(RUN)["runs"] for f in run["faults"] if f["sampled"] and None not in (f["detect_ms"], f["migrate_ms"], f["recover_ms"])]
        bars = self.all("svg.recovery rect[data-phase=detect]")
        self.assertEqual([float(bar.get_attribute("data-ms")) for bar in bars], [f["detect_ms"] for f in faults])
        ramps = self.all("svg.recovery rect[data-phase=ramp]")
        for ramp, f in zip(ramps, faults):
            self.assertAlmostEqual(float(ramp.get_attribute("data-ms")), f["recovered_at_ms"] - f["migrated_at_ms"], places=6)

    def test_ramp_is_wall_clock_time_though_recovery_is_open_time(self):
        self.open("slow")  # between operations 40 ms passed in which nothing was open
        fault = next(f for run in load(os.path.join(self.folder, "slow"))["runs"] for f in run["faults"] if f["recovered_at_ms"] is not None)
        ramp = self.one("svg.recovery rect[data-phase=ramp]")
        self.assertAlmostEqual(float(ramp.get_attribute("data-ms")), fault["recovered_at_ms"] - fault["migrated_at_ms"], places=6)
        self.assertGreater(float(ramp.get_attribute("data-ms")), 39.9)
        self.assertIn("wall-clock time", self.one("#recovery figcaption").text)

    def test_of_a_command_the_page_names_the_command(self):
        self.open("command")
        self.assertIn("command: all_reduce_perf -b 8, ", self.one(".verdict").text)
        self.assertNotIn("MiB", self.one(".verdict").text)

    def test_a_recovery_that_never_came_is_no_time(self):
        self.open("lost")
        row, = (row for row in self.all("#recovery tbody tr") if row.text.startswith("migrate"))
        self.assertEqual([cell.text for cell in row.find_elements(By.TAG_NAME, "td")[8:10]], ["never", "never"])
        faults = [f for run in load(os.path.join(self.folder, "lost"))["runs"] for f in run["faults"] if f["sampled"]]
        bars = self.all("svg.recovery rect[data-phase=detect]")
        self.assertLess(len(bars), len(faults))
        self.assertIn(f"{len(faults) - len(bars)} of {len(faults)} measured faults", self.one("#recovery .note").text)
        self.open("one")
        self.assertIn("1 of 3 measured faults has no bar", self.one("#recovery figcaption").text)

    def test_rates_that_the_ports_did_not_limit_are_marked(self):
        self.open("one")
        self.assertEqual(self.all("#recovery .note"), [])
        self.open("evil")
        run = load(RUN)["runs"][1]
        self.assertEqual(self.all("#recovery .note")[0].text, f"* {run['mode']}: {EVIL}.")
        plain, marked = ([cell.text for cell in row.find_elements(By.TAG_NAME, "td")[2:4]] for row in self.all("#recovery tbody tr")[:2])
        self.assertEqual([[text.endswith("*") for text in cells] for cells in (plain, marked)], [[False, False], [True, True]])

    def test_faults_that_were_not_measured_are_said_with_their_reason(self):
        self.open("evil")
        self.assertEqual([note.text for note in self.all("#recovery .note")][1:], [f"{load(RUN)['runs'][1]['mode']}: 2 not measured: {EVIL}."])

    def test_everything_is_reached_by_keys(self):
        self.open("one")
        seen = []
        for _ in range(7):
            self.press("n")
            seen.append(self.browser.execute_script("return document.activeElement.id"))
        self.assertEqual(seen, ["verdict", "expectations", "timeline", "recovery", "operations", "events", "environment"])
        self.press("p")
        self.assertEqual(self.browser.execute_script("return document.activeElement.id"), "events")
        self.press("/")
        self.assertEqual(self.browser.execute_script("return document.activeElement.id"), "search")
        self.press("tn?")  # words, not commands, while one types
        self.assertEqual(self.one("#search").get_attribute("value"), "tn?")
        self.press(Keys.ESCAPE)
        self.assertFalse(self.one("#keys").is_displayed())
        self.press("?")
        self.assertTrue(self.one("#keys").is_displayed())
        self.press(Keys.ESCAPE)
        self.assertFalse(self.one("#keys").is_displayed())

    def test_light_and_dark_follow_the_system_and_the_switch(self):
        self.open("one")
        self.media(prefers_color_scheme="light")
        self.assertEqual(self.style("body", "backgroundColor"), "rgb(255, 255, 255)")
        self.media(prefers_color_scheme="dark")
        self.assertEqual(self.style("body", "backgroundColor"), "rgb(20, 23, 26)")
        self.one("#theme").click()
        self.assertEqual([self.style("body", "backgroundColor"), self.one("#theme").text], ["rgb(255, 255, 255)", "Theme: light"])
        self.media(prefers_color_scheme="light")
        self.press("t")
        self.assertEqual([self.style("body", "backgroundColor"), self.one("#theme").text], ["rgb(20, 23, 26)", "Theme: dark"])
        self.shot("dark")
        self.press("t")
        self.assertEqual(self.style("body", "backgroundColor"), "rgb(255, 255, 255)")

    def test_paper_is_white_and_has_no_controls(self):
        self.open("two")
        self.press("tt")
        self.media(media="print")
        self.assertEqual(self.style("body", "backgroundColor"), "rgb(255, 255, 255)")
        for selector in (".controls", "#contents", "#timeline button"):
            self.assertFalse(self.one(selector).is_displayed(), selector)
        self.assertTrue(self.one("#expectations table").is_displayed())
        pdf = base64.b64decode(self.browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
        self.assertTrue(pdf.startswith(b"%PDF"))
        if SHOTS:
            with open(os.path.join(SHOTS, "print.pdf"), "wb") as file:
                file.write(pdf)

    def test_several_results_stand_side_by_side(self):
        self.open("two")
        left, right = self.all("#verdict article")
        self.assertEqual(left.location["y"], right.location["y"])
        self.assertGreater(right.location["x"], left.location["x"] + 100)
        self.assertIn("nic_down", right.text)
        self.assertEqual(len(self.all("#timeline svg.timeline")), 2)
        self.assertIn("no events.jsonl", self.all("#events article")[1].text)
        self.browser.set_window_size(700, 900)
        self.addCleanup(self.browser.set_window_size, 1300, 1000)
        left, right = self.all("#verdict article")
        self.assertEqual(left.location["x"], right.location["x"])

    def test_names_are_text_never_markup(self):
        self.open("evil")
        self.assertIsNone(self.browser.execute_script("return window.broken ?? null"))
        self.assertEqual(self.one(".verdict .scenario").text, EVIL)
        self.assertEqual(self.all("main img"), [])
        self.assertIn(EVIL, self.one("#events tbody tr").text)
        self.assertIn(EVIL, self.browser.title)

    def test_nothing_is_loaded_from_anywhere(self):
        for name in ("one", "two", "evil"):
            self.open(name)
            loaded = self.browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)")
            self.assertEqual([address for address in loaded if not address.startswith("data:")], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
