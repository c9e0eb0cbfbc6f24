#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A NIC is gone for a short time, again and again, and the plugin finds out only when it is back: each stall, most of
which lies behind the heal, is a sample of its whole length. The bounds hold on a machine of any speed.

    stalls_past_each_heal.py R2BENCH SCENARIO FOLDER
"""

import json
import pathlib
import shutil
import subprocess
import sys

FOR_MS = 40  # each fault of the scenario


def is_open(run, time_ms):
    """Whether an operation was under way."""
    return any(begin <= time_ms <= begin + ms for begin, ms in zip(run["iteration_begin_ms"], run["iteration_ms"]))


def flaws(run):
    """What is wrong with the four faults of a run."""
    found = []
    if len(run["faults"]) != 4:
        found.append(f"{len(run['faults'])} strikes, not 4")
    counts = run["metrics"]["faults"]
    rated = sum(not fault["why_no_rate_before"] for fault in run["faults"])
    if (counts["witnessed"], counts["sampled"], counts["recovered_after_heal"]) != (4, 4, rated):
        found.append(f"not all are sampled, or recovered after their heal: {counts}")
    for number, fault in enumerate(run["faults"], 1):
        of = f"strike {number}: "
        if not fault["sampled"]:
            found.append(of + f"no sample: {fault['why_not_sampled']}")
            continue
        least = FOR_MS
        if is_open(run, fault["t0_at_ms"]):  # then nothing is delivered before the fence, and all of it is open time
            if fault["detect_ms"] is None:
                found.append(of + "no fence answers it")
                continue
            least = max(least, fault["detect_ms"] - 1)
        for time in ["blackout_ms"] if fault["why_no_rate_before"] else ["recover_ms", "blackout_ms"]:
            if fault[time] is None or fault[time] < least:
                found.append(of + f"{time} is {fault[time]}, less than the {least:.0f} ms of the stall")
        if fault["why_no_rate_before"]:  # its detection and its blackout count, its recovery cannot be judged
            print(of + "its recovery is left out: " + fault["why_no_rate_before"])
            continue
        if fault["recovered_at_ms"] is None or fault["recovered_at_ms"] <= fault["healed_at_ms"]:
            found.append(of + f"recovered at {fault['recovered_at_ms']} ms, healed at {fault['healed_at_ms']} ms")
    longest = max(fault["blackout_ms"] or 0 for fault in run["faults"])
    if run["metrics"]["recovery"]["blackout_ms"]["max"] != longest:
        found.append(f"the longest blackout is {longest}, not {run['metrics']['recovery']['blackout_ms']['max']}")
    return found


def main():
    r2bench, scenario, folder = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    code = subprocess.run([r2bench, "run", scenario, "--quiet", "--no-plot", "--out", folder]).returncode
    found = flaws(json.loads(pathlib.Path(folder, "result.json").read_text())["runs"][0])
    for flaw in found:
        print(flaw)
    sys.exit(1 if found else code)


if __name__ == "__main__":
    main()
