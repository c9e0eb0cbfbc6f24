#!/usr/bin/env python3
"""What the fault injector costs a program that nobody here wrote while no fault is armed.

Interleaved pairs of ib_write_bw over the same virtual HCA at unlimited rate: with libfaultinject.so preloaded and a fault
board, as `r2bench exec` starts every program, and with the preload taken away again. The order turns from pair to pair.
Prints each pair, the mean loss and its upper 95 % bound. Exit status: 0 the bound is at most --most, 1 it is not, 64
something is missing or failed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time

from perftest_pairs import average_gbits, upper95

HERE = os.path.dirname(os.path.abspath(__file__))


def perftest(arguments, injected):
    """Gbit/s of one run."""
    name = f"injector-overhead-{os.getpid()}"
    tool = ["ib_write_bw", "-d", "vhca0", "-x", "1", "-s", str(arguments.bytes), "-D", str(arguments.seconds), "-F", "--report_gbits",
            "-p", str(20000 + os.getpid() % 12000)]
    if not injected:
        tool = ["env", "-u", "LD_PRELOAD", *tool]
    start = [os.path.join(arguments.build, "bin", "r2bench"), "exec", "--quiet", "--nics", "1", "--name", name, "--node"]
    server = subprocess.Popen([*start, "node0", "--", *tool], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        time.sleep(0.5)
        client = subprocess.run([*start, "node1", "--", *tool, "127.0.0.1"], capture_output=True, text=True,
                                timeout=60 + arguments.seconds, check=False)
        server.communicate(timeout=30)
    finally:
        if server.poll() is None:
            server.kill()
            server.communicate()
    gbits = average_gbits(client.stdout, arguments.bytes)
    if gbits is None:
        print(f"ib_write_bw ended with {client.returncode} and printed no row:\n{client.stdout}{client.stderr}", file=sys.stderr)
        sys.exit(64)
    return gbits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"), help="build folder")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--bytes", type=int, default=4096, help="of a WRITE: the smaller, the more posts and polls a second")
    parser.add_argument("--seconds", type=int, default=2, help="of each run")
    parser.add_argument("--most", type=float, default=1.0, help="per cent that the upper bound of the loss may be")
    arguments = parser.parse_args()
    if shutil.which("ib_write_bw") is None:
        print("ib_write_bw is missing: apt-get install perftest", file=sys.stderr)
        return 64
    if not os.access(os.path.join(arguments.build, "bin", "r2bench"), os.X_OK):
        print(f"{arguments.build}/bin/r2bench is missing: build it, or name another folder with --build", file=sys.stderr)
        return 64
    losses = []
    print("pair  without  injected (Gbit/s)  loss %")
    for pair in range(arguments.pairs):
        gbits = {}
        for injected in (False, True) if pair % 2 == 0 else (True, False):
            gbits[injected] = perftest(arguments, injected)
        losses.append(100 * (1 - gbits[True] / gbits[False]))
        print(f"{pair + 1:4}  {gbits[False]:7.2f}  {gbits[True]:17.2f}  {losses[-1]:6.2f}", flush=True)
    mean, upper = upper95(losses)
    print(f"loss {mean:.2f} %, upper 95 % bound {upper:.2f} %; wanted: at most {arguments.most} %")
    return 0 if upper <= arguments.most else 1


if __name__ == "__main__":
    sys.exit(main())
