#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random walks: jobs under many random faults, each job from a seed. A failing job is shrunk to the faults that it needs.

A walk is one verified job in mode 1, 2 or 3 (--mode). In mode 3 it is an AllReduce, and half of the walks use CollNet only. Several dozen
faults (queue pairs, ports with and without events, blackholes, lost acknowledgements, throttles, delays) strike at random moments, on random
NICs of either node, often several at a time. At every moment each node keeps one healthy NIC. r2bench's verdict must confirm that the job
ends without an error, that every element is right, that nothing is lost or delivered twice, and that nothing hangs. A fault without an effect
(a lost acknowledgement when nothing was in flight) does no harm. If the verdict is unknown for another reason, such as lost trace events or
an incomplete event log, the walk is `unknown` and none of its faults counts. If a job exceeds its time limit, but operations end until then,
each within the stall bound of the one before, and every element is right, the walk is `slow`, not a hang: it is counted apart, not among the
walks, and none of its faults counts. Its scenario is kept.

Path changes are counted. A fault counts if an unplanned fence on the struck NIC follows within half a second, and the migration to which that
fence belongs had payload in flight. The sender's event `replayed` shows that: it wrote at least one segment again on another path. A lost
acknowledgement needs no replay, since the receiver's ledger has the segment: it counts if the struck node's own end detected it by an error
completion, which only a work request of its own can have. Each fence explains one fault, the last one before it on its NIC, and each fault
counts once. A fence at a receiver is matched with its sender's by epoch, path and NIC; if several match, all of them must have replayed
something. So migrations of idle paths, and those whose segments had all arrived, are not counted.

`--record FILE` adds a line per run of this script to a JSON Lines file, so that counts add up over runs. The same seed gives the same plan; the
moments are wall-clock times. With --minutes no walk is started after that time; walks that are running continue to their end, which their own
bound limits. Ctrl-C and SIGTERM end the walks that are running: they are counted as `interrupted`, with their seeds. An interrupted walk that
had run for more than three times the longest finished walk may have been a hang. (Before any walk has finished, the limit is its stall
bound.) It is counted as `overdue`, too, its scenario is kept, and the exit status is 1.

Exit status: 0 every walk passed, none was overdue and at least --least faults counted, 1 a walk failed or was overdue, or fewer faults
counted although all walks were judged, 2 a walk was unknown or slow, 64 bad arguments."""

import argparse
import concurrent.futures
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "faultinject"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "base"))
import comma_list  # noqa: E402
import fault_kinds  # noqa: E402
import origin  # noqa: E402

# Kinds after which traffic has to move.
MIGRATING = fault_kinds.names(moves_traffic=True)
# Those of them that have the whole NIC until they are healed.
LASTING = fault_kinds.names(takes="port", ends="when_healed")
# For the rest of the job. The fence is the receiver's, or its kernel's: only one node has such, no NIC freezes beside it, and no connection has both ends on it, as those between two ranks of a node do.
GONE = fault_kinds.names(takes="port", ends="never_for_job")
FLAP_MS = {"down": 10, "up": 20, "count": 3}
USUAL = ["qp_error"] * 3 + ["port_down"] * 3 + ["blackhole"] * 2 + ["ack_lost", "throttle", "delay"]


def is_walked(kind):
    """Whether a kind takes something of a NIC, or harms work under way: others strike only while a job connects, or show in no result of a job."""
    return not kind["outside"] and (kind["takes"] != "nothing" or any(
        example["harm"] in ("breaks", "may_break") and example["strikes"] not in ("anything", "set_up") for example in kind["examples"]))


ALSO = sorted({name for name, kind in fault_kinds.KINDS.items() if is_walked(kind)} - set(USUAL) | {"one_way"})
WITHIN_MS = 500.0
MARGIN_MS = 250  # a healed NIC counts as bad for so long: paths over it are opened and proved again
STALL_S = 10
JOB_S = 170  # after that r2bench ends a job itself; on a full machine this and the result of many operations take it more than ten seconds
COUNTING = "replayed"  # what a path change is, for readers of records; where a record does not say it, any unplanned fence counted
TOO_LONG = "the job took longer than"  # how r2bench's error begins when the job exceeds its own limit (harness/run/job.cc), and not a bound on a stall
OVERDUE = 3  # times the longest finished walk
UNSEEN = "fault_not_seen"  # the kind of that doubt in a result
COMPLETION = 1  # DetectedBy, r2ccl/trace/event.h
SMALL_MS = 0.03  # of an operation of a few bytes: on a fast machine it takes less, and a walk ends before its last faults; on two cores ten times as much
HEAD = """version: 1
name: walk
seed: {seed}
fabric: {{kind: {fabric}, nodes: {nodes}, ranks_per_node: {ranks}, nics_per_node: {nics}, nic_rate: {rate}}}
workload: {{engine: cpu, op: {op}, dtype: int32, bytes: {size}, iters: {iters}, warmup: 1, verify: true{more}}}
modes: [{mode}]
env: {{NCCL_IB_TIMEOUT: 14, R2CC_FAILBACK_MS: 5, R2CC_FAILBACK_MAX_MS: 50, R2CC_COLLNET_MARGIN: 100}}
timeouts: {{job: {job} s, stall: {stall} s}}
expect: {{all: {{outcome: ok, correctness: exact, wrong_elements: 0, lost: 0{doubled}}}}}
faults:
"""


# Before Python 3.11 only by a function that runs between fork and exec, which threads make risky.
OWN_GROUP = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}


def bad_for(kind, lasts):
    """How many ms a NIC is bad that such a fault strikes."""
    if kind == "port_flap":
        return FLAP_MS["count"] * (FLAP_MS["down"] + FLAP_MS["up"])
    return lasts if kind in LASTING else math.inf if kind in GONE else 0


def parameters(kind, g, lasts):
    """What a fault of this kind says besides, for a scenario's line. A kind without an entry here has what one of its own examples says, and a time to last if
    it needs one: a new kind is walked as soon as it is declared."""
    ways = {"qp_error": lambda: ", qp: " + g.choice(["busiest", "all", "random"]),
            "port_down": lambda: f", for: {lasts} ms" + g.choice(["", "", ", events: false"]),
            "blackhole": lambda: f", for: {lasts} ms",
            "ack_lost": lambda: "",
            "throttle": lambda: f", rate: {g.choice([50, 200])} Mbit/s, for: {lasts} ms",
            "completion_error": lambda: ", status: " + g.choice(["REM_ACCESS_ERR", "LOC_PROT_ERR", "RETRY_EXC_ERR", "GENERAL_ERR"]),
            "cq_error": lambda: ", queue: " + g.choice(["send", "recv"]),
            "device_fatal": lambda: f", for: {lasts} ms",
            "device_internal_error": lambda: f", window: {g.choice([5, 20])} ms" + g.choice(["", ", end: fatal"]),
            "device_removed": lambda: f", window: {g.choice([5, 20])} ms" + g.choice(["", ", end: fatal"]),
            "drop_completion": lambda: "",
            "freeze": lambda: f", for: {lasts} ms",
            "one_way": lambda: f", direction: {g.choice(['in', 'out'])}, for: {lasts} ms",
            "poll_fail": lambda: "",
            "port_flap": lambda: f", down: {FLAP_MS['down']} ms, up: {FLAP_MS['up']} ms, count: {FLAP_MS['count']}",
            "post_fail": lambda: ", errno: " + g.choice(["ENOMEM", "EIO"]),
            "delay": lambda: f", delay: {g.choice([100, 1000, 3000])} us, for: {lasts} ms"}
    if kind in ways:
        return ways[kind]()
    declared = fault_kinds.KINDS[kind]
    said = g.choice([example["parameters"] for example in declared["examples"]] or [""])
    said = [said] if said else []
    if declared["ends"] == "when_healed" and not any("for:" in part for part in said):
        said.append(f"for: {lasts} ms")
    return "".join(", " + part for part in said)


class Walk:
    """What one seed gives: a scenario's head and a list of (start, line) of its faults."""

    def __init__(self, seed, faults, also=(), mode="migrate", fabric="vhca", small=False):
        g = random.Random(seed)
        self.seed = seed
        nodes, nics = g.choice([2, 2, 3]), g.choice([2, 3, 4])
        ranks = g.choice([1, 1, 2]) if nodes == 2 else 1
        op = g.choice(["allreduce", "allreduce", "sendrecv", "alltoall", "allgather"])
        mbits, kib = g.choice([500, 1000]), g.choice([120, 1200, 2400]) * nodes * ranks
        if fabric == "rxe":  # as much as the guest carries, so that the job ends soon after its last fault; a NIC does not reach itself there
            mbits, kib, ranks = mbits // 8, kib // 8, 1
        more, doubled = "", ", duplicated: 0"
        if mode == "allreduce":  # what this mode is for; a job whose every operation the plan of the moment runs, or the tuner's choice
            nodes, ranks, op = g.choice([2, 3, 4]), 1, "allreduce"
            kib, more = g.choice([240, 1200, 2400]) * nodes, ", collnet: " + g.choice(["force", "auto"])
            doubled = ""  # through CollNet no message is seen; `correctness` has those that the plugin saw twice
        size = f"{kib} KiB"
        if small:  # a message of an operation among n ranks is an n-th of it
            size = f"{g.choice([8, 64, 200]) * nodes * ranks} B"
        self.faults = []
        bad_until = [[0] * nics for _ in range(nodes)]
        gone_of = None  # the node of which devices are gone for good
        frozen = False
        now = 20
        while len(self.faults) < faults:
            # Often close together, so that one strikes the migration that another has caused.
            now += g.choice([0, 1, 3, 10, 30, 60, 100, 200])
            node, nic = g.randrange(nodes), g.randrange(nics)
            kind = g.choice(USUAL + list(also))
            lasts = g.choice([5, 30, 60, 150])
            others_bad = all(until > now for i, until in enumerate(bad_until[node]) if i != nic)
            if kind in GONE and (ranks > 1 or frozen or gone_of not in (None, node)) or kind == "freeze" and gone_of is not None:
                continue
            if kind in GONE and bad_until[node][nic] == math.inf:  # it is gone already: the scenario is refused
                continue
            declared = "blackhole" if kind == "one_way" else kind
            if declared in MIGRATING:
                if others_bad:
                    continue
                gone_of = node if kind in GONE else gone_of
                frozen = frozen or kind == "freeze"
                bad_until[node][nic] = max(bad_until[node][nic], now + MARGIN_MS + bad_for(declared, lasts))
            extra = parameters(kind, g, lasts)
            self.faults.append((now, declared, f"node{node}/nic{nic}", extra))
        # Long enough for all of them at full rate, which no operation exceeds: nothing ends before its last fault.
        least_ms = SMALL_MS if small else max(1, kib * 8.192 / (mbits * nics * ranks) * (0.5 if op != "sendrecv" else 1))
        self.head = HEAD.format(seed=seed % (1 << 31), fabric=fabric, nodes=nodes, ranks=ranks, nics=nics, rate=f"{mbits} Mbit/s", op=op, size=size, mode=mode, more=more, doubled=doubled, stall=STALL_S, job=JOB_S,
                                iters=int((now + 300) / least_ms) + 1)

    def text(self, faults=None):
        """The scenario file, with all faults or some of them."""
        return self.head + "".join(f"  - {{at: {{time: {at} ms, since: first_op}}, target: {target}, kind: {kind}{extra}}}\n"
                                   for at, kind, target, extra in (self.faults if faults is None else faults))


class Jobs:
    """Programs that threads of this one run, and that a signal ends."""
    stopped = threading.Event()
    lock = threading.Lock()
    running = set()

    @classmethod
    def run(cls, command, seconds):
        """(exit status, what it said); the status is None when it hangs and had to be killed."""
        with cls.lock:
            if cls.stopped.is_set():
                return None, ""
            # Of a process group of its own, so that Ctrl-C in a terminal reaches it through stop() alone. Not of a session: between
            # sessions Linux shares the cores by group, and since 6.18 a group that calls sched_yield may not run for seconds.
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **OWN_GROUP)
            cls.running.add(process)
        try:
            said, _ = process.communicate(timeout=seconds)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            process.kill()
            return None, process.communicate()[0]
        finally:
            with cls.lock:
                cls.running.discard(process)

    @classmethod
    def stop(cls, *_):
        cls.stopped.set()
        for process in list(cls.running):
            process.terminate()  # r2bench ends its job, and leaves nothing behind


STOPPED = "stopped"


class Unknown(str):
    """Why a walk cannot be judged."""


class Slow(Unknown):
    """What a walk says that took too long, but stood still at no time."""


def run(r2bench, walk, folder, faults=None, slower=1, keep=None):
    """Runs it, `slower` times slower (--slow-motion). Returns (None or what is wrong, path-changing faults, migrations); a folder of a run
    that goes wrong is kept as keep/walk-SEED-run."""
    faults = walk.faults if faults is None else faults
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file, out = os.path.join(place, "walk.yaml"), os.path.join(place, "out")
        with open(file, "w", encoding="utf-8") as handle:
            handle.write(walk.text(faults))
        command = [r2bench, "run", file, "--quiet", "--no-plot", "--out", out] + (["--slow-motion", str(slower)] if slower > 1 else [])
        status, said = Jobs.run(command, (JOB_S + 60) * slower)
        if Jobs.stopped.is_set():
            return STOPPED, 0, 0
        try:
            found = judge(status, said, out, slower)
        except (OSError, ValueError) as broken:  # a result that is cut off
            found = f"exit status {status}, {broken}\n{said}", 0, 0
        if found[0] and keep and os.path.isdir(out):
            kept = os.path.join(keep, f"walk-{walk.seed}-run")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.move(out, kept)
        return found


def judge(status, said, out, slower):
    """run()'s answer, from r2bench's exit status (None: killed), what it printed and its folder."""
    if status is None:
        return "r2bench itself hangs", 0, 0
    if not os.path.exists(os.path.join(out, "result.json")):
        return f"no result, exit status {status}\n{said}", 0, 0
    with open(os.path.join(out, "result.json"), encoding="utf-8") as handle:
        result = json.load(handle)
    mode = result["runs"][0]
    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as handle:
        events = [json.loads(line) for line in handle]
    correctness = mode["metrics"]["correctness"]
    if is_slow(mode, events, STALL_S * 1000 * slower):
        return Slow(f"{mode['error'].partition(';')[0]}, but operations went on"), 0, 0
    if mode["outcome"] != "ok" or not correctness["exact"] or result["verdict"] == "fail":
        return f"{mode['outcome']}, verdict {result['verdict']}, {correctness}\n{said}", 0, 0
    doubt = doubt_of(result, mode, events)
    if doubt:
        return Unknown(f"{doubt}\n{said}"), 0, 0
    return None, path_changes(mode["faults"], events, WITHIN_MS * slower), sum(e["event"] == "fence_started" and e["c"] == 0 for e in events)


def is_slow(mode, events, stall_ms):
    """Whether the job was ended by its own limit alone: operations had ended until then, and all that arrived is right."""
    if mode["outcome"] != "hang" or not (mode["error"] or "").startswith(TOO_LONG) or not mode["metrics"]["correctness"]["exact"]:
        return False
    ended = [event["at_ms"] for event in events if event["event"] == "hang" and event["source"] == "runner"]
    if not ended or not mode["iteration_ms"]:
        return False
    times = [0, *(begin + ms for begin, ms in zip(mode["iteration_begin_ms"], mode["iteration_ms"])), ended[0]]
    return all(later - earlier <= stall_ms for earlier, later in zip(times, times[1:]))


def doubt_of(result, mode, events):
    """Why a run that did not fail proves nothing, or its events cannot be counted; else None."""
    if mode["trace_lost"]:
        return f"{mode['trace_lost']} trace events were lost"
    if mode["events"]["left_out"]:
        return f"{mode['events']['left_out']} events are not in events.jsonl"
    if len(events) != mode["events"]["written"]:
        return f"events.jsonl holds {len(events)} events, and {mode['events']['written']} were written"
    if result["verdict"] == "pass":
        return None
    # Of faults that were not seen to take effect there may be some.
    others = [f"{each['name']}: {each['got']}" for each in result["expectations"] if each["doubt"] not in (None, UNSEEN)]
    if set(result["doubt_kinds"]) == {UNSEEN} and not others:
        return None
    return f"verdict {result['verdict']}: {'; '.join(result['doubts'] + others)}"


def path_changes(faults, events, within_ms):
    """How many faults an unplanned fence answers whose migration had payload in flight; see above."""
    struck = [f for f in faults if f["kind"] in MIGRATING and f["witnessed"] and f["t0_at_ms"] is not None]
    answered = set()
    for fence in migrations(events):
        if fence["planned"]:
            continue
        before = [(f["t0_at_ms"], i) for i, f in enumerate(struck) if f["target"] == f"{fence['node']}/nic{fence['nic']}"
                  and 0 <= fence["at_ms"] - f["t0_at_ms"] <= within_ms]
        if not before:
            continue
        nearest = max(before)[1]
        if fence["replayed"] > 0 or (struck[nearest]["kind"] == "ack_lost" and fence["by"] == COMPLETION):
            answered.add(nearest)
    return len(answered)


def migrations(events):
    """The fences of `events` in order of time: node, nic, planned, at_ms, by, and how many segments their migration replayed."""
    fences, open_at, remote = [], {}, {}  # `open_at`: each end's latest fence; `remote`: a sender's path -> NIC at its other end
    for event in events:
        end = event["source"], event.get("channel")
        kind = event["event"]
        if kind == "path_opening":
            remote[end, event["a"]] = event["b"]
        elif kind == "fence_started":
            open_at[end] = {"end": end, "node": end[0].split("/")[0], "nic": event["nic"], "planned": event["c"] != 0, "at_ms": event["at_ms"],
                            "by": event["a"], "path": event["b"], "epoch": None, "sender": False, "replayed": 0}
            fences.append(open_at[end])
        elif kind == "migration_started" and end in open_at:
            open_at[end]["epoch"] = event["a"]
        elif kind == "replayed" and end in open_at:  # by the sender's end alone
            open_at[end] |= {"sender": True, "replayed": event["a"]}
    senders = {end for end, _ in remote} | {fence["end"] for fence in fences if fence["sender"]}
    for fence in fences:
        if fence["end"] in senders:
            continue
        # Epoch and path are the channel's own numbers, so other channels may have the same: those close in time and with that NIC at the other end.
        fitting = [f for f in fences if f["end"] in senders and f["node"] != fence["node"] and (f["epoch"], f["path"]) == (fence["epoch"], fence["path"])
                   and abs(f["at_ms"] - fence["at_ms"]) <= WITHIN_MS and remote.get((f["end"], f["path"]), fence["nic"]) == fence["nic"]]
        fence["replayed"] = min((f["replayed"] for f in fitting), default=0)
    return fences


def shrink(r2bench, walk, folder, tries, slower=1):
    """Fewer and fewer faults that still fail, by halves and then one by one."""
    faults, size = list(walk.faults), len(walk.faults) // 2
    while size >= 1 and tries > 0:
        at = 0
        while at < len(faults) and tries > 0:
            fewer = faults[:at] + faults[at + size:]
            tries -= 1
            wrong = run(r2bench, walk, folder, fewer, slower)[0] if fewer else None
            if wrong is STOPPED:
                return faults
            if wrong and not isinstance(wrong, Unknown):
                faults = fewer
            else:
                at += size
        size //= 2
    return faults


class Tally:
    """What the walks have shown so far."""

    def __init__(self):
        self.total = {"walks": 0, "faults": 0, "path_changes": 0, "migrations": 0, "failed": 0, "unknown": 0, "slow": 0, "interrupted": 0, "overdue": 0}
        self.failures = []
        self.slow = []
        self.interrupted = {}  # by seed: walk, seconds
        self.longest = 0.0  # seconds of a finished walk

    def add(self, walk, found, seconds):
        """`found`: run()'s answer."""
        wrong, counted, migrated = found
        if wrong is STOPPED:
            self.interrupted[walk.seed] = walk, seconds
            return
        if isinstance(wrong, Slow):
            self.total["slow"] += 1
            self.slow.append(walk)
            print(f"seed {walk.seed}: SLOW, {wrong}", flush=True)
            return
        self.longest = max(self.longest, seconds)
        self.total["walks"] += 1
        self.total["faults"] += len(walk.faults)
        self.total["path_changes"] += counted
        self.total["migrations"] += migrated
        unknown = isinstance(wrong, Unknown)
        self.total["unknown"] += unknown
        self.total["failed"] += wrong is not None and not unknown
        print(f"seed {walk.seed}: {'UNKNOWN' if unknown else 'FAILED' if wrong else 'exact'}, {counted} of {len(walk.faults)} faults changed a path, "
              f"{migrated} ends migrated", flush=True)
        if wrong:
            print(wrong, flush=True)
            if not unknown:
                self.failures.append(walk)


def read_arguments():
    """None after words on standard error: they are bad."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("r2bench", help="path of the program")
    parser.add_argument("--walks", type=int, default=20, help="number of walks")
    parser.add_argument("--seed", type=int, default=None, help="seed of the first walk; the next walks have the next numbers (default: from the clock)")
    parser.add_argument("--faults", type=int, default=40, help="faults in each walk")
    parser.add_argument("--also", type=comma_list.words, default=[], help="additional kinds of faults, separated by commas, or all: " + ", ".join(ALSO))
    parser.add_argument("--mode", default="migrate", choices=["migrate", "balance", "allreduce"], help="mode of the plugin")
    parser.add_argument("--fabric", default="vhca", choices=["vhca", "rxe"], help="fabric of the jobs")
    parser.add_argument("--small", action="store_true", help="messages of 8 to 200 bytes, which are sent from copies")
    parser.add_argument("--slower", type=int, default=None, help="multiply all times of a walk by this (default: 1; 16 on rxe, whose guest is slow)")
    parser.add_argument("--jobs", type=int, default=1, help="walks at the same time")
    parser.add_argument("--minutes", type=float, default=None, help="start no walk after this time")
    parser.add_argument("--least", type=int, default=1, help="least number of path changes in all walks together")
    parser.add_argument("--record", help="JSON Lines file to which a line with the counts is added")
    parser.add_argument("--keep", default=".", help="folder for the scenario and the run folder of a failing walk")
    parser.add_argument("--tries", type=int, default=60, help="largest number of runs for shrinking a failing walk")
    arguments = parser.parse_args()
    if not os.access(arguments.r2bench, os.X_OK) or arguments.walks < 1 or arguments.faults < 1 or arguments.jobs < 1:
        parser.print_usage(sys.stderr)
        return None
    arguments.also = ALSO if arguments.also == ["all"] else arguments.also
    if set(arguments.also) - set(ALSO):
        print("--also: " + ", ".join(sorted(set(arguments.also) - set(ALSO))) + " is none of " + ", ".join(ALSO), file=sys.stderr)
        return None
    os.makedirs(arguments.keep, exist_ok=True)
    arguments.slower = arguments.slower or (16 if arguments.fabric == "rxe" else 1)
    arguments.seed = int(time.time()) if arguments.seed is None else arguments.seed
    return arguments


def run_walks(arguments, folder, start, tally):
    """All of them, --jobs at a time; none is started once --minutes have passed since `start`, or after a signal."""
    def one(seed):
        if Jobs.stopped.is_set() or (arguments.minutes is not None and time.monotonic() - start > 60 * arguments.minutes):
            return None
        walk = Walk(seed, arguments.faults, arguments.also, arguments.mode, arguments.fabric, arguments.small)
        began = time.monotonic()
        found = run(arguments.r2bench, walk, folder, slower=arguments.slower, keep=arguments.keep)
        return walk, found, time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, seed) for seed in range(arguments.seed, arguments.seed + arguments.walks)]):
            if future.result() is not None:
                tally.add(*future.result())


def keep_scenario(keep, walk, faults=None):
    file = os.path.join(keep, f"walk-{walk.seed}.yaml")
    with open(file, "w", encoding="utf-8") as handle:
        handle.write(walk.text(faults))
    return file


def find_overdue(arguments, tally):
    """Counts the interrupted walks, and keeps those that might have been a hang."""
    for walk, seconds in tally.interrupted.values():
        tally.total["interrupted"] += 1
        if seconds <= (OVERDUE * tally.longest if tally.longest > 0 else STALL_S * arguments.slower):
            continue
        tally.total["overdue"] += 1
        file = keep_scenario(arguments.keep, walk)
        print(f"seed {walk.seed} was interrupted after {seconds:.0f} s, when the longest finished walk had taken {tally.longest:.0f} s: {file}", flush=True)


def keep_slow(arguments, tally):
    for walk in tally.slow:
        print(f"seed {walk.seed} was slow: {keep_scenario(arguments.keep, walk)}", flush=True)


def shrink_failures(arguments, folder, failures):
    for walk in failures if not Jobs.stopped.is_set() else []:
        faults = shrink(arguments.r2bench, walk, folder, arguments.tries, arguments.slower)
        file = keep_scenario(arguments.keep, walk, faults)
        print(f"seed {walk.seed} fails with {len(faults)} of its {len(walk.faults)} faults: {file}", flush=True)


def add_record(arguments, seconds, tally):
    line = {"date": origin.today(), "commit": origin.of_program(arguments.r2bench), "fabric": arguments.fabric, "slower": arguments.slower,
            "first_seed": arguments.seed, "faults_per_walk": arguments.faults, "also": arguments.also, "mode": arguments.mode, "small": arguments.small,
            "cores": len(os.sched_getaffinity(0)), "counting": COUNTING, "seconds": round(seconds), **tally.total,
            "interrupted_seeds": sorted(tally.interrupted), "slow_seeds": sorted(walk.seed for walk in tally.slow)}
    with open(arguments.record, "a", encoding="utf-8") as handle:
        handle.write(json.dumps(line) + "\n")


def main():
    arguments = read_arguments()
    if arguments is None:
        return 64
    start = time.monotonic()
    tally = Tally()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, Jobs.stop)
    with tempfile.TemporaryDirectory(prefix="r2bench-walk-") as folder:
        run_walks(arguments, folder, start, tally)
        find_overdue(arguments, tally)
        keep_slow(arguments, tally)
        shrink_failures(arguments, folder, tally.failures)
    total = tally.total
    print("walks {walks}, failed {failed}, unknown {unknown}, slow {slow}, interrupted {interrupted}, overdue {overdue}, faults {faults}, path changes {path_changes}, "
          "migrations of ends {migrations}".format(**total))
    if arguments.record:
        add_record(arguments, time.monotonic() - start, tally)
    unjudged = total["unknown"] + total["slow"]
    if tally.failures or total["overdue"] or (total["path_changes"] < arguments.least and not unjudged):
        return 1
    return 2 if unjudged else 0


if __name__ == "__main__":
    sys.exit(main())
