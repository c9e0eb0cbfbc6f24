#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends signals to processes of running jobs at random moments, and checks what is left.

Each round starts `r2bench run` on a small scenario with a fault, waits for a random time, and sends a random signal to a random process of
the job (r2bench itself included). Each round asserts that within the bound every process of the job is gone, that the exit status is one
that r2bench documents, and that nothing of the job is left in /dev/shm, in the temporary folder or among the sockets. In the last round all
processes are stopped for longer than the scenario's stall bound, as on a machine that was suspended; the job must end without an error. The
seed is printed. The same seed gives the same rounds, but not the same moments."""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

SCENARIO = """version: 1
name: chaos
seed: {seed}
fabric: {{kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 2, nic_rate: 1 Gbit/s}}
workload: {{engine: cpu, op: {op}, dtype: float32, bytes: 2 MiB, iters: 40, warmup: 2, verify: true}}
modes: [baseline, migrate]
env: {{NCCL_IB_TIMEOUT: 13}}
timeouts: {{job: 20 s, stall: {stall} s}}
faults:
  - {{at: {{iter: 12}}, target: node1/nic0, kind: {kind}}}
expect:
  all: {{wrong_elements: 0}}
  baseline: {{outcome: error}}
  migrate: {{outcome: ok, correctness: exact}}
"""
STALL = 4  # seconds
BOUND = 20  # seconds, from the signal to the end of the last process
MARK = "R2BENCH_CHAOS_ROUND"


def processes(mark):
    """Pids of the round's processes that have not ended, with their commands."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/stat", "rb") as file:
                if file.read().rsplit(b")", 1)[1].split()[0] in (b"Z", b"X"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                found[int(entry)] = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
    return found


def leftovers(folder):
    """What lies where a job could leave something: shared memory of ours, sockets with a name in the file system, the
    temporary folder. (Abstract sockets and memfds end with their processes.) Others may use the machine meanwhile."""
    ours = re.compile("r2bench|r2ccl|vhca|faultinject")
    things = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if ours.search(name)} if os.path.isdir("/dev/shm") else set()
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        things |= {"socket " + word for line in file for word in line.split()[7:] if not word.startswith("@") and ours.search(word)}
    return things | {os.path.join(folder, name) for name in os.listdir(folder)}


def kill_all(mark):
    for pid in processes(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def play(r2bench, number, generator, folder, suspend=False):
    """One round; returns (what is wrong or None, what was done). Leaves nothing running, however it ends."""
    mark = f"{MARK}={os.getpid()}-{number}"
    try:
        return play_marked(r2bench, number, generator, folder, mark, suspend)
    finally:
        kill_all(mark.encode())


def suspend_all(mark):
    """Everything stands still for longer than the scenario's stall bound."""
    pids = sorted(processes(mark))
    for number, pause in ((signal.SIGSTOP, STALL + 2), (signal.SIGCONT, 0)):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        time.sleep(pause)
    return len(pids)


def play_marked(r2bench, number, generator, folder, mark, suspend):
    out = os.path.join(folder, f"out{number}")
    temporary = os.path.join(folder, f"tmp{number}")
    os.mkdir(temporary)
    scenario = write_scenario(os.path.join(folder, f"chaos{number}.yaml"), generator)
    before = leftovers(temporary)
    name, value = mark.split("=")
    job = subprocess.Popen([r2bench, "run", scenario, "--no-plot", "--out", out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, preexec_fn=os.setpgrp, env={**os.environ, name: value, "TMPDIR": temporary})
    for _ in range(200 if suspend else 0):  # until both ranks are there
        if len(processes(mark.encode())) >= 3:
            break
        time.sleep(0.05)
    time.sleep(0.3 if suspend else generator.choice([0.02, 0.2, 1, 3]) * generator.random())
    kind = generator.choice([signal.SIGKILL] * 4 + [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGSTOP])
    victim = None
    if suspend:
        suspended = suspend_all(mark.encode())
        done = f"{suspended} processes suspended for {STALL + 2} s"
        if suspended < 3:
            job.communicate()
            return "the job had ended, or not begun, when it was to be suspended", done
    else:
        victim, done = strike(job, mark, kind, generator)
    wrong, text = wait_for_end(job, mark, BOUND + (10 if kind == signal.SIGSTOP else 0))
    if not wrong and job.returncode not in allowed_statuses(kind, victim == job.pid, suspend):
        wrong = f"exit status {job.returncode}:\n{text}"
    if not wrong and suspend:
        wrong = nothing_measured(out)
    after = leftovers(temporary) - before
    if not wrong and after:
        wrong = f"left behind: {sorted(after)}"
    return (wrong, done) if wrong else (None, f"{done}; exit {job.returncode}")


def write_scenario(file, generator):
    with open(file, "w", encoding="utf-8") as handle:
        handle.write(SCENARIO.format(stall=STALL, seed=generator.randrange(1 << 30), op=generator.choice(["allreduce", "sendrecv"]),
                                     kind=generator.choice(["port_down", "blackhole", "qp_error, qp: all"])))
    return file


def strike(job, mark, kind, generator):
    """Sends the signal to one of the job's processes; its pid (None: the job had ended), and what was done."""
    alive = processes(mark.encode())
    if not alive:
        return None, "the job had ended"
    victim = job.pid if kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) else generator.choice(sorted(alive))
    done = f"{kind.name} to {victim} ({alive.get(victim, 'r2bench')[:60]})"
    try:
        os.kill(victim, kind)
    except ProcessLookupError:
        done += ", which had just ended"
    if victim == job.pid and kind == signal.SIGSTOP:  # nobody could report: it only has to go on afterwards
        time.sleep(0.5)
        os.kill(victim, signal.SIGCONT)
    return victim, done


def wait_for_end(job, mark, bound):
    """(what is wrong or None, what the job said) once all of its processes have ended, or `bound` seconds are over."""
    deadline = time.monotonic() + bound
    try:
        text, _ = job.communicate(timeout=max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        wrong = "r2bench has not ended; left: " + str(processes(mark.encode()))
        kill_all(mark.encode())
        return wrong, job.communicate()[0]
    while processes(mark.encode()) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = processes(mark.encode())
    return f"left behind: {left}" if left else None, text


def allowed_statuses(kind, of_r2bench, suspend):
    """Exit statuses of r2bench after that signal to a process of the job, or to itself."""
    if suspend:
        return {0}
    allowed = {0, 1, 2}
    if kind == signal.SIGKILL and of_r2bench:
        allowed.add(-signal.SIGKILL)
    if kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        allowed |= {128 + kind, -kind}  # the latter before its handlers stand
    return allowed


def nothing_measured(out):
    """What is wrong with the rate before the fault, or None."""
    with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
        rate = [run["metrics"]["throughput"]["before_gbps"] for run in json.load(file)["runs"] if run["mode"] == "migrate"]
    return f"the rate before the fault is {rate}: nothing was measured" if len(rate) != 1 or not rate[0] else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("r2bench", help="path of r2bench")
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds")
    parser.add_argument("--seed", type=int, default=1, help="seed of everything random")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="r2bench-chaos-") as folder:
        for number in range(arguments.rounds):
            wrong, done = play(arguments.r2bench, number, random.Random(arguments.seed * 1000 + number), folder,
                               suspend=number == arguments.rounds - 1)
            print(f"round {number}: {done}" + (f"\n  WRONG: {wrong}" if wrong else ""), flush=True)
            failed += wrong is not None
    print(f"{arguments.rounds} rounds, seed {arguments.seed}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
