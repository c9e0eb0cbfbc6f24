#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same command on every host with the environment that torchrun gives: two processes on each of two hosts, whose network has
IPv4; then on hosts that have IPv6 only.

    env_test.py R2BENCH
"""

import json
import pathlib
import subprocess
import sys

from mpirun_test import NIC_DOWN, check_hosts
from namespaces import IPV6, NETWORK, Hosts, fail, need

SECRET = "of this test, and long enough"


def start(r2bench, hosts, host, rank, local_rank, arguments, **more):
    environment = dict(hosts.environment(), RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE="2",
                       MASTER_ADDR=hosts.address(0), MASTER_PORT="29400", **more)
    return subprocess.Popen([*hosts.enter(host), r2bench, "run", *arguments, "--launcher", "env"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env=environment)


def main():
    r2bench = sys.argv[1]
    need(("ip", "iproute2"), ("nsenter", "util-linux"))
    over(NETWORK, r2bench)
    if pathlib.Path("/proc/net/if_inet6").exists():
        over(IPV6, r2bench)
    else:
        print("this kernel has no IPv6: not tried")


def over(network, r2bench):
    with Hosts(2, network) as hosts:
        scenario, out = hosts.folder / "scenario.yaml", hosts.folder / "out"
        scenario.write_text(NIC_DOWN)
        arguments = [str(scenario), "--no-plot", "--quiet", "--out", str(out)]
        lone = start(r2bench, hosts, "h0", 0, 0, arguments)
        said, _ = lone.communicate(timeout=60)
        if lone.returncode != 64 or "R2BENCH_JOB_SECRET" not in said:
            fail(f"without a secret: status {lone.returncode}, {said}")
        places = [("h0", 0, 0), ("h0", 1, 1), ("h1", 2, 0), ("h1", 3, 1)]
        processes = [start(r2bench, hosts, *place, arguments, R2BENCH_JOB_SECRET=SECRET) for place in places]
        said = [process.communicate(timeout=240)[0] for process in processes]
        if not (out / "result.json").exists():
            fail(f"no result:\n{said}")
        result = json.loads((out / "result.json").read_text())
        check_hosts(result, out, said[0])
        outcomes = {one["mode"]: one["outcome"] for one in result["runs"]}
        if outcomes != {"baseline": "error", "migrate": "ok"} or any(process.returncode for process in processes[1:]):
            fail(f"outcomes {outcomes}, statuses {[process.returncode for process in processes]}:\n{said}")
        if "nothing to do" not in said[1] or "nothing to do" not in said[3]:
            fail(f"the second processes of the hosts said {said[1]!r} and {said[3]!r}")
        print(f"four processes on two hosts of {network}: {outcomes}, verdict {result['verdict']}")
        for each in result["expectations"]:
            if each["name"] == "baseline.error_names_nic" and not each["ok"]:
                fail(f"the error does not name the NIC: {each['detail']}")
            if not each["ok"]:
                print(f"    missed: {each['name']} {each['got']}: {each['detail']}")
        hosts.expect_nobody("after the job")


if __name__ == "__main__":
    main()
