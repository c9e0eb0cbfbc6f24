# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of this machine as the hosts of a cluster: each has a name, an address and a link to a switch of its own.

Nothing is written outside a temporary folder, and everything ends with the process that made it, however that ends:
namespaces live as long as the processes that hold them, and these are killed by the kernel when this one dies.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import recorder

PATIENCE = 60  # s for what another process comes to by itself
SKIP = 77
NETWORK = "10.77.0."
IPV6 = "fd77::"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def fail(why):
    recorder.failed()
    print(f"FAILED: {why}")
    sys.exit(1)


def need(*programs):
    """Skips where one is missing, or where namespaces cannot be made."""
    for program, package in programs:
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            skip(f"{program} is missing; apt-get install {package}")
    if os.geteuid() != 0:
        skip("network namespaces want root")
    made = subprocess.run(["unshare", "-n", "-u", "-m", "true"], capture_output=True, text=True)
    if made.returncode != 0:
        skip(f"namespaces cannot be made here: {made.stderr.strip()}")
    tried = subprocess.run(["unshare", "-n", "ip", "link", "add", "r2a", "type", "veth", "peer", "name", "r2b"], capture_output=True, text=True)
    if tried.returncode != 0:
        skip(f"virtual links cannot be made here: {tried.stderr.strip()}")


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def executable(pid):
    """Its file; "" where the process has ended since it was listed."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def wait_for(condition, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    fail(f"{what}: not within {patience} s")


class Hosts:
    """`with Hosts(2) as hosts`: h0, h1, joined by a switch. hosts.folder is removed at the end. `network`: NETWORK or IPV6. `name`: of
    each, before its number."""

    def __init__(self, count, network=NETWORK, name="h"):
        self.network = network
        self.names = [f"{name}{i}" for i in range(count)]
        self.holders = []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="r2bench-hosts-"))

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for holder in self.holders:
            holder.kill()
            holder.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def hold(self, name):
        """A process whose namespaces are the host's."""
        table = self.folder / "hosts"
        script = f'mount --bind {table} /etc/hosts && hostname {name} && ip link set lo up && echo ready && exec sleep 1000000'
        holder = subprocess.Popen(["unshare", "-n", "-u", "-m", "sh", "-c", script], stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.holders.append(holder)
        if holder.stdout.readline().strip() != "ready":
            skip(f"the namespaces of {name} cannot be set up here")
        (self.folder / f"{name}.pid").write_text(str(holder.pid))
        return holder.pid

    def make(self):
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{self.address(i)} {name}\n" for i, name in enumerate(self.names)))
        switch = self.hold("switch")
        self.inside(switch, "ip", "link", "add", "sw", "type", "bridge")
        self.inside(switch, "ip", "link", "set", "sw", "up")
        for i, name in enumerate(self.names):
            pid = self.hold(name)
            self.inside(switch, "ip", "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
            self.inside(switch, "ip", "link", "set", f"p{i}", "master", "sw", "up")
            self.inside(pid, "ip", "addr", "add", f"{self.address(i)}/{64 if self.network == IPV6 else 24}", "dev", "eth0",
                        *(["nodad"] if self.network == IPV6 else []))
            self.inside(pid, "ip", "link", "set", "eth0", "up")
        # What mpirun takes for ssh: HOST COMMAND…
        remote = self.folder / "remote-shell"
        remote.write_text(f'#!/bin/sh\nhost=$1\nshift\nexec nsenter -t "$(cat {self.folder}/$host.pid)" -n -u -m sh -c "cd / && $*"\n')
        remote.chmod(0o755)

    def address(self, number):
        return f"{self.network}{number + 1}"

    @staticmethod
    def inside(pid, *command):
        subprocess.run(["nsenter", "-t", str(pid), "-n", "-u", "-m", *command], check=True)

    def pid(self, name):
        return int((self.folder / f"{name}.pid").read_text())

    def enter(self, name):
        """The words before a command that is to run on that host."""
        return ["nsenter", "-t", str(self.pid(name)), "-n", "-u", "-m", "--"]

    def environment(self):
        """For r2bench on a host: Open MPI finds the others through our remote shell."""
        environment = dict(os.environ)
        environment.pop("LD_PRELOAD", None)
        tmp = self.folder / "tmp"
        tmp.mkdir(exist_ok=True)
        environment.update(OMPI_MCA_plm_rsh_agent=str(self.folder / "remote-shell"), OMPI_MCA_oob_tcp_if_include="eth0",
                           OMPI_MCA_orte_tmpdir_base=str(tmp), OMPI_MCA_plm="rsh", OMPI_MCA_ras="^slurm")
        return environment

    def in_words(self):
        return f"{len(self.names)} namespaces{', IPv6' if self.network == IPV6 else ''}"

    def processes(self, host=None):
        """Whoever else lives in the namespaces of the hosts, or of this one: {pid: command line}."""
        own = {os.readlink(f"/proc/{pid}/ns/net") for pid in ([self.pid(host)] if host else [holder.pid for holder in self.holders])}
        mine = {holder.pid for holder in self.holders}
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in mine:
                continue
            try:
                if os.readlink(entry / "ns/net") in own and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
        return found

    def expect_nobody(self, when, but=(), patience=30):
        """Nothing of a job is left, after a bounded time; nor a file in /dev/shm. `but`: who was there before."""
        others = lambda: {pid: line for pid, line in self.processes().items() if pid not in but}
        end = time.monotonic() + patience
        while others():
            if time.monotonic() > end:
                fail(f"{when}, these are left: {others()}")
            time.sleep(0.05)
        left = sorted(path.name for path in pathlib.Path("/dev/shm").iterdir() if path.name.startswith(("r2", "vhca", "faultinject")))
        if left:
            fail(f"{when}, /dev/shm holds {left}")
