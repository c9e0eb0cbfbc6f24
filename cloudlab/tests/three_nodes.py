#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""autorun.sh on three nodes: one comes up late, then one never does. Network namespaces are the nodes, each with /etc, /var/lib, /run and
root's home of its own, an sshd, and two rails; setup.sh, ssh, mpirun and r2bench are the real ones. Virtual NICs stand in for the nodes'
(a program between reproduce.sh and r2bench replaces `verbs` by `vhca`), with times stretched, since three nodes share this machine.

    three_nodes.py R2BENCH FOLDER

If there is no sshd, its package is fetched into FOLDER, and not installed. Exit status 77: it cannot run here, and why.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "harness/hosts/tests"), str(HERE)]
import paper_result  # noqa: E402
import recorder  # noqa: E402
from namespaces import Hosts, die_with_parent, fail, need, skip, wait_for  # noqa: E402

CLOUDLAB = HERE.parent
NODES, RAILS = 3, 2
STEPS = {"nic_down": 2, "all_nics_down": 1, "fault_during_migration": 3}  # and how many NICs each needs
SLOWER = 8
PAPER = pathlib.Path("var/lib/r2ccl-node/paper")
# Between reproduce.sh and r2bench.
R2BENCH = """#!/bin/bash
words=()
for word in "$@"; do [[ $word != verbs ]] || word=vhca; words+=("$word"); done
exec {r2bench} "${{words[@]}}"
"""
# In a node's namespaces: folders of its own, and who may log in.
FURNISH = """set -e
mount -t tmpfs tmpfs /run
for place in /etc /var/lib /root; do
  mkdir -p "{node}$place/upper" "{node}$place/work"
  mount -t overlay overlay -o "lowerdir=$place,upperdir={node}$place/upper,workdir={node}$place/work" "$place"
done
cp {hosts} /etc/hosts
grep -q ^sshd: /etc/passwd || echo 'sshd:x:62222:65534::/run/sshd:/usr/sbin/nologin' >>/etc/passwd
rm -rf /root/.ssh
mkdir -m 700 /root/.ssh /run/sshd
cp {key} {key}.pub /root/.ssh/
cp {key}.pub /root/.ssh/authorized_keys
rm -rf /var/lib/r2ccl-node
"""


class Nodes(Hosts):
    def __init__(self, sshd):
        super().__init__(NODES, name="node")
        self.sshd, self.daemons = sshd, {}

    def __exit__(self, *_):
        for pid in self.processes():  # reproduce.sh outlives autorun.sh
            os.kill(pid, signal.SIGKILL)
        super().__exit__()

    def make(self):
        super().make()
        key = self.folder / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key")], check=True)
        (self.folder / "sshd_config").write_text(f"HostKey {self.folder}/host_key\nPermitRootLogin yes\nPidFile none\n")
        for number, name in enumerate(self.names):
            self.run(number, FURNISH.format(node=self.folder / name, hosts=self.folder / "hosts", key=key))
        switch = self.holders[0].pid
        for rail in range(RAILS):
            self.inside(switch, "ip", "link", "add", f"rail{rail}", "type", "bridge")
            self.inside(switch, "ip", "link", "set", f"rail{rail}", "up")
            for number, name in enumerate(self.names):
                self.inside(switch, "ip", "link", "add", f"r{rail}p{number}", "type", "veth", "peer", "name", f"port{rail}", "netns", str(self.pid(name)))
                self.inside(switch, "ip", "link", "set", f"r{rail}p{number}", "master", f"rail{rail}", "up")
                self.run(number, f"ip addr add 10.10.{rail}.{number + 1}/24 dev port{rail}; ip link set port{rail} up")

    def run(self, number, script):
        """The script's standard output; an error where it fails."""
        ran = subprocess.run([*self.enter(f"node{number}"), "bash", "-c", script], capture_output=True, text=True, timeout=120)
        if ran.returncode != 0:
            fail(f"node{number}: {script}\n{ran.stdout}\n{ran.stderr}")
        return ran.stdout

    def boot(self, number):
        """From now on, root may log in there."""
        log = self.folder / f"sshd{number}"
        with log.open("w") as output:
            self.daemons[number] = subprocess.Popen([*self.enter(f"node{number}"), self.sshd, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                                                    stderr=output, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        wait_for(lambda: "listening" in log.read_text(), f"node{number}'s sshd")

    def logins(self, number):
        return (self.folder / f"sshd{number}").read_text().count("Accepted publickey")

    def set_up(self, number):
        said = self.run(number, f"{CLOUDLAB}/setup.sh --node {number} --nodes {NODES} --rails {RAILS} --fabric vhca --skip packages,build,unit")
        for rail in range(RAILS):
            if f"ok       rail {rail}: port{rail}, 10.10.{rail}.{number + 1}/24" not in said:
                fail(f"node{number}: set-up does not find rail {rail}:\n{said}")

    def autorun(self, r2bench, seconds):
        """Over mpirun, as the profile's command calls it."""
        between = self.folder / "r2bench"
        between.write_text(R2BENCH.format(r2bench=r2bench))
        between.chmod(0o755)
        environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "R2CCL_SETUP_ROOT", "SSH_AUTH_SOCK")}
        environment.update(R2BENCH=str(between), R2CCL_WAIT_SECONDS=str(seconds), R2CCL_WAIT_STEP="0.5", OMPI_MCA_ras="^slurm", HOME="/root",
                           R2CCL_AUTORUN_STEPS=" ".join(f"--only {step}" for step in STEPS) + " --short", R2CCL_AUTORUN_WORDS=f"--slow-motion {SLOWER}")
        return subprocess.Popen([*self.enter("node0"), f"{CLOUDLAB}/autorun.sh", str(NODES), "verbs", "paper", str(RAILS)],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def state(self, number):
        return self.folder / f"node{number}/var/lib/upper/r2ccl-node"


def find_sshd(folder):
    """The path of an sshd; its package is fetched where it is not installed."""
    if os.access("/usr/sbin/sshd", os.X_OK):
        return "/usr/sbin/sshd"
    there = folder / "sshd"
    path = there / "usr/sbin/sshd"
    if not path.exists():
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "openssh-server", "libwrap0"], cwd=there, capture_output=True)
        for package in there.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(there)], check=True)
    for library in there.glob("**/libwrap.so.?"):
        os.environ["LD_LIBRARY_PATH"] = str(library.parent)
    if not path.exists() or subprocess.run([path, "-?"], capture_output=True).returncode == 127:
        skip("sshd is missing, and apt-get cannot download it: apt-get install openssh-server")
    return str(path)


def ended(process, what):
    try:
        said, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        fail(f"{what} does not end:\n{process.communicate()[0]}")
    return process.returncode, said


def one_comes_late(r2bench, nodes):
    nodes.boot(0)
    nodes.boot(1)
    nodes.set_up(0)
    nodes.set_up(1)
    began = nodes.autorun(r2bench, 300)
    wait_for(lambda: nodes.logins(1), "autorun asks node1")
    time.sleep(2)  # there is nothing to wait for: nothing may happen
    nodes.boot(2)
    wait_for(lambda: nodes.logins(2), "autorun asks node2")
    paper = nodes.state(0) / "paper"
    if began.poll() is not None or paper.exists():
        fail(f"autorun did not wait for node2's set-up:\n{began.communicate()[0]}")
    nodes.set_up(2)
    status, said = ended(began, "autorun")
    if status != 0 or "reproduce.sh runs: " not in said:
        fail(f"autorun ended with {status}:\n{said}")
    wait_for(lambda: (paper / "lock").exists(), "reproduce.sh begins")
    again, said = ended(nodes.autorun(r2bench, 10), "the second autorun")
    if again != 0 or "reproduce.sh runs already" not in said:
        fail(f"a second autorun ended with {again}:\n{said}")
    log = nodes.state(0) / "reproduce.log"
    wait_for(lambda: "steps passed, " in log.read_text() or not nodes.processes("node0").keys() - {nodes.daemons[0].pid}, "reproduce.sh ends", 1200)
    said = log.read_text()
    print(said, end="", flush=True)
    look_at_the_results(paper, said)


def look_at_the_results(paper, said):
    if "; results in" not in said:
        fail("reproduce.sh has not come to its end:\n" + paper_result.logs(paper))
    steps = {step["step"]: step["status"] for step in map(json.loads, (paper / "steps.jsonl").read_text().splitlines())}
    hosts = [(f"node{number}", number, 1) for number in range(NODES)]
    for name, nics in STEPS.items():
        if nics > RAILS:
            if name in steps or f"it needs {nics} NICs per node, and {RAILS} take part" not in said:
                fail(f"{name} was not skipped: {steps}")
            continue
        if steps.get(name) not in (0, 1):  # a busy machine may miss an expectation of time
            fail(f"{name} ended with {steps.get(name)}:\n" + paper_result.logs(paper))
        result = json.loads((paper / f"reference/{name}/result.json").read_text())
        for run in result["runs"]:
            places = [(host["name"], host["first_node"], host["nodes"]) for host in run["hosts"]["list"]]
            if places != hosts or len(run["ranks"]) != NODES:
                fail(f"{name}: {len(run['ranks'])} ranks on {places}")
    recorder.begin("emulated", f"{NODES} namespaces", "mpi", "nic_down")
    paper_result.look_at_nic_down(paper, "vhca", "emulated", hosts)


def one_never_comes(r2bench, nodes):
    """It says who, why, and what continues; nothing begins."""
    shutil.rmtree(nodes.state(0) / "paper")
    nodes.daemons[1].kill()
    nodes.daemons[1].wait()
    nodes.run(2, f"rm {READY}")  # as after a reboot, before its set-up
    status, said = ended(nodes.autorun(r2bench, 4), "autorun")
    if status != 1 or (nodes.state(0) / "paper").exists():
        fail(f"autorun without node1 and node2 ended with {status}:\n{said}")
    for words in ("node1 is not ready after 4 s: it does not run, or root may not log in there: ssh: connect to host node1 port 22: Connection refused",
                  "node2 is not ready after 4 s: its set-up has not ended, or lacks something (node2: sudo ", "autorun.sh 3 verbs paper 2"):
        if words not in said:
            fail(f"autorun does not say {words!r}, but:\n{said}")
    print(said, end="")


READY = next(word for word in (CLOUDLAB / "autorun.sh").read_text().split() if word.endswith("r2ccl-node/ready"))


def main():
    r2bench, folder = os.path.realpath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    need(("mpirun", "openmpi-bin"), ("ssh", "openssh-client"), ("ip", "iproute2"), ("nsenter", "util-linux"))
    if "overlay" not in pathlib.Path("/proc/filesystems").read_text().split():
        skip("this kernel has no overlay file system")
    with Nodes(find_sshd(folder)) as nodes:
        one_comes_late(r2bench, nodes)
        nodes.expect_nobody("after reproduce.sh", [daemon.pid for daemon in nodes.daemons.values()])
        one_never_comes(r2bench, nodes)
        nodes.expect_nobody("after an autorun in vain", [daemon.pid for daemon in nodes.daemons.values()])
    print("passed: three nodes, of which one came late; and then did not come")


if __name__ == "__main__":
    main()
