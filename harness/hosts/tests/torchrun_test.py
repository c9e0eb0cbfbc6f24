#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nic_down, blackhole and k_of_8_nics over two hosts that torchrun itself has started, two processes on each, end as on one machine;
and nothing is left after Ctrl-C or SIGTERM of the first host's torchrun.

    torchrun_test.py R2BENCH

Skipped (77) where PyTorch's torchrun is missing.
"""

import json
import shutil
import signal
import subprocess
import sys

import recorder
from cleanup_test import ENDLESS
from env_test import SECRET
from mpirun_test import as_on_one_machine
from namespaces import NETWORK, Hosts, fail, need, skip, wait_for


def main():
    r2bench = sys.argv[1]
    need(("ip", "iproute2"), ("nsenter", "util-linux"))
    torchrun = shutil.which("torchrun")
    if not torchrun:
        skip("torchrun is missing; python3 -m pip install torch")
    with Hosts(2) as hosts:
        as_on_one_machine(r2bench, hosts, "torchrun", lambda scenario, out: over_torchrun(torchrun, r2bench, hosts, scenario, out))
        for by in (signal.SIGINT, signal.SIGTERM):
            recorder.begin("emulated", hosts.in_words(), "torchrun", {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[by])
            torchrun_ended(by, torchrun, r2bench, hosts)
            recorder.passed()


def torchrun_ended(by, torchrun, r2bench, hosts):
    scenario, out = hosts.folder / "endless.yaml", hosts.folder / by.name
    scenario.write_text(ENDLESS)
    processes = start(torchrun, r2bench, hosts, scenario, out)
    wait_for(lambda: sum("r2bench-cpu-rank" in line for line in hosts.processes().values()) == 2, "both ranks run")
    processes[0].send_signal(by)
    said = [process.communicate(timeout=120)[0] for process in processes]
    hosts.expect_nobody(f"after {by.name} of torchrun")
    if json.loads((out / "result.json").read_text())["cancelled"] is not True:
        fail("the result does not say that it was cancelled:\n" + "\n".join(said))
    print(f"{by.name} of torchrun: nothing is left")


def start(torchrun, r2bench, hosts, scenario, out):
    environment = dict(hosts.environment(), R2BENCH_JOB_SECRET=SECRET, GLOO_SOCKET_IFNAME="eth0")
    processes = []
    for node, host in enumerate(("h0", "h1")):
        command = [torchrun, "--nnodes", "2", "--nproc_per_node", "2", "--node_rank", str(node), "--master_addr", f"{NETWORK}1", "--master_port", "29400",
                   "--no_python", r2bench, "run", str(scenario), "--launcher", "env", "--no-plot", "--quiet", "--out", str(out)]
        processes.append(subprocess.Popen([*hosts.enter(host), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment))
    return processes


def over_torchrun(torchrun, r2bench, hosts, scenario, out):
    processes = start(torchrun, r2bench, hosts, scenario, out)
    said = [process.communicate(timeout=600)[0] for process in processes]
    if not (out / "result.json").exists():
        fail("no result:\n" + "\n".join(said))
    result = json.loads((out / "result.json").read_text())
    # The first host's torchrun passes the verdict on; a rate that a busy machine misses is judged by as_on_one_machine.
    if processes[1].returncode != 0 or (processes[0].returncode == 0) != (result["verdict"] == "pass"):
        fail(f"verdict {result['verdict']}, statuses {[process.returncode for process in processes]}:\n" + "\n".join(said))
    return result, said[0]


if __name__ == "__main__":
    main()
