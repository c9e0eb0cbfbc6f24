#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nic_down, blackhole and k_of_8_nics over srun on two hosts of a real Slurm end as on one machine; and what is left
after a killed srun, runner or agent, after Ctrl-C and SIGTERM, after scancel, and after a host falls silent. Faults that are armed
while the job runs strike on the host of their target.

    slurm_test.py R2BENCH
"""

import os
import shutil
import signal
import subprocess
import sys

import recorder
from cleanup_test import Job, agent_killed, host_silent, interrupted, runner_killed, terminated, the_one
from late_arm import armed_late
from mpirun_test import NIC_DOWN, as_on_one_machine, check_hosts, run
from namespaces import Hosts, executable, fail, need
from slurm_cluster import WITH_MORE_WEIGHT, SlurmCluster


def main():
    r2bench = sys.argv[1]
    need(("srun", "slurm-client"), ("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("munged", "munge"), ("ip", "iproute2"), ("nsenter", "util-linux"))
    with Hosts(2) as hosts, SlurmCluster(hosts) as slurm:
        daemons = set(hosts.processes())
        # In an allocation, whose hosts r2bench takes as they are.
        as_on_one_machine(r2bench, hosts, "slurm", lambda scenario, out: run(
            r2bench, scenario, out, [*hosts.enter("h0"), *WITH_MORE_WEIGHT, "salloc", "-N2"], ["--launcher", "slurm"], slurm.environment()), daemons)
        more_tasks_than_hosts(r2bench, hosts, slurm, daemons)
        only = lambda: set(hosts.processes()) - daemons
        # Without one, and srun is killed.
        recorder.begin("emulated", hosts.in_words(), "slurm", "srun_killed")
        job = Job(r2bench, hosts, hosts.folder / "killed", "slurm", slurm.environment())
        os.kill(the_one([pid for pid in only() if executable(pid).endswith("/srun") and is_first(pid)], "srun"), signal.SIGKILL)
        status, output = job.end()
        if status != 2 or "the launcher (slurm) died of signal 9" not in job.error() and "is gone" not in job.error():
            fail(f"status {status}, error {job.error()}:\n{output}")
        hosts.expect_nobody("after srun was killed", daemons)
        recorder.passed()
        print("srun killed: nothing is left")
        recorder.begin("emulated", hosts.in_words(), "slurm", "armed_late")
        armed_late(r2bench, Job(r2bench, hosts, hosts.folder / "armed_late", "slurm", slurm.environment()))
        hosts.expect_nobody("after armed_late", daemons)
        recorder.passed()
        print("armed_late: three faults struck where they should")
        # The last one leaves Slurm with a host that did not answer.
        for case in (runner_killed, agent_killed, interrupted, terminated, job_cancelled, host_silent):
            recorder.begin("emulated", hosts.in_words(), "slurm", case.__name__)
            case(Job(r2bench, hosts, hosts.folder / case.__name__, "slurm", slurm.environment()))
            hosts.expect_nobody(f"after {case.__name__}", daemons, patience=120 if case is host_silent else 30)
            recorder.passed()
            print(f"{case.__name__}: nothing is left")


def more_tasks_than_hosts(r2bench, hosts, slurm, daemons):
    """An allocation for several tasks per host, as for an ordinary MPI job: there is one agent on each host all the same."""
    scenario, out = hosts.folder / "scenario.yaml", hosts.folder / "more_tasks"
    scenario.write_text(NIC_DOWN)
    for words in (["-n8"], ["--ntasks-per-node=4"]):
        recorder.begin("emulated", hosts.in_words(), "slurm", "more_tasks_than_hosts")
        # --overcommit: each of these hosts has one CPU.
        result, report = run(r2bench, scenario, out, [*hosts.enter("h0"), *WITH_MORE_WEIGHT, "salloc", "-N2", "--overcommit", *words],
                             ["--launcher", "slurm"], slurm.environment())
        check_hosts(result, out, report)
        hosts.expect_nobody(f"after more_tasks_than_hosts {words}", daemons)
        shutil.rmtree(out)
        recorder.passed(result)
        print(f"salloc {' '.join(words)}: one agent on each host")


def job_cancelled(job):
    """scancel of the allocation that srun has made."""
    where = dict(env=job.environment, capture_output=True, text=True, check=True)
    # Without the jobs before it, which may be completing still.
    number = the_one(subprocess.run([*job.hosts.enter("h0"), "squeue", "-h", "-t", "RUNNING", "-o", "%i"], **where).stdout.split(), "the job of Slurm")
    subprocess.run([*job.hosts.enter("h0"), "scancel", number], **where)
    status, output = job.end()
    if status != 2 or "the launcher (slurm)" not in job.error() and "is gone" not in job.error():
        fail(f"status {status}, error {job.error()}:\n{output}")


def is_first(pid):
    """srun has a helper of its own name, its child."""
    parent = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
    return not executable(parent).endswith("/srun")


if __name__ == "__main__":
    main()
