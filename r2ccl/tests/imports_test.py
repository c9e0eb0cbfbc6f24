#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Imports within r2ccl/ go downward only, and pure packages stay pure. channel/ carries out what protocol/ decides: it states no duration, names no phase
of a migration, and names a path's state only where it sets it. Reads every source of the core.

    imports_test.py R2CCL_FOLDER"""
import pathlib
import re
import sys

# From the top; packages of one line may include each other.
ORDER = [('plugin', 'nccl'), ('collective',), ('service',), ('channel',), ('path',), ('protocol',), ('balance', 'health', 'control'), ('topology',), ('verbs',), ('trace',), ('base',)]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
# No verbs, no sockets, no clock, no threads. Plain data may be described anywhere.
PURE = ('protocol',)
IMPURE = re.compile(r'#include\s+(<(infiniband/|thread>|mutex>|condition_variable>|time\.h>|unistd\.h>|sys/|sodium|chrono>)'
                    r'|"r2ccl/(verbs/(?!port_address\.h)|control/(?!endpoint\.h)|trace/|base/(clock|log)\.h|service/|channel/|path/|topology/))')
# Carries out; how long what may take is decided in protocol/, where tests can look at it.
CARRIES_OUT = ('channel',)
DURATION = re.compile(r'constexpr\s+u?int64_t\s+k\w*Ns\b')
# Who asks for those decides by them. MigrationEnd::phase() is handed on as it is.
QUESTION = re.compile(r'\bPhase::k|(?<!state = )\bPathState::k|\bphase\(\)\s*[=!]=')


def wrong_lines(folder):
    for path in sorted(folder.rglob('*')):
        if path.suffix not in ('.h', '.cc'):
            continue
        parts = path.relative_to(folder).parts
        package = parts[0]
        if package not in RANK or 'testing' in parts or path.stem.endswith('_test'):  # tests include what they need
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'#include\s+"r2ccl/(\w+)/', line)
            if found and found.group(1) in RANK and found.group(1) != package and RANK[found.group(1)] < RANK[package]:
                yield f'{path}:{number}: {package}/ may not include {found.group(1)}/'
            if package in CARRIES_OUT and DURATION.search(line):
                yield f'{path}:{number}: {package}/ states no duration, protocol/ does: {line.strip()}'
            if package in CARRIES_OUT and QUESTION.search(line):
                yield f'{path}:{number}: {package}/ decides nothing by a phase or the state of a path, protocol/ does: {line.strip()}'
            if package in PURE and IMPURE.match(line):
                yield f'{path}:{number}: {package}/ is pure: {line}'


def main():
    folder = pathlib.Path(sys.argv[1])
    for package in RANK:
        if package != 'nccl' and not (folder / package).is_dir():
            sys.exit(f'{folder} has no {package}/')
    wrong = list(wrong_lines(folder))
    print('\n'.join(wrong) or 'imports go downward')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
