#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the fault injector costs a program while no fault is armed.

The program is ib_write_bw, over virtual HCAs of one fabric at unlimited rate. Its runs come in pairs, with the same number of WRITEs in
each. One run has libfaultinject.so preloaded and a fault board, as `r2bench exec` starts every program. The other runs in the same
environment without the preload. Client and server of a run are started in the same way.

The two clients of a pair run *at the same time on one CPU*, so that the kernel's scheduler interleaves them every few milliseconds. The
servers, which are idle while they are written to, run on another CPU. Two consecutive runs could not be compared: on a shared machine the
time of a program changes by 10 % or more from one second to the next. The script compares each client's CPU time (user and system,
from the kernel's accounting) per WRITE. ib_write_bw posts and polls without a pause, so this is the inverse of the rate that it can reach.
The time to start and to connect is measured separately, by pairs with few WRITEs, and subtracted.

Prints the median of the pairs' losses, and their mean without the highest and the lowest tenth, with bounds from bootstrap samples.
Exit status: 0 the upper 95 % bound is at most --most, 1 it is not, 64 something is missing or failed."""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

from perftest_pairs import average_gbits

HERE = os.path.dirname(os.path.abspath(__file__))
START_UP_WRITES = 5  # perftest's least
TRIM = 0.1
SAMPLES = 5000


class Failed(Exception):
    """One sentence, and what the program said."""


class Fabric:
    """Four nodes with one NIC each, kept up for all runs; the environments in which `r2bench exec` starts programs there."""

    def __init__(self, build):
        self.command = [os.path.join(build, "bin", "r2bench"), "exec", "--quiet", "--nodes", "4", "--nics", "1",
                        "--name", f"injector-overhead-{os.getpid()}", "--node"]
        self.keeper = subprocess.Popen([*self.command, "node0", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.keeper.stdin.write(b"there\n")
        self.keeper.stdin.flush()
        if self.keeper.stdout.readline() != b"there\n":
            raise Failed("'r2bench exec' did not start")
        self.environment = [self.environment_of(f"node{node}") for node in range(4)]

    def environment_of(self, node):
        said = subprocess.run([*self.command, node, "--", "env", "-0"], stdout=subprocess.PIPE, check=True).stdout
        return dict(line.split("=", 1) for line in said.decode().split("\0") if "=" in line)

    def close(self):
        self.keeper.stdin.close()
        self.keeper.wait()


def listening(port):
    """Whether a program of this machine waits for connections on that TCP port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines):
                return True
    return False


class Perftest:
    """A server, and its client when it is started: injected on nodes 2 and 3, without the preload on nodes 0 and 1."""

    def __init__(self, arguments, fabric, writes, injected, cpus):
        self.environments = [dict(environment) for environment in (fabric.environment[2:] if injected else fabric.environment[:2])]
        if not injected:
            for environment in self.environments:
                del environment["LD_PRELOAD"]
        self.bytes, self.cpus, self.client = arguments.bytes, cpus, None
        self.port = 20000 + (os.getpid() % 6000) * 2 + injected
        self.tool = ["ib_write_bw", "-d", "vhca0", "-x", "1", "-s", str(arguments.bytes), "-n", str(writes), "-F",
                     "--report_gbits", "-p", str(self.port)]
        self.server = self.start(self.tool, self.environments[0], cpus[0])

    @staticmethod
    def start(tool, environment, cpu):
        process = subprocess.Popen(tool, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        os.sched_setaffinity(process.pid, {cpu})  # long before it does anything
        return process

    def start_client(self):
        while not listening(self.port):
            if self.server.poll() is not None:
                raise Failed(f"the server ended: {self.server.communicate()[0]}")
            time.sleep(0.002)
        self.client = self.start([*self.tool, "127.0.0.1"], self.environments[1], self.cpus[-1])

    def finished(self):
        """CPU seconds of the client."""
        said = self.client.stdout.read()
        _, status, used = os.wait4(self.client.pid, 0)
        self.client.returncode = os.waitstatus_to_exitcode(status)
        if self.client.returncode != 0 or average_gbits(said, self.bytes) is None:
            raise Failed(f"ib_write_bw ended with {self.client.returncode}:\n{said}")
        self.server.communicate(timeout=600)
        return used.ru_utime + used.ru_stime

    def end(self):
        for process in (self.client, self.server):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()


def pair_of_runs(arguments, fabric, writes, first):
    """CPU seconds of the two clients, by whether they were injected; `first` is the one that starts first."""
    cpus = sorted(os.sched_getaffinity(0))
    runs = {}
    try:
        for injected in (False, True):
            runs[injected] = Perftest(arguments, fabric, writes, injected, cpus)
        for injected in (first, not first):
            runs[injected].start_client()
        return {injected: run.finished() for injected, run in runs.items()}
    finally:
        for run in runs.values():
            run.end()


def trimmed_mean(values):
    values = sorted(values)
    cut = int(len(values) * TRIM)
    return statistics.fmean(values[cut:len(values) - cut])


def bootstrap(values):
    """The 5th and the 95th per cent of the trimmed mean: each is a one-sided 95 % bound."""
    draw = random.Random(1)
    means = sorted(trimmed_mean(draw.choices(values, k=len(values))) for _ in range(SAMPLES))
    return means[int(0.05 * SAMPLES)], means[int(0.95 * SAMPLES)]


def described(losses):
    low, high = bootstrap(losses)
    return {"median": statistics.median(losses), "trimmed_mean": trimmed_mean(losses), "lower_95": low, "upper_95": high,
            "standard_deviation_of_a_pair": statistics.stdev(losses)}


def measure(arguments, fabric):
    starts = [pair_of_runs(arguments, fabric, START_UP_WRITES, number % 2 == 0) for number in range(arguments.start_ups)]
    start_ms = {injected: 1e3 * statistics.median(pair[injected] for pair in starts) for injected in (False, True)}
    # As many WRITEs as take the wanted time here.
    writes = 20000
    for _ in range(3):
        spent = pair_of_runs(arguments, fabric, writes, False)[False] - start_ms[False] / 1e3
        writes = max(5000, min(20 * writes, int(writes * arguments.seconds / max(spent, 1e-3))))
    print(f"{arguments.pairs} pairs of {writes} WRITEs of {arguments.bytes} B; to start and to connect takes "
          f"{start_ms[False]:.1f} ms of CPU time, injected {start_ms[True]:.1f} ms")
    print("pair  without  injected (ns of CPU time per WRITE)  loss of rate %")
    pairs = []
    for number in range(arguments.pairs):
        seconds = pair_of_runs(arguments, fabric, writes, number % 2 == 0)
        ns = {injected: (seconds[injected] * 1e9 - start_ms[injected] * 1e6) / writes for injected in (False, True)}
        # Of the rate: 1 - (1 / injected) / (1 / without).
        pairs.append({"ns_without": ns[False], "ns_injected": ns[True], "loss": 100 * (1 - ns[False] / ns[True])})
        print(f"{number + 1:4}  {ns[False]:7.1f}  {ns[True]:35.1f}  {pairs[-1]['loss']:14.2f}", flush=True)
    return {"what": "loss of rate in per cent, libfaultinject.so preloaded and nothing armed against not preloaded, by CPU time per WRITE",
            "bytes": arguments.bytes, "writes": writes, "start_up_cpu_ms": {"without": start_ms[False], "injected": start_ms[True]},
            "loss": described([pair["loss"] for pair in pairs]), "pairs": pairs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"), help="build folder")
    parser.add_argument("--pairs", type=int, default=60, help="number of pairs")
    parser.add_argument("--bytes", type=int, default=4096, help="bytes of a WRITE: smaller WRITEs mean more posts and polls per second")
    parser.add_argument("--seconds", type=float, default=1.5, help="approximate CPU time of each client")
    parser.add_argument("--start-ups", type=int, default=10, help="number of pairs that measure the start")
    parser.add_argument("--most", type=float, default=1.0, help="largest upper bound of the loss that passes, in percent")
    parser.add_argument("--out", help="JSON file for all measurements")
    arguments = parser.parse_args()
    if shutil.which("ib_write_bw") is None:
        print("ib_write_bw is missing: apt-get install perftest", file=sys.stderr)
        return 64
    if not os.access(os.path.join(arguments.build, "bin", "r2bench"), os.X_OK):
        print(f"{arguments.build}/bin/r2bench is missing: build it, or name another folder with --build", file=sys.stderr)
        return 64
    if arguments.pairs < 10:
        print("--pairs: ten at least, for an interval", file=sys.stderr)
        return 64
    if len(os.sched_getaffinity(0)) < 2:
        print("two CPUs are needed, one for each end", file=sys.stderr)
        return 64
    try:
        fabric = Fabric(arguments.build)
        try:
            result = measure(arguments, fabric)
        finally:
            fabric.close()
    except (Failed, subprocess.SubprocessError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 64
    loss = result["loss"]
    print(f"loss: median {loss['median']:.2f} %, trimmed mean {loss['trimmed_mean']:.2f} %, 95 % bounds {loss['lower_95']:.2f} % and "
          f"{loss['upper_95']:.2f} %; a pair scatters by {loss['standard_deviation_of_a_pair']:.1f} %")
    print(f"wanted: an upper 95 % bound of at most {arguments.most} %: {'met' if loss['upper_95'] <= arguments.most else 'not met'}")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return 0 if loss["upper_95"] <= arguments.most else 1


if __name__ == "__main__":
    sys.exit(main())
