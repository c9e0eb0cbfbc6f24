#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Imports within r2ccl/ go downward only, pure packages stay pure, and what is a matter of time is decided there: channel/ states no duration. Nor may
it ask in more lines than now for a phase or a path's state, which is how decisions creep back. Reads every source of the core.

    imports_test.py R2CCL_FOLDER"""
import pathlib
import re
import sys

# From the top; packages of one line may include each other.
ORDER = [('plugin', 'nccl'), ('collective',), ('service',), ('channel',), ('path',), ('protocol',), ('balance', 'health', 'control'), ('topology',), ('verbs',), ('trace',), ('base',)]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
# No verbs, no clock, no threads. What travels between processes is plain data, wherever it is described.
PURE = ('protocol',)
IMPURE = re.compile(r'#include\s+(<(infiniband/|thread>|mutex>|condition_variable>|time\.h>|unistd\.h>|sys/|sodium|chrono>)'
                    r'|"r2ccl/(verbs/(?!port_address\.h)|trace/|base/(clock|log)\.h|service/|channel/|path/|topology/))')
# Carries out; how long what may take is decided in protocol/, where tests can look at it.
CARRIES_OUT = ('channel',)
DURATION = re.compile(r'constexpr\s+u?int64_t\s+k\w*Ns\b')
QUESTION = re.compile(r'\b(Phase|PathState)::')
MOST_QUESTIONS = 43  # lines; it may only fall


def questions(folder):
    return sum(bool(QUESTION.search(line)) for package in CARRIES_OUT for path in (folder / package).glob('*.[ch]*') for line in path.read_text().splitlines())


def wrong_lines(folder):
    for path in sorted(folder.rglob('*')):
        if path.suffix not in ('.h', '.cc'):
            continue
        package = path.relative_to(folder).parts[0]
        if package not in RANK or 'tests' in path.parts or path.stem.endswith('_test'):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'#include\s+"r2ccl/(\w+)/', line)
            if found and found.group(1) in RANK and found.group(1) != package and RANK[found.group(1)] < RANK[package]:
                yield f'{path}:{number}: {package}/ may not include {found.group(1)}/'
            if package in CARRIES_OUT and DURATION.search(line):
                yield f'{path}:{number}: {package}/ states no duration, protocol/ does: {line.strip()}'
            if package in PURE and IMPURE.match(line):
                yield f'{path}:{number}: {package}/ is pure: {line}'


def main():
    folder = pathlib.Path(sys.argv[1])
    for package in RANK:
        if package != 'nccl' and not (folder / package).is_dir():
            sys.exit(f'{folder} has no {package}/')
    wrong = list(wrong_lines(folder))
    asked = questions(folder)
    if asked != MOST_QUESTIONS:
        wrong.append(f'{CARRIES_OUT[0]}/ asks for phases and states of paths in {asked} lines, not {MOST_QUESTIONS}: '
                     + ('what decides belongs to protocol/' if asked > MOST_QUESTIONS else 'lower MOST_QUESTIONS, so that it stays so'))
    print('\n'.join(wrong) or 'imports go downward')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
