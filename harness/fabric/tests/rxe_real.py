#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: the preflight on soft RoCE as on any verbs devices, and real faults under traffic.

    rxe_real.py R2BENCH SCENARIOS [cluster|link|tc|switch|verbs|first_day …]

Where no guest can be made because the system is not Debian, it is skipped: exit status 77.
"""
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "hosts" / "tests"))
import recorder  # noqa: E402

LIMIT = 3000  # seconds a guest


def fail(sentence):
    recorder.failed()
    print(f"FAILED: {sentence}")
    sys.exit(1)


def call(*words):
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    print("$", " ".join(words), f"({done.returncode})")
    return done.returncode, done.stdout


def json_in(text):
    """The guest's console may say something before it."""
    start = text.find("{\n")
    if start < 0:
        fail("no JSON came out:\n" + text)
    return json.JSONDecoder().raw_decode(text[start:])[0]


def cluster(r2bench, _scenarios):
    """Every pair proved; then a port that is down, and one that is cut off at its switch."""
    probe = f"'{r2bench}' doctor --cluster --json"
    status, text = call(r2bench, "guest", "--nics", "2", "--", "sh", "-c", probe)
    told = json_in(text)
    if status != 0 or not told["ready"]:
        fail(f"soft RoCE is not ready ({status}): {[f for f in told['findings'] if f['level'] == 'bad']}")
    ports = [port["device"] for host in told["hosts"] for port in host["ports"]]
    if ports != ["node0_nic0", "node0_nic1", "node1_nic0", "node1_nic1"]:
        fail(f"other ports: {ports}")
    if len(told["pairs"]) != 6 or not all(pair["proved"] and pair["same_network"] for pair in told["pairs"]):
        fail(f"not every pair was proved: {told['pairs']}")
    for port in told["hosts"][0]["ports"]:
        if not (port["soft"] and port["active_mtu"] == 4096 and port["state"] == "ACTIVE" and
                any(gid["type"] == "RoCE v2" for gid in port["gids"])):
            fail(f"what is told of a port: {port}")

    status, text = call(r2bench, "guest", "--nics", "2", "--", "sh", "-c",
                        f'"$RXE_NET" link n1k1 down; "$RXE_NET" link s0k0 down; {probe}')
    told = json_in(text)
    # No other host is on their networks, so they are spare ports, which a run leaves out.
    links = {finding["port"]: finding["level"] for finding in told["findings"] if finding["what"] == "link"}
    if status != 0 or links != {"node0_nic0": "note", "node0_nic1": "good", "node1_nic0": "good", "node1_nic1": "note"}:
        fail(f"what was told of ports that are down ({status}): {links}")
    lost = {pair["a"]["port"] + " " + pair["b"]["port"]: pair["proved"] for pair in told["pairs"]}
    # node0_nic0 has lost its carrier; the two that are left reach each other.
    if not lost.get("node0_nic1 node1_nic0"):
        fail(f"the healthy pair was not proved: {lost}")
    if any(proved for pair, proved in lost.items() if "node0_nic0" in pair):
        fail(f"a port without its switch was proved: {lost}")
    print("cluster: six pairs proved; a port down and a port cut off found")


def events_of(folder):
    return [json.loads(line) for path in sorted(pathlib.Path(folder).rglob("events.jsonl")) for line in path.read_text().splitlines()]


def check_real(name, folder, status, text, kinds):
    if status != 0:
        fail(f"{name} ended with {status}:\n{text}")
    results = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).rglob("result.json"))]
    faults = [fault for result in results for run in result["runs"] for fault in run["faults"]]
    if sorted(fault["kind"] for fault in faults) != sorted(kinds) or not all(fault["witnessed"] for fault in faults):
        fail(f"{name}: other faults, or not witnessed: {faults}")
    for result in results:
        if result["verdict"] != "pass" or result["evidence"] != "rxe":
            fail(f"{name}: {result['verdict']}, {result['evidence']}")
    names = [event.get("event") for event in events_of(folder)]
    for wanted in ("will_change", "real_fault", "put_back"):
        if wanted not in names:
            fail(f"{name}: no event {wanted} among {sorted(set(map(str, names)))}")


def link(r2bench, scenarios):
    """Injected and real side by side; the job goes on after both, and the link is up again."""
    with tempfile.TemporaryDirectory() as folder:
        status, text = call(r2bench, "run", os.path.join(scenarios, "real_link_down.yaml"), "--fabric", "rxe", "--no-plot", "--out", folder,
                            "--allow-real-faults", "--set", "workload.iters=60", "--set", "faults.0.at={iter: 15}", "--set", "faults.0.for=500 ms", "--set", "workload.bytes=2 MiB",
                            "--slow-motion", "2", "--keep-going")
        check_real("real_link_down", folder, status, text, ["port_down", "real_link_down"])
        said = [event.get("text", "") for event in events_of(folder) if event.get("event") == "real_fault"]
        if not any("operstate says down" in text for text in said):
            fail(f"the witness is not the kernel's word: {said}")
        print("link: the real loss of a link and the injected one end alike")
        status, text = call(r2bench, "run", os.path.join(scenarios, "real_link_down.yaml"), "--fabric", "rxe", "--no-plot", "--out", folder + "/refused")
        if status != 64 or "--allow-real-faults" not in text:
            fail(f"without leave it ended with {status}:\n{text}")


def tc(r2bench, scenarios):
    with tempfile.TemporaryDirectory() as folder:
        status, text = call(r2bench, "run", os.path.join(scenarios, "real_tc.yaml"), "--no-plot", "--out", folder, "--allow-real-faults",
                            "--set", "workload.bytes=2 MiB", "--set", "workload.iters=60", "--slow-motion", "8")
        check_real("real_tc", folder, status, text, ["real_tc"])
        said = [event.get("text", "") for event in events_of(folder) if event.get("event") == "real_fault"]
        if not any("netem 7232: root" in text and "loss 100%" in text for text in said):
            fail(f"the witness is not tc's word: {said}")
        print("tc: the job went on past a NIC whose packets the kernel dropped")


def switch(r2bench, scenarios):
    """The user's commands take the port away at the switch; the witness is the carrier, and it comes back."""
    with tempfile.TemporaryDirectory() as folder:
        status, text = call(r2bench, "run", os.path.join(scenarios, "real_switch_port.yaml"), "--no-plot", "--out", folder, "--allow-real-faults",
                            "--set", "workload.bytes=2 MiB", "--set", "workload.iters=60", "--slow-motion", "8")
        check_real("real_switch_port", folder, status, text, ["real_switch_port"])
        told = {event["event"]: event.get("text", "") for event in events_of(folder) if event.get("event") in ("will_change", "real_fault", "put_back")}
        if "ip link set s1k0 down" not in told["will_change"] or "carrier" not in told["real_fault"]:
            fail(f"not the user's command, or not the carrier's word: {told}")
        print("switch: the job went on past a port that its switch took away, and gave back")


def verbs(r2bench, scenarios):
    """The fabric verbs itself, on the guest's devices."""
    with tempfile.TemporaryDirectory() as folder:
        status, text = call(r2bench, "guest", "--nics", "2", "--write", folder, "--", r2bench, "run", os.path.join(scenarios, "nic_down.yaml"),
                            "--fabric", "verbs", "--no-plot", "--modes", "migrate", "--out", os.path.join(folder, "run"), "--slow-motion", "64",
                            "--set", "fabric.nics_per_node=2", "--set", "workload.iters=40", "--set", "workload.bytes=2 MiB",
                            "--set", "faults.0.at={iter: 15}", "--set", "env.NCCL_IB_RETRY_CNT=6")
        if status > 2:  # in emulation a limit of time may be missed (1), or a rate not be told (2)
            fail(f"nic_down on verbs ended with {status}:\n{text}")
        result = json.loads(next(pathlib.Path(folder).rglob("result.json")).read_text())
        run = result["runs"][0]
        if result["evidence"] != "rxe" or run["outcome"] != "ok" or not run["metrics"]["correctness"]["exact"]:
            fail(f"nic_down on verbs: {result['evidence']}, {run['outcome']}, {run['metrics']['correctness']}")
        print("verbs: nic_down survived on soft RoCE as the fabric verbs; its evidence is rxe")


# What a first day runs by itself, up to the black hole, the AllReduce of four nodes, and the real loss of a link; without false_alarms
# and balance, whose faults have times of their own that slow motion makes minutes of, and without what a person does.
WITHOUT_FAULTS = ("preflight", "topology", "pci", "conformance", "conformance_faults", "no_fault")
WITH_FAULTS = ("qp_error", "nic_down", "silent_port_down", "blackhole", "allreduce")
FIRST_DAY = (*WITHOUT_FAULTS, *WITH_FAULTS, "real_link_down")
LEFT = ("false_alarms", "balance", "traffic_class", "slurm", "rate_limit", "real_switch_port", "real_pcie_remove", "portal", "reboot")
SLOWLY = "--slow-motion 64 --shorter 10 --set workload.bytes=1MiB --set env.NCCL_IB_RETRY_CNT=6"
# Forty pairs of jobs, as no_fault has them, take hours in emulation; what is lost for real comes back after a time of its own.
PAIRS = SLOWLY + " --set pairs=2"
REAL = "--slow-motion 8 --set workload.bytes=2MiB --set workload.iters=60 --set faults.0.at.iter=15 --set faults.0.for=500ms"


def first_day(r2bench, _scenarios):
    """`doctor --first-day --run` where the devices are soft RoCE: what a person meets on the first day, in that order, to its end."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "first_day")
        command = f"'{r2bench}' doctor --first-day --out '{out}'"
        script = "; ".join([*[f"{command} --skip {step} >/dev/null" for step in (*LEFT, *WITH_FAULTS, "real_link_down")],
                            f"{command} --run --run-options '{PAIRS}'",
                            *[f"{command} --again {step} >/dev/null" for step in WITH_FAULTS],
                            f"{command} --run --run-options '{SLOWLY}'",
                            f"{command} --again real_link_down >/dev/null",
                            f"{command} --run --run-options '{REAL}'; echo \"without permission: $?\"",
                            f"{command} --run --allow-real-faults --run-options '{REAL}'"])
        status, text = call(r2bench, "guest", "--nics", "4", "--write", folder, "--", "sh", "-c", script)
        steps = {}
        for line in (pathlib.Path(out) / "steps.jsonl").read_text().splitlines():
            entry = json.loads(line)
            steps[entry["step"]] = entry
        for step in FIRST_DAY:
            entry = steps.get(step, {"state": "not reached"})
            print(f"    {step}: {entry['state']}, {entry.get('text', '')}")
            if entry["state"] != "done" and not (step == "pci" and entry["state"] == "left out"):
                log = pathlib.Path(out) / f"{step}.log"
                fail(f"{step} is {entry['state']} ({status}):\n{text}\n{log.read_text()[-4000:] if log.exists() else ''}")
        if "exit status 0" not in steps["preflight"]["text"] or not json.loads((pathlib.Path(out) / "preflight" / "cluster.json").read_text())["ready"]:
            fail(f"the preflight is not ready: {steps['preflight']}")
        for step in FIRST_DAY[FIRST_DAY.index("no_fault"):]:
            results = [json.loads(path.read_text()) for path in sorted((pathlib.Path(out) / step).rglob("result.json"))]
            if not results:
                fail(f"{step} left no result")
            for run in [run for result in results for run in result["runs"] if run["mode"] != "baseline"]:
                # In emulation a limit of time may be missed; a job that breaks or a wrong element may not be.
                if run["outcome"] != "ok" or not run["metrics"]["correctness"]["exact"]:
                    fail(f"{step}, {run['mode']}: {run['outcome']}, {run['metrics']['correctness']}, {run.get('error')}")
            if any(result["evidence"] != "rxe" for result in results):
                fail(f"{step}: evidence {[result['evidence'] for result in results]}")
        if "waits: it changes this machine: --allow-real-faults" not in text or "without permission: 1" not in text:
            fail(f"real_link_down did not wait for its permission:\n{text}")
        check_real_faults("real_link_down", pathlib.Path(out) / "real_link_down")
        check_what_is_sent(r2bench, folder, status, text)
        print("first_day: " + ", ".join(FIRST_DAY))


def check_real_faults(name, folder):
    """A link was lost by injection and for real, and the second was put back."""
    faults = [fault for path in sorted(folder.rglob("result.json")) for run in json.loads(path.read_text())["runs"] for fault in run["faults"]]
    if sorted(fault["kind"] for fault in faults) != ["port_down", "real_link_down"] or not all(fault["witnessed"] for fault in faults):
        fail(f"{name}: other faults, or not witnessed: {faults}")
    if "put_back" not in [event.get("event") for event in events_of(folder)]:
        fail(f"{name} was not put back")


def check_what_is_sent(r2bench, folder, status, text):
    """The last words are a command, whose archive has what the page says of each step."""
    told = text.split("All steps are done. Send back: ")
    if status != 0 or len(told) < 2:
        fail(f"the first day has not come to its end ({status}):\n{text}")
    command = told[-1].splitlines()[0].strip()
    subprocess.run(command, shell=True, check=True, cwd=folder, stderr=subprocess.DEVNULL)
    with tarfile.open(os.path.join(folder, "first_day.tar.gz")) as archive:
        names = [name.split("first_day/", 1)[1] for name in archive.getnames() if "first_day/" in name]
    page = subprocess.run([r2bench, "doctor", "--first-day", "--markdown"], check=True, capture_output=True, text=True).stdout
    if "steps.jsonl" not in names:
        fail(f"the archive has no list of the steps: {names}")
    checked = set()
    for section in page.split("\n## ")[1:]:
        step = section.split("\n")[0].split(". ")[1]
        wanted = " ".join(section.split("* Send back: ")[1].split("\n* ")[0].split("```")[0].split())
        if step not in FIRST_DAY or step == "pci":
            continue
        checked.add(step)
        files = [name for name in names if name.startswith(step + "/")]
        for file in ("cluster.json", "table.md", "result.json", "events.jsonl"):
            word = "the table" if file == "table.md" else file
            if word in wanted and not any(name.endswith("/" + file) for name in files):
                fail(f"{step}: '{wanted}' is to be sent back, and the archive has {files}")
        if f"{step}.log" not in names:
            fail(f"{step}: its log is not in the archive: {names}")
    if checked != set(FIRST_DAY) - {"pci"}:
        fail(f"the page says what to send back of {sorted(checked)} only")
    print(f"    sent back: {len(names)} files, by '{command.split(' /')[0]} …'")


def main():
    if "ID=debian" not in pathlib.Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        print("skipped: the guest's kernel is made from Debian's packages")
        return 77
    r2bench, scenarios = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    parts = {"cluster": cluster, "link": link, "tc": tc, "switch": switch, "verbs": verbs, "first_day": first_day}
    for name in sys.argv[3:] or parts:
        recorder.begin("rxe", "1 guest", "local", f"rxe_real {name}")
        parts[name](r2bench, scenarios)
        recorder.passed()
    return 0


if __name__ == "__main__":
    sys.exit(main())
