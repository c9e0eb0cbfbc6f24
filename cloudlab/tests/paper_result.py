#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What reproduce.sh has to leave of nic_down on a slow machine: each mode ended as it should and every element is right;
only an expectation of time may be missed.

    paper_result.py PAPER KIND EVIDENCE

CLEAN_ROOT_NAME: the system, such as 'clean Debian 12', under which it is recorded (harness/hosts/tests/recorder.py)."""

import json
import os
import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "harness/hosts/tests"), str(TOP / "harness/base")]
import origin  # noqa: E402
import recorder  # noqa: E402

WANTED = {"baseline": "error", "migrate": "ok"}
OF_TIME = ("_ms.", "retained_bw")


def fail(why):
    recorder.failed()
    print(f"FAILED: {why}", flush=True)
    sys.exit(1)


def logs(paper):
    return "".join(path.read_text()[-4000:] for path in sorted(paper.glob("logs/*")))


def look_at_nic_down(paper, kind, evidence, hosts=None):
    """`hosts`: (name, first node, nodes) of each, where there are several. Ends the program where something is wrong."""
    system = os.environ.get("CLEAN_ROOT_NAME")
    if system:
        recorder.begin(evidence, system + (f", {len(hosts)} guests" if hosts else ""), "mpi" if hosts else "local", "nic_down", test="clean_root")
    if not (paper / "reference/nic_down/result.json").exists():
        fail("nic_down left no result:\n" + logs(paper))
    result = json.loads((paper / "reference/nic_down/result.json").read_text())
    if (result["fabric"]["kind"], result["evidence"]) != (kind, evidence):
        fail(f"fabric {result['fabric']['kind']}, evidence {result['evidence']}")
    for run in result["runs"] if hosts else []:
        places = [(host["name"], host["first_node"], host["nodes"]) for host in run["hosts"]["list"]]
        if places != hosts:
            fail(f"{run['mode']} ran on {places}")
    outcomes = sorted((run["mode"], run["outcome"]) for run in result["runs"])
    if outcomes != sorted(WANTED.items()):
        fail(f"the outcomes are {outcomes}")
    if not result["expectations"]:
        fail("nothing was expected")
    missed = [each for each in result["expectations"] if not each["ok"]]
    for each in missed:
        if not any(word in each["name"] for word in OF_TIME):
            fail(f"{each['name']} is {each['got']}, not {each['wanted']}\n{each['detail']}")
    figure = paper / "figures/timeline.pdf"
    if not figure.exists() or figure.read_bytes()[:4] != b"%PDF":
        fail("there is no figure:\n" + logs(paper))
    count = len(result["expectations"])
    print(f"nic_down: {dict(outcomes)}, {count - len(missed)} of {count} expectations met, its figure is there")
    for each in missed:
        print(f"    missed on this slow machine: {each['name']} {each['got']}")
    recorder.passed(result, origin.of_checkout(TOP, but=("results",)))


if __name__ == "__main__":
    look_at_nic_down(pathlib.Path(sys.argv[1]), *sys.argv[2:4])
