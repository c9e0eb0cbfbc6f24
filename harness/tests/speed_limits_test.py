#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What harness/bench/speed_limits.py makes of results that are made by hand."""

import io
import json
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import speed_limits  # noqa: E402


def fault(kind="port_down", detect=0.1, recover=17.0, floor=16.0, **other):
    return {"name": f"{kind} node1/nic0", "kind": kind, "target": "node1/nic0", "detected_by": "event", "detect_ms": detect,
            "migrate_ms": 16.0, "recover_ms": recover, "blackout_ms": 20.0, "floor_ms": floor, "window_ms": 64.0, "limit": 0.5,
            "before_gbps": 7.8, "after_gbps": 3.9, "witnessed": True, "sampled": True, "why_not_sampled": None, **other}


def run(faults, mode="migrate", outcome="ok", wakeup=0.5, exact=True, trace_lost=0):
    return {"mode": mode, "r2cc_mode": 0 if mode == "baseline" else 1, "outcome": outcome, "faults": faults, "trace_lost": trace_lost,
            "metrics": {"correctness": {"exact": exact}, "recovery": {"wakeup_p99_ms": wakeup}}}


class SpeedLimits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, *runs, name="a", seed=1, verdict="pass", doubts=(), unmet=()):
        """`doubts`: keys of the whole run; `unmet`: those of its expectations."""
        os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        path = os.path.join(self.folder, name, "result.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"seed": seed, "verdict": verdict, "doubt_kinds": doubts,
                       "expectations": [{"doubt": None}, *({"doubt": doubt} for doubt in unmet)], "runs": runs}, file)
        return path

    def call(self, *arguments, wanted="1", dropped="100"):
        out = io.StringIO()
        status = speed_limits.main(["--wanted", wanted, "--dropped", dropped, *(arguments or [self.folder])], out)
        return status, out.getvalue()

    def test_percentiles_are_values_that_were_measured(self):
        self.assertEqual(speed_limits.percentile([3, 1, 2], 50), 2)
        self.assertEqual(speed_limits.percentile([1, 2], 50), 1)
        self.assertEqual(speed_limits.percentile(range(1, 201), 99), 198)
        self.assertEqual(speed_limits.percentile([7], 99), 7)

    def test_faults_of_many_results_are_put_together_by_kind_and_mode(self):
        self.write(run([fault()] * 120), run([fault()] * 3, mode="balance"), run([fault(recover=None)], mode="baseline"))
        self.write(run([fault()] * 80 + [fault("qp_error")] * 2), name="b/c", seed=2)
        status, said = self.call(wanted="200")
        self.assertEqual(status, 2, said)
        self.assertRegex(said, r"port_down +migrate +200 +200 +0 +200 +0\.10 +0\.10 +0\.10 +17\.00 +17\.00 +17\.00 +16\.00 +0\.50\n")
        self.assertRegex(said, r"port_down +balance +3 +3 +0 +3 ")
        self.assertNotIn("baseline", said)
        self.assertNotIn("few      port_down, migrate", said)
        self.assertIn("few      qp_error, migrate: 2 faults; 200 are wanted", said)
        self.assertIn("none     blackhole: its limits were not evaluated", said)
        self.assertEqual(self.call(wanted="2")[0], 0)

    def test_each_limit_can_be_missed(self):
        def missing(faults, **of_run):
            self.write(run(faults, **of_run))
            status, said = self.call(wanted="1")
            self.assertEqual(status, 1 if "NOT MET" in said else 0, said)
            return [line.split(": ")[1] for line in said.splitlines() if line.startswith("NOT MET")]

        good = [fault() for _ in range(98)]
        self.assertEqual(missing(good), [])
        self.assertEqual(missing([fault(detect=0.5)] * 9), [])
        self.assertEqual(missing([fault(detect=0.51)] * 9), ["detect p50 <= 0.5 ms"])
        self.assertEqual(missing(good + [fault(detect=2.6)]), ["detect p99 <= wake-up + 2 ms"])
        self.assertEqual(missing(good + [fault(detect=2.6)], wakeup=0.7), [])
        self.assertEqual(missing([fault(recover=18.0)] * 9), [])
        self.assertEqual(missing([fault(recover=18.1)] * 9), ["recover p50 <= floor + 2 ms"])
        self.assertEqual(missing(good + [fault(recover=31.6)]), ["recover p99 <= floor + wake-up + 15 ms"])
        self.assertEqual(missing(good + [fault(recover=31.6, floor=16.2)]), [], "its own floor counts")
        self.assertEqual(missing(good + [fault(recover=31.6)] + good), [], "1 of 197")
        late = [fault("blackhole", detect=12.0, recover=46.4)]
        self.assertEqual(missing(late), [])
        self.assertEqual(missing([fault("blackhole", detect=12.0, recover=46.6)]), ["recover p99 <= floor + wake-up + 30 ms"])

    def test_a_floor_at_the_whole_rate_of_the_port_can_be_asked_for(self):
        self.write(run([fault()] * 9))
        self.assertEqual(self.call()[0], 0)
        status, said = self.call("--floor", "port", self.folder)
        self.assertEqual(status, 1)
        self.assertIn("NOT MET  port_down, migrate: recover p50 <= floor + 2 ms: 9.00 ms beside floor", said)

    def test_only_what_was_measured_counts(self):
        not_sampled = fault(recover=None, sampled=False, why_not_sampled="no operation was open")
        self.write(run([fault(), not_sampled, fault(witnessed=False), fault()]))
        self.assertRegex(self.call()[1], r"port_down +migrate +3 +2 +1 +2 ")

    def test_a_fault_that_never_recovered_takes_for_ever(self):
        self.write(run([fault()] * 3 + [fault(recover=None)] * 2))
        status, said = self.call()
        self.assertEqual(status, 1)
        self.assertIn("inf", said)
        self.write(run([fault()] * 3 + [fault(recover=None, detect=None)]))
        self.assertEqual(self.call()[0], 1)

    def test_a_run_that_was_cut_short_did_not_wait_for_its_last_fault(self):
        cut = [fault()] * 3 + [fault(recover=None, waited_ms=80.0)]
        self.write(run(cut, outcome="cancelled"))
        status, said = self.call()
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"port_down +migrate +4 +4 +0 +3 ")
        self.write(run([fault(recover=None)] + [fault("qp_error")], outcome="cancelled"))
        self.assertEqual(self.call()[0], 1, "another fault came later")
        self.write(run(cut + [fault(witnessed=False)], outcome="cancelled"))
        self.assertEqual(self.call()[0], 1, "the next one was armed: it had been waited for")
        self.write(run(cut, outcome="error"))
        self.assertEqual(self.call()[0], 1)

    def test_the_last_fault_of_a_run_that_was_cut_short_fails_once_it_has_been_waited_for_too_long(self):
        # The limits are 31.5 and 2.5 ms, and an interval of 64 ms may have begun.
        for detect, waited, missed in ((0.1, 60000.0, ["recover"]), (0.1, 96.0, ["recover"]), (0.1, 95.0, []), (None, 95.0, ["detect"]), (None, 66.0, [])):
            self.write(run([fault()] * 50 + [fault(detect=detect, recover=None, waited_ms=waited)], outcome="cancelled"))
            status, said = self.call()
            self.assertEqual(status, 1 if missed else 0, said)
            for time in ("detect", "recover"):
                self.assertIn(f"{'NOT MET' if time in missed else 'met    '}  port_down, migrate: {time} p99", said)
        self.write(run([fault()] * 50 + [fault(recover=None)], outcome="cancelled"))
        self.assertEqual(self.call()[0], 2, "an older result does not say how long it was waited for")

    def test_what_was_not_measured_counts_as_worse_than_the_limit(self):
        late = fault(sampled=False, why_not_sampled="the job ended before it could be measured")
        slow = fault(recover=99.0)
        for good, worse, dropped, status in ((198, 0, 2, 0), (197, 0, 3, 2), (197, 1, 2, 2), (198, 1, 1, 0), (191, 0, 9, 2), (198, 2, 0, 0), (197, 3, 0, 1)):
            self.write(run([fault()] * good + [slow] * worse + [late] * dropped))
            found, said = self.call(dropped="5")
            self.assertEqual(found, status, said)
        self.write(run([fault()] * 197 + [late] * 2 + [slow]))
        self.assertIn("unknown  port_down, migrate: recover p99 <= floor + wake-up + 15 ms: 0.50 ms beside floor and wake-up, but 2 of 200 are not "
                      "known and 1 are longer", self.call()[1])

    def test_a_recovery_without_a_rate_before_it_is_not_known(self):
        early = fault(recover=None, why_no_rate_before="it struck too early")
        self.write(run([early] * 2 + [fault()] * 198))
        self.assertEqual(self.call()[0], 0)
        self.write(run([early] * 3 + [fault()] * 197))
        status, said = self.call()
        self.assertEqual(status, 2, said)
        self.assertIn("unknown  port_down, migrate: recover p99", said)
        self.assertIn("met      port_down, migrate: detect p99", said)
        self.write(run([early] * 3))
        self.assertEqual(self.call()[0], 2)

    def test_reasons_of_what_met_nothing_are_those_of_the_judge(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
        with open(os.path.join(root, "judge", "settle_bound.h"), encoding="utf-8") as file:
            text = file.read()
        constants = dict(re.findall(r'constexpr char (k\w+)\[\] =\s*"([^"]+)"', text))
        of_list = text.split("kMetNothing[] =")[1].split("};")[0]
        stated = re.findall(r'"([^"]+)"', of_list) + [constants[name] for name in re.findall(r"\bk\w+", of_list)]
        self.assertEqual(sorted(stated), sorted(speed_limits.MET_NOTHING))

    def test_wrong_data_is_no_speed(self):
        self.write(run([fault()] * 3, exact=False))
        status, said = self.call()
        self.assertEqual(status, 1)
        self.assertIn("not every element was right", said)

    def test_a_run_that_failed_is_no_speed_however_fast_its_faults_were(self):
        for outcome in ("hang", "error", "killed"):
            self.write(run([fault()] * 3, outcome=outcome))
            status, said = self.call()
            self.assertEqual(status, 1)
            self.assertIn(f"NOT MET  mode migrate, seed 1: it ended as {outcome}", said)
        self.write(run([fault()] * 3), verdict="fail")
        status, said = self.call()
        self.assertEqual(status, 1)
        self.assertIn("NOT MET  mode migrate, seed 1: its verdict is fail", said)
        self.write(run([fault()] * 3, outcome="cancelled"), verdict="fail")
        self.assertEqual(self.call()[0], 1)

    def test_a_run_that_failed_before_a_fault_was_measured_has_failed(self):
        self.write(run([fault(sampled=False, why_not_sampled="no operation was open")], outcome="hang"))
        status, said = self.call()
        self.assertEqual(status, 1)
        self.assertIn("NOT MET  mode migrate, seed 1: it ended as hang", said)
        self.write(run([], outcome="error"))
        self.assertEqual(self.call()[0], 1)
        self.write(run([fault(sampled=False)], outcome="hang", wakeup=None))
        self.assertEqual(self.call()[0], 1, "which has no wake-up latency")

    def test_kinds_without_limits_meet_none(self):
        self.write(run([fault("ack_lost")] * 3))
        status, said = self.call()
        self.assertEqual(status, 2)
        self.assertIn("unknown  no limit was evaluated", said)

    def refused(self, *arguments):
        quiet, sys.stderr = sys.stderr, io.StringIO()
        try:
            self.assertEqual(self.call(*arguments)[0], 64)
            return sys.stderr.getvalue()
        finally:
            sys.stderr = quiet

    def test_a_run_that_is_given_twice_does_not_count_twice(self):
        path = self.write(run([fault()] * 100))
        self.assertIn("is of a run that was given before (seed 1, mode migrate)", self.refused(self.folder, path))
        lines = os.path.join(self.folder, "faults.jsonl")
        self.assertEqual(self.call("--jsonl", lines, self.folder)[0], 0)
        self.assertIn("is of a run that was given before", self.refused(self.folder, lines))
        self.write(run([fault()] * 100), name="b", seed=2)
        self.assertEqual(self.call()[0], 0)

    def test_times_that_cannot_be_are_refused(self):
        for nonsense in ({"detect": -5.0}, {"recover": float("nan")}, {"recover": float("inf")}, {"floor": None, "detect": "0.1"}):
            self.write(run([fault(**nonsense)]))
            self.assertIn("is damaged", self.refused())

    def test_values_of_another_kind_are_refused(self):
        """An odd one must not pass for a good one, nor end this program."""
        for nonsense in ({"detect": True}, {"floor": None}, {"window_ms": None}, {"limit": None}, {"limit": "0.5"}, {"witnessed": "no"}, {"sampled": None}, {"kind": None}):
            self.write(run([fault(**nonsense)]))
            for options in ([], ["--floor", "port"]):
                self.assertIn("is damaged", self.refused(*options, self.folder), nonsense)
        for of_run in ({"exact": "false"}, {"wakeup": "0.5"}, {"wakeup": -1.0}, {"trace_lost": -1}, {"trace_lost": "0"}, {"outcome": None}):
            self.write(run([fault()], **of_run))
            self.assertIn("is damaged", self.refused(), of_run)
        for verdict in ("Pass", "", None, True):
            self.write(run([fault()]), verdict=verdict)
            self.assertIn("is damaged: its verdict is", self.refused(), verdict)

    def test_what_a_run_does_not_know_is_not_known_here(self):
        self.write(run([fault()] * 3), verdict="unknown")
        status, said = self.call()
        self.assertEqual(status, 2)
        self.assertIn("unknown  mode migrate, seed 1: its verdict is unknown", said)
        self.write(run([fault()] * 3), verdict="unknown", doubts=["trace_lost"])
        self.assertEqual(self.call()[0], 2)
        self.write(run([fault()] * 3, trace_lost=7))
        status, said = self.call()
        self.assertEqual(status, 2)
        self.assertIn("7 trace events were lost", said)
        self.write(run([fault(detect=9.0)] * 3, trace_lost=7))
        self.assertEqual(self.call()[0], 1, "a failure outweighs a doubt")

    def test_a_run_that_was_cut_short_is_excused_for_that_alone(self):
        cut = run([fault()] * 3, outcome="cancelled")
        self.write(cut, verdict="unknown", doubts=["cut_short", "cut_short"], unmet=["cut_short"])
        status, said = self.call()
        self.assertEqual(status, 0, said)
        self.write(cut, run([fault()] * 3, mode="balance"), verdict="unknown", doubts=["cut_short"])
        self.assertEqual(self.call()[0], 0, "the other mode is whole")
        for other in ("effects_not_recorded", "rounds_not_recorded", "fault_not_seen", "faults_not_struck", "expects_nothing", "mode_not_run"):
            self.write(cut, verdict="unknown", doubts=[other, "cut_short"])
            status, said = self.call()
            self.assertEqual(status, 2, other)
            self.assertIn(f"unknown  mode migrate, seed 1: its verdict is unknown: {other}\n", said)
        for other in ("proves_nothing", "no_value"):
            self.write(cut, verdict="unknown", doubts=["cut_short"], unmet=["cut_short", other])
            self.assertEqual(self.call()[0], 2, other)
        lines = os.path.join(self.folder, "faults.jsonl")
        self.call("--jsonl", lines, self.folder)
        self.assertIn("its verdict is unknown: no_value", self.call(lines)[1])

    def test_what_does_not_say_why_it_is_unknown_is_not_excused(self):
        path = self.write(run([fault()] * 3, outcome="cancelled"), verdict="unknown")
        self.assertEqual(self.call()[0], 2)
        with open(path, encoding="utf-8") as file:
            older = json.load(file)
        del older["doubt_kinds"], older["expectations"][0]["doubt"]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(older, file)
        status, said = self.call()
        self.assertEqual(status, 2)
        self.assertIn("its verdict is unknown, and the record does not say why", said)

    def test_a_kind_that_was_planned_and_not_measured_is_undecided(self):
        for unseen in (fault("blackhole", witnessed=False, sampled=False), fault("blackhole", sampled=False)):
            self.write(run([fault()] * 3 + [unseen], outcome="cancelled"))
            status, said = self.call()
            self.assertEqual(status, 2, said)
            self.assertIn("few      blackhole, migrate: 0 faults; 1 are wanted", said)
            self.assertNotIn("none     blackhole", said)
        self.write(run([fault()] * 3), run([fault(witnessed=False, sampled=False)], mode="balance", outcome="cancelled"))
        status, said = self.call(wanted="0")
        self.assertEqual(status, 2)
        self.assertIn("few      port_down, balance: 0 faults; 1 are wanted", said)
        self.write(run([fault()] * 3 + [fault("ack_lost", witnessed=False, sampled=False)]))
        self.assertEqual(self.call()[0], 0, "a kind that has no limits")

    def test_too_few_faults_prove_nothing(self):
        self.write(run([fault()] * 199))
        self.assertEqual(speed_limits.main([self.folder], io.StringIO()), 2, "200 are wanted unless told")
        self.write(run([fault()] * 200))
        self.assertEqual(speed_limits.main([self.folder], io.StringIO()), 0)
        self.assertEqual(self.call(wanted="201")[0], 2)

    def test_faults_that_were_not_measured_are_told_with_their_reasons(self):
        late = fault(sampled=False, why_not_sampled="no operation was open")
        self.write(run([fault()] * 95 + [late] * 5))
        status, said = self.call(dropped="5")
        self.assertEqual(status, 0)
        self.assertRegex(said, r"kind +mode +witnessed +sampled +dropped +judged ")
        self.assertRegex(said, r"port_down +migrate +100 +95 +5 +95 ")
        self.assertIn("dropped  port_down, migrate: 5 of 100 faults were not measured: 5 no operation was open", said)
        self.write(run([fault()] * 94 + [late] * 6))
        status, said = self.call(dropped="5")
        self.assertEqual(status, 2)
        self.assertIn("unknown  port_down, migrate: 6 of 100 faults were not measured, more than 5 %: 6 no operation was open", said)
        self.write(run([fault()] * 94 + [late] * 6))
        self.assertEqual(self.call(dropped="6")[0], 0)
        self.write(run([fault()] * 3 + [fault("blackhole", sampled=False, why_not_sampled="no operation was open")]))
        self.assertRegex(self.call()[1], r"blackhole +migrate +1 +0 +1 +0 +–", "a kind of which nothing was measured")

    def test_lines_of_older_versions_do_not_say_enough(self):
        self.write(run([fault()] * 3))
        lines = os.path.join(self.folder, "faults.jsonl")
        self.assertEqual(self.call("--jsonl", lines, self.folder)[0], 0)
        with open(lines, encoding="utf-8") as file:
            entries = [json.loads(line) for line in file]
        del entries[0]["run"]["verdict"], entries[0]["run"]["trace_lost"]
        with open(lines, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        status, said = self.call(lines)
        self.assertEqual(status, 2)
        self.assertIn("the record does not say its verdict", said)

    def test_lines_are_read_as_the_results_were(self):
        self.write(run([fault()] * 3 + [fault(recover=None)], outcome="cancelled"), run([fault("blackhole")] * 2, mode="balance", trace_lost=1),
                   verdict="unknown")
        lines = os.path.join(self.folder, "faults.jsonl")
        first = self.call("--jsonl", lines, self.folder)
        with open(lines, encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 2 + 4 + 2)
        self.assertEqual(self.call(lines), first)

    def test_what_cannot_be_judged_is_said(self):
        quiet, sys.stderr = sys.stderr, io.StringIO()
        try:
            self.assertEqual(self.call()[0], 64, "no result")
            self.write(run([], mode="migrate"))
            self.assertEqual(self.call()[0], 64, "no fault")
            path = self.write()
            with open(path, "w", encoding="utf-8") as file:
                file.write("{")
            self.assertEqual(self.call(path)[0], 64, "half a file")
            self.assertEqual(self.call(os.path.join(self.folder, "none.json"))[0], 64)
        finally:
            sys.stderr = quiet


if __name__ == "__main__":
    unittest.main()
