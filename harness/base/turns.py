# SPDX-License-Identifier: Apache-2.0
"""Which side of a job an operation is of, where two sides take turns (harness/scenario/turns.h)."""

TURN = 16  # operations of two sets of communicators: four of the one, eight of the other, four of the one


def side(operation, copies=1):
    """0: the side that the mode is called after; 1: the other. `copies`: sets of each side, as in the scenario."""
    return (operation // 4 ^ operation // 8 ^ operation // TURN // copies) & 1


def whole_rounds(operations, copies=1):
    """So many operations at least, of which each set has begun its turns as often as the others."""
    round_ = 2 * TURN * copies
    return -(-operations // round_) * round_


def by_side(times, first, end=None, copies=1):
    """Times of the operations [first, end) of each side, of whole turns only."""
    end = len(times) if end is None else end
    found = [], []
    for number in range(-(-first // TURN) * TURN, end // TURN * TURN):
        found[side(number, copies)].append(times[number])
    return found
