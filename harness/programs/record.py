#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs perftest and ibv_rc_pingpong on the virtual HCA, and records their output: under port_down, qp_error and blackhole, which
they do not survive, and under freeze, a one-way blackhole and throttle, which are healed within their retries.

Writes a transcript and a witness log per program and fault, and programs.csv, a table of all of them. At the end it prints the command
that puts the table into results/.

    harness/programs/record.py build/release/bin/r2bench --out build/programs

Exit status: 0 every program failed with its own message and the injector's log agrees with it, or ended well where the fault was
healed and no queue pair went to ERR; 1 otherwise."""

import argparse
import csv
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "base"))
import origin  # noqa: E402

PERFTEST = "-d vhca0 -x 1 -F -n 100000"
PROGRAMS = {
    "ib_write_bw": f"ib_write_bw {PERFTEST}",
    "ib_send_bw": f"ib_send_bw {PERFTEST}",
    "ib_read_bw": f"ib_read_bw {PERFTEST}",
    "ib_send_lat": "ib_send_lat -d vhca0 -x 1 -F -n 1000000",
    "ibv_rc_pingpong": "ibv_rc_pingpong -d vhca0 -g 1 -n 1000000",
}
COLUMNS = ["program", "fault", "exit_status", "said", "saw", "after_ms"]
FAULTS = {
    "port_down": "kind: port_down",
    "qp_error": "kind: qp_error",
    "blackhole": "kind: blackhole",
    "freeze": "kind: freeze, for: 50 ms",
    "blackhole_in": "kind: blackhole, direction: in, for: 50 ms",
    "blackhole_out": "kind: blackhole, direction: out, for: 50 ms",
    "throttle": "kind: throttle, rate: 100 Mbit/s, for: 1 s",
}
HEALED_IN_TIME = ["freeze", "blackhole_in", "blackhole_out", "throttle"]  # the programs run to their end
ITERATIONS = "-n 2000"  # there
SEEN = "the program's next completion there: "
STATUS = {"SUCCESS": 0, "WR_FLUSH_ERR": 5, "RETRY_EXC_ERR": 12}
BOUND = 700  # seconds; a machine may stand still for minutes


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port):
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", name).read_text().splitlines()[1:]:
            words = line.split()
            if words[1].endswith(wanted) and words[3] == "0A":
                return True
    return False


def broken(r2bench, program, fault, out):
    """One pair of commands. Returns the row of the table, and whether it is as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder, "plan.yaml")
        plan.write_text(f"- {{at: {{wr: 500}}, target: node1/nic0, {FAULTS[fault]}}}\n")
        survives = fault in HEALED_IN_TIME
        witness = out / f"{program}_{fault}.json"
        port = free_port()
        common = [r2bench, "exec", "--name", f"record-{os.getpid()}"]
        command_line = re.sub(r"-n \d+", ITERATIONS, PROGRAMS[program]) if survives else PROGRAMS[program]
        words = shlex.split(command_line) + ["-p", str(port)]
        first = common + ["--node", "node0", "--rate", "1 Gbit/s", "--"] + words
        second = common + ["--node", "node1", "--plan", str(plan), "--witness", str(witness), "--"]
        second += words + ["localhost"]
        server_says = pathlib.Path(folder, "server")
        with server_says.open("wb") as file:
            server = subprocess.Popen(first, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        try:
            until = time.monotonic() + BOUND
            while not listens(port):
                if server.poll() is not None or time.monotonic() > until:
                    sys.exit(f"{program}: its server does not listen\n{server_says.read_text()}")
                time.sleep(0.01)
            client = subprocess.run(second, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=BOUND, check=False)
            try:
                server.wait(3)
                ended = f"{server.returncode}"
            except subprocess.TimeoutExpired:
                server.terminate()
                server.wait(BOUND)
                ended = "it waits for messages that no longer come; ended by SIGTERM"
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()

        def typed(command):
            text = shlex.join(command).replace(r2bench, "r2bench").replace(str(plan), "plan.yaml")
            return text.replace(str(witness), witness.name)

        printed = re.search(r"Failed status (?:(\d+): wr_id \d+ syndrom 0x\w+|.*\((\d+)\) for wr_id \d+)",
                            client.stdout)
        record = json.loads(witness.read_text())["faults"][0]
        seen = [effect["what"][len(SEEN):] for effect in record["effects"]
                if effect["node"] == "node1" and effect["what"].startswith(SEEN)]
        shown = [effect["time_ns"] for effect in record["effects"]
                 if effect["node"] == "node1" and effect["what"].startswith(SEEN)]
        after = (shown[-1] - record["t0_ns"]) / 1e6 if shown else None
        number = int(printed[1] or printed[2]) if printed else None
        if survives:
            good = (client.returncode == 0 and server.returncode == 0 and record["took_effect"] and number is None
                    and not any(effect["what"] == "QP moved to ERR" for effect in record["effects"]))
        else:
            good = (0 < client.returncode < 64 and record["took_effect"] and seen != []
                    and STATUS.get(seen[-1]) == number)

        story = client.stdout.replace(str(plan), "plan.yaml")
        (out / f"{program}_{fault}.txt").write_text(
            f"$ cat plan.yaml\n{plan.read_text()}\n"
            f"$ {typed(first)}\n{server_says.read_text()}[exit status: {ended}]\n\n"
            f"$ {typed(second)}\n{story}[exit status: {client.returncode}]\n")
        row = {"program": program, "fault": fault, "exit_status": client.returncode, "said": printed[0] if printed else "",
               "saw": " ".join(seen), "after_ms": f"{after:.6g}" if after is not None else ""}
        return row, good


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("r2bench", help="path of r2bench, such as build/release/bin/r2bench")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder for the transcripts")
    parser.add_argument("--only", help="run only programs and faults whose name (PROGRAM_FAULT) matches this regular expression")
    arguments = parser.parse_args()
    r2bench = str(pathlib.Path(arguments.r2bench).resolve())
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows, bad = [], []
    for program in PROGRAMS:
        for fault in FAULTS:
            if arguments.only and not re.search(arguments.only, f"{program}_{fault}"):
                continue
            row, good = broken(r2bench, program, fault, arguments.out)
            print(", ".join(map(str, row.values())), flush=True)
            rows.append(row)
            if not good:
                bad.append(f"{program} under {fault}")
    root = pathlib.Path(__file__).resolve().parents[2]
    commit = origin.of_checkout(root, but=["results"])
    packages = output("dpkg-query", "-W", "-f", "${Package} ${Version}, ", "perftest", "ibverbs-utils").rstrip(", ")
    with (arguments.out / "programs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("into the tables of results/: " + shlex.join(
        ["plots/collect.py", "programs", "programs", str(arguments.out / "programs.csv"), "--commit", commit, "--date", origin.today(),
         "--command", "harness/programs/record.py build/release/bin/r2bench", "--note", f"{packages or 'packages unknown'}; 1 Gbit/s, timeout 14, 7 retries"]), file=sys.stderr)
    for each in bad:
        print(f"not as it should be: {each}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
