#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares NCCL's own IB transport, as shipped and with its failover, with R2CCL: the same faults on the same virtual NICs, inside
the same unmodified NCCL. Needs GPUs (one is enough, with CUDA's MPS), a build of this project and a libnccl.

    head_to_head.py --table faults --library /path/libnccl.so.2 --out head_to_head.jsonl
    head_to_head.py --table beside --mbits 10000 --library /path/libnccl.so.2 --seeds 1,2,3,4,5,6 --out beside_ports.jsonl
    head_to_head.py --table beside --turns 384 --sizes 8B,512B,4KiB,32KiB --library /path/libnccl.so.2 --out beside.jsonl

Each row is a scenario that this program writes and `r2bench run` runs. Rows of different transports alternate, so that a drift of the machine
favours none of them. Each row adds a JSON line to --out when it ends. A row that is in --out already is not run again, so the same command
continues where it stopped. plots/head_to_head.py makes tables and figures from the lines.

The predictions (predictions.json) were written before the runs. Each line has the prediction, and says whether it came true.
Exit status: 0 all rows have run, 1 some have not (no time, or the runner failed), 64 wrong command line."""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import gpu_jobs
import head_to_head_rows as rows_of
import comma_list  # harness/base, which gpu_jobs adds

HERE = os.path.dirname(os.path.abspath(__file__))
PREDICTIONS = os.path.join(HERE, "predictions.json")
STEADY = 3  # operations in a row at the old pace: the NIC is in use again
PACE = 1.15  # … no longer than so many times the median before the fault
STOOD_STILL = 1.5  # times the median behind the fault
SKIPPED = 3  # first operations, which connect


def median(values):
    values = sorted(values)
    if not values:
        return None
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def operations(run):
    """[(begin, end)] in ms of the timeline."""
    return [(begin, begin + length) for begin, length in zip(run.get("iteration_begin_ms", []), run["iteration_ms"])]


def measure(result, copies=0):
    """What a table says of one job, from its result.json: the same definitions for every transport, from the times of whole
    operations alone. None: not known. `copies`: communicators of each transport, where two take turns."""
    run = result["runs"][0]
    spans = operations(run)
    struck = [fault["t0_at_ms"] for fault in run["faults"] if fault["t0_at_ms"] is not None]
    healed = [fault["healed_at_ms"] for fault in run["faults"] if fault["healed_at_ms"] is not None]
    t0, last = (min(struck), max(struck)) if struck else (None, None)
    back = max(healed) if healed and len(healed) == len(struck) else None
    end = spans[-1][1] if spans else 0
    length = [finish - begin for begin, finish in spans]
    before = median([n for (begin, finish), n in list(zip(spans, length))[SKIPPED:] if t0 is None or finish <= t0])
    found = {"survives": run["outcome"] == "ok", "outcome": run["outcome"], "error": (run["error"] or "")[:300] or None, "error_ms": run["error_ms"],
             "wrong": run["metrics"]["correctness"]["wrong_elements"], "checked": run["metrics"]["correctness"]["checked_elements"],
             "struck": len(struck), "planned": run["metrics"]["faults"]["planned"], "operations": len(spans), "before_ms": before,
             "stall_ms": run.get("stall_ms"), "after_ms": None, "retained": None, "back_ms": None, "restored": None, "used_again_ms": None,
             "migrations": run["metrics"]["recovery"]["migrations"], "recover_ms": run["metrics"]["recovery"]["recover_ms"]["max"],
             "busbw": run["row"]["busbw_gbytes"], "cpu_s": sum(rank.get("cpu_s", 0) for rank in run["ranks"]) or None,
             "duration_s": run["duration_s"]}
    if copies and all("cpu_by_side_s" in rank for rank in run["ranks"]):
        medians = [[median(times) for times in pair] for pair in rows_of.pairs(length, copies)]
        cpu = [sum(rank["cpu_by_side_s"][side] for rank in run["ranks"]) for side in (0, 1)]
        if medians:
            found |= {"side_ms": [first for first, _ in medians], "other_ms": [second for _, second in medians],
                      "ratio": median([first / second for first, second in medians]), "cpu_ratio": cpu[0] / cpu[1] if cpu[1] else None}
    if t0 is None or before is None:
        return found
    # Without the operation that the last fault struck and those behind it that stood still as well, up to the repair.
    later = [n for (begin, finish), n in zip(spans, length) if begin >= last and finish <= (back or end)]
    while later and later[0] > STOOD_STILL * median(later):
        later.pop(0)
    after = median(later)
    if after is not None:
        found |= {"after_ms": after, "retained": before / after}
    if back is not None:
        healthy = [n <= PACE * before for (begin, _), n in zip(spans, length) if begin >= back]
        begins = [begin for begin, _ in spans if begin >= back]
        for i in range(len(healthy) - STEADY + 1):
            if all(healthy[i:i + STEADY]):
                found["used_again_ms"] = begins[i] - back
                break
        found["back_ms"] = median([n for (begin, _), n in zip(spans, length) if begin >= back][-20:])
        found["restored"] = before / found["back_ms"] if found["back_ms"] else None
    return found


def came_true(prediction, found):
    """None: nothing was predicted, or what was is not known. Numbers are predicted as [least, most]."""
    if not prediction:
        return None
    known = {key: value for key, value in prediction.items() if key in found}
    if not known:
        return None
    for key, wanted in known.items():
        got = found[key]
        if isinstance(wanted, list):
            if got is None or not wanted[0] <= got <= wanted[1]:
                return False
        elif got != wanted:
            return False
    return True


def capture(row):
    """Where times without a fault are compared, the plugin records no messages for the runner: NCCL's own transport does not either."""
    return {"R2BENCH_CAPTURE": "operations"} if row["table"] in ("cost", "beside") else {}


def run_row(row, arguments, mps):
    """The line of one row. Throws subprocess.SubprocessError, OSError where there is no result."""
    folder = tempfile.mkdtemp(prefix="r2ccl-row-")
    try:
        name = re.sub(r"[^0-9A-Za-z_.-]", "_", row["id"])[:60]
        path = os.path.join(folder, name + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(rows_of.scenario(row, name))
        out = os.path.join(folder, "out")
        began = time.monotonic()
        done = subprocess.run([os.path.join(arguments.build, "bin", "r2bench"), "run", path, "--quiet", "--no-plot", "--out", out],
                              capture_output=True, text=True, timeout=row["limit_s"] + 60, env={**os.environ, **mps, **capture(row)}, check=False)
        result_file = os.path.join(out, "result.json")
        if not os.path.exists(result_file):
            raise OSError(f"r2bench left no result (exit status {done.returncode}): {(done.stderr or done.stdout).strip()[-600:]}")
        with open(result_file, encoding="utf-8") as file:
            result = json.load(file)
        if arguments.keep:
            kept = os.path.join(arguments.keep, name)
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(out, kept, ignore=shutil.ignore_patterns("timeline.json"))
        return {**row, "result": measure(result, row["copies"]), "evidence": result["evidence"], "environment": result["environment"],
                "seconds": round(time.monotonic() - began, 1)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_done(path):
    """Ids of the rows that a file has; a line that was cut off counts for nothing and is taken away."""
    done, good = set(), 0
    if not os.path.exists(path):
        return done
    with open(path, "rb") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                break
            if not line.endswith(b"\n"):
                break
            good += len(line)
            if "id" in entry:
                done.add(entry["id"])
                if entry.get("table") == "beside":  # ids of older files lack the turns, which the settings of the row have
                    done.add(rows_of.name(entry))
    os.truncate(path, good)
    return done


def append(path, line):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def sizes(text):
    """Of --sizes: 8B,4KiB."""
    known = {rows_of.size_name(count): count for count in rows_of.TURNS_OF_SIZE}
    unknown = [name for name in text.split(",") if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: the table has {', '.join(known)}")
    return [known[name] for name in text.split(",")]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="append", choices=rows_of.TABLES, help="the table to run; may be repeated (default: all)")
    parser.add_argument("--library", default="libnccl.so.2", help="NCCL of all tables except versions (default: libnccl.so.2)")
    parser.add_argument("--libraries", action="append", default=[], metavar="VERSION=PATH", help="NCCL of the tables versions and timeouts; may be repeated")
    parser.add_argument("--out", default="head_to_head.jsonl", help="file of the JSON lines")
    parser.add_argument("--build", default=os.path.abspath(os.path.join(HERE, "../../../build/release")), help="folder with bin/ and lib/")
    parser.add_argument("--seeds", type=comma_list.numbers, default=[1, 2, 3], help="seeds, separated by commas (default: 1,2,3)")
    parser.add_argument("--mode3", action="store_true", help="also run R2CCL's mode 3")
    parser.add_argument("--upstream", default="", metavar="LIBRARY", help="table faults: also run upstream R2CCL, with this libnccl.so.2 built from its source")
    parser.add_argument("--quick", action="store_true", help="run the most informative rows of all tables with one seed and short jobs: about 8 minutes")
    parser.add_argument("--nodes", type=int, default=2, metavar="N", help="tables cost and beside: how many nodes (default: 2)")
    parser.add_argument("--ranks-per-node", type=int, default=1, metavar="N", help="tables cost and beside: ranks of each node (default: 1), each with a GPU of its own if there are enough")
    parser.add_argument("--causes", action="store_true", help="table beside: also mode 0, and mode 1 with R2CC_STRICT_ACK=0")
    parser.add_argument("--sizes", type=sizes, default=[], metavar="SIZE,…", help=f"table beside: only these sizes, of {', '.join(map(rows_of.size_name, rows_of.TURNS_OF_SIZE))}")
    parser.add_argument("--copies", type=int, choices=[1, 2, 4, 8], help=f"table beside: communicators of each transport in a job (default: {rows_of.COPIES}; with --mbits fewer from 256 MiB on)")
    parser.add_argument("--mbits", type=int, default=0, metavar="N", help="table beside: rate of each virtual NIC in Mbit/s (default: 0, no limit). Turns and copies of each size are then those with which a row takes up to half a minute at 10000")
    parser.add_argument("--iters", type=int, metavar="N", help="operations of each row, after a warm-up of a quarter as many (default: the row's own; not for the table beside, whose rows have whole turns)")
    parser.add_argument("--turns", type=int, metavar="N", help=f"table beside: turns of {rows_of.TURNS} operations of each row, a multiple of twice the copies (default: fewer, the larger an operation is). Use it with --sizes: at 1 GiB, a row of 384 turns takes a quarter of an hour")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="start no row that is expected to end after this time")
    parser.add_argument("--only", default="", metavar="REGEX", help="run only rows whose id matches")
    parser.add_argument("--keep", default="", metavar="FOLDER", help="keep each row's result and logs in this folder")
    parser.add_argument("--list", action="store_true", help="print the rows and their predictions without running them")
    arguments = parser.parse_args(argv)
    wrong = [text for text in arguments.libraries if "=" not in text]
    if wrong:
        parser.error(f"--libraries {wrong[0]}: write VERSION=PATH")
    if arguments.nodes < 2 or arguments.ranks_per_node < 1:
        parser.error(f"--nodes {arguments.nodes} --ranks-per-node {arguments.ranks_per_node}: at least 2 nodes of 1 rank are needed, for traffic between nodes")
    round_of_turns = 2 * (arguments.copies or rows_of.COPIES)
    if arguments.turns is not None and (arguments.turns < 1 or arguments.turns % round_of_turns):
        parser.error(f"--turns {arguments.turns}: a multiple of {round_of_turns} is needed, so that each communicator has as many turns in either order")
    if arguments.mbits < 0:
        parser.error(f"--mbits {arguments.mbits}: a rate in Mbit/s is needed, or 0 for no limit")
    if arguments.iters is not None and arguments.iters < 1:
        parser.error(f"--iters {arguments.iters}: at least 1 operation is needed")
    try:
        re.compile(arguments.only)
    except re.error as error:
        parser.error(f"--only {arguments.only}: not a regular expression ({error})")
    arguments.libraries = dict(text.split("=", 1) for text in arguments.libraries)
    return arguments


def main(argv=None):
    arguments = parse(argv)
    with open(PREDICTIONS, encoding="utf-8") as file:
        predictions = json.load(file)
    rows = rows_of.plan(arguments)
    if arguments.iters:
        rows = [row if row["table"] == "beside" else row | {"iters": arguments.iters, "warmup": max(1, arguments.iters // 4)} for row in rows]
        rows = [row | {"expected_s": rows_of.expected_s(row)} for row in rows]
    rows = [row | {"predicted": rows_of.prediction(predictions, row)} for row in rows if re.search(arguments.only, row["id"])]
    if arguments.list:
        for row in rows:
            print(row["id"], json.dumps(row["predicted"]))
        return 0
    done = read_done(arguments.out)
    left = [row for row in rows if row["id"] not in done]
    if left:
        append(arguments.out, {"host": gpu_jobs.host_facts(arguments.build), "began": gpu_jobs.origin.now(), "rows_left": len(left)})
    began, missing = time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        gpus = gpu_jobs.gpus_usable()
        mps = stack.enter_context(gpu_jobs.shared_gpu(arguments.nodes * arguments.ranks_per_node, gpus))  # one daemon for all rows, where there is one and the ranks share a GPU
        for row in left:
            if time.monotonic() - began + row["expected_s"] > arguments.limit:
                missing += 1
                continue
            try:
                line = run_row(row, arguments, mps)
            except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
                missing += 1
                print(f"{row['id']}: {error}", file=sys.stderr, flush=True)
                continue
            line["as_predicted"] = came_true(row["predicted"], line["result"])
            append(arguments.out, line)
            if line["result"]["outcome"] in ("hang", "killed"):  # MPS is not to be trusted when a client was killed
                stack.close()
                mps = stack.enter_context(gpu_jobs.shared_gpu(arguments.nodes * arguments.ranks_per_node, gpus))
            found = line["result"]
            print(f"{row['id']:58} {found['outcome']:6} wrong {found['wrong']} before {found['before_ms'] or 0:.2f} ms stall {found['stall_ms'] or 0:.1f} ms "
                  f"retained {found['retained'] or 0:.2f} as predicted: {line['as_predicted']} ({line['seconds']} s)", flush=True)
    print(f"{len(rows) - missing} of {len(rows)} rows are in {arguments.out}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
