#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the measured numbers of the READMEs from the tables of results/, so that none is typed by hand.

    plots/readme_numbers.py            writes them
    plots/readme_numbers.py --check    only says which differ; exit status 1 then

Two marks in a Markdown file:

    <!-- numbers: NAME --> … <!-- end -->    a table, on lines of its own
    0.82<!--n:NAME--> %                      a number in a sentence

In results/README.md a number with a decimal point or a per cent sign that stands outside of marks and of code is an error."""

import argparse
import os
import re
import sys

import inputs
import number_tables

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
INLINE = re.compile(r"[^\s<>|(]*<!--n:([\w.-]+)-->")
MEASURED = re.compile(r"(?<![\w./-])\d+(?:\.\d+(?!\.?\w)|(?:\.\d+)? ?%)")
ONLY_MARKED = ["results/README.md"]


def written(text, results, name):
    """The text with all its numbers anew. BadInput: a mark that nobody knows."""
    def of(table, key, match):
        if key not in table:
            line = text[:match.start()].count("\n") + 1
            raise inputs.BadInput(f"{name}:{line}: no number is called '{key}'; there are {', '.join(sorted(table))}")
        return table[key](results)
    text = BLOCK.sub(lambda match: match.group(1) + of(number_tables.BLOCKS, match.group(2), match) + match.group(4), text)
    return INLINE.sub(lambda match: of(number_tables.NUMBERS, match.group(1), match) + f"<!--n:{match.group(1)}-->", text)


def unmarked(text):
    """[(line, number)] of the measured numbers that stand outside of marks and of code."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))  # noqa: E731
    for pattern in (BLOCK, INLINE, re.compile(r"```.*?```", re.DOTALL), re.compile(r"^    .*$", re.MULTILINE), re.compile(r"`[^`]*`"), re.compile(r"\]\([^)]*\)")):
        text = pattern.sub(blank, text)
    return [(number, found) for number, line in enumerate(text.split("\n"), 1) for found in MEASURED.findall(line)]


def markdown_files():
    """All of the tree, without build folders and results of one's own runs; relative to its root."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", "runs", ".git")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".md")]
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="*", help="Markdown files (all of the tree that have marks)")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--results", default=os.path.join(ROOT, "results"), help="folder of the results")
    arguments = parser.parse_args()
    bad = 0
    try:
        for name in arguments.file or markdown_files():
            path = os.path.join(ROOT, name)
            with open(path, encoding="utf-8") as file:
                old = file.read()
            new = written(old, arguments.results, name)
            for line, found in unmarked(new) if name in ONLY_MARKED else []:
                print(f"{name}:{line}: {found} is typed by hand; mark it: plots/readme_numbers.py --help")
                bad += 1
            if new != old and arguments.check:
                line = next(number for number, (a, b) in enumerate(zip(old.split("\n") + [""], new.split("\n") + [""]), 1) if a != b)
                print(f"{name}:{line}: is not what the tables say; run plots/readme_numbers.py")
                bad += 1
            elif new != old:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(new)
                print(f"{name}: written")
    except inputs.BadInput as error:
        print(f"readme_numbers.py: {error}", file=sys.stderr)
        return inputs.BAD_INPUT
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
