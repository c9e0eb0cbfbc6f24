#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No folders of the sources include each other in a circle, and harness/README.md says what its packages include:
reads every #include outside tests.

    rooms_test.py REPOSITORY"""
import collections
import os
import pathlib
import re
import sys

TREES = ('r2ccl', 'faultinject', 'harness')
TEST = re.compile(r'_test\.cc$|(^|/)(tests|testing|bench)/')


def includes(repository):
    """{folder: {folder that it includes: [one 'file includes header' each]}}."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for tree in TREES:
        for path in sorted((repository / tree).rglob('*')):
            name = path.relative_to(repository).as_posix()
            if path.suffix not in ('.h', '.cc', '.cu') or TEST.search(name):
                continue
            folder = os.path.dirname(name)
            for header in re.findall(rf'#include "((?:{"|".join(TREES)})/[^"]+)"', path.read_text()):
                if os.path.dirname(header) != folder and not TEST.search(header):
                    found[folder][os.path.dirname(header)].append(f'{name} includes {header}')
    return found


def circles(graph):
    """Sets of folders of which each is reached from each other one."""
    def reached(start):
        seen, todo = set(), [start]
        while todo:
            for folder in graph.get(todo.pop(), ()):
                if folder not in seen:
                    seen.add(folder)
                    todo.append(folder)
        return seen
    reach = {folder: reached(folder) for folder in list(graph)}
    done = set()
    for folder in sorted(reach):
        if folder in done or folder not in reach[folder]:
            continue
        circle = sorted(other for other in reach[folder] if folder in reach.get(other, ()))
        done.update(circle)
        yield circle


def unlike_the_table(repository, graph):
    """Where the table of packages in harness/README.md says otherwise; `workload` is told of engine by engine."""
    text = (repository / 'harness' / 'README.md').read_text()
    rows = dict(re.findall(r'^\| \[`([a-z_]+)`\]\([^)]*\) \|[^|]*\| (.*?) ?\|$', text, re.MULTILINE))
    packages = collections.defaultdict(set)
    for folder, others in graph.items():
        parts = folder.split('/')
        if parts[0] == 'harness':
            packages[parts[1]].update(other.split('/')[1] for other in others if other.startswith('harness/') and other.split('/')[1] != parts[1])
    for package in sorted(set(packages) - {'workload', 'cli'}):
        told = set(re.findall(r'`(?!r2ccl/)(\w+)(?:/\w+)?`', rows.get(package, '')))
        if told != packages[package]:
            yield f"harness/README.md, '{package}': it includes " + (', '.join(f'`{name}`' for name in sorted(packages[package])) or 'nothing')


def main():
    sample = {'a': {'b': ['']}, 'b': {'c': ['']}, 'c': {'b': ['']}}
    if list(circles(sample)) != [['b', 'c']]:
        sys.exit('a circle was not found in the sample')
    graph = includes(pathlib.Path(sys.argv[1]))
    if len(graph) < 20:
        sys.exit(f'only {len(graph)} folders with includes in {sys.argv[1]}')
    status = 0
    for circle in circles(graph):
        status = 1
        print('in a circle: ' + ', '.join(circle))
        for folder in circle:
            for other in circle:
                for line in graph[folder].get(other, ())[:3]:
                    print('    ' + line)
    for line in unlike_the_table(pathlib.Path(sys.argv[1]), graph):
        status = 1
        print(line)
    if status == 0:
        print(f'{len(graph)} folders, no circle')
    return status


if __name__ == '__main__':
    sys.exit(main())
