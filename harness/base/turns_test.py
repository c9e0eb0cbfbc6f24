#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""turns.py has the sides that the jobs have: testing/turns.txt, which harness/scenario/turns_test.cc follows, too."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import turns  # noqa: E402  pylint: disable=wrong-import-position


def table():
    """One round of each number of copies."""
    rounds = {}
    with open(os.path.join(HERE, "testing", "turns.txt"), encoding="utf-8") as file:
        for copies, sides in (line.split() for line in file if not line.startswith("#")):
            rounds[int(copies)] = rounds.get(int(copies), "") + sides
    return rounds


class Turns(unittest.TestCase):
    def test_sides_are_those_of_the_table_in_every_round(self):
        self.assertEqual(len(table()), 4)
        for copies, sides in table().items():
            self.assertEqual("".join(str(turns.side(i, copies)) for i in range(3 * len(sides))), 3 * sides, copies)
            self.assertEqual(turns.whole_rounds(len(sides), copies), len(sides))

    def test_jobs_have_whole_rounds(self):
        self.assertEqual([turns.whole_rounds(n) for n in (1, 32, 33, 96)], [32, 32, 64, 96])
        self.assertEqual([turns.whole_rounds(n, 2) for n in (1, 64, 65)], [64, 64, 128])

    def test_times_of_whole_turns_go_to_their_sides(self):
        mine, other = turns.by_side([turns.side(i) for i in range(80)], 1, 79)
        self.assertEqual((mine, other), ([0] * 24, [1] * 24))  # of the operations 16 to 63
        self.assertEqual(turns.by_side(list(range(32)), 17), ([], []))
        self.assertEqual(turns.by_side(list(range(32)), 0, 16), ([0, 1, 2, 3, 12, 13, 14, 15], list(range(4, 12))))


if __name__ == "__main__":
    unittest.main()
