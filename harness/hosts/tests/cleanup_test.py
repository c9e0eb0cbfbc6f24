#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever ends first, nothing of a job on two hosts is left: runner, agent, mpirun (kill -9 each), Ctrl-C, SIGTERM, and a host that
falls silent.

    cleanup_test.py R2BENCH
"""

import json
import os
import signal
import subprocess
import sys
import time

import recorder
from namespaces import Hosts, executable, fail, need, wait_for

ENDLESS = """
version: 1
name: endless
fabric: {kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 2, nic_rate: 200 Mbit/s}
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 1 MiB, iters: 1000000, verify: true}
modes: [migrate]
expect:
  migrate: {outcome: ok}
"""


class Job:
    def __init__(self, r2bench, hosts, out, launcher="mpi", environment=None):
        self.hosts, self.out, self.launcher, self.environment = hosts, out, launcher, environment or hosts.environment()
        scenario = hosts.folder / "endless.yaml"
        scenario.write_text(ENDLESS)
        command = [*hosts.enter("h0"), r2bench, "run", str(scenario), "--no-plot", "--launcher", launcher, "--hosts", "h0,h1", "--out", str(out)]
        self.runner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment)
        wait_for(self.runs, "both ranks run")

    def runs(self):
        if self.runner.poll() is not None:
            fail(f"the job ended by itself:\n{self.runner.stdout.read()}")
        return len(self.of("r2bench-cpu-rank")) == 2

    def of(self, words, host=None):
        return [pid for pid, line in self.hosts.processes(host).items() if words in line]

    def end(self):
        output, _ = self.runner.communicate(timeout=60)
        return self.runner.returncode, output

    def error(self):
        return json.loads((self.out / "result.json").read_text())["runs"][0]["error"]


def the_one(pids, what):
    if len(pids) != 1:
        fail(f"{what}: {pids}")
    return pids[0]


def runner_killed(job):
    os.kill(job.runner.pid, signal.SIGKILL)
    job.end()


def agent_killed(job):
    agents = [pid for pid in job.of(f"host-agent {job.launcher}", "h1") if executable(pid).endswith("/r2bench-tools")]
    os.kill(the_one(agents, "the agent"), signal.SIGKILL)
    status, output = job.end()
    if status != 2 or "host h1 is gone" not in job.error():
        fail(f"status {status}, error {job.error()}:\n{output}")


def mpirun_killed(job):
    os.kill(the_one([pid for pid in job.of("mpirun", "h0") if executable(pid).endswith(("mpirun", "mpirun.openmpi", "orterun"))], "mpirun"),
            signal.SIGKILL)
    status, output = job.end()
    if status != 2 or "is gone" not in job.error() and "the launcher (mpi) died of signal 9" not in job.error():
        fail(f"status {status}, error {job.error()}:\n{output}")


def interrupted(job, by=signal.SIGINT):
    os.kill(job.runner.pid, by)
    status, output = job.end()
    if status != 128 + by:
        fail(f"status {status}:\n{output}")
    if json.loads((job.out / "result.json").read_text())["cancelled"] is not True:
        fail("the result does not say that it was cancelled")


def terminated(job):
    interrupted(job, signal.SIGTERM)


SILENCE = 10  # s: harness/launch/secure_link.cc
LATE = 8  # s more, on a busy machine


def host_silent(job):
    """h1 loses its network, and no connection is closed: both ends notice by themselves, and end what is theirs."""
    job.hosts.inside(job.hosts.pid("h1"), "ip", "link", "set", "eth0", "down")
    cut, gone = time.monotonic(), {}
    while len(gone) < 2 and time.monotonic() < cut + SILENCE + LATE:
        for host in ("h0", "h1"):
            if host not in gone and not job.of("r2bench-cpu-rank", host):
                gone[host] = time.monotonic() - cut
        time.sleep(0.05)
    if len(gone) < 2:
        fail(f"{SILENCE + LATE} s after h1 was cut off, ranks ended on {gone} only")
    wait_for(lambda: not job.of(f"host-agent {job.launcher}", "h1"), "the agent of h1 ends", LATE)
    status, output = job.end()
    if status != 2 or "host h1 is gone" not in job.error():
        fail(f"status {status}, error {job.error()}:\n{output}")
    job.hosts.inside(job.hosts.pid("h1"), "ip", "link", "set", "eth0", "up")
    print("host_silent: ranks ended " + ", ".join(f"{after:.1f} s after the cut on {host}" for host, after in sorted(gone.items())))


def main():
    r2bench = sys.argv[1]
    need(("mpirun", "openmpi-bin"), ("ip", "iproute2"), ("nsenter", "util-linux"))
    with Hosts(2) as hosts:
        for case in (runner_killed, agent_killed, mpirun_killed, interrupted, terminated, host_silent):
            recorder.begin("emulated", hosts.in_words(), "mpi", case.__name__)
            case(Job(r2bench, hosts, hosts.folder / case.__name__))
            # Open MPI's daemon on a host that was cut off takes about 67 s until it gives up its connection.
            hosts.expect_nobody(f"after {case.__name__}", patience=120 if case is host_silent else 30)
            recorder.passed()
            print(f"{case.__name__}: nothing is left")


if __name__ == "__main__":
    main()
