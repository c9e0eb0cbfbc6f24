#!/usr/bin/env python3
"""What the fault injector costs a program that nobody here wrote while no fault is armed.

Pairs of ib_write_bw over the same virtual HCA at unlimited rate, the same number of WRITEs in each run: with
libfaultinject.so preloaded and a fault board, as `r2bench exec` starts every program, and in the same environment without
the preload. Both ends of a run are alike; client and server stay on a CPU of their own; the order turns from pair to pair.

ib_write_bw posts and polls without a pause, so its CPU time per WRITE is the inverse of the rate that it can reach. That
time (user and system, of the client's process, from the kernel's accounting) is what the pairs compare: the time by the
wall, which is printed beside it, also holds what other programs and the machine's host took. What a process takes to start
and to connect is measured apart, by runs of a few WRITEs, and subtracted.

Said of the pairs' losses: the median, and the mean without the highest and the lowest tenth with its interval, from
bootstrap samples. Exit status: 0 the upper 95 % bound of the CPU time's loss is at most --most, 1 it is not, 64 something
is missing or failed.
"""

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
    """Two nodes with one NIC each, kept up for all runs; the environment in which `r2bench exec` starts a program there."""

    def __init__(self, build):
        self.command = [os.path.join(build, "bin", "r2bench"), "exec", "--quiet", "--nics", "1",
                        "--name", f"injector-overhead-{os.getpid()}", "--node"]
        self.keeper = subprocess.Popen([*self.command, "node0", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.keeper.stdin.write(b"there\n")
        self.keeper.stdin.flush()
        if self.keeper.stdout.readline() != b"there\n":
            raise Failed("'r2bench exec' did not start")
        self.environment = [self.environment_of(f"node{node}") for node in (0, 1)]

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


def start(tool, environment, injected, cpu):
    environment = dict(environment)
    if not injected:
        del environment["LD_PRELOAD"]
    process = subprocess.Popen(tool, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    os.sched_setaffinity(process.pid, {cpu})  # long before it does anything
    return process


def perftest(arguments, fabric, writes, injected):
    """CPU seconds of the client, and Gbit/s by the wall's clock (0 for a run too short to tell)."""
    port = 20000 + os.getpid() % 12000
    tool = ["ib_write_bw", "-d", "vhca0", "-x", "1", "-s", str(arguments.bytes), "-n", str(writes), "-F", "--report_gbits",
            "-p", str(port)]
    cpus = sorted(os.sched_getaffinity(0))
    server = start(tool, fabric.environment[0], injected, cpus[0])
    try:
        while not listening(port):
            if server.poll() is not None:
                raise Failed(f"the server ended: {server.communicate()[0]}")
            time.sleep(0.002)
        client = start([*tool, "127.0.0.1"], fabric.environment[1], injected, cpus[-1])
        said = client.stdout.read()
        _, status, used = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
        server.communicate(timeout=600)
    finally:
        if server.poll() is None:
            server.kill()
            server.communicate()
    gbits = average_gbits(said, arguments.bytes)
    if client.returncode != 0 or gbits is None:
        raise Failed(f"ib_write_bw ended with {client.returncode}:\n{said}")
    return used.ru_utime + used.ru_stime, gbits


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
    start_up = {False: [], True: []}
    for turn in range(2 * arguments.start_ups):
        for injected in (turn % 2 == 0, turn % 2 == 1):
            start_up[injected].append(perftest(arguments, fabric, START_UP_WRITES, injected)[0])
    start_ms = {injected: 1e3 * statistics.median(seconds) for injected, seconds in start_up.items()}
    # As many WRITEs as take the wanted time here.
    writes = 20000
    for _ in range(3):
        spent = perftest(arguments, fabric, writes, False)[0] - start_ms[False] / 1e3
        writes = max(5000, min(20 * writes, int(writes * arguments.seconds / max(spent, 1e-3))))
    print(f"{arguments.pairs} pairs of {writes} WRITEs of {arguments.bytes} B; to start and to connect takes "
          f"{start_ms[False]:.1f} ms of CPU time, injected {start_ms[True]:.1f} ms")
    print("pair  without  injected (ns of CPU time per WRITE)  loss %   without  injected (Gbit/s by the wall)  loss %")
    pairs = []
    for number in range(arguments.pairs):
        ns, gbits = {}, {}
        for injected in (False, True) if number % 2 == 0 else (True, False):
            seconds, gbits[injected] = perftest(arguments, fabric, writes, injected)
            ns[injected] = (seconds * 1e9 - start_ms[injected] * 1e6) / writes
        # The loss of a rate: 1 - (1 / injected) / (1 / without).
        pairs.append({"ns_without": ns[False], "ns_injected": ns[True], "cpu_loss": 100 * (1 - ns[False] / ns[True]),
                      "gbits_without": gbits[False], "gbits_injected": gbits[True],
                      "wall_loss": 100 * (1 - gbits[True] / gbits[False])})
        pair = pairs[-1]
        print(f"{number + 1:4}  {pair['ns_without']:7.1f}  {pair['ns_injected']:35.1f}  {pair['cpu_loss']:6.2f}  "
              f"{pair['gbits_without']:8.2f}  {pair['gbits_injected']:29.2f}  {pair['wall_loss']:6.2f}", flush=True)
    return {"what": "loss of rate in per cent, libfaultinject.so preloaded and nothing armed against not preloaded",
            "bytes": arguments.bytes, "writes": writes, "start_up_cpu_ms": {"without": start_ms[False], "injected": start_ms[True]},
            "cpu_time": described([pair["cpu_loss"] for pair in pairs]),
            "wall_time": described([pair["wall_loss"] for pair in pairs]), "pairs": pairs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"), help="build folder")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=4096, help="of a WRITE: the smaller, the more posts and polls a second")
    parser.add_argument("--seconds", type=float, default=0.6, help="of CPU time of each run, about")
    parser.add_argument("--start-ups", type=int, default=10, help="runs of each kind that measure the start")
    parser.add_argument("--most", type=float, default=1.0, help="per cent that the upper bound of the loss may be")
    parser.add_argument("--out", help="file for all of it, as JSON")
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
    for kind, name in (("cpu_time", "CPU time"), ("wall_time", "the wall's clock")):
        loss = result[kind]
        print(f"loss by {name}: median {loss['median']:.2f} %, trimmed mean {loss['trimmed_mean']:.2f} %, 95 % bounds "
              f"{loss['lower_95']:.2f} % and {loss['upper_95']:.2f} %; a pair scatters by {loss['standard_deviation_of_a_pair']:.1f} %")
    upper = result["cpu_time"]["upper_95"]
    print(f"wanted: an upper 95 % bound of at most {arguments.most} % by CPU time: {'met' if upper <= arguments.most else 'not met'}")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return 0 if upper <= arguments.most else 1


if __name__ == "__main__":
    sys.exit(main())
