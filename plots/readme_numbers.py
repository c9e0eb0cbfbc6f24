#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the measured numbers of the READMEs from the tables of results/, so that none is typed by hand.

    plots/readme_numbers.py            writes them
    plots/readme_numbers.py --check    only lists those that differ, and then ends with exit status 1

A Markdown file can have two kinds of marks:

    <!-- numbers: NAME --> … <!-- end -->    a table, on separate lines
    0.82<!--n:NAME--> %                      a number in a sentence

On every page of the tree each number that may have been measured needs a mark: numbers with a unit ('570 ms', 'ten seconds'), decimals,
percentages, and counts of what a run has ('36 rows', '0 wrong'). Versions, code and links are exempt. A number that was not measured has a
line in stated_numbers.csv instead:

    page,text,kind,file,evidence

'text' is the phrase of the page, 'kind' says what its numbers are: a 'setting' of the code or of a run, a 'bound' that a test allows, or a
'definition' (neither set nor measured). The line of a setting or a bound names the file that has it ('file') and words in that file
('evidence'). The check fails if the page no longer has the text, or the file no longer has the words, so no number outlives its code."""

import argparse
import csv
import os
import re
import sys

import inputs
import number_tables
from whole_file import whole_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What others write, and check: verdict_test, bounds_table.py, put_back.py.
WRITTEN = re.compile(r"<!-- metrics:.*?<!-- /metrics -->|<!-- (?:bounds|objects|put back|sizes) -->\n.*?<!-- end -->", re.DOTALL)
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
INLINE = re.compile(r"[^\s<>|(]*<!--n:([\w.-]+)-->")
UNIT = r"(?:ns|us|µs|ms|s|seconds?|minutes?|hours?|[kMG]?bit/s|[kMG]?B/s|[KMG]i?B|B|bytes|%)"
COUNTED = r"(?:wrong|rows|cases|runs|walks|cells|faults|elements|jobs|operations|seeds|pairs|transfers|samples)"
IN_WORDS = r"(?:half\s+an?|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|a\s+hundred|some\s+dozen)"
MEASURED = re.compile(rf"(?<![\w.,/^-])(?:\d+(?:\.\d+)?(?:(?:\s+(?:to|and|…)\s+|–)\d+(?:\.\d+)?)?\s*{UNIT}(?![\w/])|\d+\s+{COUNTED}\b|\d+\.\d+(?!\.?\w)"
                      rf"|{IN_WORDS}\s+(?:milli)?(?:seconds?|minutes?|hours?)\b(?!\s+(?:NIC|GPU|loss|fault)))")
VERSION = re.compile(r"\b(?:Apache\s+License|arXiv|NCCL|Linux|Ubuntu|Debian|perftest|[Vv]ersion)\s+\d+(?:\.\d+)*(?:(?:,|\s+to|\s+and)\s+\d+(?:\.\d+)+)*")
CODE = [re.compile(r"```.*?```", re.DOTALL), re.compile(r"(?:\A|(?<=\n\n))(?:    .*(?:\n|\Z))+"), re.compile(r"`[^`]*`"), re.compile(r"\]\([^)]*\)")]
STATED = os.path.join("plots", "stated_numbers.csv")
KINDS = ["setting", "bound", "definition"]


def written(text, results, name):
    """The text with all its numbers anew. BadInput: a mark that nobody knows."""
    def of(table, key, match):
        if key not in table:
            line = text[:match.start()].count("\n") + 1
            raise inputs.BadInput(f"{name}:{line}: no number is called '{key}'; there are {', '.join(sorted(table))}")
        return table[key](results)
    text = BLOCK.sub(lambda match: match.group(1) + of(number_tables.BLOCKS, match.group(2), match) + match.group(4), text)
    return INLINE.sub(lambda match: of(number_tables.NUMBERS, match.group(1), match) + f"<!--n:{match.group(1)}-->", text)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def phrase(text):
    """The text as a pattern: wherever its lines break."""
    return re.compile(r"\s+".join(re.escape(word) for word in text.split()))


def unmarked(text, stated=()):
    """[(line, number)] of the numbers that stand outside of marks, code and the phrases of 'stated'."""
    for one in stated:  # first, since a phrase may have code in it; not blank, since an indented line is code
        text = phrase(one).sub(lambda match: re.sub(r"[^\n]", "·", match.group(0)), text)
    for pattern in (*CODE, WRITTEN, BLOCK, INLINE, VERSION):
        text = pattern.sub(blank, text)
    return [(text[:found.start()].count("\n") + 1, " ".join(found.group(0).split())) for found in MEASURED.finditer(text)]


def read_stated(root=ROOT):
    """{page: [row of stated_numbers.csv]}. BadInput: a row that cannot be used."""
    pages = {}
    path = os.path.join(root, STATED)
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not os.path.isfile(os.path.join(root, row["page"])) or row["kind"] not in KINDS or not row["text"] or (row["kind"] != "definition") != bool(row["file"] and row["evidence"]):
                raise inputs.BadInput(f"{STATED}: '{row['text']}' needs a page of the tree and a kind ({', '.join(KINDS)}); settings and bounds need file and evidence")
            pages.setdefault(row["page"], []).append(row)
    return pages


def stale(text, rows, root=ROOT):
    """What is wrong with the rows of a page: [sentence]."""
    found = []
    for row in rows:
        if not phrase(row["text"]).search(text):
            found.append(f"no longer says '{row['text']}', which {STATED} has")
        elif not unmarked(row["text"]):
            found.append(f"'{row['text']}' in {STATED} has no number that needs it")
        if not row["file"]:
            continue
        try:
            with open(os.path.join(root, row["file"]), encoding="utf-8") as file:
                known = bool(phrase(row["evidence"]).search(file.read()))
        except OSError:
            known = False
        if not known:
            found.append(f"'{row['text']}': {row['file']} no longer has '{row['evidence']}'; mend the page and {STATED}")
    return found


def markdown_files():
    """All of the tree, without build folders and results of one's own runs; relative to its root."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", "runs", ".git")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".md")]
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="*", help="Markdown files (default: all in the tree that have marks)")
    parser.add_argument("--check", action="store_true", help="list the numbers that differ; write nothing")
    parser.add_argument("--results", default=os.path.join(ROOT, "results"), help="folder of the results")
    arguments = parser.parse_args()
    bad = 0
    try:
        stated, pages = read_stated(), markdown_files()
        for name in arguments.file or pages:
            path = os.path.join(ROOT, name)
            with open(path, encoding="utf-8") as file:
                old = file.read()
            new = written(old, arguments.results, name)
            if name in pages:
                rows = stated.get(name, [])
                complaints = [f"{name}:{line}: {found} is typed by hand: mark it, or say in {STATED} what it is (plots/readme_numbers.py --help)"
                              for line, found in unmarked(new, [row["text"] for row in rows])]
                complaints += [f"{name}: {what}" for what in stale(new, rows)]
                print("\n".join(complaints), end="\n" if complaints else "")
                bad += len(complaints)
            if new != old and arguments.check:
                line = next(number for number, (a, b) in enumerate(zip(old.split("\n") + [""], new.split("\n") + [""]), 1) if a != b)
                print(f"{name}:{line}: is not what the tables say; run plots/readme_numbers.py")
                bad += 1
            elif new != old:
                with whole_file(path) as part, open(part, "w", encoding="utf-8") as file:
                    file.write(new)
                print(f"{name}: written")
    except inputs.BadInput as error:
        print(f"readme_numbers.py: {error}", file=sys.stderr)
        return inputs.BAD_INPUT
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
