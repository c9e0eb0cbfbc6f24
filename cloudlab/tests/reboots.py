#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A virtual machine with a disk of its own as node0 of the CloudLab profile, in which systemd starts everything: set-up installs its
unit, the machine reboots, the unit has to set again what was lost, and autorun runs a scenario through another reboot.

    reboots.py ROOT REPOSITORY FOLDER

ROOT holds systemd, a kernel with its modules and initramfs, sshd, and what set-up installs; REPOSITORY is the path of the repository
in it. The disk is FOLDER/disk. In a mount namespace of its own, as clean_root.sh's. Software emulation. Everything ends with this
process.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "harness" / "fabric" / "guest"))
import make_guest  # noqa: E402
import paper_result  # noqa: E402
from paper_result import fail  # noqa: E402
from two_nodes import IFMAP, die_with_parent, let_root_in, mac  # noqa: E402

RAILS = 2
BOOTS = 3
PATIENCE = 3600  # s, for one boot
# Notes whether the node calls itself ready before its unit has run in this boot, where autorun.sh looks.
EARLY = """[Unit]
DefaultDependencies=no
After=local-fs.target
Before=r2ccl-node.service sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'for ready in {ready}; do if test -e "$ready"; then echo "$ready" >/run/reboots-early; fi; done'
[Install]
WantedBy=sysinit.target
"""
STARTUP = """[Unit]
Description=What CloudLab's start-up service does
After=network.target ssh.service
[Service]
ExecStart=/bin/bash /reboots.sh {repository}
[Install]
WantedBy=multi-user.target
"""


def furnish(root, repository):
    """What CloudLab's image has, and the test's own two units."""
    (root / IFMAP).parent.mkdir(parents=True, exist_ok=True)
    (root / IFMAP).write_text("".join(f"eth{1 + rail} 10.10.{rail}.1 {mac(0, 1 + rail).replace(':', '')}\n" for rail in range(RAILS)))
    (root / "etc/hostname").write_text("node0\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost node0\n")
    let_root_in(root)
    shutil.copy(HERE / "reboots.sh", root / "reboots.sh")
    script = (root / repository.lstrip("/") / "cloudlab/autorun.sh").read_text()
    ready = [word for word in script.split() if word.endswith("r2ccl-node/ready")]
    if len(ready) != 1:
        fail(f"autorun.sh looks for {ready}")
    for name, text, wanted in (("reboots-early", EARLY.format(ready=ready[0]), "sysinit"), ("reboots", STARTUP.format(repository=repository), "multi-user")):
        unit = root / f"etc/systemd/system/{name}.service"
        unit.write_text(text)
        wants = unit.parent / f"{wanted}.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")


def make_disk(root, folder):
    """The root without what is mounted on it, as a file system."""
    plain = folder / "plain"
    plain.mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", str(root), str(plain)], check=True)
    try:
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(plain), str(folder / "disk"), "8G"], check=True)
    finally:
        subprocess.run(["umount", str(plain)], check=False)
        plain.rmdir()
    image = max((root / "boot").glob("vmlinuz-*"))
    (folder / "vmlinux").write_bytes(make_guest.decompressed_kernel(image))
    shutil.copy(image.with_name(image.name.replace("vmlinuz", "initrd.img")), folder / "initrd.cpio")
    return image.name.removeprefix("vmlinuz-")


def boot(folder, number):
    """Until the machine turns itself off, or boots again. The last line that it said."""
    said, console = folder / f"said{number}", folder / f"console{number}"
    said.unlink(missing_ok=True)
    words = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem,rdtscp=on", "-smp", "2", "-m", "2048",
             "-kernel", f"{folder}/vmlinux", "-initrd", f"{folder}/initrd.cpio", "-append",
             "root=/dev/vda rw console=ttyS0 quiet mitigations=off no_timer_check panic=-1 cryptomgr.notests random.trust_cpu=on",
             "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
             "-drive", f"file={folder}/disk,format=raw,if=virtio,cache=unsafe",
             "-chardev", f"file,id=console,path={console}", "-serial", "chardev:console",
             "-chardev", f"file,id=tty,path={said}", "-serial", "chardev:tty"]
    for port in range(1 + RAILS):
        words += ["-netdev", f"hubport,id=wire{port},hubid={port}", "-device", f"virtio-net-pci,netdev=wire{port},romfile=,mac={mac(0, port)}"]
    began, shown, text = time.monotonic(), 0, ""
    with (folder / "qemu").open("w") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=die_with_parent)
    try:
        while True:
            ended = process.poll() is not None
            text = said.read_bytes().decode(errors="replace").replace("\r", "") if said.exists() else ""
            end = text.rfind("\n") + 1
            print(text[shown:end], end="", flush=True)
            shown = end
            if ended:
                break
            if time.monotonic() > began + PATIENCE:
                fail(f"boot {number} did not end within {PATIENCE} s:\n{console.read_text(errors='replace')[-2000:]}")
            time.sleep(0.5)
    finally:
        process.kill()
        process.wait()
    if not text.strip():
        fail(f"boot {number} said nothing:\n{(folder / 'qemu').read_text()}\n{console.read_text(errors='replace')[-2000:]}")
    print(f"boot {number} took {time.monotonic() - began:.0f} s", flush=True)
    return text.strip().splitlines()[-1]


def main():
    root, repository, folder = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
    if os.environ.get("CLEAN_ROOT_NAME"):
        os.environ["CLEAN_ROOT_NAME"] += ", rebooted"
    furnish(root, repository)
    print(f"=== a machine with {make_disk(root, folder)}, systemd and a disk of its own", flush=True)
    try:
        for number in range(1, BOOTS + 1):
            wanted = "done" if number == BOOTS else "again"
            last = boot(folder, number)
            if last != wanted:
                fail(f"boot {number} ended with: {last}")
        shutil.rmtree(folder / "paper", ignore_errors=True)
        subprocess.run(["debugfs", "-R", f"rdump /var/lib/r2ccl-node/paper {folder}", str(folder / "disk")], check=True, stderr=subprocess.DEVNULL)
        paper_result.look_at_nic_down(folder / "paper", "vhca", "emulated")
    finally:
        (folder / "disk").unlink(missing_ok=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
