#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How large the core's largest class, function and file are, at commits: a row of sizes.csv for each.

    sizes.py COMMIT...       counts at these commits (HEAD, for instance) and adds their rows; needs universal-ctags
    sizes.py --readme        writes the table of channel/README.md from sizes.csv
    sizes.py --check         exit status 1 when the two differ

Members are those of the class Channel itself, not of Sender and Receiver. Functions and files are those of the service thread's packages (channel/, path/,
service/, and before they were divided transport/), without tests. Instructions per message are not counted here: instructions.py prints them (mode 1,
both ends together)."""
import argparse
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / 'sizes.csv'
README = HERE.parent / 'channel' / 'README.md'
COLUMNS = ('commit', 'what', 'data_members', 'functions', 'virtual', 'longest_function', 'its_lines', 'longest_file', 'file_lines', 'instructions_8_bytes',
           'instructions_64_kib')
FOLDERS = ('channel', 'path', 'service', 'transport')
BEGIN, END = '<!-- sizes -->\n', '<!-- end -->\n'


def tags(files):
    out = subprocess.run(['ctags', '--output-format=json', '--fields=+neKSZ', '--fields-C++=+{properties}', '--kinds-C++=+pfm', '-f', '-', *map(str, files)],
                         capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def measure(commit):
    """Of the sources at a commit: the columns that this script counts."""
    top = subprocess.run(['git', '-C', HERE, 'rev-parse', '--show-toplevel'], capture_output=True, text=True, check=True).stdout.strip()
    name = subprocess.run(['git', '-C', top, 'rev-parse', '--short=8', commit], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as scratch:
        archive = subprocess.run(['git', '-C', top, 'archive', name, 'r2ccl'], capture_output=True, check=True).stdout
        subprocess.run(['tar', '-x', '-C', scratch], input=archive, check=True)
        root = pathlib.Path(scratch) / 'r2ccl'
        files = [path for folder in FOLDERS for path in sorted((root / folder).rglob('*'))
                 if path.suffix in ('.h', '.cc') and 'testing' not in path.parts and not path.stem.endswith('_test')]
        if not files:
            sys.exit(f'{name} has none of {", ".join(FOLDERS)} in r2ccl/')
        found = tags(files)
        members = [tag for tag in found if tag.get('scope', '').split('::')[-1] == 'Channel' and tag.get('scopeKind') == 'class' and tag['path'].endswith('.h')]
        functions = [tag for tag in members if tag['kind'] in ('prototype', 'function') and tag['name'] not in ('Channel', '~Channel', 'operator =')]
        longest = max((tag for tag in found if tag['kind'] == 'function' and 'end' in tag), key=lambda tag: tag['end'] - tag['line'])
        lines = {path: len(path.read_text().splitlines()) for path in files}
        file = max(lines, key=lines.get)
        return {'commit': name, 'data_members': sum(tag['kind'] == 'member' for tag in members), 'functions': len(functions),
                'virtual': sum('virtual' in tag.get('properties', '') for tag in functions),
                'longest_function': re.sub(r'^r2ccl::', '', f"{longest.get('scope', '')}::{longest['name']}"), 'its_lines': longest['end'] - longest['line'] + 1,
                'longest_file': str(file.relative_to(root)), 'file_lines': lines[file]}


def rows():
    with open(TABLE, newline='') as file:
        return list(csv.DictReader(file))


def markdown():
    all_rows = rows()
    def line(title, words):
        return f'| {title} | ' + ' | '.join(words(row) for row in all_rows) + ' |\n'
    text = line('', lambda row: f"{row['what']} ({row['commit']})") + '|---|' + '---|' * len(all_rows) + '\n'
    text += line('data members of `Channel`', lambda row: row['data_members'])
    text += line('its functions, virtual ones of these', lambda row: f"{row['functions']}, {row['virtual']}")
    text += line('longest function: lines', lambda row: f"{row['its_lines']} (`{row['longest_function']}`)")
    text += line('longest file: lines', lambda row: f"{row['file_lines']} (`{row['longest_file']}`)")
    text += line('instructions per message of 8 B', lambda row: row['instructions_8_bytes'])
    return text + line('… of 64 KiB', lambda row: row['instructions_64_kib'])


def parts():
    text = README.read_text()
    before, rest = text.split(BEGIN)
    shown, after = rest.split(END, 1)
    return before + BEGIN, shown, END + after


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('commits', nargs='*')
    parser.add_argument('--readme', action='store_true')
    parser.add_argument('--check', action='store_true')
    arguments = parser.parse_args()
    if arguments.check:
        if parts()[1] != markdown():
            sys.exit(f'{README}: the table is not that of {TABLE.name}; sizes.py --readme writes it')
        return
    if arguments.commits:
        known = rows() if TABLE.exists() else []
        for commit in arguments.commits:
            row = measure(commit)
            old = next((it for it in known if it['commit'] == row['commit']), None)
            if old:
                old.update({key: str(value) for key, value in row.items()})
            else:
                known.append(row)
        with open(TABLE, 'w', newline='') as file:
            writer = csv.DictWriter(file, COLUMNS, restval='', lineterminator='\n')
            writer.writeheader()
            writer.writerows(known)
    if arguments.readme:
        before, _, after = parts()
        README.write_text(before + markdown() + after)


if __name__ == '__main__':
    main()
