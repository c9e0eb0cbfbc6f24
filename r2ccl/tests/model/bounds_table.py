#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes PROTOCOL.md's table of what the exploration covers, from what protocol_model_test prints.

    bounds_table.py BUILD            runs both explorations of BUILD (minutes, 1.6 GB), and writes the table
    bounds_table.py BUILD --check    only the shallow one; exit status 1 when the table says something else

States and steps depend on the sources alone."""
import argparse
import os
import pathlib
import re
import subprocess
import sys

PROTOCOL = pathlib.Path(__file__).resolve().parents[2] / 'protocol/PROTOCOL.md'
TABLE = re.compile(r'(<!-- bounds -->\n)(.*?)(<!-- end -->)', re.DOTALL)
RUN = re.compile(r'\[ RUN      \] \w+/\w+\.every_run_ends\w*/\d+\nholds: (?P<what>.*): (?P<states>\d+) states, (?P<steps>\d+) steps')
WHAT = re.compile(r'(?P<messages>\d+) messages of (?P<segments>\d+) segments?(?P<copies> from copies)?, (?P<paths>\d+) paths'
                  r'(?P<standby>, one standing by)?(?:, lanes: (?P<lanes>\d+))?(?:, (?P<most>.*))?$')
HEAD = ['| messages × segments | paths | standby | lanes | at most | states | steps |', '|---|---|---|---|---|---|---|']


def rows(output):
    for run in RUN.finditer(output):
        what = WHAT.match(run['what'])
        if not what:
            sys.exit(f"not understood: {run['what']}")
        yield (f"| {what['messages']} × {what['segments']}{', copies' if what['copies'] else ''} | {what['paths']} | {'yes' if what['standby'] else ''} "
               f"| {what['lanes'] or ''} | {what['most'] or ''} | {run['states']} | {run['steps']} |")


def explored(build, pattern):
    ran = subprocess.run([build / 'bin/protocol_model_test', f'--gtest_filter={pattern}'], capture_output=True, text=True,
                         env={**os.environ, 'GTEST_BRIEF': '0'})
    if ran.returncode != 0:
        sys.exit(ran.stdout[-2000:] + 'the exploration has failed')
    return list(rows(ran.stdout))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('build', type=pathlib.Path, help='build folder')
    parser.add_argument('--check', action='store_true', help='only check that the table is up to date')
    args = parser.parse_args()
    shallow = explored(args.build, '*every_run_ends*-*Deep*')
    text = PROTOCOL.read_text()
    there = TABLE.search(text)
    if args.check:
        missing = [row for row in shallow if row not in there[2]]
        print('\n'.join(['the table lacks:'] + missing) if missing else f'{len(shallow)} rows are as they are written')
        return 1 if missing else 0
    deep = explored(args.build, '*Deep*every_run_ends*')
    table = HEAD + shallow + ['| *deep:* | | | | | | |'] + deep
    PROTOCOL.write_text(TABLE.sub(lambda match: match[1] + '\n'.join(table) + '\n' + match[3], text))
    return 0


if __name__ == '__main__':
    sys.exit(main())
