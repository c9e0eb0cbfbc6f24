#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two guests with a node of soft RoCE in each: programs talk, the network's own faults and injected ones are seen at both ends.

    rxe_two_guests.py R2BENCH AGENT

AGENT is the injector's test program (faultinject/testing/agent/): it makes queue pairs, posts and polls as it is told, line
by line. One runs in each guest, under `r2bench exec --fabric none`; this script tells both, and breaks the network with
rxe_net.sh in between. What it tells goes through a file in a folder that the guests share; what they answer is what
`r2bench guest` prints. Fails with a sentence when a package is missing; is skipped (77) where the system is not Debian.
"""

import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading

from rxe_smoke import PATIENCE, fail, guests_of, on_debian, wait_for

SUCCESS, LOC_QP_OP_ERR, FLUSHED, RETRY_EXCEEDED = 0, 2, 5, 12
ACTIVE, DOWN = "4", "1"
EVENT_PORT_ACTIVE, EVENT_PORT_ERR = "9", "10"
TIMEOUT, RETRIES = 14, 4
WINDOW_MS = (RETRIES + 1) * 4.096e-3 * 2**TIMEOUT

# In each guest: a line that begins with ! is the shell's, any other the agent's. $R2BENCH, $AGENT and $FOLDER are in the environment.
SERVE = r"""
node=$1
coproc agent { exec "$R2BENCH" exec --quiet --fabric none --nics 2 --node "$node" -- "$AGENT"; }
exec 5>&"${agent[1]}" 6<&"${agent[0]}"
exec 7<"$FOLDER/$node"
while :; do
  IFS= read -r line <&7 || { sleep 0.05; continue; }
  case $line in
    end) break ;;
    !*) said=$(eval "${line#!}" 2>&1 </dev/null); echo "answer $? $(echo $said)" ;;
    *) echo "$line" >&5; IFS= read -r said <&6; echo "answer $said" ;;
  esac
done
"""


class Node:
    def __init__(self, name, folder):
        self.name, self.file, self.answers, self.key = name, (folder / name).open("w"), queue.Queue(), ""

    def tell(self, line):
        self.file.write(line + "\n")
        self.file.flush()

    def hear(self):
        try:
            said = self.answers.get(timeout=PATIENCE)
        except queue.Empty:
            fail(f"{self.name} did not answer within {PATIENCE} s")
        if said is None:
            fail(f"{self.name} ended before it answered")
        return said

    def ask(self, line):
        self.tell(line)
        return self.hear()

    def must(self, line):
        said = self.ask(line)
        if not said.startswith("ok"):
            fail(f"{self.name}, '{line}': {said}")
        return said.split()[1:]

    def shell(self, command):
        """What it said; it has to succeed."""
        status, _, said = self.ask("!" + command).partition(" ")
        if status != "0":
            fail(f"{self.name}, '{command}' ended with {status}: {said}")
        return said

    def open(self, nic):
        self.gid, self.address, self.key = self.must(f"open {nic}")

    def pair(self):
        self.index, self.number, _ = self.must(f"qp {TIMEOUT} {RETRIES} 16 shared no")

    def statuses(self, count, ms):
        """Of the completions that came, and when (ns of its own clock)."""
        found = [word.split(":") for word in self.must(f"poll {self.index} send {count} {ms}")]
        return [int(status) for _, status, _ in found], [int(at) for _, _, at in found]


def connect(a, b):
    for one, other in ((a, b), (b, a)):
        one.must(f"connect {one.index} {other.number} {other.gid} {other.address} {other.key}")


def fresh_pair(a, b):
    for node in (a, b):
        node.pair()
    connect(a, b)


def write(node, number, size=4096):
    node.must(f"post {node.index} write {number} {size} 0")


def expect(what, got, wanted):
    if got != wanted:
        fail(f"{what}: {got}, not {wanted}")
    print(f"  {what}: {got}", flush=True)


def devices_are_apart(a, b):
    for number, node in enumerate((a, b)):
        seen = sorted(re.findall(r"node\d_nic\d", node.shell("ibv_devices")))
        expect(f"devices of {node.name}", seen, [f"node{number}_nic0", f"node{number}_nic1"])
    if a.shell("cat /proc/sys/kernel/random/boot_id") == b.shell("cat /proc/sys/kernel/random/boot_id"):
        fail("both nodes are in one kernel")


def data_arrives(a, b):
    for node in (a, b):
        node.open(0)
    fresh_pair(a, b)
    a.must("set 0 4711")
    write(a, 1)
    expect("a write's status", a.statuses(1, 60000)[0], [SUCCESS])
    expect("what it wrote", b.must("get 0"), ["4711"])


def perftest(a, b, tool, words=""):
    """What both ends printed; the second is the client. On the second NIC, so that the agents' is left alone."""
    a.tell(f"!{tool} -d node0_nic1 -x 1 -F {words}")
    client = (f"{tool} -d node1_nic1 -x 1 -F {words} node0")
    said = b.shell(f"for i in $(seq 600); do said=$({client} 2>&1); status=$?; case $said in *\"ouldn't connect\"*) sleep 0.2 ;; "
                   "*) break ;; esac; done; echo \"$said\"; exit $status")
    status, _, server = a.hear().partition(" ")
    if status != "0":
        fail(f"the server of {tool} ended with {status}: {server}")
    return said


def last_row(said, size):
    """The numbers behind perftest's message size in its last row."""
    found = re.findall(rf" {size} +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)", said)
    if not found:
        fail(f"perftest printed no row for {size} bytes: {said}")
    return [float(number) for number in found[-1]]


def programs_run(a, b):
    for tool, words in (("ib_write_bw", "-n 100 -s 4096"), ("ib_read_bw", "-n 100 -s 4096"), ("ib_send_bw", "-c UD -n 100 -s 1024")):
        size = words.split()[-1]
        print(f"  {tool} {words}: {last_row(perftest(a, b, tool, words), size)[2]} MB/s", flush=True)


def rate_and_delay_shape(a, b):
    b.shell('"$RXE_NET" shape n1k1 rate 8mbit')
    megabytes = last_row(perftest(a, b, "ib_write_bw", "-n 40 -s 65536"), 65536)[2]
    b.shell('"$RXE_NET" shape n1k1')
    if not 0 < megabytes <= 1.1 * 8 / 8 * 1e6 / 2**20:
        fail(f"at 8 Mbit/s ib_write_bw carried {megabytes} MB/s")
    b.shell('"$RXE_NET" shape n1k1 delay 60ms')
    least_us = last_row(perftest(a, b, "ib_write_lat", "-n 20 -s 8"), 8)[1]
    b.shell('"$RXE_NET" shape n1k1')
    if least_us < 0.9 * 60000 / 2:  # one way of two is delayed, and perftest halves the round trip
        fail(f"with 60 ms of delay one way ib_write_lat saw {least_us} us")
    print(f"  8 Mbit/s: {megabytes} MB/s; 60 ms one way: {least_us} us", flush=True)


def runs_out_of_retries(a, b, strike, mend, what):
    """Something at node1's end, or on the way, is struck; node0's write is lost."""
    fresh_pair(a, b)
    write(a, 1)
    expect(f"before {what}", a.statuses(1, 60000)[0], [SUCCESS])
    b.shell(strike)
    since = int(a.must("now")[0])
    write(a, 2), write(a, 3)
    statuses, at = a.statuses(2, 120000)
    expect(f"node0 after {what}", statuses, [RETRY_EXCEEDED, FLUSHED])
    if (at[0] - since) / 1e6 < 0.9 * WINDOW_MS:
        fail(f"{what}: retries of {WINDOW_MS:.0f} ms were exhausted after {(at[0] - since) / 1e6:.0f} ms")
    b.shell(mend)
    fresh_pair(a, b)
    write(a, 4)
    expect(f"a new queue pair after {what} was mended", a.statuses(1, 60000)[0], [SUCCESS])


def own_link_down(a, b):
    fresh_pair(a, b)
    while a.ask("event 0") != "none":
        pass
    while b.ask("event 0") != "none":
        pass
    a.shell('"$RXE_NET" link n0k0 down')
    expect("node0's event", a.ask("event 60000"), f"event {EVENT_PORT_ERR}")
    expect("node0's port", a.must("port")[0], DOWN)
    expect("node1's port", b.must("port")[0], ACTIVE)
    expect("node1's event", b.ask("event 500"), "none")
    write(a, 1), write(a, 2)
    statuses = a.statuses(2, 120000)[0]
    if len(statuses) != 2 or statuses[0] not in (LOC_QP_OP_ERR, RETRY_EXCEEDED, FLUSHED) or statuses[1] != FLUSHED:
        fail(f"node0's writes over its own dead link: {statuses}")
    print(f"  node0's writes over its own dead link: {statuses}", flush=True)
    a.shell('"$RXE_NET" link n0k0 up')
    expect("node0's event", a.ask("event 60000"), f"event {EVENT_PORT_ACTIVE}")
    fresh_pair(a, b)
    write(a, 3)
    expect("after the link is up", a.statuses(1, 60000)[0], [SUCCESS])


def injected_on_one_side(a, b):
    """The injector of one guest breaks its own end; the other, whose kernel knows nothing of it, runs out of retries."""
    fresh_pair(a, b)
    write(b, 1)
    expect("before the injected fault", b.statuses(1, 60000)[0], [SUCCESS])
    b.must("now")
    fault = b.shell("\"$R2BENCH\" inject add '{at: now, target: node1/nic0, kind: qp_error, qp: all}'")
    write(a, 2)
    expect("node0 after qp_error was injected on node1", a.statuses(1, 120000)[0], [RETRY_EXCEEDED])
    told = b.shell('"$R2BENCH" inject list --effects')
    if "QP moved to ERR" not in told:
        fail(f"node1's injector has no witness of fault {fault}: {told}")
    if "QP moved to ERR" in a.shell('"$R2BENCH" inject list --effects'):
        fail("node0's injector struck, too")
    b.shell('"$R2BENCH" heal')


CASES = (
    devices_are_apart, data_arrives, programs_run, rate_and_delay_shape, own_link_down,
    lambda a, b: runs_out_of_retries(a, b, '"$RXE_NET" link n1k0 down', '"$RXE_NET" link n1k0 up', "the peer's link went down"),
    lambda a, b: runs_out_of_retries(a, b, '"$RXE_NET" link s1k0 down', '"$RXE_NET" link s1k0 up', "the peer's switch port went down"),
    lambda a, b: runs_out_of_retries(a, b, '"$RXE_NET" shape n1k0 loss 100%', '"$RXE_NET" shape n1k0', "the peer's answers were lost"),
    lambda a, b: runs_out_of_retries(a, b, "ip link set eth0 down", "ip link set eth0 up", "the wire between the guests was cut"),
    injected_on_one_side,
)


def conversation(r2bench, agent, folder):
    (folder / "serve.sh").write_text(SERVE)
    nodes = [Node(f"node{number}", folder) for number in (0, 1)]
    command = [r2bench, "guest", "--guests", "2", "--nics", "2", "--write", str(folder), "--"]
    for node in nodes:
        command += [*([] if node is nodes[0] else ["::"]), "bash", str(folder / "serve.sh"), node.name]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "R2BENCH": r2bench, "AGENT": agent, "FOLDER": str(folder)})

    def listen():
        for line in running.stdout:
            label, _, said = line.rstrip("\n").partition(" | ")
            if said.startswith("answer "):
                nodes[int(label[-1])].answers.put(said.removeprefix("answer "))
            else:
                print(line, end="", flush=True)
        for node in nodes:
            node.answers.put(None)

    threading.Thread(target=listen, daemon=True).start()
    try:
        for case in CASES:
            print(getattr(case, "__name__", "case"), flush=True)
            case(*nodes)
        for node in nodes:
            node.tell("end")
        status = running.wait(timeout=PATIENCE)
        if status != 0:
            fail(f"'r2bench guest --guests 2' ended with {status}")
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
    wait_for(lambda: not guests_of(running.pid), "the guests' end")


def statuses_come_out(r2bench):
    for words, wanted in ((["sh", "-c", "exit 3", "::", "true"], 3), (["true", "::", "sh", "-c", "exit 4"], 4), (["true"], 0)):
        got = subprocess.run([r2bench, "guest", "--guests", "2", "--nics", "1", "--", *words], check=False).returncode
        expect(f"status of {' '.join(words)}", got, wanted)
    usage = subprocess.run([r2bench, "guest", "--guests", "2", "--", "true", "::"], check=False, capture_output=True, text=True)
    expect("status of a command that is missing", usage.returncode, 64)


def guests_end_with_r2bench(r2bench):
    for number, wanted in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        running = subprocess.Popen([r2bench, "guest", "--guests", "2", "--nics", "1", "--", "sh", "-c", "echo started; sleep 3600"],
                                   stdout=subprocess.PIPE, text=True)
        for _ in range(2):
            running.stdout.readline()
        pids = guests_of(running.pid)
        expect("guests", len(pids), 2)
        running.send_signal(number)
        expect(f"status after signal {number}", running.wait(timeout=PATIENCE), wanted)
        wait_for(lambda pids=pids: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), f"the guests' end after signal {number}")


def main():
    if not on_debian():
        print("skipped: the guest is made of Debian's kernel package, and this is not Debian")
        return 77
    os.environ.pop("R2BENCH_RXE_HERE", None)
    r2bench, agent = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        conversation(r2bench, agent, pathlib.Path(folder))
    statuses_come_out(r2bench)
    guests_end_with_r2bench(r2bench)
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
