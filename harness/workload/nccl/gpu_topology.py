#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a topology file for NCCL (NCCL_TOPO_FILE): what it is to take for this machine's topology, for what it does only where GPUs, NICs and
NVLink are placed in a certain way. gpu_memory.py and allreduce_matrix.py use it, too.

    harness/workload/nccl/gpu_topology.py --nvswitch > /tmp/nvswitch.xml

Exit status: 0; 1 there are fewer GPUs; 2 bad arguments."""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_jobs  # noqa: E402

# What NCCL itself writes where NVML shows an NVLink, but not what is at its other end.
NVSWITCH = '><gpu><nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/></gpu></pci>'


def topology(gpus, nics, nvswitch=False):
    """The file's text: each GPU (bus_ids()) under a PCI bridge of its own, with every len(gpus)-th NIC beside it. `nvswitch`: the GPUs have NVLinks
    to a switch, which NCCL then takes to be there."""
    link = 'link_speed="32.0 GT/s PCIe" link_width="16"'
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = dict([word.strip() for word in text.split(":", 1)] for text in file.read().split("\n\n")[0].splitlines() if ":" in text)
    lines = ['<system version="1">', f'  <cpu numaid="0" arch="x86_64" vendor="{cpu.get("vendor_id", "GenuineIntel")}" '
             f'familyid="{cpu.get("cpu family", "6")}" modelid="{cpu.get("model", "143")}">']
    for number, bus in enumerate(gpus):
        lines += [f'    <pci busid="0000:{0xe0 + number:02x}:00.0" class="0x060400" vendor="0x104c" device="0x8232" subsystem_vendor="0x0000" '
                  f'subsystem_device="0x0000" {link}>', f'      <pci busid="{bus}" class="0x030200" {link}{NVSWITCH if nvswitch else "/>"}']
        lines += [f'      <pci busid="0000:{0xf0 + nic:02x}:00.0" class="0x020700" vendor="0x15b3" device="0x101b" subsystem_vendor="0x15b3" '
                  f'subsystem_device="0x0007" {link}>\n        <nic>\n          <net name="vhca{nic}"/>\n        </nic>\n      </pci>'
                  for nic in range(nics) if nic % len(gpus) == number]
        lines.append("    </pci>")
    return "\n".join(lines + ["  </cpu>", "</system>"]) + "\n"


def bus_ids():
    """Of the GPUs that a process of this one's environment sees, in its order, as NCCL writes them: 0000:04:00.0. As in CUDA, a word of
    CUDA_VISIBLE_DEVICES that names no GPU hides it and all that follow it."""
    found = gpu_jobs.said(["nvidia-smi", "--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader"])
    gpus = [] if found == "unknown" else [[word.strip() for word in line.split(",")] for line in found.splitlines()]
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        every, gpus = gpus, []
        for word in (word.strip() for word in named.split(",")):
            fitting = [gpu for gpu in every if word and (gpu[0] == word or (word.startswith("GPU-") and gpu[1].startswith(word)))]
            if len(fitting) != 1:
                break
            gpus += fitting
    return [bus.lower()[-12:] for _, _, bus in gpus]


def count(text):
    """A number of GPUs, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of GPUs: at least 1")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=count, default=1, metavar="N", help="the first N GPUs, of those in CUDA_VISIBLE_DEVICES if that is set (default: 1)")
    parser.add_argument("--nics", type=int, default=0, help="how many virtual NICs are beside the GPUs (default: none has a place)")
    parser.add_argument("--nvswitch", action="store_true", help="the GPUs have NVLinks to a switch")
    arguments = parser.parse_args()
    gpus = bus_ids()[:arguments.gpus]
    if len(gpus) < arguments.gpus:
        hidden = ", of those in CUDA_VISIBLE_DEVICES" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
        print(f"gpu_topology.py: nvidia-smi names {len(gpus)} of {arguments.gpus} GPUs{hidden}", file=sys.stderr)
        return 1
    print(topology(gpus, arguments.nics, arguments.nvswitch), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
