#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how many instructions the core needs per message, both ends together, without those of the virtual HCA. Runs the benchmark
paced_message of channel_bench under valgrind's callgrind.

    r2ccl/bench/instructions.py build/release [--modes 0 1 2]"""
import argparse
import os
import pathlib
import re
import subprocess
import tempfile

MESSAGES = 1000  # of paced_message


def count(build, mode, size):
    """Of each function of the core its own instructions, per message; and how many calls a message took."""
    bench = build / 'bin/channel_bench'
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / 'callgrind.out'
        # One thread runs at a time, and the one that polls would keep the others out on an idle machine.
        ran = subprocess.run(['valgrind', '--fair-sched=yes', '--tool=callgrind', f'--callgrind-out-file={out}', '--collect-atstart=no',
                              '--toggle-collect=*paced_messages*', bench, f'--benchmark_filter=paced_message/{size}/'],
                             env={**os.environ, 'R2CC_MODE': str(mode), 'LD_LIBRARY_PATH': f'{bench.resolve().parent}/../lib/vhca'},
                             capture_output=True, text=True, check=True)
        calls = float(re.search(r'calls=([0-9.]+)', ran.stdout).group(1))
        listing = subprocess.run(['callgrind_annotate', '--threshold=100', out], capture_output=True, text=True, check=True).stdout
    own = {}
    for line in listing.splitlines():
        match = re.match(r'\s*([0-9,]+) \(.*?\)\s+\S*?:(r2ccl::.*?) \[.*channel_bench\]', line)
        if match:
            own[match.group(2)] = own.get(match.group(2), 0) + int(match.group(1).replace(',', '')) / MESSAGES
    return own, calls


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0].replace('\n', ' '))
    parser.add_argument('build', type=pathlib.Path, help='build folder with bin/channel_bench, such as build/release')
    parser.add_argument('--modes', type=int, nargs='+', default=[1], help='values of R2CC_MODE (default: 1)')
    parser.add_argument('--functions', action='store_true', help='also print the instructions of each function of the core')
    args = parser.parse_args()
    for mode in args.modes:
        for size in (8, 65536):
            own, calls = count(args.build, mode, size)
            print(f'mode {mode}, {size} B: {sum(own.values()):.1f} instructions per message, {calls:.3f} calls')
            for name, instructions in sorted(own.items(), key=lambda item: -item[1]) if args.functions else []:
                print(f'  {instructions:8.1f}  {name}')


if __name__ == '__main__':
    main()
