#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same command on every host with the environment that torchrun gives, two processes on each of two hosts: nic_down, blackhole
and k_of_8_nics end as on one machine; nic_down on hosts that have IPv6 only, too. Nothing is left of a job whose runner or agent is
killed, which is interrupted, or one of whose hosts falls silent.

    env_test.py R2BENCH
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

import recorder
from cleanup_test import ENDLESS, Job, host_silent, interrupted, runner_killed, terminated
from mpirun_test import ALL, NIC_DOWN, as_on_one_machine
from namespaces import IPV6, NETWORK, Hosts, fail, need, wait_for

SECRET = "of this test, and long enough"


def start(r2bench, hosts, host, rank, local_rank, arguments, **more):
    environment = dict(hosts.environment(), RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE="2",
                       MASTER_ADDR=hosts.address(0), MASTER_PORT="29400")
    environment.update(more)
    return subprocess.Popen([*hosts.enter(host), r2bench, "run", *arguments, "--launcher", "env"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env=environment)


def main():
    r2bench = sys.argv[1]
    need(("ip", "iproute2"), ("nsenter", "util-linux"))
    over(NETWORK, r2bench, ALL)
    if pathlib.Path("/proc/net/if_inet6").exists():
        over(IPV6, r2bench, (NIC_DOWN,))
    else:
        print("this kernel has no IPv6: not tried")


PLACES = [("h0", 0, 0), ("h0", 1, 1), ("h1", 2, 0), ("h1", 3, 1)]


def over(network, r2bench, texts):
    with Hosts(2, network) as hosts:
        scenario = hosts.folder / "scenario.yaml"
        scenario.write_text(NIC_DOWN)
        lone = start(r2bench, hosts, "h0", 0, 0, [str(scenario), "--no-plot", "--quiet", "--out", str(hosts.folder / "lone")])
        said, _ = lone.communicate(timeout=60)
        if lone.returncode != 64 or "R2BENCH_JOB_SECRET" not in said:
            fail(f"without a secret: status {lone.returncode}, {said}")
        as_on_one_machine(r2bench, hosts, "env", lambda scenario, out: four_processes(r2bench, hosts, scenario, out), texts=texts)
        if network == NETWORK:
            nothing_left(r2bench, hosts)


def four_processes(r2bench, hosts, scenario, out):
    arguments = [str(scenario), "--no-plot", "--quiet", "--out", str(out)]
    processes = [start(r2bench, hosts, *place, arguments, R2BENCH_JOB_SECRET=SECRET) for place in PLACES]
    said = [process.communicate(timeout=240)[0] for process in processes]
    if not (out / "result.json").exists():
        fail(f"no result:\n{said}")
    result = json.loads((out / "result.json").read_text())
    if any(process.returncode for process in processes[1:]) or (processes[0].returncode == 0) != (result["verdict"] == "pass"):
        fail(f"verdict {result['verdict']}, statuses {[process.returncode for process in processes]}:\n{said}")
    if "nothing to do" not in said[1] or "nothing to do" not in said[3]:
        fail(f"the second processes of the hosts said {said[1]!r} and {said[3]!r}")
    return result, said[0]


class EnvJob(Job):
    """Runner and agent are the same command, which each host's launcher has started."""

    def __init__(self, r2bench, hosts, out):
        self.hosts, self.out, self.launcher = hosts, out, "env"
        scenario = hosts.folder / "endless.yaml"
        scenario.write_text(ENDLESS)
        arguments = [str(scenario), "--no-plot", "--quiet", "--out", str(out)]
        self.runner, self.agent = [start(r2bench, hosts, host, rank, 0, arguments, R2BENCH_JOB_SECRET=SECRET, WORLD_SIZE="2", LOCAL_WORLD_SIZE="1")
                                   for rank, host in enumerate(("h0", "h1"))]
        wait_for(self.runs, "both ranks run")

    def end(self):
        self.agent.communicate(timeout=60)
        return super().end()


def agent_killed(job):
    """kill -9 of the process on h1 that is the agent there: the runner says which host is gone."""
    os.kill(job.agent.pid, signal.SIGKILL)  # nsenter becomes the command, so this is r2bench itself
    status, output = job.end()
    if status != 2 or "host h1 is gone" not in job.error():
        fail(f"status {status}, error {job.error()}:\n{output}")


def nothing_left(r2bench, hosts):
    for case in (runner_killed, agent_killed, interrupted, terminated, host_silent):
        recorder.begin("emulated", hosts.in_words(), "env", case.__name__)
        case(EnvJob(r2bench, hosts, hosts.folder / case.__name__))
        hosts.expect_nobody(f"after {case.__name__} of env")
        recorder.passed()
        print(f"{case.__name__}: nothing is left")


if __name__ == "__main__":
    main()
