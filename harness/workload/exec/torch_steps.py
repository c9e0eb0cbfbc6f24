#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The communication of a data-parallel training loop, for torchrun: each step sums a buffer of gradients over all ranks with
PyTorch's NCCL and compares every element. Prints a line per step. Exit status: 0, or 1 if an element was wrong.

    torchrun … torch_steps.py [--mib 64] [--steps 60]
"""

import argparse
import os
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="size of the AllReduce, MiB")
    parser.add_argument("--steps", type=int, default=60, help="number of steps")
    arguments = parser.parse_args()
    import torch  # after the options, so that --help answers without PyTorch
    import torch.distributed as dist
    if torch.cuda.device_count() == 0:
        raise RuntimeError(f"PyTorch {torch.__version__} finds no GPU (is the driver loaded, and new enough for CUDA {torch.version.cuda}?)")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl")
    rank, ranks, wrong = dist.get_rank(), dist.get_world_size(), 0
    ramp = torch.arange(arguments.mib * 1024 * 1024 // 4, device="cuda") % 1009
    for step in range(-3, arguments.steps):
        # Whole numbers below 2^24: exact in float32 in any order.
        gradients = (ramp * (rank + 1) + step).float()
        wanted = (ramp * (ranks * (ranks + 1) // 2) + step * ranks).float()
        torch.cuda.synchronize()
        if step == 0:
            dist.barrier()
            print("steps begin", flush=True)
        began = time.monotonic()
        dist.all_reduce(gradients)
        torch.cuda.synchronize()
        took = (time.monotonic() - began) * 1000
        wrong += int((gradients != wanted).sum())
        if step >= 0:
            print(f"step {step}: {took:.2f} ms, {wrong} wrong", flush=True)
    dist.destroy_process_group()
    print(f"{arguments.steps} steps, {wrong} wrong elements of {arguments.steps * ramp.numel()}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
