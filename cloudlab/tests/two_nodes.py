#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two virtual machines with one root as the two nodes of the CloudLab profile, fabric `rxe`: the root's own kernel, a control
network, and each rail a LAN of its own. Set-up runs in them, then nic_down over mpirun and ssh, then the figures.

    two_nodes.py ROOT REPOSITORY FOLDER

ROOT holds a kernel with its modules, sshd, and what set-up installs; REPOSITORY is the path of the repository in it. ROOT is not
changed: what a node writes lies in FOLDER/nodeN. In a mount namespace of its own, as clean_root.sh's (overlays are mounted).
Software emulation. Everything ends with this process.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "harness" / "fabric" / "guest"))
import make_guest  # noqa: E402
import paper_result  # noqa: E402
from paper_result import fail  # noqa: E402

RAILS = 4
PATIENCE = 5400  # s, for all of it
# All that mounting the root needs. What RDMA needs is set-up's to load, from the root.
MODULES = "qemu_fw_cfg virtio_pci virtio_net 9pnet_virtio 9p crc32c_generic crc32_generic".split()
IFMAP = "var/emulab/boot/ifmap"  # where CloudLab says which port has which address


def mac(node, port):
    return f"52:54:00:72:{node:02x}:{port:02x}"


def boot_files(root, folder):
    """The root's own kernel, and an initramfs that mounts the root."""
    image = max((root / "boot").glob("vmlinuz-*"))
    release = image.name.removeprefix("vmlinuz-")
    modules = make_guest.Modules(root / "lib/modules" / release).in_order(MODULES)
    (folder / "vmlinux").write_bytes(make_guest.decompressed_kernel(image))
    (folder / "initrd.cpio").write_bytes(make_guest.initramfs(make_guest.find_busybox(), modules))
    return release


class Node:
    """A virtual machine. `wires`: its end of each LAN; the first is the control network."""

    def __init__(self, number, root, repository, folder, wires):
        self.number, self.folder, self.wires, self.shown = number, folder / f"node{number}", wires, 0
        self.root = self.folder / "root"
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={root},upperdir={self.folder}/upper,workdir={self.folder}/work", str(self.root)], check=True)
        (self.root / IFMAP).parent.mkdir(parents=True, exist_ok=True)
        (self.root / IFMAP).write_text("".join(
            f"eth{1 + rail} 10.10.{rail}.{number + 1} {mac(number, 1 + rail).replace(':', '')}\n" for rail in range(RAILS)))
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost\n192.168.77.1 node0\n192.168.77.2 node1\n")
        shutil.copy(HERE / "two_nodes.sh", self.root / "two_nodes.sh")
        (self.folder / "job").write_text(
            "mount_ -o remount,rw /host\n"
            f"job /bin/bash /two_nodes.sh {number} {repository} {RAILS}\n")
        self.start(folder)

    def start(self, boot):
        words = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem,rdtscp=on", "-smp", "2", "-m", "1536",
                 "-kernel", f"{boot}/vmlinux", "-initrd", f"{boot}/initrd.cpio", "-append",
                 "console=ttyS0 quiet mitigations=off no_timer_check panic=-1 cryptomgr.notests random.trust_cpu=on",
                 "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
                 "-fw_cfg", f"name=opt/r2bench/job,file={self.folder}/job",
                 "-chardev", f"file,id=console,path={self.folder}/console", "-serial", "chardev:console",
                 "-chardev", f"file,id=tty,path={self.folder}/said", "-serial", "chardev:tty",
                 "-chardev", f"file,id=status,path={self.folder}/status", "-device", "isa-debugcon,iobase=0xe9,chardev=status",
                 "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04",
                 "-fsdev", f"local,id=root,path={self.root},security_model=none,multidevs=remap",
                 "-device", "virtio-9p-pci,fsdev=root,mount_tag=root"]
        for port, wire in enumerate(self.wires):
            words += ["-netdev", f"socket,id=wire{port},fd={wire.fileno()}",
                      "-device", f"virtio-net-pci,netdev=wire{port},romfile=,mac={mac(self.number, port)}"]
        with (self.folder / "qemu").open("w") as output:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                            pass_fds=[wire.fileno() for wire in self.wires], preexec_fn=die_with_parent)

    def show(self):
        """What it has said since, each line with its node in front."""
        text = (self.folder / "said").read_bytes() if (self.folder / "said").exists() else b""
        end = text.rfind(b"\n") + 1
        for line in text[self.shown:end].decode(errors="replace").splitlines():
            print(f"node{self.number} | {line}", flush=True)
        self.shown = max(end, self.shown)

    def status(self):
        """Of its job; None as long as it runs."""
        if self.process.poll() is None:
            return None
        said = (self.folder / "status").read_bytes()
        if len(said) != 1:
            fail(f"node{self.number} ended without a status:\n{(self.folder / 'qemu').read_text()}\n{(self.folder / 'console').read_text()[-2000:]}")
        return said[0]

    def end(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(["umount", "-l", str(self.root)], check=False)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.nice(5)


def let_root_in(root):
    """Root of a node may log in on the others, as CloudLab's installRootKeys lets it."""
    ssh = root / "root/.ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    for old in ssh.glob("id_ed25519*"):
        old.unlink()
    subprocess.run(["chroot", str(root), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/.ssh/id_ed25519"], check=True)
    shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")


def wait_for_the_first(nodes):
    until = time.monotonic() + PATIENCE
    while True:
        for node in nodes:
            node.show()
        status = nodes[0].status()
        if status is not None:
            nodes[0].show()
            return status
        if nodes[1].status() is not None:
            fail(f"node1 has ended before node0, with status {nodes[1].status()}")
        if time.monotonic() > until:
            fail(f"not done after {PATIENCE} s")
        time.sleep(0.5)


def look_at_the_preflight(log):
    """Of both hosts through ssh: what is one rail is proved, what is two is not and is said to be so."""
    told = json.loads((log / "cluster.json").read_text())
    if not told["ready"] or [host["host"] for host in told["hosts"]] != ["node0", "node1"]:
        fail(f"the preflight: {[each for each in told['findings'] if each['level'] == 'bad']}")
    proved = sorted((pair["a"]["port"], pair["b"]["port"]) for pair in told["pairs"] if pair["same_network"] and pair["proved"])
    wanted = [(f"rxe_eth{1 + rail}",) * 2 for rail in range(RAILS)]
    if proved != wanted:
        fail(f"the preflight proved {proved}, not {wanted}:\n{json.dumps(told['pairs'], indent=1)}")
    print(f"preflight: ready, {len(proved)} rails proved between the nodes, {len(told['pairs'])} pairs of ports tried")


def main():
    root, repository, folder = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
    for number in range(2):
        shutil.rmtree(folder / f"node{number}", ignore_errors=True)
    let_root_in(root)
    print(f"=== two nodes with {boot_files(root, folder)}", flush=True)
    lans = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(1 + RAILS)]
    nodes = []
    try:
        for number in range(2):
            nodes.append(Node(number, root, repository, folder, [lan[number] for lan in lans]))
        for lan in lans:
            for end in lan:
                end.close()
        status = wait_for_the_first(nodes)
        if status != 0:
            fail(f"node0 ended with {status}")
        look_at_the_preflight(nodes[0].root / "var/log/r2ccl")
        paper_result.look_at_nic_down(nodes[0].root / "var/lib/r2ccl-node/paper", "verbs", "rxe", [("node0", 0, 1), ("node1", 1, 1)])
    finally:
        for node in nodes:
            node.end()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
