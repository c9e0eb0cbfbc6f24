#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A scenario over srun on two hosts of a real Slurm, from an allocation and with --hosts; and what a killed srun leaves.

    slurm_test.py R2BENCH
"""

import os
import signal
import subprocess
import sys

from cleanup_test import Job, the_one
from mpirun_test import NIC_DOWN, check_hosts, run
from namespaces import Hosts, fail, need
from slurm_cluster import SlurmCluster


def main():
    r2bench = sys.argv[1]
    need(("srun", "slurm-client"), ("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("munged", "munge"), ("ip", "iproute2"), ("nsenter", "util-linux"))
    with Hosts(2) as hosts, SlurmCluster(hosts) as slurm:
        daemons = set(hosts.processes())
        scenario = hosts.folder / "scenario.yaml"
        scenario.write_text(NIC_DOWN)
        # In an allocation, whose hosts r2bench takes as they are.
        result, report = run(r2bench, scenario, hosts.folder / "salloc", [*hosts.enter("h0"), "salloc", "-N2"], ["--launcher", "slurm"], slurm.environment())
        check_hosts(result, hosts.folder / "salloc", report)
        outcomes = {one["mode"]: one["outcome"] for one in result["runs"]}
        if outcomes != {"baseline": "error", "migrate": "ok"}:
            fail(f"the outcomes: {outcomes}")
        print(f"srun in an allocation: {outcomes}, verdict {result['verdict']}")
        only = lambda: set(hosts.processes()) - daemons
        hosts.expect_nobody("after salloc", daemons)
        # Without one, and srun is killed.
        job = Job(r2bench, hosts, hosts.folder / "killed", "slurm", slurm.environment())
        os.kill(the_one([pid for pid in only() if os.readlink(f"/proc/{pid}/exe").endswith("/srun") and is_first(pid)], "srun"), signal.SIGKILL)
        status, output = job.end()
        if status != 1 or "the launcher (slurm) died of signal 9" not in job.error() and "is gone" not in job.error():
            fail(f"status {status}, error {job.error()}:\n{output}")
        hosts.expect_nobody("after srun was killed", daemons)
        print("srun killed: nothing is left")


def is_first(pid):
    """srun has a helper of its own name, its child."""
    parent = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
    return not os.readlink(f"/proc/{parent}/exe").endswith("/srun")


if __name__ == "__main__":
    main()
