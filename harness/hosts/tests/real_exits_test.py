#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A link of the second of two hosts is down for real, and will not be healed, when the job ends by force. That host puts it back,
with its routes, and nothing of the job is left on either. The hosts are guests with soft RoCE and kernels of their own.

    real_exits_test.py R2BENCH [runner_killed|agent_killed|both_killed|interrupted…]

Skipped (77) where the system is not Debian, of whose kernel the guests are made.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "fabric" / "tests"))
import recorder  # noqa: E402
from rxe_smoke import fail as say_failed, guests_of, on_debian, wait_for  # noqa: E402
from two_guests_test import REAL_LINK_DOWN  # noqa: E402

CASES = ("runner_killed", "agent_killed", "both_killed", "interrupted")
ENDLESS = REAL_LINK_DOWN.replace(", for: 3 s", "").replace("iters: 100", "iters: 1000000")
PATIENCE = 900  # s: soft RoCE under emulation, on a busy machine
INTERFACE, TABLE, UNDO = "n1k0", "1064", "/run/r2bench-undo"  # of node1/nic0, as rxe_net.sh makes it


def fail(why):
    recorder.failed()
    say_failed(why)


def start(r2bench, folder, rank):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="node0", MASTER_PORT="29400",
                       R2BENCH_JOB_SECRET="of this test, and long enough")
    with (folder / f"said{rank}").open("w") as said:
        return subprocess.Popen([r2bench, "run", str(folder / "endless.yaml"), "--no-plot", "--quiet", "--out", str(folder / "out"),
                                 "--launcher", "env", "--allow-real-faults"], stdout=said, stderr=said, env=environment)


def until(condition, what):
    end = time.monotonic() + PATIENCE / 3
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not within {PATIENCE / 3:.0f} s: {what}")
        time.sleep(0.05)


def state():
    return pathlib.Path(f"/sys/class/net/{INTERFACE}/operstate").read_text().strip()


def routes():
    return subprocess.run(["ip", "route", "show", "table", TABLE], capture_output=True, text=True, check=False).stdout.strip()


def left():
    """Processes of the job in this guest: programs of r2bench, and what it has started."""
    listed = subprocess.run(["ps", "-eo", "comm="], capture_output=True, text=True, check=True).stdout.split("\n")
    return [name for name in listed if name.startswith("r2bench")]


def first_host(case, r2bench, folder):
    runner = start(r2bench, folder, 0)
    until(lambda: (folder / "cut").exists() or runner.poll() is not None, "the link is down")
    if case in ("runner_killed", "both_killed"):
        runner.kill()
    elif case == "interrupted":
        runner.send_signal(signal.SIGINT)
    until(lambda: runner.poll() is not None, "the runner ends")
    until(lambda: not left(), "nothing of the job is left")
    until((folder / "back.json").exists, "the other host has put it back")
    (folder / "status0").write_text(str(runner.returncode))


def second_host(case, r2bench, folder):
    before = routes()
    agent = start(r2bench, folder, 1)
    until(lambda: state() == "down" or agent.poll() is not None, "the link is down")
    told = {"before": before, "cut": state(), "routes_cut": routes(), "listed": os.listdir(UNDO) if os.path.isdir(UNDO) else []}
    (folder / "cut").touch()
    if case in ("agent_killed", "both_killed"):
        agent.kill()
    until(lambda: agent.poll() is not None, "the agent ends")
    began = time.monotonic()
    until(lambda: state() == "up" and routes() == before, "the link is up again, with its routes")
    told["back_after_s"] = round(time.monotonic() - began, 1)
    until(lambda: not os.path.exists(UNDO), "nothing is left to be put back")
    until(lambda: not left(), "nothing of the job is left")
    (folder / "part.json").write_text(json.dumps({**told, "after": routes()}))
    (folder / "part.json").rename(folder / "back.json")


def check(case, r2bench):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "endless.yaml").write_text(ENDLESS)
        here = ["/usr/bin/python3", "-B", os.path.abspath(__file__), "inside", case]
        ended = subprocess.run([r2bench, "guest", "--guests", "2", "--nics", "4", "--write", name, "--", *here, "0", r2bench, name, "::",
                                *here, "1", r2bench, name], capture_output=True, text=True, timeout=PATIENCE)
        said = "\n".join(f"{file.name}: {file.read_text()[-2000:]}" for file in sorted(folder.glob("said*")))
        if ended.returncode != 0 or not (folder / "back.json").exists():
            fail(f"{case}: status {ended.returncode}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}\n{said}")
        told = json.loads((folder / "back.json").read_text())
        if told["cut"] != "down" or not told["before"] or told["routes_cut"] == told["before"] or not told["listed"]:
            fail(f"{case}: the link was not down, or not on the list of changes: {told}\n{said}")
        status = int((folder / "status0").read_text())
        # 1: an expectation had failed before the agent was killed; guests under emulation are slow.
        wanted = {"interrupted": (130,), "agent_killed": (1, 2)}.get(case, (-signal.SIGKILL,))
        if status not in wanted:
            fail(f"{case}: the runner ended with {status}, not with {wanted}\n{said}")
        if case == "agent_killed":
            error = json.loads((folder / "out" / "result.json").read_text())["runs"][0]["error"]
            if "host node1 is gone" not in error:
                fail(f"{case}: {error}")
        print(f"{case}: put back {told['back_after_s']} s after the agent's end, nothing is left on either host", flush=True)


def main():
    if sys.argv[1] == "inside":
        case, number, r2bench, folder = sys.argv[2:]
        (first_host, second_host)[int(number)](case, r2bench, pathlib.Path(folder))
        return 0
    if not on_debian():
        print("skipped: the guest is made of Debian's kernel package, and this is not Debian")
        return 77
    os.environ.pop("R2BENCH_RXE_HERE", None)
    r2bench = os.path.abspath(sys.argv[1])
    for case in sys.argv[2:] or CASES:
        recorder.begin("rxe", "2 guests", "env", f"real_link_down {case}")
        check(case, r2bench)
        recorder.passed()
    wait_for(lambda: not guests_of(os.getpid()), "the guests' end")
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
