# SPDX-License-Identifier: Apache-2.0
"""Faults that `r2bench inject` arms while a job on two hosts runs. Each strikes on the host of its target and on no other, whether it is
due after bytes, after a time, or after the end of a fault on the other host; and the job goes on.

    armed_late(r2bench, job)     `job`: cleanup_test.Job, which has ended afterwards
"""

import json
import subprocess

from cleanup_test import interrupted
from namespaces import fail, wait_for

# Each leaves its node another NIC. The first strikes when operations are under way, however long the set-up takes.
AFTER_BYTES = "{at: {bytes: 4 MiB}, target: node1/nic0, kind: port_down}"
AFTER_A_TIME = "{at: {time: 300 ms}, target: node0/nic1, kind: port_down}"  # counted from its arming
AFTER_THE_OTHER_HOSTS = "{after: {fault: 2, until: healed}, target: node1/nic1, kind: port_down}"


def armed_late(r2bench, job):
    def inject(*words):
        # The job listens in the network namespace of its runner.
        done = subprocess.run([*job.hosts.enter("h0"), r2bench, "inject", *words, "--name", f"run-{job.runner.pid}"],
                              capture_output=True, text=True, timeout=60, env=job.environment)
        if done.returncode != 0:
            job.runner.kill()
            fail(f"inject {words}: status {done.returncode}: {done.stdout}{done.stderr}\nThe job said:\n{job.end()[1][-4000:]}")
        return done.stdout

    def listed(number, *more):
        return json.loads(inject("list", "--json", *more))["faults"][number - 1]

    def arm(number, rule):
        if inject("add", rule).split() != [str(number)]:
            fail(f"{rule} did not get the id {number}")

    def at_work(number):
        wait_for(lambda: listed(number)["state"] == "at work", f"fault {number} is at work")
        wait_for(lambda: listed(number, "--effects")["effects"], f"fault {number} has taken effect")

    def heal(number, node):
        inject("remove", str(number))
        wait_for(lambda: listed(number)["state"] == "healed", f"fault {number} is healed")
        told = listed(number, "--effects")
        nodes = {effect["node"] for effect in told["effects"]}
        if nodes != {node}:
            fail(f"{told['target']} took effect on {sorted(nodes)}")
        if not told["armed_ns"] <= told["triggered_ns"] <= told["t0_ns"] < told["healed_ns"]:
            fail(f"the times of {told['target']} are in no order: {told}")
        return told

    arm(1, AFTER_BYTES)
    at_work(1)
    heal(1, "node1")
    arm(2, AFTER_A_TIME)
    at_work(2)
    arm(3, AFTER_THE_OTHER_HOSTS)
    if listed(3)["state"] != "armed":
        fail(f"fault 3 waits for the end of fault 2, but is {listed(3)}")
    heal(2, "node0")
    at_work(3)
    heal(3, "node1")
    interrupted(job)
    notes = [event["text"] for event in map(json.loads, (job.out / "events.jsonl").read_text().splitlines()) if event.get("event") == "inject"]
    if [sum(word in note for note in notes) for word in ("added by inject", "removed by inject")] != [3, 3]:
        fail(f"the event log says of inject: {notes}")
    run = json.loads((job.out / "result.json").read_text())["runs"][0]
    if run["metrics"]["correctness"]["wrong_elements"] != 0:
        fail(f"wrong elements: {run['metrics']['correctness']}")
