#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes PROTOCOL.md's tables of what the explorations cover, from what protocol_model_test and object_model_test print.

    bounds_table.py BUILD              runs all explorations of BUILD (minutes, 1.6 GB), and writes the tables
    bounds_table.py BUILD --objects    only those of single objects (seconds), and writes their table
    bounds_table.py BUILD --check      all but the deep one; exit status 1 when the tables say something else

States and steps depend on the sources alone."""
import argparse
import os
import pathlib
import re
import subprocess
import sys

PROTOCOL = pathlib.Path(__file__).resolve().parents[2] / 'protocol/PROTOCOL.md'
TABLE = re.compile(r'(<!-- bounds -->\n)(.*?)(<!-- end -->)', re.DOTALL)
OBJECTS = re.compile(r'(<!-- objects -->\n)(.*?)(<!-- end -->)', re.DOTALL)
RUN = re.compile(r'\[ RUN      \] \w+/\w+\.every_run_ends\w*/\d+\nholds: (?P<what>.*): (?P<states>\d+) states, (?P<steps>\d+) steps')
WHAT = re.compile(r'(?P<messages>\d+) messages of (?P<segments>\d+) segments?(?P<copies> from copies)?, (?P<paths>\d+) paths'
                  r'(?P<standby>, one standing by)?(?:, lanes: (?P<lanes>\d+))?(?:, (?P<most>.*))?$')
HEAD = ['| messages × segments | paths | standby | lanes | at most | states | steps |', '|---|---|---|---|---|---|---|']
OBJECT = re.compile(r'\[ RUN      \] (?P<object>\w+)Model\.|^holds: (?P<what>.*): (?P<states>\d+) states, (?P<steps>\d+) steps', re.MULTILINE)
OBJECTS_HEAD = ['| object | time, and at most | states | steps |', '|---|---|---|---|']


def rows(output):
    for run in RUN.finditer(output):
        what = WHAT.match(run['what'])
        if not what:
            sys.exit(f"not understood: {run['what']}")
        yield (f"| {what['messages']} × {what['segments']}{', copies' if what['copies'] else ''} | {what['paths']} | {'yes' if what['standby'] else ''} "
               f"| {what['lanes'] or ''} | {what['most'] or ''} | {run['states']} | {run['steps']} |")


def object_rows(output):
    name = ''
    for line in OBJECT.finditer(output):
        name = line['object'] or name
        if line['what']:
            yield f"| `{name}` | {line['what']} | {line['states']} | {line['steps']} |"


def explored(build, pattern, test='protocol_model_test', read=rows):
    ran = subprocess.run([build / 'bin' / test, f'--gtest_filter={pattern}'], capture_output=True, text=True,
                         env={**os.environ, 'GTEST_BRIEF': '0'})
    if ran.returncode != 0:
        sys.exit(ran.stdout[-2000:] + 'the exploration has failed')
    return list(read(ran.stdout))


def write(table, lines):
    PROTOCOL.write_text(table.sub(lambda match: match[1] + '\n'.join(lines) + '\n' + match[3], PROTOCOL.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('build', type=pathlib.Path, help='build folder')
    parser.add_argument('--check', action='store_true', help='only check that the tables are up to date')
    parser.add_argument('--objects', action='store_true', help='only the table of single objects')
    args = parser.parse_args()
    objects = explored(args.build, '-*wrong_decision*', 'object_model_test', object_rows)
    if args.objects:
        write(OBJECTS, OBJECTS_HEAD + objects)
        return 0
    shallow = explored(args.build, '*every_run_ends*-*Deep*')
    text = PROTOCOL.read_text()
    if args.check:
        missing = [row for row in shallow if row not in TABLE.search(text)[2]]
        missing += [row for row in objects if row not in OBJECTS.search(text)[2]]
        print('\n'.join(['the tables lack:'] + missing) if missing else f'{len(shallow) + len(objects)} rows are as they are written')
        return 1 if missing else 0
    deep = explored(args.build, '*Deep*every_run_ends*')
    write(TABLE, HEAD + shallow + ['| *deep:* | | | | | | |'] + deep)
    write(OBJECTS, OBJECTS_HEAD + objects)
    return 0


if __name__ == '__main__':
    sys.exit(main())
