#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nic_down over two hosts that torchrun itself has started: two processes on each.

    torchrun_test.py R2BENCH

Skipped (77) where PyTorch's torchrun is missing.
"""

import json
import shutil
import subprocess
import sys

from env_test import SECRET
from mpirun_test import NIC_DOWN, check_hosts
from namespaces import NETWORK, Hosts, fail, need, skip


def main():
    r2bench = sys.argv[1]
    need(("ip", "iproute2"), ("nsenter", "util-linux"))
    torchrun = shutil.which("torchrun")
    if not torchrun:
        skip("torchrun is missing; python3 -m pip install torch")
    with Hosts(2) as hosts:
        scenario, out = hosts.folder / "scenario.yaml", hosts.folder / "out"
        scenario.write_text(NIC_DOWN)
        environment = dict(hosts.environment(), R2BENCH_JOB_SECRET=SECRET, GLOO_SOCKET_IFNAME="eth0")
        processes = []
        for node, host in enumerate(("h0", "h1")):
            command = [torchrun, "--nnodes", "2", "--nproc_per_node", "2", "--node_rank", str(node), "--master_addr", f"{NETWORK}1", "--master_port", "29400",
                       "--no_python", r2bench, "run", str(scenario), "--launcher", "env", "--no-plot", "--quiet", "--out", str(out)]
            processes.append(subprocess.Popen([*hosts.enter(host), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment))
        said = [process.communicate(timeout=600)[0] for process in processes]
        if not (out / "result.json").exists():
            fail("no result:\n" + "\n".join(said))
        result = json.loads((out / "result.json").read_text())
        check_hosts(result, out, said[0])
        outcomes = {one["mode"]: one["outcome"] for one in result["runs"]}
        if outcomes != {"baseline": "error", "migrate": "ok"} or any(process.returncode for process in processes):
            fail(f"outcomes {outcomes}, statuses {[process.returncode for process in processes]}:\n" + "\n".join(said))
        print(f"two hosts of torchrun: {outcomes}, verdict {result['verdict']}")
        hosts.expect_nobody("after the job")


if __name__ == "__main__":
    main()
