# SPDX-License-Identifier: Apache-2.0
"""The rows of head_to_head.py: which transport, which fault, which size, in which order; and the scenario of each. Runs nothing."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "base"))
import turns  # noqa: E402  pylint: disable=wrong-import-position

TABLES = ["faults", "timeouts", "versions", "retained", "cost", "beside"]
MIB = 1024 * 1024
# What a mode of the scenario is called, and what it is.
TRANSPORTS = {
    "ib": "{mode: baseline, label: ib, transport: ib}",
    # Each NIC for itself, as the plugin has them: NCCL then gives channels to both, and ranks of one node send over different ones. It has no failover then.
    "ib_unmerged": "{mode: baseline, label: ib_unmerged, transport: ib, env: {NCCL_IB_MERGE_NICS: 0, NCCL_NET_FORCE_MERGE: '', NCCL_TOPO_FILE: ''}}",
    "ib_failover": "{mode: baseline, label: ib_failover, transport: ib_failover}",
    "r2ccl_baseline": "{mode: baseline, label: r2ccl_baseline}",
    "r2ccl_migrate": "{mode: migrate, label: r2ccl_migrate}",
    "r2ccl_balance": "{mode: balance, label: r2ccl_balance}",
    "r2ccl_allreduce": "{mode: allreduce, label: r2ccl_allreduce}",
    # Communicators of both kinds in one job, over the plugin and over the IB transport with NICs that are not merged; operations take turns. The last is the
    # method's control: the IB transport beside itself.
    "migrate_beside_ib": "{mode: migrate, label: migrate_beside_ib, transport: plugin_beside_ib}",
    "balance_beside_ib": "{mode: balance, label: balance_beside_ib, transport: plugin_beside_ib}",
    "baseline_beside_ib": "{mode: baseline, label: baseline_beside_ib, transport: plugin_beside_ib}",
    "loose_beside_ib": "{mode: migrate, label: loose_beside_ib, transport: plugin_beside_ib, env: {R2CC_STRICT_ACK: 0}}",
    "ib_beside_ib": "{mode: baseline, label: ib_beside_ib, transport: ib_beside_ib}",
    # The fork of NCCL 2.23.4 that R2CCL's authors (arXiv 2512.25059) published, built from its source by whoever runs this. It is not a plugin but the
    # library itself, on its own IB transport. R2CC_MODE 0, which r2bench sets for `baseline`: its modes 1 to 3 play a failure, 0 answers real ones. A
    # connection's backup is the other one of two devices, so they must not be merged.
    "upstream": "{mode: baseline, label: upstream, transport: ib, env: {NCCL_IB_MERGE_NICS: 0}}",
    # Where its sender notices the failure, it waits for word from its receiver, which notices nothing for 32 s (upstream_notices_s) unless this says otherwise.
    "upstream_1s": "{mode: baseline, label: upstream_1s, transport: ib, env: {NCCL_IB_MERGE_NICS: 0, NCCL_R2CC_FAILOVER_TIMEOUT_MS: 1000}}",
}
UPSTREAM = ["upstream", "upstream_1s"]
HEAD_TO_HEAD = ["ib", "ib_failover", "r2ccl_migrate", "r2ccl_balance"]
AT = 25  # the operation that the first fault strikes
SECOND = 20  # operations from the first fault to the second
APART = 900  # … where that is to be 12 s or more: NCCL's recovery takes 9.7 s
# Faults of the table; {heal} becomes "", or the time until the repair.
FAULTS = {
    "port_down": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: port_down{heal}}}"],
    "blackhole": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: blackhole{heal}}}"],
    "qp_error_node0": ["{{at: {{iter: {at}}}, target: node0/nic0, kind: qp_error, qp: all}}"],
    "qp_error_node1": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: qp_error, qp: all}}"],
    "blackhole_one_way": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: blackhole, direction: in{heal}}}"],
    "flap": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: port_flap, down: 30 ms, up: 60 ms, count: 3}}"],
    "two_in_turn": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: port_down, for: 300 ms}}",
                    "{{at: {{iter: {second}}}, target: node0/nic1, kind: port_down{heal}}}"],
    # The same with an outage that hardware's queue pairs outlast: they are not cut (faultinject/README.md), so a transport needs its failover at the second NIC only.
    "flap_then_down": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: port_flap, down: 300 ms, up: 1 s, count: 1}}",
                       "{{at: {{iter: {second}}}, target: node0/nic1, kind: port_down{heal}}}"],
    # … and with a second one after every transport has recovered from the first.
    "two_apart": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: port_down, for: 1 s}}",
                  "{{at: {{iter: {apart}}}, target: node0/nic1, kind: port_down{heal}}}"],
    "all_but_one": ["{{at: {{iter: {at}}}, target: \"node1/nic[0-2]\", kind: port_down{heal}}}"],
    "throttle": ["{{at: {{iter: {at}}}, target: node1/nic0, kind: throttle, rate: {quarter} Mbit/s{heal}}}"],
}
HEALING = ["port_down", "blackhole"]  # whose repair is waited for, in jobs that run long enough for NCCL's recovery (some 5 s)
COLLECTIVES = ["allreduce", "allgather", "reducescatter", "sendrecv", "alltoall"]
# 4.096 µs · 2^timeout · 8: what NCCL takes unless told (34 s), and the floor under which some firmware does not go (4.3 s).
TIMEOUTS = {"default": 20, "firmware": 17}


def row(table, transport, fault, seed, **more):
    base = {"table": table, "transport": transport, "fault": fault, "seed": seed, "op": "allreduce", "bytes": 64 * MIB, "nodes": 2, "ranks": 1, "nics": 2, "mbits": 20000,
            "iters": 70, "timeout": 14, "library": "", "version": "", "heal_ms": 0, "verify": True, "warmup": 5, "copies": 0}
    base |= more
    if fault == "two_apart":
        base |= {"iters": AT + APART + 60}
    if fault == "all_but_one":
        base |= {"nics": 4, "mbits": base["mbits"] // 2}
    base["id"] = name(base)
    base["expected_s"] = expected_s(base)
    base["limit_s"] = int(max(120, 4 * base["expected_s"]))
    return base


def name(one):
    """The id of a row: what its settings are, where a table has several."""
    beside = one["table"] == "beside"
    turns_of_job = one["iters"] // TURNS if beside else 0
    parts = [one["table"], one["fault"] or "none", one["transport"], one["op"], size_name(one["bytes"]), one["version"], "heals" if one["heal_ms"] else "",
             f"{one['nics']}nics" if one["table"] == "retained" and one["nics"] != 4 else "",
             f"{one['nodes']}x{one['ranks']}" if (one["nodes"], one["ranks"]) != (2, 1) else "",
             f"{one['copies']}copies" if one["copies"] else "", f"{turns_of_job}turns" if beside and turns_of_job != TURNS_OF_SIZE.get(one["bytes"]) else "",
             f"{one['mbits']}mbits" if beside and one["mbits"] else "", f"seed{one['seed']}"]
    return "/".join(part for part in parts if part)


def size_name(count):
    for unit, name in ((1024 * MIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if count % unit == 0:
            return f"{count // unit}{name}"
    return f"{count}B"


def retries_s(one):
    """How long a queue pair tries."""
    return 4.096e-6 * 2 ** one["timeout"] * 8


def upstream_notices_s(one):
    """How long upstream's receiver waits for a message, by its source (src/transport/net.cc, f45cbcb): 4 s for each try, twice that for each step of the timeout above 20."""
    return 4 * 8 * 2 ** max(0, one["timeout"] - 20)


def expected_s(one):
    """Start, operations at the ports' rate at half speed with their comparison, and what the transport takes to notice."""
    rate = one["nics"] * one["mbits"] * 1e6 / 8 if one["mbits"] else 6e9
    noticed = 2 * retries_s(one) if one["transport"].startswith(("ib", "upstream")) and one["fault"] else 0.2
    if one["transport"] == "upstream" and one["fault"]:
        noticed += upstream_notices_s(one)
    return round(5 + one["iters"] * (2 * one["bytes"] / rate + 2e-3) + noticed, 1)


def faults_table(arguments, seeds, transports):
    found = []

    def add(transport, fault, seed, **more):
        found.append(row("faults", transport, fault, seed, library=arguments.upstream if transport in UPSTREAM else arguments.library, **more))

    for seed in seeds:
        for fault in FAULTS:
            for transport in transports:
                add(transport, fault, seed)
        for fault in HEALING:
            for transport in [t for t in transports if t != "ib"]:
                add(transport, fault, seed, heal_ms=1000, iters=420)
    return found


def timeouts_table(arguments):
    found = []
    for name, timeout in TIMEOUTS.items():
        for fault in ("port_down", "blackhole"):
            for transport in ("ib_failover", "r2ccl_migrate", "r2ccl_balance"):
                found.append(row("timeouts", transport, fault, 1, timeout=timeout, version=name, library=arguments.library))
    for version, path in arguments.libraries.items():
        if version.startswith("2.30"):
            for fault in ("port_down", "blackhole"):
                found.append(row("timeouts", "ib_failover", fault, 1, version=version, library=path))
    return found


def versions_table(arguments, seeds):
    return [row("versions", transport, fault, seed, version=version, library=path)
            for seed in seeds for fault in ("port_down", "blackhole") for version, path in arguments.libraries.items()
            for transport in ("r2ccl_migrate", "r2ccl_balance")]


def retained_table(arguments, seeds):
    """One of four or eight NICs lost for good: Balance can keep 3/4 or 7/8, mode 1 half or, with two channels on each NIC, two thirds; a single standby half. The ports are slow enough to be the limit: at
    twice the rate the ranks, which share a GPU, were, and more than the limit seemed to be kept. Upstream's 83 to 90 % are of eight NICs."""
    return [row("retained", transport, "port_down", seed, op=op, nics=nics, mbits=10000 // nics, iters=60, library=arguments.library)
            for seed in seeds for nics in (4, 8) for op in COLLECTIVES for transport in ("r2ccl_balance", "r2ccl_migrate", "ib_failover")]


COST = ["ib", "r2ccl_baseline", "r2ccl_migrate", "r2ccl_balance"]


def cost_table(arguments, seeds, sizes):
    """Another transport begins with each seed, so that none is always the one after a row of the same other."""
    found = []
    transports = COST + (["ib_unmerged"] if arguments.ranks_per_node > 1 else [])
    for seed in seeds:
        first = (seed - 1) % len(transports)
        for count in sizes:
            iters = 2000 if count <= MIB else max(20, min(200, 8 * 1024 * MIB // count))
            for transport in transports[first:] + transports[:first]:
                found.append(row("cost", transport, "", seed, bytes=count, nodes=arguments.nodes, ranks=arguments.ranks_per_node, mbits=0, iters=iters, verify=False, warmup=20, library=arguments.library))
    return found


BESIDE = ["migrate_beside_ib", "balance_beside_ib", "ib_beside_ib"]
CAUSES = ["baseline_beside_ib", "loose_beside_ib"]  # where a cost of mode 1 comes from: the plugin at all, or that a send waits for its ACK
COPIES = 8  # pairs of communicators in a job
TURNS = turns.TURN  # operations of a turn; each turn is of another pair
# Turns of a job by the bytes of its operations, multiples of twice the copies: each communicator has as many turns in either order.
TURNS_OF_SIZE = {8: 192, 512: 192, 4096: 192, 32 * 1024: 192, 64 * 1024: 96, MIB: 96, 4 * MIB: 48, 16 * MIB: 32, 64 * MIB: 16, 256 * MIB: 16, 1024 * MIB: 16}
# (turns, copies) on NICs of a limited rate. There jobs differ less, so few long operations are enough: a job takes up to half a minute at 10 Gbit/s.
AT_A_RATE = {8: (384, 8), 512: (384, 8), 4096: (384, 8), 32 * 1024: (384, 8), 64 * 1024: (384, 8), MIB: (384, 8), 4 * MIB: (128, 8), 16 * MIB: (64, 8), 64 * MIB: (16, 8), 256 * MIB: (8, 4),
             1024 * MIB: (4, 2)}


def turns_and_copies(arguments, count):
    """Those that the command line gives, else those of the size, with as many more turns as whole rounds of the copies need."""
    own, copies = AT_A_RATE[count] if arguments.mbits else (TURNS_OF_SIZE[count], COPIES)
    copies = arguments.copies or copies
    return arguments.turns or -(-own // (2 * copies)) * 2 * copies, copies


def beside_table(arguments, seeds):
    """Differences between jobs, of which there are more than between transports, have no part in what one job compares."""
    transports, found = BESIDE + (CAUSES if arguments.causes else []), []
    for seed in seeds:
        for count in arguments.sizes or TURNS_OF_SIZE:
            number, copies = turns_and_copies(arguments, count)
            found += [row("beside", transport, "", seed, bytes=count, nodes=arguments.nodes, ranks=arguments.ranks_per_node, mbits=arguments.mbits, iters=TURNS * number, verify=False,
                          warmup=4 * copies, copies=copies, library=arguments.library)
                      for transport in transports[seed % len(transports):] + transports[:seed % len(transports)]]
    return found


def pairs(lengths, copies):
    """[([times of the first side], [times of the other])] of each pair of communicators, of whole turns."""
    found = [([], []) for _ in range(copies)]
    for number, length in enumerate(lengths[:len(lengths) // TURNS * TURNS]):
        turn = number // TURNS
        found[turn % copies][turns.side(number, copies)].append(length)
    return [pair for pair in found if pair[0]]


def quick(arguments, tables):
    """The most telling first."""
    library, found = arguments.library, []
    if "faults" in tables:
        for fault in ("port_down", "blackhole", "qp_error_node1"):
            found += [row("faults", transport, fault, 1, library=library, iters=60) for transport in HEAD_TO_HEAD]
    if "cost" in tables:
        for count in (256 * MIB, 64 * 1024, 8, 16 * MIB):
            found += [r | {"iters": min(r["iters"], 400)} for r in cost_table(arguments, [1], [count]) if r["transport"] != "r2ccl_baseline"]
    if "beside" in tables:
        found += [r for r in beside_table(arguments, [1]) if r["bytes"] in (64 * 1024, 16 * MIB)]
    if "faults" in tables:
        found += [row("faults", transport, fault, 1, library=library, iters=60)
                  for fault in ("blackhole_one_way", "all_but_one", "throttle", "flap") for transport in HEAD_TO_HEAD[1:]]
        found += [row("faults", transport, "port_down", 1, library=library, heal_ms=1000, iters=350) for transport in HEAD_TO_HEAD[1:]]
    if "versions" in tables:
        found += [r for r in versions_table(arguments, [1]) if r["transport"] == "r2ccl_migrate"]
    if "retained" in tables:
        found += [r for r in retained_table(arguments, [1]) if r["transport"] == "r2ccl_balance"]
    if "faults" in tables:
        found += [row("faults", transport, fault, 1, library=library, iters=60)
                  for fault in ("two_in_turn", "qp_error_node0") for transport in HEAD_TO_HEAD[1:]]
    if "timeouts" in tables:
        found += [r for r in timeouts_table(arguments) if r["version"] not in TIMEOUTS or r["version"] == "firmware"]
    return found


def plan(arguments):
    """All rows in the order in which they run."""
    tables = arguments.table or TABLES
    if arguments.quick:
        return quick(arguments, tables)
    transports = HEAD_TO_HEAD + (["r2ccl_allreduce"] if arguments.mode3 else []) + (UPSTREAM if arguments.upstream else [])
    found = []
    if "faults" in tables:
        found += faults_table(arguments, arguments.seeds, transports)
    if "timeouts" in tables:
        found += timeouts_table(arguments)
    if "versions" in tables:
        found += versions_table(arguments, arguments.seeds)
    if "retained" in tables:
        found += retained_table(arguments, arguments.seeds)
    if "beside" in tables:
        found += beside_table(arguments, arguments.seeds)
    if "cost" in tables:
        small = [8 * 8 ** k for k in range(5)] + [64 * 1024]
        found += cost_table(arguments, arguments.seeds, small + [4 ** k * MIB for k in range(6)])
    return found


def prediction(predictions, one):
    """The most particular entry that fits: table/fault/transport/op or table/NICs/transport/op, then shorter ones."""
    table, transport, nics = one["table"], one["transport"], f"{one['nics']}nics"
    fault = one["fault"] or "none"
    for key in (f"{table}/{fault}/{transport}/{one['version'] or one['op']}", f"{table}/{nics}/{transport}/{one['op']}", f"{table}/{fault}/{transport}",
                f"{table}/{nics}/{transport}", f"{table}/{transport}", table):
        if key in predictions:
            return predictions[key]
    return None


def scenario(one, name):
    """The row's scenario file."""
    heal = f", for: {one['heal_ms']} ms" if one["heal_ms"] else ""
    faults = [text.format(at=AT, second=AT + SECOND, apart=AT + APART, heal=heal, quarter=one["mbits"] // 4) for text in FAULTS.get(one["fault"], [])]
    rate = f", nic_rate: {one['mbits']} Mbit/s" if one["mbits"] else ""
    library = os.path.abspath(one["library"]) if os.path.exists(one["library"]) else one["library"]
    stall_s = int(20 + 3 * retries_s(one) + (2 * upstream_notices_s(one) if one["transport"] == "upstream" else 0))
    lines = ["version: 1", f"name: {name}", f"seed: {one['seed']}",
             f"fabric: {{kind: vhca, nodes: {one['nodes']}, ranks_per_node: {one['ranks']}, nics_per_node: {one['nics']}{rate}}}",
             f"workload: {{engine: nccl, library: {json_text(library)}, op: {one['op']}, dtype: float32, bytes: {one['bytes']} B, iters: {one['iters']}, "
             f"warmup: {one['warmup']}, verify: {str(one['verify']).lower()}"
             + (f", copies: {one['copies']}" if one["copies"] else "") + "}",
             f"modes: [{TRANSPORTS[one['transport']]}]",
             f"env: {{NCCL_IB_TIMEOUT: {one['timeout']}}}",
             f"timeouts: {{setup: 90 s, stall: {stall_s} s, job: {one['limit_s']} s}}"]
    if faults:
        lines += ["faults:"] + ["  - " + fault for fault in faults]
    return "\n".join(lines) + "\n"


def json_text(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
