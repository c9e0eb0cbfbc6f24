# SPDX-License-Identifier: Apache-2.0
"""Lists on a command line: types of argparse's options.

    sys.path.insert(0, …/harness/base);  import comma_list

    comma_list.words('a,b')      ['a', 'b']
    comma_list.numbers('1,2')    [1, 2]

An entry that is empty or no whole number is an error that names it."""

import argparse


def words(text):
    entries = text.split(",")
    for number, entry in enumerate(entries, 1):
        if not entry:
            raise argparse.ArgumentTypeError(f"entry {number} of '{text}' is empty")
    return entries


def numbers(text):
    for number, entry in enumerate(words(text), 1):
        if not entry.isascii() or not entry.isdigit():
            raise argparse.ArgumentTypeError(f"entry {number} of '{text}' is no whole number")
    return [int(entry) for entry in words(text)]
