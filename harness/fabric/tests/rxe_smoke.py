#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the rxe fabric end to end: runs a scenario in the guest, and checks that nothing is left and that the guest ends with r2bench.

    rxe_smoke.py R2BENCH SCENARIO [--full]

If a package is missing, the test fails and names it. On a system other than Debian no guest can be made, because the kernel package
has another name; there the test is skipped (exit status 77).
"""

import argparse
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time

PATIENCE = 1200  # seconds; processes of this machine may stand still for minutes


def fail(sentence):
    print(f"FAILED: {sentence}")
    sys.exit(1)


def on_debian():
    """Whether the system is Debian, as far as its own description says."""
    try:
        lines = pathlib.Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return "ID=debian" in lines


def guests_of(pid):
    """QEMU processes whose job lies in a descriptor of that process."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"qemu-system" in words.split(b"\0")[0] and f"/proc/{pid}/fd/".encode() in words:
            found.append(int(folder.name))
    return found


def wait_for(condition, what):
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            fail(f"{what} did not come within {PATIENCE} s")
        time.sleep(0.05)


def run_command(r2bench, scenario, out):
    return [r2bench, "run", scenario, "--quiet", "--no-plot", "--out", str(out)]


def scenario_passes(r2bench, scenario, out):
    done = subprocess.run(run_command(r2bench, scenario, out), check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    if done.returncode != 0:
        fail(f"'r2bench run {scenario}' ended with status {done.returncode}")
    result_is_rxes(out)


def result_is_rxes(out):
    result = json.loads((pathlib.Path(out) / "result.json").read_text())
    if result["evidence"] != "rxe" or result["fabric"]["kind"] != "rxe":
        fail(f"the result's evidence is {result['evidence']}, its fabric {result['fabric']['kind']}")
    if "slow_motion" not in result["overrides"]:
        fail("the result does not say that it ran in slow motion")


def status_comes_out(r2bench):
    for status in (0, 7, 143):
        got = subprocess.run([r2bench, "guest", "--nics", "1", "--", "sh", "-c", f"exit {status}"], check=False).returncode
        if got != status:
            fail(f"a command that ended with {status} in the guest gave {got} outside")


def guest_dies_with_r2bench(r2bench):
    running = subprocess.Popen([r2bench, "guest", "--nics", "1", "--", "sleep", "3600"])
    wait_for(lambda: guests_of(running.pid), "the guest")
    running.send_signal(signal.SIGKILL)
    running.wait()
    wait_for(lambda: not guests_of(running.pid), "the guest's end after kill -9 of r2bench")


def interrupt_ends_the_guest(r2bench):
    running = subprocess.Popen([r2bench, "guest", "--nics", "1", "--", "sh", "-c", "echo started; sleep 3600"],
                               stdout=subprocess.PIPE, text=True)
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    status = running.wait(timeout=PATIENCE)
    if status != 130:
        fail(f"Ctrl-C gave status {status}, not 130")
    if guests_of(running.pid):
        fail("a guest is left after Ctrl-C")


def two_at_once(r2bench, scenario, folder):
    """Two runs share nothing but the cache: each passes, with its own faults only, while the other's guest lives."""
    outs = [folder / "one", folder / "two"]
    both = [subprocess.Popen(run_command(r2bench, scenario, out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for out in outs]
    wait_for(lambda: all(guests_of(run.pid) for run in both) or any(run.poll() is not None for run in both),
             "two guests at once")
    if not all(guests_of(run.pid) for run in both):
        fail("one of two runs ended before the other's guest was up")
    for run, out in zip(both, outs):
        said, _ = run.communicate(timeout=PATIENCE)
        if run.returncode != 0:
            fail(f"beside another run, a run ended with status {run.returncode}: {said}")
        result_is_rxes(out)
        for mode in json.loads((out / "result.json").read_text())["runs"]:
            faults = mode["metrics"]["faults"]
            if faults["planned"] != 1 or faults["witnessed"] != 1:
                fail(f"mode {mode['mode']} of two runs at once saw {faults['witnessed']} of {faults['planned']} faults, not 1 of 1")


def family(pid):
    """The process and all that it started."""
    found = [pid]
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if parent == pid:
            found += family(int(folder.name))
    return found


def open_for_writing(pids):
    """Regular files, not memory's, that one of these has open for writing."""
    found = set()
    for pid in pids:
        for link in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                flags = int(re.search(r"flags:\s*(\d+)", (link.parents[1] / "fdinfo" / link.name).read_text()).group(1), 8)
                path = os.readlink(link)
                regular = stat.S_ISREG(link.stat().st_mode)
            except (OSError, AttributeError):
                continue
            if regular and flags & os.O_ACCMODE != os.O_RDONLY and not path.startswith("/memfd:"):
                found.add(path)
    return found


def locks_of(pids):
    lines = pathlib.Path("/proc/locks").read_text().splitlines()
    return [line for line in lines if any(f" {pid} " in line for pid in pids)]


def content(folder):
    return sorted((str(path.relative_to(folder)), path.stat().st_mtime_ns)
                  for path in folder.rglob("*") if path.is_file())


def nothing_is_left(r2bench, scenario, folder, number):
    """A run that is ended in its middle leaves no guest, no file but in its result's folder, and no lock."""
    home, out = folder / f"home{number}", folder / f"out{number}"
    home.mkdir()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    before = content(cache / "r2ccl")
    said = folder / f"said{number}"
    with said.open("w") as output:
        running = subprocess.Popen(run_command(r2bench, scenario, out), cwd=home, stdout=output, stderr=output,
                                   env={**os.environ, "HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(cache)})
    # The ranks' logs lie in the result's folder as soon as they have started: the job is under way then.
    wait_for(lambda: any(out.rglob("*.log")) or running.poll() is not None, "the ranks' start")
    if running.poll() is not None:
        fail(f"the run that was to be ended in its middle ended by itself with status {running.returncode}: {said.read_text()}")
    pids = family(running.pid)
    if not guests_of(running.pid):
        fail("a run with ranks and without a guest")
    if elsewhere := {path for path in open_for_writing(pids) if not path.startswith(str(out)) and path != str(said)}:
        fail(f"a run has files open for writing outside of its result: {elsewhere}")
    if locks := locks_of(pids):
        fail(f"a run holds locks: {locks}")
    running.send_signal(number)
    status = running.wait(timeout=PATIENCE)
    if number == signal.SIGINT and status != 130:
        fail(f"Ctrl-C in mid-run gave status {status}, not 130")
    wait_for(lambda: not any(pathlib.Path("/proc", str(pid)).exists() and not is_zombie(pid) for pid in pids),
             f"the end of all processes after signal {number}")
    if left := content(home):
        fail(f"after signal {number} these files are left: {left}")
    if content(cache / "r2ccl") != before:
        fail(f"signal {number} changed the cache")


def is_zombie(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("r2bench")
    parser.add_argument("scenario")
    parser.add_argument("--full", action="store_true",
                        help="also test two runs at once, exit statuses, kill -9 and Ctrl-C")
    arguments = parser.parse_args()
    arguments.r2bench, arguments.scenario = map(os.path.abspath, (arguments.r2bench, arguments.scenario))
    if not on_debian() and os.environ.get("R2BENCH_RXE_HERE") != "1":
        print("skipped: the guest is made of Debian's kernel package, and this is not Debian")
        return 77
    os.environ.pop("R2BENCH_RXE_HERE", None)
    if subprocess.run([arguments.r2bench, "doctor", "--fabric", "rxe"], check=False, stdout=subprocess.PIPE).returncode != 0:
        print(subprocess.run([arguments.r2bench, "doctor", "--fabric", "rxe"], check=False, stdout=subprocess.PIPE,
                             text=True).stdout)
        fail("the rxe fabric cannot run here; './r2bench test' installs what it needs")
    with tempfile.TemporaryDirectory() as folder:
        scenario_passes(arguments.r2bench, arguments.scenario, os.path.join(folder, "out"))
        if arguments.full:
            two_at_once(arguments.r2bench, arguments.scenario, pathlib.Path(folder))
            for number in (signal.SIGINT, signal.SIGKILL):
                nothing_is_left(arguments.r2bench, arguments.scenario, pathlib.Path(folder), number)
            subprocess.run([arguments.r2bench, "guest", "--nics", "1", "--", "true"], check=True)  # nothing is in its way
    if arguments.full:
        status_comes_out(arguments.r2bench)
        interrupt_ends_the_guest(arguments.r2bench)
    guest_dies_with_r2bench(arguments.r2bench)
    print("passed")


if __name__ == "__main__":
    main()
