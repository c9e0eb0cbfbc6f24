#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stalls_past_each_heal.py without a job: which runs it takes for whole."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stalls_past_each_heal as stalls  # noqa: E402  pylint: disable=wrong-import-position

WHY = "it struck before an operation had ended, so that no rate before it is known"


def fault(**changes):
    return {"sampled": True, "why_not_sampled": None, "why_no_rate_before": None, "t0_at_ms": 10, "healed_at_ms": 50, "recovered_at_ms": 250,
            "detect_ms": 200, "recover_ms": 240, "blackout_ms": 240, **changes}


def run(*faults):
    counts = {"witnessed": len(faults), "sampled": sum(each["sampled"] for each in faults), "recovered_after_heal": sum(each["recover_ms"] is not None for each in faults)}
    longest = max(each["blackout_ms"] or 0 for each in faults)
    return {"iteration_begin_ms": [0], "iteration_ms": [300], "faults": list(faults),
            "metrics": {"faults": counts, "recovery": {"blackout_ms": {"max": longest}}}}


class Flaws(unittest.TestCase):
    def test_four_stalls_of_their_whole_length_have_none(self):
        self.assertEqual(stalls.flaws(run(*[fault()] * 4)), [])

    def test_a_stall_that_is_cut_at_the_heal_has_one(self):
        self.assertEqual(len(stalls.flaws(run(fault(blackout_ms=40), *[fault()] * 3))), 1)

    def test_a_recovery_that_cannot_be_judged_is_left_out_and_its_blackout_and_detection_count(self):
        early = fault(why_no_rate_before=WHY, recover_ms=None, recovered_at_ms=None)
        self.assertEqual(stalls.flaws(run(early, *[fault()] * 3)), [])
        for short in ({"blackout_ms": 40}, {"detect_ms": None}):
            self.assertEqual(len(stalls.flaws(run({**early, **short}, *[fault()] * 3))), 1)


if __name__ == "__main__":
    unittest.main()
