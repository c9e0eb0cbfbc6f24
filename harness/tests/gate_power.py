#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how often `r2bench gate` raises a false alarm, and how often it finds a delay in the core.

    harness/tests/gate_power.py [--r2bench build/release/bin/r2bench] --runs 20 --lanes 4 --neighbours 8 --out build/gate_power

First makes a baseline of --baseline-runs gate measurements, which alternate with their reference (or takes --baseline FILE). Then it runs the
gate --runs times without a change, and --runs times with R2CC_FENCE_DELAY_MS=--delay in the candidate only. Runs with and without the delay
alternate. --lanes runs run at the same time, each on its own cores (taskset). --neighbours busy loops run all the time, spread over the same
cores: each alternates between computing and sleeping, for random times of 1 to 200 ms.

Writes to --out: record.jsonl (a line for each gate run), summary.json, baseline.json, and with --keep each run's folder. Needs Linux and
Python's standard library only.

Exit status: 0 no false alarm and every delay found, 1 otherwise, 2 the gate ended with a status other than 0 or 1, 64 wrong command line."""

import argparse
import concurrent.futures
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "harness", "base"))
import origin  # noqa: E402

GATE_SECONDS = 300  # no gate run may take longer


def split_cores(cores, lanes):
    """As many disjoint sets of neighbouring cores; what is left over goes to nobody."""
    size = len(cores) // lanes
    return [cores[i * size:(i + 1) * size] for i in range(lanes)] if size > 0 else []


def neighbour(core, seed):
    """A loop that takes the core and leaves it, for ever. Ends with its parent."""
    os.sched_setaffinity(0, {core})
    dice = random.Random(seed)
    parent = os.getppid()
    while os.getppid() == parent:
        until = time.monotonic() + dice.uniform(0.001, 0.2)
        while time.monotonic() < until:
            pass
        time.sleep(dice.uniform(0.001, 0.2))
    os._exit(0)


def start_neighbours(count, cores, seed):
    started = []
    for i in range(count):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                neighbour(cores[i % len(cores)], seed + i)
            finally:
                os._exit(0)
        started.append(child)
    return started


def end(children):
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


class Lanes:
    """Hands each run a set of cores that no other run has."""

    def __init__(self, sets):
        self.free = list(sets)
        self.lock = threading.Lock()

    def take(self):
        with self.lock:
            return self.free.pop()

    def give(self, cores):
        with self.lock:
            self.free.append(cores)


def gate(options, lanes, arguments, folder):
    """Runs the gate on a free lane; what it said, its exit status, its seconds, its cores."""
    cores = lanes.take()
    began = time.monotonic()
    try:
        command = ["taskset", "-c", ",".join(map(str, cores)), options.r2bench, "gate", options.scenario, "--quiet", "--out", folder] + arguments
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
        environment.setdefault("R2BENCH_SHARE", ROOT)
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=GATE_SECONDS, env=environment, check=False)
            status, said = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            status, said = 124, f"no end within {GATE_SECONDS} s"
        return status, said, time.monotonic() - began, cores
    finally:
        lanes.give(cores)


def rows_of(folder):
    """The figures of the comparison: medians and floors of the metrics, from what the gate wrote for CI."""
    try:
        with open(os.path.join(folder, "comparison", "comparison.json"), encoding="utf-8") as file:
            return json.load(file)["rows"]
    except (OSError, ValueError, KeyError):
        return []


def wakeups(folder):
    found = []
    for name, _, files in os.walk(folder):
        if "result.json" in files:
            with open(os.path.join(name, "result.json"), encoding="utf-8") as file:
                found += [run["wakeup_ms"]["p99"] for run in json.load(file)["runs"]]
    return max(found) if found else None


def one_run(options, lanes, number, delayed, baseline, record, lock):
    folder = os.path.join(options.work, f"{'delayed' if delayed else 'plain'}-{number:03d}")
    seed = options.seed + 1000 * number + (500 if delayed else 0)
    arguments = ["--baseline", baseline, "--seed", str(seed)]
    if delayed:
        arguments += ["--set", f"env.R2CC_FENCE_DELAY_MS={options.delay}", "--may-differ", "env.R2CC_FENCE_DELAY_MS"]
    if not options.no_reference:
        arguments += ["--reference", "env.R2CC_FENCE_DELAY_MS=0"]
    began = origin.now()
    status, said, seconds, cores = gate(options, lanes, arguments, folder)
    line = {"run": number, "delay_ms": options.delay if delayed else 0, "status": status, "seconds": round(seconds, 1), "began": began, "cores": cores,
            "load": os.getloadavg()[0], "wakeup_p99_ms": wakeups(folder), "rows": rows_of(folder)}
    if status not in (0, 1):
        line["said"] = said[-2000:]
    with lock:
        with open(record, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{began}  {'delayed' if delayed else 'plain  '} {number:3d}  status {status}  {seconds:5.1f} s", flush=True)
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return line


def make_baseline(options, lanes, pool, file):
    """--baseline-runs measurements, on all lanes, put together."""
    def measure(number):
        part = os.path.join(options.work, f"baseline-{number:03d}.json")
        arguments = ["--seed", str(options.seed + 500000 + 1000 * number), "--save-baseline", part]
        if not options.no_reference:
            arguments += ["--reference", "env.R2CC_FENCE_DELAY_MS=0"]
        status, said, seconds, _ = gate(options, lanes, arguments, os.path.join(options.work, f"baseline-{number:03d}"))
        print(f"{origin.now()}  baseline {number:3d}  status {status}  {seconds:5.1f} s", flush=True)
        if status != 0:
            raise RuntimeError(f"a measurement of the baseline ended with {status}:\n{said[-2000:]}")
        return part

    parts = list(pool.map(measure, range(options.baseline_runs)))
    merged = None
    for part in parts:
        with open(part, encoding="utf-8") as stream:
            one = json.load(stream)
        if merged is None:
            merged = one
            continue
        for mode, more in zip(merged["modes"], one["modes"]):
            mode["outcomes"] += more["outcomes"]
            for metric, samples in zip(mode["metrics"], more["metrics"]):
                metric["runs"] += samples["runs"]
                if "references" in metric:
                    metric["references"] += samples["references"]
    with open(file, "w", encoding="utf-8") as stream:
        json.dump(merged, stream, indent=1)
        stream.write("\n")


def provenance(options, cores):
    facts = {"command": " ".join(["harness/tests/gate_power.py"] + sys.argv[1:]), "kernel": platform.release(), "cores_used": cores, "evidence": "emulated"}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            facts["cpu"] = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    done = subprocess.run([options.r2bench, "--version"], stdout=subprocess.PIPE, text=True, check=False)
    facts["r2bench"] = done.stdout.strip()
    return facts


def read_options():
    """With `sets`: the cores of each lane."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--r2bench", default=os.path.join(ROOT, "build", "release", "bin", "r2bench"), help="path of r2bench")
    parser.add_argument("--scenario", default="recovery_gate", help="the scenario that the gate runs")
    parser.add_argument("--runs", type=int, default=20, help="gate runs with the delay, and as many without it")
    parser.add_argument("--delay", type=int, default=2, help="the delay in ms")
    parser.add_argument("--lanes", type=int, default=1, help="gate runs at the same time")
    parser.add_argument("--neighbours", type=int, default=0, help="number of busy loops that run beside the gate")
    parser.add_argument("--baseline", help="an existing baseline (default: one is made)")
    parser.add_argument("--baseline-runs", type=int, default=8, help="measurements of the baseline")
    parser.add_argument("--no-reference", action="store_true", help="compare with the baseline, without an alternating reference")
    parser.add_argument("--seed", type=int, default=1, help="seed of everything random")
    parser.add_argument("--out", required=True, help="folder of the output")
    parser.add_argument("--keep", action="store_true", help="keep the folders of all gate runs")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    options.sets = split_cores(cores, options.lanes)
    if options.lanes < 1 or options.runs < 1 or not options.sets or options.neighbours < 0 or options.baseline_runs < 1:
        parser.error(f"there are {len(cores)} cores for {options.lanes} lanes")
    return options


def measure(options, record):
    """The lines of all gate runs, --lanes at a time and beside the busy loops."""
    lanes = Lanes(options.sets)
    baseline = os.path.join(options.out, "baseline.json")
    with concurrent.futures.ThreadPoolExecutor(options.lanes) as pool:
        if options.baseline:
            shutil.copyfile(options.baseline, baseline)
        else:
            make_baseline(options, lanes, pool, baseline)
        lock = threading.Lock()
        wanted = [(number, delayed) for number in range(options.runs) for delayed in ((False, True) if number % 2 == 0 else (True, False))]
        return list(pool.map(lambda one: one_run(options, lanes, one[0], one[1], baseline, record, lock), wanted))


def summary_of(lines, options):
    plain = [line for line in lines if line["delay_ms"] == 0]
    delayed = [line for line in lines if line["delay_ms"] != 0]
    return {"false_alarms": sum(line["status"] == 1 for line in plain), "plain_runs": len(plain),
            "found": sum(line["status"] == 1 for line in delayed), "delayed_runs": len(delayed), "delay_ms": options.delay,
            "other_statuses": sum(line["status"] not in (0, 1) for line in lines), "longest_gate_s": max(line["seconds"] for line in lines),
            "lanes": options.lanes, "neighbours": options.neighbours, "by_turns": not options.no_reference}


def main():
    options = read_options()
    if not os.access(options.r2bench, os.X_OK):
        print(f"{options.r2bench} is no program; build it with ./r2bench build, or name it with --r2bench", file=sys.stderr)
        return 64
    os.makedirs(options.out, exist_ok=True)
    record = os.path.join(options.out, "record.jsonl")
    if os.path.exists(record):
        print(f"{record} is there already; name another --out", file=sys.stderr)
        return 64
    options.work = os.path.join(options.out, "runs") if options.keep else tempfile.mkdtemp(prefix="gate_power-")
    os.makedirs(options.work, exist_ok=True)
    began = time.monotonic()
    used = [core for lane in options.sets for core in lane]
    children = start_neighbours(options.neighbours, used, options.seed)
    try:
        lines = measure(options, record)
    finally:
        end(children)
        if not options.keep:
            shutil.rmtree(options.work, ignore_errors=True)
    summary = summary_of(lines, options)
    with open(os.path.join(options.out, "summary.json"), "w", encoding="utf-8") as file:
        json.dump({**summary, "seconds": round(time.monotonic() - began), **provenance(options, used)}, file, indent=1)
        file.write("\n")
    print(f"false alarms: {summary['false_alarms']} of {summary['plain_runs']}; a delay of {options.delay} ms found: {summary['found']} of "
          f"{summary['delayed_runs']}; other ends: {summary['other_statuses']}; longest gate run {summary['longest_gate_s']} s")
    if summary["other_statuses"]:
        return 2
    return 0 if summary["false_alarms"] == 0 and summary["found"] == summary["delayed_runs"] else 1


if __name__ == "__main__":
    sys.exit(main())
