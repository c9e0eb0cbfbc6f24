#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No folders of the sources include each other in a circle, and harness/README.md says what its packages include:
reads every #include outside tests. Tests include no package of the harness that includes theirs. No two classes have
the same name in the same namespace: a program that links both may run one's inline functions on the other.

    rooms_test.py REPOSITORY"""
import collections
import os
import pathlib
import re
import sys

TREES = ('r2ccl', 'faultinject', 'harness')
TEST = re.compile(r'_test\.cc$|(^|/)(tests|testing|bench)/')


# The tests of the engines run whole jobs.
WHOLE_JOBS = ('workload',)


def includes(repository, tests=False):
    """{folder: {folder that it includes: [one 'file includes header' each]}}; of tests, or of everything else."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for tree in TREES:
        for path in sorted((repository / tree).rglob('*')):
            name = path.relative_to(repository).as_posix()
            if path.suffix not in ('.h', '.cc', '.cu') or bool(TEST.search(name)) != tests:
                continue
            folder = os.path.dirname(name)
            for header in re.findall(rf'#include "((?:{"|".join(TREES)})/[^"]+)"', path.read_text()):
                if os.path.dirname(header) != folder and (tests or not TEST.search(header)):
                    found[folder][os.path.dirname(header)].append(f'{name} includes {header}')
    return found


CLASS = re.compile(r'^(?:template\b.*> *)?(?:struct|class|union|enum|enum class) +(\w+)(?: +final)?(?: *:[^:;{][^;{]*)? *\{', re.MULTILINE)
NAMESPACE = re.compile(r'^(?:inline )?namespace *([\w:]*) *\{$|^\} *// *namespace')


def classes_of(name, text):
    """Each class outside functions, classes and anonymous namespaces: (its whole name, file:line)."""
    around = []
    for number, line in enumerate(text.splitlines(), 1):
        if border := NAMESPACE.match(line):
            if line[0] == '}':
                around.pop()
            else:
                around.append(border[1])
        elif (found := CLASS.match(line)) and '' not in around:
            yield '::'.join([*around, found[1]]), f'{name}:{number}'


def same_names(repository):
    """Classes that are defined twice outside tests."""
    places = collections.defaultdict(list)
    for tree in TREES:
        for path in sorted((repository / tree).rglob('*')):
            name = path.relative_to(repository).as_posix()
            if path.suffix in ('.h', '.cc') and not TEST.search(name):
                for whole, place in classes_of(name, path.read_text()):
                    places[whole].append(place)
    if len(places) < 300:
        sys.exit(f'only {len(places)} classes in {repository}')
    return [f"{whole} is defined {len(where)} times: {', '.join(where)}" for whole, where in sorted(places.items()) if len(where) > 1]


def reached(graph, start):
    seen, todo = set(), [start]
    while todo:
        for folder in graph.get(todo.pop(), ()):
            if folder not in seen:
                seen.add(folder)
                todo.append(folder)
    return seen


def circles(graph):
    """Sets of folders of which each is reached from each other one."""
    reach = {folder: reached(graph, folder) for folder in list(graph)}
    done = set()
    for folder in sorted(reach):
        if folder in done or folder not in reach[folder]:
            continue
        circle = sorted(other for other in reach[folder] if folder in reach.get(other, ()))
        done.update(circle)
        yield circle


def packages_of(graph):
    """{package of the harness: those that it includes}."""
    packages = collections.defaultdict(set)
    for folder, others in graph.items():
        parts = folder.split('/')
        if parts[0] == 'harness':
            packages[parts[1]].update(other.split('/')[1] for other in others if other.startswith('harness/') and other.split('/')[1] != parts[1])
    return packages


def tests_upward(graph, tests):
    """Includes of tests that lead to a package from which theirs is reached."""
    packages = packages_of(graph)
    for folder, others in tests.items():
        for other, lines in others.items():
            if not (folder.startswith('harness/') and other.startswith('harness/')):
                continue
            package, its = folder.split('/')[1], other.split('/')[1]
            if its != package and package not in WHOLE_JOBS and package in reached(packages, its):
                yield from (f'{line}, and {its}/ includes {package}/' for line in lines)


def unlike_the_table(repository, graph):
    """Where the table of packages in harness/README.md says otherwise; `workload` is told of engine by engine."""
    text = (repository / 'harness' / 'README.md').read_text()
    rows = dict(re.findall(r'^\| \[`([a-z_]+)`\]\([^)]*\) \|[^|]*\| (.*?) ?\|$', text, re.MULTILINE))
    packages = packages_of(graph)
    for package in sorted(set(packages) - {'workload', 'cli'}):
        told = set(re.findall(r'`(?!r2ccl/)(\w+)(?:/\w+)?`', rows.get(package, '')))
        if told != packages[package]:
            yield f"harness/README.md, '{package}': it includes " + (', '.join(f'`{name}`' for name in sorted(packages[package])) or 'nothing')


def main():
    sample = {'a': {'b': ['']}, 'b': {'c': ['']}, 'c': {'b': ['']}}
    if list(circles(sample)) != [['b', 'c']]:
        sys.exit('a circle was not found in the sample')
    sample = {'harness/b': {'harness/a': ['']}}
    if len(list(tests_upward(sample, {'harness/a/testing': {'harness/b': ['x']}}))) != 1 or list(tests_upward(sample, {'harness/b': {'harness/a/testing': ['x']}})):
        sys.exit('only the upward include of the sample should be found')
    sample = 'namespace a {\nstruct X {\n};\nclass Y;\nclass Z final : public X {\nnamespace {\nstruct Hidden {\n}  // namespace\n}  // namespace a\nenum class E : int {'
    if list(classes_of('f', sample)) != [('a::X', 'f:2'), ('a::Z', 'f:5'), ('E', 'f:10')]:
        sys.exit(f"of the sample's classes these were found: {list(classes_of('f', sample))}")
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
    tests = includes(pathlib.Path(sys.argv[1]), tests=True)
    if len(tests) < 20:
        sys.exit(f'only {len(tests)} folders with tests in {sys.argv[1]}')
    for line in tests_upward(graph, tests):
        status = 1
        print(line)
    for line in unlike_the_table(pathlib.Path(sys.argv[1]), graph):
        status = 1
        print(line)
    for line in same_names(pathlib.Path(sys.argv[1])):
        status = 1
        print(line)
    if status == 0:
        print(f'{len(graph)} folders, no circle')
    return status


if __name__ == '__main__':
    sys.exit(main())
