#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""walk.py without jobs: that shrinking finds the faults that a failure needs, what counts as a path change, what an interruption leaves.

r2bench is a small program here that fails exactly when all given faults are in the scenario, or never ends.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import walk  # noqa: E402  pylint: disable=wrong-import-position

WALK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "walk.py")
FAKE = """\
    #!{python} -SE
    import json, os, sys, time
    if sys.argv[1] == "--version":
        print("r2bench, built from commit 0123456789")
        sys.exit(0)
    with open({runs!r}, "a") as runs:
        runs.write("run\\n")
    with open(sys.argv[2]) as file:
        lines = [line.strip() for line in file if line.strip().startswith("- ")]
    if any("seed: " + seed in open(sys.argv[2]).read() for seed in {hanging!r}):
        time.sleep(100)
    fails = bool({needed!r}) and all(fault in lines for fault in {needed!r})
    out = sys.argv[sys.argv.index("--out") + 1]
    os.makedirs(out)
    result = json.loads({result!r})
    if fails:
        result["verdict"] = "fail"
        result["runs"][0]["metrics"]["correctness"] = {{"exact": False, "wrong_elements": 1}}
    with open(os.path.join(out, "result.json"), "w") as file:
        json.dump(result, file)
    with open(os.path.join(out, "events.jsonl"), "w") as file:
        file.write({events!r})
    sys.exit(1 if fails else 0)
"""


def result(verdict="pass", doubts=(), kinds=None, of_expectation=None, planned=40, witnessed=40, trace_lost=0, left_out=0, exact=True, written=0):
    """Each of `doubts` is of a kind of its own, where `kinds` says nothing else."""
    return {"verdict": verdict, "doubts": list(doubts), "doubt_kinds": list(doubts if kinds is None else kinds),
            "expectations": [{"name": "migrate.lost", "got": "?", "doubt": of_expectation}],
            "runs": [{"outcome": "ok", "faults": [], "trace_lost": trace_lost, "events": {"written": written, "left_out": left_out},
                      "metrics": {"correctness": {"exact": exact}, "faults": {"planned": planned, "witnessed": witnessed}}}]}


class Fake:
    """A program in the place of r2bench, in a folder of its own. It fails when all of `needed` are in the scenario, and hangs with the seeds `hanging`."""

    def __init__(self, needed=(), hanging=(), says=None, says_event=None):
        self.folder = tempfile.TemporaryDirectory(prefix="r2bench-walk-test-")
        self.path, self.runs_file = (os.path.join(self.folder.name, name) for name in ("fake", "runs"))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(FAKE).format(python=sys.executable, runs=self.runs_file, needed=list(needed), hanging=[str(seed) for seed in hanging],
                                                            result=json.dumps(says or result()), events=json.dumps(says_event) + "\n" if says_event else ""))
        os.chmod(self.path, 0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def runs(self):
        with open(self.runs_file, encoding="utf-8") as file:
            return len(file.readlines())


def lines_of(job, faults):
    return [line.strip() for line in job.text(faults).splitlines() if line.strip().startswith("- ")]


class Shrinking(unittest.TestCase):
    def test_finds_exactly_the_two_faults_that_a_failure_needs(self):
        for seed, pair in ((1, (0, 39)), (3, (19, 20)), (4, (7, 31))):
            with self.subTest(seed=seed, pair=pair):
                job = walk.Walk(seed, 40)
                needed = [job.faults[i] for i in pair]
                with Fake(needed=lines_of(job, needed)) as fake, tempfile.TemporaryDirectory() as folder:
                    self.assertEqual(walk.shrink(fake.path, job, folder, tries=60), needed)
                    self.assertLessEqual(fake.runs(), 60)

    def test_keeps_the_faults_when_tries_run_out(self):
        job = walk.Walk(1, 40)
        with Fake(needed=lines_of(job, [job.faults[3], job.faults[30]])) as fake, tempfile.TemporaryDirectory() as folder:
            left = walk.shrink(fake.path, job, folder, tries=3)
            self.assertEqual(fake.runs(), 3)
        self.assertTrue({job.faults[3], job.faults[30]} <= set(left))


def fault(at, kind="port_down", target="node0/nic0", witnessed=True):
    return {"kind": kind, "target": target, "t0_at_ms": at, "witnessed": witnessed}


def migration(at, replayed, end=("node0/rank0", 1), nic=0, path=1, epoch=1, planned=0, by=2):
    """The events of a migration at one end; `replayed` None: a receiver's."""
    source, channel = end
    own = {"source": source, "channel": channel, "nic": nic}
    events = [own | {"at_ms": at, "event": "fence_started", "a": by, "b": path, "c": planned},
              own | {"at_ms": at, "event": "migration_started", "a": epoch, "b": path, "c": 0}]
    if replayed is not None:
        events.append(own | {"at_ms": at + 1, "event": "replayed", "a": replayed, "b": 4096 * replayed, "c": path + 1})
    return events


def count(faults, *migrations):
    return walk.path_changes(faults, sorted(sum(migrations, []), key=lambda e: e["at_ms"]), 500)


class NewKinds(unittest.TestCase):
    """A kind of fault that walk.py knows nothing of is walked as its own examples say."""

    def said(self, ends, examples):
        kind = {"name": "pause_storm", "ends": ends, "examples": [{"name": "x", "parameters": text} for text in examples]}
        with unittest.mock.patch.dict(walk.fault_kinds.KINDS, pause_storm=kind):
            return {walk.parameters("pause_storm", random.Random(seed), 30) for seed in range(20)}

    def test_it_lasts_for_a_time_if_it_has_to_be_healed(self):
        self.assertEqual(self.said("when_healed", ["quanta: 7", ""]), {", quanta: 7, for: 30 ms", ", for: 30 ms"})
        self.assertEqual(self.said("when_healed", ["for: 300 ms"]), {", for: 300 ms"})

    def test_one_that_ends_by_itself_says_what_its_examples_say(self):
        self.assertEqual(self.said("after_strikes", ["count: 2", "status: X"]), {", count: 2", ", status: X"})
        self.assertEqual(self.said("after_strikes", []), {""})

    def test_it_is_walked_if_it_takes_something_of_a_nic_or_harms_work_under_way(self):
        def walked(takes, harm, strikes, outside=False):
            return walk.is_walked({"takes": takes, "outside": outside, "examples": [{"harm": harm, "strikes": strikes}]})

        self.assertTrue(walked("port", "breaks", "anything"))
        self.assertTrue(walked("speed", "harmless", "work"))
        self.assertTrue(walked("nothing", "may_break", "receives"))
        self.assertFalse(walked("nothing", "may_break", "set_up"))
        self.assertFalse(walked("nothing", "may_break", "anything"))
        self.assertFalse(walked("nothing", "harmless", "two_queue_pairs"))
        self.assertFalse(walked("nothing", "none", "work"))
        self.assertFalse(walked("port", "breaks", "anything", outside=True))

    def test_in_mode_3_no_message_is_seen_and_none_is_counted_as_doubled(self):
        self.assertIn("lost: 0, duplicated: 0}", walk.Walk(1, 1).text())
        self.assertIn("lost: 0}", walk.Walk(1, 1, mode="allreduce").text())

    def test_what_shows_only_while_a_job_connects_or_nowhere_is_not_walked(self):
        self.assertEqual(walk.fault_kinds.names(outside=False) - set(walk.ALSO) - set(walk.USUAL),
                         {"async_event", "connect_fail", "gid_change", "noop", "reg_fail", "reorder"})

    def test_all_kinds_that_are_walked_are_declared_or_made_of_one_that_is(self):
        for kind in walk.ALSO + walk.USUAL:
            self.assertIn("blackhole" if kind == "one_way" else kind, walk.fault_kinds.KINDS)
            self.assertIsInstance(walk.parameters(kind, random.Random(1), 30), str)


class Counting(unittest.TestCase):
    def test_a_fence_whose_sender_replays_counts(self):
        self.assertEqual(count([fault(10)], migration(12, 3)), 1)

    def test_an_idle_path_does_not(self):
        self.assertEqual(count([fault(10)], migration(12, 0)), 0)

    def test_planned_early_late_and_other_ones_do_not(self):
        self.assertEqual(count([fault(10)], migration(12, 3, planned=1)), 0)
        self.assertEqual(count([fault(10)], migration(9, 3)), 0)
        self.assertEqual(count([fault(10)], migration(511, 3)), 0)
        self.assertEqual(count([fault(10)], migration(12, 3, nic=1)), 0)
        self.assertEqual(count([fault(10)], migration(12, 3, end=("node1/rank1", 1))), 0)
        self.assertEqual(count([fault(10, kind="throttle")], migration(12, 3)), 0)
        self.assertEqual(count([fault(10, witnessed=False)], migration(12, 3)), 0)

    def test_a_fence_explains_the_nearest_fault_before_it_and_no_other(self):
        self.assertEqual(count([fault(10), fault(20)], migration(22, 3)), 1)
        # Two ends of channels that one fault struck: still one fault, and not the earlier one.
        self.assertEqual(count([fault(10), fault(20)], migration(22, 3), migration(23, 2, end=("node0/rank0", 2))), 1)
        self.assertEqual(count([fault(10), fault(20)], migration(12, 3), migration(23, 2, end=("node0/rank0", 2))), 2)

    def test_a_receivers_fence_is_joined_to_its_senders(self):
        receiver = migration(12, None, end=("node0/rank0", 4))
        sender = ("node1/rank1", 7)
        self.assertEqual(count([fault(10)], receiver, migration(12.1, 2, end=sender)), 1)
        self.assertEqual(count([fault(10)], receiver, migration(12.1, 0, end=sender)), 0)
        self.assertEqual(count([fault(10)], receiver, migration(12.1, 2, end=sender, epoch=2)), 0)
        self.assertEqual(count([fault(10)], receiver), 0)
        elsewhere = [{"source": sender[0], "channel": sender[1], "nic": 0, "at_ms": 0, "event": "path_opening", "a": 1, "b": 1, "c": 0}]
        self.assertEqual(count([fault(10)], receiver, elsewhere, migration(12.1, 2, end=sender)), 0)

    def test_where_several_senders_fit_all_must_have_replayed(self):
        receiver = migration(12, None, end=("node0/rank0", 4))
        a, b = ("node1/rank1", 7), ("node1/rank1", 8)
        self.assertEqual(count([fault(10)], receiver, migration(12.1, 2, end=a), migration(12.2, 0, end=b)), 0)
        self.assertEqual(count([fault(10)], receiver, migration(12.1, 2, end=a), migration(12.2, 1, end=b)), 1)

    def test_a_lost_acknowledgement_is_answered_by_the_ledger(self):
        lost = [fault(10, kind="ack_lost")]
        self.assertEqual(count(lost, migration(12, 0, by=walk.COMPLETION)), 1)
        self.assertEqual(count(lost, migration(12, 0, by=4)), 0)  # the peer's word tells nothing of this end's work requests


class Judging(unittest.TestCase):
    def judged(self, of_run):
        with tempfile.TemporaryDirectory() as out:
            with open(os.path.join(out, "result.json"), "w", encoding="utf-8") as file:
                json.dump(of_run, file)
            with open(os.path.join(out, "events.jsonl"), "w", encoding="utf-8") as file:
                file.writelines(json.dumps({"mode": "migrate", "time_ns": 0} | event) + "\n" for event in migration(12, 3))
            return walk.judge(0, "", out, 1)

    def test_a_verdict_counts(self):
        self.assertEqual(self.judged(result(written=3)), (None, 0, 1))
        wrong, changes, migrated = self.judged(result(verdict="fail"))
        self.assertIn("verdict fail", wrong)
        self.assertNotIsInstance(wrong, walk.Unknown)
        self.assertEqual((changes, migrated), (0, 0))

    def test_faults_that_struck_nothing_are_no_doubt(self):
        self.assertEqual(self.judged(result(verdict="unknown", doubts=["38 of 40"], kinds=["fault_not_seen"], of_expectation="fault_not_seen", witnessed=38, written=3))[0], None)

    def test_any_other_doubt_is_one(self):
        for of_run, said in ((result(verdict="unknown", doubts=["it gave up"], written=3), "it gave up"),
                             (result(verdict="unknown", doubts=["38 of 40", "it gave up"], kinds=["fault_not_seen", "faults_not_struck"], witnessed=38, written=3), "it gave up"),
                             (result(verdict="unknown", doubts=["38 of 40"], kinds=["fault_not_seen"], of_expectation="no_value", witnessed=38, written=3), "migrate.lost: ?"),
                             (result(verdict="unknown", witnessed=38, written=3), "verdict unknown"),
                             (result(verdict="unknown", doubts=["lost", "38"], witnessed=38, trace_lost=5), "5 trace events were lost"),
                             (result(left_out=9), "9 events are not in events.jsonl"),
                             (result(written=4), "events.jsonl holds 3 events, and 4 were written")):
            wrong, changes, migrated = self.judged(of_run)
            self.assertIsInstance(wrong, walk.Unknown)
            self.assertIn(said, wrong)
            self.assertEqual((changes, migrated), (0, 0))

    def test_the_exit_status_tells_failed_from_unknown(self):
        for says, wanted, words in ((result(), 0, "failed 0, unknown 0, slow 0"), (result(verdict="fail"), 1, "failed 2, unknown 0, slow 0"),
                                    (result(trace_lost=1), 2, "failed 0, unknown 2")):
            with Fake(says=says) as fake:
                done = subprocess.run([sys.executable, WALK, fake.path, "--walks", "2", "--seed", "1", "--least", "0", "--tries", "0",
                                       "--keep", fake.folder.name], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, wanted, done.stdout + done.stderr)
            self.assertIn(words, done.stdout)


class Slow(unittest.TestCase):
    """Operations of 2 s each until the job's limit."""

    def says(self, error=walk.TOO_LONG + " 170 s; node0/rank0 has begun 86", ends_ms=None, exact=True):
        told = result(verdict="fail", exact=exact, written=1)
        ends = ends_ms or [2000 * i for i in range(1, 86)]
        told["runs"][0] |= {"outcome": "hang", "error": error, "iteration_begin_ms": [end - 2000 for end in ends], "iteration_ms": [2000] * len(ends)}
        return told

    ENDED = {"event": "hang", "source": "runner", "at_ms": 170500, "c": 0}

    def judged(self, told, slower=1, events=(ENDED,)):
        with tempfile.TemporaryDirectory() as out:
            for name, text in (("result.json", json.dumps(told)), ("events.jsonl", "".join(json.dumps(event) + "\n" for event in events))):
                with open(os.path.join(out, name), "w", encoding="utf-8") as file:
                    file.write(text)
            return walk.judge(1, "", out, slower)[0]

    def test_a_job_whose_operations_go_on_until_its_limit_is_slow(self):
        self.assertIsInstance(self.judged(self.says()), walk.Slow)

    def test_the_runner_says_it_in_these_words(self):
        with open(os.path.join(os.path.dirname(WALK), "..", "run", "job.cc"), encoding="utf-8") as file:
            self.assertIn(f'end_as_hang("{walk.TOO_LONG} ', file.read())

    def test_a_job_that_stood_still_is_a_hang(self):
        for why, told in (("nothing moved", self.says(error="nothing moved for 10000 ms")),
                          ("until the limit", self.says(ends_ms=[2000 * i for i in range(1, 80)])),  # 158 s, and 13 s of nothing
                          ("in between", self.says(ends_ms=[2000 * i for i in range(1, 86) if not 20 <= i < 25])),  # 12 s from one to the next
                          ("from the beginning", self.says(ends_ms=[12000 + 2000 * i for i in range(1, 80)])),
                          ("nothing ended", self.says(ends_ms=[171000])),
                          ("wrong data", self.says(exact=False))):
            with self.subTest(why=why):
                wrong = self.judged(told)
                self.assertIn("hang, verdict fail", wrong)
                self.assertNotIsInstance(wrong, walk.Unknown)

    def test_a_job_of_which_the_log_does_not_say_when_it_was_ended_is_a_hang(self):
        before = {"event": "fence_started", "source": "node0/rank0", "at_ms": 169000, "c": 0}
        for why, events in (("nothing", ()), ("an event of a rank", (before,)), ("left out", (before, {"mode": "migrate", "event": "events_left_out", "a": 5}))):
            with self.subTest(why=why):
                wrong = self.judged(self.says(), events=events)
                self.assertIn("hang, verdict fail", wrong)
                self.assertNotIsInstance(wrong, walk.Unknown)

    def test_the_bound_is_that_of_the_slow_motion(self):
        told = self.says(ends_ms=[2000 * i for i in range(1, 80)])
        self.assertIsInstance(self.judged(told, slower=2), walk.Slow)

    def test_it_is_no_passed_walk_and_counted_apart(self):
        told = self.says()
        told["runs"][0]["events"]["written"] = 0
        with Fake(says=told, says_event=self.ENDED) as fake:
            record = os.path.join(fake.folder.name, "record.jsonl")
            done = subprocess.run([sys.executable, WALK, fake.path, "--walks", "2", "--seed", "70001", "--record", record, "--keep", fake.folder.name],
                                  capture_output=True, text=True, check=False)
            with open(record, encoding="utf-8") as file:
                line = json.loads(file.read())
            kept = sorted(name for name in os.listdir(fake.folder.name) if name.endswith(".yaml"))
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual((line["walks"], line["faults"], line["failed"], line["unknown"], line["slow"], line["slow_seeds"]), (0, 0, 0, 0, 2, [70001, 70002]))
        self.assertIn("walks 0, failed 0, unknown 0, slow 2", done.stdout)
        self.assertEqual(kept, ["walk-70001.yaml", "walk-70002.yaml"])


class Interrupting(unittest.TestCase):
    def interrupt(self, seed, hanging, after_lines):
        """(exit status, last line, record) of three walks of which some never end, and a SIGTERM."""
        with Fake(hanging=hanging) as fake:
            record = os.path.join(fake.folder.name, "record.jsonl")
            command = [sys.executable, WALK, fake.path, "--walks", "3", "--seed", str(seed), "--jobs", "3", "--least", "0", "--record", record,
                       "--keep", fake.folder.name]
            began = time.monotonic()
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                lines = [process.stdout.readline() for _ in range(after_lines)]
                if after_lines == 0:
                    while not os.path.exists(fake.runs_file) or fake.runs() < 3:
                        time.sleep(0.02)
                else:
                    time.sleep(1 + 3 * (time.monotonic() - began))  # more than three times what the finished ones took
                process.send_signal(signal.SIGTERM)
                lines += process.stdout.readlines()
                status = process.wait(timeout=30)
            with open(record, encoding="utf-8") as file:
                kept = [name for name in os.listdir(fake.folder.name) if name.startswith("walk-")]
                return status, lines[-1], json.loads(file.read()), kept

    def test_walks_under_way_are_counted(self):
        status, last, record, kept = self.interrupt(70001, hanging=(70001, 70002, 70003), after_lines=0)
        self.assertEqual((status, record["walks"], record["interrupted"], record["overdue"]), (0, 0, 3, 0))
        self.assertEqual(record["interrupted_seeds"], [70001, 70002, 70003])
        self.assertIn("interrupted 3", last)
        self.assertEqual(kept, [])
        self.assertEqual(record["cores"], len(os.sched_getaffinity(0)))
        self.assertEqual(record["commit"], "0123456789")

    def test_one_that_takes_far_longer_than_the_others_is_not_lost(self):
        status, last, record, kept = self.interrupt(70001, hanging=(70002,), after_lines=2)
        self.assertEqual((status, record["walks"], record["interrupted"], record["overdue"]), (1, 2, 1, 1))
        self.assertIn("overdue 1", last)
        self.assertEqual(kept, ["walk-70002.yaml"])


if __name__ == "__main__":
    unittest.main()
