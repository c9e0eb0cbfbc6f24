#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles gpu_pattern.cu to gpu_pattern.ptx, the text that is built into r2bench-nccl-rank. Needs nvcc, which a build does not.

`--check` compiles nothing. It checks that the PTX in the tree was made from the sources in the tree and, if ptxas is installed, that it
assembles. The kernels need nothing beyond PTX 7.0 for sm_70; therefore the PTX declares these versions, whatever nvcc writes."""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, *[os.pardir] * 4))
PTX = os.path.join(HERE, "gpu_pattern.ptx")
SOURCES = ["harness/workload/nccl/gpu/gpu_pattern.cu", "harness/workload/nccl/gpu/gpu_pattern.h", "harness/workload/cpu/pattern_hash.h"]
ARCHITECTURES = ["sm_75", "sm_80", "sm_90"]


def find(tool):
    return shutil.which(tool) or shutil.which(tool, path="/usr/local/cuda/bin")


def sources_digest():
    """Of the code alone: comments and spaces may change without a new text."""
    digest = hashlib.sha256()
    for name in SOURCES:
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            code = re.sub(r"//[^\n]*", "", file.read())
        digest.update(re.sub(r"\s+", " ", code).encode())
    return digest.hexdigest()


def compile_ptx(nvcc):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.ptx")
        subprocess.run([nvcc, "-std=c++20", "-O3", "-ptx", "-arch=compute_75", "--expt-relaxed-constexpr", "-I", ROOT, "-o", out,
                        os.path.join(ROOT, SOURCES[0])], check=True)
        with open(out, encoding="utf-8") as file:
            lines = [line.rstrip() for line in file]
    text = "\n".join(line for line in lines if line and not line.startswith("//")) + "\n"
    text = re.sub(r"^\.version .*$", ".version 7.0", text, flags=re.M)
    text = re.sub(r"^\.target .*$", ".target sm_70", text, flags=re.M)
    return f"// Made by make_ptx.py from gpu_pattern.cu; sources {sources_digest()}\n{text}"


def assemble(ptxas, path):
    with tempfile.TemporaryDirectory() as folder:
        for architecture in ARCHITECTURES:
            subprocess.run([ptxas, f"-arch={architecture}", "-o", os.path.join(folder, "out.cubin"), path], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="check the PTX in the tree; compile nothing")
    arguments = parser.parse_args()
    if not arguments.check:
        nvcc = find("nvcc")
        if not nvcc:
            sys.exit("make_ptx.py: nvcc is not found; put it into PATH")
        with open(PTX, "w", encoding="utf-8") as file:
            file.write(compile_ptx(nvcc))
    with open(PTX, encoding="utf-8") as file:
        made_from = re.search(r"sources ([0-9a-f]{64})", file.readline())
    if not made_from or made_from.group(1) != sources_digest():
        sys.exit(f"{PTX} was made from other sources; run {os.path.join(HERE, 'make_ptx.py')} where nvcc is")
    ptxas = find("ptxas")
    if ptxas:
        assemble(ptxas, PTX)
    print("made from these sources" + (", assembles for " + ", ".join(ARCHITECTURES) if ptxas else "; no ptxas here to assemble it"))


if __name__ == "__main__":
    main()
