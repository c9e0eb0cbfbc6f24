#!/usr/bin/env python3
"""The rxe fabric end to end: a scenario in the guest, what it leaves, and that the guest dies with r2bench.

    rxe_smoke.py R2BENCH SCENARIO [--full]

Fails with a sentence when a package is missing: a fabric that was not tried is not a fabric that works. Where no guest
can be made because the system is not Debian (its kernel has another name), it is skipped: exit status 77.
"""

import argparse
import json
import os
import pathlib
import signal
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


def scenario_passes(r2bench, scenario, out):
    done = subprocess.run([r2bench, "run", scenario, "--quiet", "--no-plot", "--out", out], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    if done.returncode != 0:
        fail(f"'r2bench run {scenario}' ended with status {done.returncode}")
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("r2bench")
    parser.add_argument("scenario")
    parser.add_argument("--full", action="store_true", help="also its ends: exit statuses, kill -9, Ctrl-C")
    arguments = parser.parse_args()
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
        status_comes_out(arguments.r2bench)
        interrupt_ends_the_guest(arguments.r2bench)
    guest_dies_with_r2bench(arguments.r2bench)
    print("passed")


if __name__ == "__main__":
    main()
