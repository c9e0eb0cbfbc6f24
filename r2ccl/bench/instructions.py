#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how many instructions the core needs per message, both ends together, without those of the virtual HCA. Runs the benchmark
paced_message of channel_bench under valgrind's callgrind. With --turns: how many instructions a turn of the service thread with one channel takes,
those of set-up included; from run to run that differs by some per cent.

    r2ccl/bench/instructions.py build/release [--modes 0 1 2] [--turns]"""
import argparse
import os
import pathlib
import re
import subprocess
import tempfile

MESSAGES = 1000  # of paced_message


def run(build, mode, size, within, out):
    """What the benchmark prints; what it does within the functions `within` goes to `out`."""
    bench = build / 'bin/channel_bench'
    # One thread runs at a time, and the one that polls would keep the others out on an idle machine.
    return subprocess.run(['valgrind', '--fair-sched=yes', '--tool=callgrind', f'--callgrind-out-file={out}', '--collect-atstart=no', f'--toggle-collect={within}',
                           bench, f'--benchmark_filter=paced_message/{size}/'],
                          env={**os.environ, 'R2CC_MODE': str(mode), 'LD_LIBRARY_PATH': f'{bench.resolve().parent}/../lib/vhca'},
                          capture_output=True, text=True, check=True).stdout


def own_instructions(out, times, names=r'r2ccl::.*?'):
    """Of each such function of the program its own instructions, divided by `times`."""
    listing = subprocess.run(['callgrind_annotate', '--threshold=100', out], capture_output=True, text=True, check=True).stdout
    own = {}
    for line in listing.splitlines():
        match = re.match(rf'\s*([0-9,]+) \(.*?\)\s+\S*?:({names}) \[.*channel_bench\]', line)
        if match:
            own[match.group(2)] = own.get(match.group(2), 0) + int(match.group(1).replace(',', '')) / times
    return own


def count(build, mode, size):
    """Of each function of the core its own instructions, per message; and how many calls a message took."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / 'callgrind.out'
        printed = run(build, mode, size, '*paced_messages*', out)
        return own_instructions(out, MESSAGES), float(re.search(r'calls=([0-9.]+)', printed).group(1))


def count_turns(build, mode):
    """The same per turn of the service thread; and how many turns there were."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / 'callgrind.out'
        run(build, mode, 65536, 'r2ccl::Channel::step(r2ccl::Tick const&)', out)
        text = out.read_text()
        step = re.search(r'fn=\((\d+)\) r2ccl::Channel::step\(', text).group(1)
        turns = sum(int(calls) for calls in re.findall(rf'cfn=\({step}\)[^\n]*\ncalls=(\d+)', text))
        return own_instructions(out, turns, r'.*?'), turns  # of templates, callgrind names the result first


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0].replace('\n', ' '))
    parser.add_argument('build', type=pathlib.Path, help='build folder with bin/channel_bench, such as build/release')
    parser.add_argument('--modes', type=int, nargs='+', default=[1], help='values of R2CC_MODE (default: 1)')
    parser.add_argument('--turns', action='store_true', help='per turn of the service thread with one channel, not per message')
    parser.add_argument('--functions', action='store_true', help='also print the instructions of each function of the core')
    args = parser.parse_args()

    def show(own, words):
        print(words)
        for name, instructions in sorted(own.items(), key=lambda item: -item[1]) if args.functions else []:
            print(f'  {instructions:8.1f}  {name}')
    for mode in args.modes:
        if args.turns:
            own, turns = count_turns(args.build, mode)
            show(own, f'mode {mode}: {sum(own.values()):.1f} instructions per turn, {turns} turns')
            continue
        for size in (8, 65536):
            own, calls = count(args.build, mode, size)
            show(own, f'mode {mode}, {size} B: {sum(own.values()):.1f} instructions per message, {calls:.3f} calls')


if __name__ == '__main__':
    main()
