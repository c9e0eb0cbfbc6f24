#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a job on GPUs: real, unmodified NCCL through PyTorch, every element of every operation compared.

Started once per GPU with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set; which network NCCL takes is the
environment's business (NCCL_NET_PLUGIN, NCCL_NET …), and which ranks are a 'node', too (NCCL_HOSTID). Inputs are small
whole numbers, so that sums are exact in float32. Before each counted operation it offers the event "iteration" with a
running number to the fault injector, where one is preloaded, so that plans can say `at: {iter: N}`.

With --abort-at N a thread of its own aborts all communicators --abort-after milliseconds into operation N, while the main thread waits for that
operation; it says so first, in a line of JSON with the time. The process then ends as any other does: by returning from main().

Prints one line of JSON at the end: per operation the wrong elements, iterations, and times. Exit status: 0 all
elements are right, 1 some are wrong, 3 NCCL failed, 4 its communicators were aborted as told, 5 they could not be (why is in the JSON).
"""

import argparse
import ctypes
import datetime
import json
import os
import statistics
import sys
import threading
import time

import torch
import torch.distributed as dist

OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall", "sendrecv")


class Aborted(Exception):
    """The communicators were aborted, as told."""


def abort_function():
    """What aborts all communicators of this process: PyTorch's own function (2.6 and later), or the backend's method. An
    AttributeError that says so where this PyTorch has neither; asked before the job begins."""
    c10d = dist.distributed_c10d
    whole = getattr(c10d, "_abort_process_group", None)
    if whole is not None:
        return whole
    backend = c10d._get_default_group()._get_backend(torch.device("cuda"))  # pylint: disable=protected-access
    for name in ("abort", "_abort"):
        if hasattr(backend, name):
            return getattr(backend, name)
    raise AttributeError(f"PyTorch {torch.__version__} has neither distributed_c10d._abort_process_group nor ProcessGroupNCCL.abort")


class Abort:
    """--abort-at: one abort, from a thread of its own."""

    def __init__(self, rank, delay_ms):
        self.rank, self.delay_ms = rank, delay_ms
        self.function = abort_function()
        self.begun, self.thread, self.error = threading.Event(), None, None
        self.waiting = False  # the main thread is in the operation

    def start(self):
        self.thread = threading.Thread(target=self.run, name="abort", daemon=True)
        self.thread.start()

    def run(self):
        time.sleep(self.delay_ms / 1e3)
        print(json.dumps({"aborting": self.rank, "monotonic": time.monotonic(), "in_operation": self.waiting}), flush=True)
        self.begun.set()
        try:
            self.function()
        except Exception as error:  # pylint: disable=broad-except  # whatever it is belongs into the result
            self.error = f"{type(error).__name__}: {error}"

    def finish(self):
        """Raises Aborted once the abort has returned; TimeoutError when it does not."""
        self.thread.join(15)
        if self.thread.is_alive():
            raise TimeoutError("the abort has not returned after 15 s")
        raise Aborted


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
        self.abort = None
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

    def run(self, op, data, out, group):
        if op == "allreduce":
            out.copy_(data)
            dist.all_reduce(out, group=group)
        elif op == "allgather":
            dist.all_gather_into_tensor(out, data, group=group)
        elif op == "reducescatter":
            dist.reduce_scatter_tensor(out, data, group=group)
        elif op == "broadcast":
            root = self.iteration % self.ranks
            if self.rank == root:
                out.copy_(data)
            dist.broadcast(out, src=root, group=group)
        elif op == "alltoall":
            dist.all_to_all_single(out, data, group=group)
        else:
            for work in dist.batch_isend_irecv([
                    dist.P2POp(dist.isend, data, (self.rank + 1) % self.ranks, group),
                    dist.P2POp(dist.irecv, out, (self.rank - 1) % self.ranks, group)]):
                work.wait()

    def measure(self, op, group, graph=False):
        """Runs and compares `iters` operations; the first two are not timed."""
        data, out = self.buffers(op)
        replay = None
        if graph:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                self.run(op, data.zero_(), out, group)
            torch.cuda.synchronize()
            replay = torch.cuda.CUDAGraph()
            with torch.cuda.graph(replay):
                self.run(op, data, out, group)
        wrong, times = 0, []
        for i in range(self.arguments.iters + 2):
            data.copy_(values(data.numel(), self.rank, self.iteration, self.device))
            out.fill_(-1)
            wanted = self.wanted(op, data.numel(), self.iteration)
            torch.cuda.synchronize()
            if i >= 2:
                if self.event is not None:
                    self.event(b"iteration", self.iteration)
            aborting = self.abort is not None and self.iteration == self.arguments.abort_at
            if aborting:
                self.abort.waiting = True
                self.abort.start()
            begin = time.monotonic()
            try:
                if replay is not None:
                    replay.replay()
                else:
                    self.run(op, data, out, group)
                torch.cuda.synchronize()
            except Exception:
                if not aborting or not self.abort.begun.is_set():
                    raise
            if aborting:
                self.abort.waiting = False
                self.abort.finish()
            if i >= 2:
                times.append(time.monotonic() - begin)
            wrong += int((out != wanted).sum().item())
            self.iteration += 1
        slowest = max(range(len(times)), key=times.__getitem__)
        return {"op": op + ("_graph" if graph else ""), "bytes": self.count * 4, "iterations": len(times), "wrong": wrong,
                "first_iteration": self.iteration - len(times), "median_ms": 1e3 * statistics.median(times),
                "max_ms": 1e3 * times[slowest], "max_at": slowest, "times_ms": [round(1e3 * t, 3) for t in times]}


def nccl_version():
    """Of the library that is loaded, which need not be PyTorch's own."""
    version = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    return f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(OPERATIONS), help="in this order")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="of the larger buffer of an operation")
    parser.add_argument("--iters", type=int, default=40, help="timed operations of each kind")
    parser.add_argument("--graph", action="store_true", help="also each collective from a CUDA graph")
    parser.add_argument("--two", action="store_true", help="also AllReduce on two communicators in turn")
    parser.add_argument("--abort-at", type=int, default=None, metavar="N", help="abort the communicators in the operation with this number")
    parser.add_argument("--abort-after", type=float, default=300, metavar="MS", help="so long after it has begun")
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which PyTorch gives an operation up")
    arguments = parser.parse_args()
    job = Job(arguments)
    torch.cuda.set_device(job.device)
    result = {"rank": job.rank, "nccl": nccl_version(), "torch": torch.__version__,
              "gpu": torch.cuda.get_device_name(), "injected": job.event is not None, "results": [], "error": None}
    status = 0
    try:
        dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=arguments.timeout), device_id=job.device)
        if arguments.abort_at is not None:
            job.abort = Abort(job.rank, arguments.abort_after)
        for op in arguments.ops.split(","):
            result["results"].append(job.measure(op, None))
            if arguments.graph and op in ("allreduce", "allgather", "reducescatter"):
                result["results"].append(job.measure(op, None, graph=True))
        if arguments.two:
            second = dist.new_group(backend="nccl")
            for name, group in (("allreduce_first", None), ("allreduce_second", second), ("allreduce_first", None)):
                result["results"].append(job.measure("allreduce", group) | {"op": name})
        status = 1 if any(r["wrong"] for r in result["results"]) else 0
        if arguments.abort_at is not None:
            result["error"], status = f"there is no operation {arguments.abort_at} to abort in", 5
    except Aborted:
        status = 4
        result["aborted"] = True
        if job.abort.error:
            result["error"], status = f"the abort failed: {job.abort.error}", 5
    except Exception as error:  # pylint: disable=broad-except  # whatever NCCL says is a result
        result["error"] = f"{type(error).__name__}: {error}"
        status = 5 if arguments.abort_at is not None else 3
    print(json.dumps(result), flush=True)
    if status in (3, 5):
        os._exit(status)  # destroying a broken communicator may wait for ever
    if status == 4:
        return status  # there is nothing left to destroy; everything else ends as always, which is what is tried
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
