#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ib_write_bw at an unlimited rate with one thread's memcpy into memory that two processes share.

    harness/vhca/bench/write_bw.py build/release [--turns 30] [--out FILE.json]

ib_write_bw prints wall-clock rates. Its runs are so short that during some of them no other program uses the CPU; the best of --turns
counts. memcpy's rate is that of vhca_copy_bench, the best of its turns. Exit status: 0, or 1 if a ratio is below --at-least."""
import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time

SIZES = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
BYTES = 48 << 20  # of one run
PORT = str(20000 + os.getpid() % 12000)


def listens(port):
    wanted = f":{int(port):04X} "
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            if any(wanted in line and line.split()[3] == "0A" for line in lines):
                return True
    return False


def environment_of(holder):
    environment = {"VHCA_HUGE_PAGES": "1", **os.environ}
    for pair in holder.stdout.readline().split()[1:]:
        name, value = pair.split("=", 1)
        environment[name] = value
    return environment


def write_rate(environment, size):
    """GB/s that one run of ib_write_bw prints."""
    command = ["ib_write_bw", "-F", "-d", "vhca0", "-x", "1", "-s", str(size), "-n", str(BYTES // size), "-p", PORT]
    server = subprocess.Popen(command, env=environment | {"VHCA_NODE": "node1"}, stdout=subprocess.DEVNULL)
    while not listens(PORT):
        if server.poll() is not None:
            sys.exit("write_bw.py: ib_write_bw did not start (package perftest)")
        time.sleep(0.02)
    client = subprocess.run(command + ["localhost"], env=environment, stdout=subprocess.PIPE, text=True)
    rows = [line.split() for line in client.stdout.splitlines() if line.split()[:1] == [str(size)]]
    if server.wait() != 0 or client.returncode != 0 or len(rows) != 1:
        sys.exit(f"write_bw.py: ib_write_bw -s {size} failed:\n{client.stdout}")
    return float(rows[0][3]) * (1 << 20) / 1e9


def memcpy_rate(build):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([f"{build}/bin/vhca_copy_bench", "--benchmark_filter=/65536/", f"--benchmark_out={file.name}"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return max(b["memcpy_GBps"] for b in json.load(open(file.name))["benchmarks"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="build folder")
    parser.add_argument("--turns", type=int, default=30, help="runs of each size")
    parser.add_argument("--at-least", type=float, default=0, help="smallest ratio (ib_write_bw / memcpy) that passes")
    parser.add_argument("--out", help="JSON file for the ratios")
    arguments = parser.parse_args()
    memcpy, writes = 0.0, dict.fromkeys(SIZES, 0.0)
    holder = subprocess.Popen([f"{arguments.build}/bin/vhca-exec", "--nodes", "2"], stdout=subprocess.PIPE, text=True)
    try:
        environment = environment_of(holder)
        for turn in range(arguments.turns):
            if turn % 10 == 0:
                memcpy = max(memcpy, memcpy_rate(arguments.build))
            for size in SIZES:
                writes[size] = max(writes[size], write_rate(environment, size))
    finally:
        holder.terminate()
        holder.wait()
    rows = [{"bytes": size, "memcpy_GBps": round(memcpy, 2), "ib_write_bw_GBps": round(rate, 2),
             "ratio": round(rate / memcpy, 3)} for size, rate in writes.items()]
    for row in rows:
        print("{bytes:>10} bytes: memcpy {memcpy_GBps:6.2f} GB/s, ib_write_bw {ib_write_bw_GBps:6.2f} GB/s, "
              "ratio {ratio:.2f}".format(**row))
    if arguments.out:
        cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
        with open(arguments.out, "w") as file:
            json.dump({"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                       "turns": arguments.turns, "cpu": cpu and cpu[1], "cores": os.cpu_count(),
                       "kernel": platform.release(), "load": os.getloadavg(), "rows": rows}, file, indent=1)
            file.write("\n")
    return 0 if all(row["ratio"] >= arguments.at_least for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
