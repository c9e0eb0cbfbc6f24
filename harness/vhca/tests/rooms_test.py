#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rooms of the virtual HCA are those of its README, and includes go downward only: reads every #include outside
tests.

    rooms_test.py VHCA_FOLDER"""
import pathlib
import re
import sys

# What the device takes from outside its folder. It knows nothing of faults and of the harness.
FROM_OUTSIDE = {'faultinject/plan/event_element.h'}
OURS = re.compile(r'#include "((?:harness|faultinject|r2ccl|cmake)/[^"]+)"')


def table(readme):
    """[(room, [unit …])] from the table of rooms, which begins at the top."""
    rows = re.findall(r'^\| `([a-z]+)/` \| (.*?) \|', readme, re.MULTILINE)
    return [(room, re.findall(r'`([\w.]+)`', units)) for room, units in rows]


def wrong_includes(name, text, rank):
    """Sentences on the includes of one file; `name` is its path in the folder, `rank` counts from the top."""
    room = name.split('/')[0]
    for header in OURS.findall(text):
        other = re.match(r'harness/vhca/(\w+)/', header)
        if not other:
            if header not in FROM_OUTSIDE:
                yield f'{name} includes {header}, which is no part of the device'
        elif other.group(1) not in rank:
            yield f'{name} includes {header}, which is in no room'
        elif rank[other.group(1)] < rank[room]:
            yield f'{name} includes {header}: {room}/ lies below {other.group(1)}/'


def wrong(folder):
    rooms = table((folder / 'README.md').read_text())
    rank = {room: number for number, (room, _) in enumerate(rooms)}
    units = {(room, unit) for room, names in rooms for unit in names}
    found = set()
    for path in sorted(folder.rglob('*')):
        name = path.relative_to(folder).as_posix()
        room = name.split('/')[0]
        if path.suffix not in ('.h', '.cc', '.map') or path.stem.endswith('_test') or room in ('tests', 'testing', 'bench'):
            continue
        if room not in rank:
            yield f'{name} is in none of the rooms of README.md'
            continue
        found.add((room, path.name if path.suffix == '.map' else path.stem))
        yield from wrong_includes(name, path.read_text(), rank)
    if len(found) < 30:
        yield f'only {len(found)} units in {folder}'
    yield from (f'README.md does not list {unit} under {room}/' for room, unit in sorted(found - units))
    yield from (f'README.md lists {unit} under {room}/, where it is not' for room, unit in sorted(units - found))


def check_itself():
    """The samples that must be found, and the one that must not."""
    rank = {'above': 0, 'below': 1}
    samples = {'harness/vhca/above/a.h': 1, 'harness/vhca/below/b.h': 0, 'harness/vhca/gone.h': 1, 'harness/vhca/gone/c.h': 1,
               'harness/launch/d.h': 1, 'faultinject/plan/plan.h': 1, 'r2ccl/base/e.h': 1, 'faultinject/plan/event_element.h': 0}
    for header, expected in samples.items():
        if len(list(wrong_includes('below/x.cc', f'#include <new>\n#include "{header}"\n', rank))) != expected:
            sys.exit(f'the sample that includes {header} is misjudged')


def main():
    check_itself()
    sentences = list(wrong(pathlib.Path(sys.argv[1])))
    print('\n'.join(sentences) or 'includes go downward')
    return 1 if sentences else 0


if __name__ == '__main__':
    sys.exit(main())
