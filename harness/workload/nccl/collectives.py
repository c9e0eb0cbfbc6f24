#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a job on GPUs: real, unmodified NCCL through PyTorch, every element of every operation compared.

Started once per GPU with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set. The environment also selects NCCL's
network (NCCL_NET_PLUGIN, NCCL_NET …) and the ranks that form a 'node' (NCCL_HOSTID). Inputs are small whole numbers, so that
sums are exact in float32. Before each counted operation the program raises the event "iteration" with a running number, if
the fault injector is preloaded, so that plans can use `at: {iter: N}`.

Prints one line of JSON at the end: the wrong elements, iterations and times of each operation. Exit status: 0 all elements
are right, 1 some are wrong, 3 NCCL failed (the JSON says why).
"""

import argparse
import ctypes
import datetime
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "base"))
import comma_list  # noqa: E402

torch = dist = None  # load_torch()
OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall", "sendrecv")


def load_torch():
    """After the options have been read, so that --help answers without PyTorch."""
    global torch, dist
    import torch  # pylint: disable=redefined-outer-name
    import torch.distributed as dist  # pylint: disable=redefined-outer-name


def values(count, rank, iteration, device):
    """What `rank` puts into an operation: whole numbers below 97, other ones for each rank and iteration."""
    index = torch.arange(count, device=device, dtype=torch.int64)
    return ((index * 7 + rank * 13 + iteration * 31) % 97).to(torch.float32)


class Job:
    def __init__(self, arguments):
        self.rank = int(os.environ["RANK"])
        self.ranks = int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        self.count = arguments.bytes // 4 // self.ranks * self.ranks
        self.arguments = arguments
        self.iteration = 0
        try:
            self.event = ctypes.CDLL(None).faultinject_event
            self.event.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        except AttributeError:
            self.event = None

    def buffers(self, op):
        """(input, output) of the operation, unset."""
        n, part = self.count, self.count // self.ranks
        shape = {"allreduce": (n, n), "allgather": (part, n), "reducescatter": (n, part), "alltoall": (n, n), "broadcast": (n, n),
                 "sendrecv": (n, n)}[op]
        return tuple(torch.empty(size, dtype=torch.float32, device=self.device) for size in shape)

    def wanted(self, op, size_in, iteration):
        part = self.count // self.ranks
        if op == "allreduce":
            return sum(values(size_in, r, iteration, self.device) for r in range(self.ranks))
        if op == "allgather":
            return torch.cat([values(size_in, r, iteration, self.device) for r in range(self.ranks)])
        if op == "broadcast":
            return values(size_in, iteration % self.ranks, iteration, self.device)
        mine = slice(self.rank * part, (self.rank + 1) * part)
        if op == "reducescatter":
            return sum(values(size_in, r, iteration, self.device)[mine] for r in range(self.ranks))
        if op == "alltoall":
            return torch.cat([values(size_in, r, iteration, self.device)[mine] for r in range(self.ranks)])
        return values(size_in, (self.rank - 1) % self.ranks, iteration, self.device)

    def run(self, op, data, out):
        if op == "allreduce":
            out.copy_(data)
            dist.all_reduce(out)
        elif op == "allgather":
            dist.all_gather_into_tensor(out, data)
        elif op == "reducescatter":
            dist.reduce_scatter_tensor(out, data)
        elif op == "broadcast":
            root = self.iteration % self.ranks
            if self.rank == root:
                out.copy_(data)
            dist.broadcast(out, src=root)
        elif op == "alltoall":
            dist.all_to_all_single(out, data)
        else:
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, data, (self.rank + 1) % self.ranks),
                                                dist.P2POp(dist.irecv, out, (self.rank - 1) % self.ranks)]):
                work.wait()

    def measure(self, op):
        """Runs and compares `iters` operations; the first two are not timed."""
        data, out = self.buffers(op)
        wrong, times = 0, []
        for i in range(self.arguments.iters + 2):
            data.copy_(values(data.numel(), self.rank, self.iteration, self.device))
            out.fill_(-1)
            wanted = self.wanted(op, data.numel(), self.iteration)
            torch.cuda.synchronize()
            if i >= 2 and self.event is not None:
                self.event(b"iteration", self.iteration)
            begin = time.monotonic()
            self.run(op, data, out)
            torch.cuda.synchronize()
            if i >= 2:
                times.append(time.monotonic() - begin)
            wrong += int((out != wanted).sum().item())
            self.iteration += 1
        slowest = max(range(len(times)), key=times.__getitem__)
        return {"op": op, "bytes": self.count * 4, "iterations": len(times), "wrong": wrong,
                "first_iteration": self.iteration - len(times), "median_ms": 1e3 * statistics.median(times),
                "max_ms": 1e3 * times[slowest], "max_at": slowest, "times_ms": [round(1e3 * t, 3) for t in times]}


def nccl_version():
    """Of the library that is loaded, which need not be PyTorch's own."""
    version = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    return f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=comma_list.words, default=list(OPERATIONS), help="operations, in the order in which they run, separated by commas")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="size of the larger buffer of an operation")
    parser.add_argument("--iters", type=int, default=40, help="timed operations of each kind")
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which PyTorch gives up an operation")
    arguments = parser.parse_args()
    load_torch()
    job = Job(arguments)
    torch.cuda.set_device(job.device)
    result = {"rank": job.rank, "nccl": nccl_version(), "torch": torch.__version__,
              "gpu": torch.cuda.get_device_name(), "injected": job.event is not None, "results": [], "error": None}
    status = 0
    try:
        dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=arguments.timeout), device_id=job.device)
        for op in arguments.ops:
            result["results"].append(job.measure(op))
        status = 1 if any(r["wrong"] for r in result["results"]) else 0
    except Exception as error:  # pylint: disable=broad-except  # whatever NCCL says is a result
        result["error"], status = f"{type(error).__name__}: {error}", 3
    print(json.dumps(result), flush=True)
    if status == 3:
        os._exit(status)  # destroying a broken communicator may wait for ever
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
