#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank that runs AllReduces through a given libnccl (by ctypes; PyTorch provides memory only) and compares every element of every operation.

A list of steps sets data types, operations, groups, communicators and CUDA graphs. Started once per rank with RANK and WORLD_SIZE set; the
environment selects NCCL's network. Inputs are numbers whose sums and products are exact in their type. Only averages over a number of ranks
that is not a power of two are compared by relative error. Before each operation the program raises the event "iteration" with a running
number, if the fault injector is preloaded.

Prints one line of JSON per step and one at the end. Exit status: 0 all steps ran, 3 NCCL failed, 5 something else failed. Wrong elements do not
change the exit status: they are in the JSON, and the caller knows where they are intended.
"""

import argparse
import ctypes
import hashlib
import json
import os
import statistics
import sys
import time

torch = None  # load_torch()
# ncclDataType_t
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "float8e4m3": 10, "float8e5m2": 11}
OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
LARGEST_EXACT = {"int8": 127, "uint8": 255, "float16": 2048, "bfloat16": 256, "float8e4m3": 16, "float8e5m2": 8}  # of the sum
PREMUL = 0.5
IN_PROGRESS = 7
WAIT_S = 60  # for one operation
SINCE_2_24 = 22400  # float8, and algorithms per function in NCCL_ALGO


def load_torch():
    """After the options have been read, so that --help answers without PyTorch."""
    global torch
    import torch  # pylint: disable=redefined-outer-name


def in_torch(dtype):
    """PyTorch's type of that name of TYPES."""
    return getattr(torch, {"float8e4m3": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}.get(dtype, dtype))


def converted(tensor, torch_type):
    """By way of float32 where PyTorch may know no direct one."""
    narrow = (torch.float8_e4m3fn, torch.float8_e5m2)
    return tensor.to(torch.float32).to(torch_type) if torch_type in narrow or tensor.dtype in narrow else tensor.to(torch_type)


class NcclError(Exception):
    pass


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    """ncclConfig_t of NCCL 2.17 to 2.23, which later ones take."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", ctypes.c_int), ("cga", ctypes.c_int),
                ("min_ctas", ctypes.c_int), ("max_ctas", ctypes.c_int), ("net_name", ctypes.c_char_p), ("split_share", ctypes.c_int)]


class Nccl:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.lib.ncclGetErrorString.restype = ctypes.c_char_p
        self.lib.ncclGetLastError.restype = ctypes.c_char_p
        self.lib.ncclGetLastError.argtypes = [ctypes.c_void_p]
        self.lib.ncclCommInitRankConfig.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int, ctypes.POINTER(Config)]
        self.lib.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
                                           ctypes.c_void_p]
        self.lib.ncclCommGetAsyncError.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        self.lib.ncclRedOpCreatePreMulSum.argtypes = [ctypes.POINTER(ctypes.c_int), ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        for name in ("ncclCommDestroy", "ncclCommFinalize", "ncclCommAbort"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p]

    def code(self):
        """NCCL_VERSION_CODE"""
        version = ctypes.c_int()
        self.lib.ncclGetVersion(ctypes.byref(version))
        return version.value

    def version(self):
        code = self.code()
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"

    def check(self, result, what, comm=None):
        if result not in (0, IN_PROGRESS):
            raise NcclError(f"{what}: {self.lib.ncclGetErrorString(result).decode()}; {self.lib.ncclGetLastError(comm).decode()[:300]}")

    def settle(self, comm, what, limit=WAIT_S):
        """Until a nonblocking communicator has done what it was told."""
        state, begin = ctypes.c_int(IN_PROGRESS), time.monotonic()
        while state.value == IN_PROGRESS:
            self.check(self.lib.ncclCommGetAsyncError(comm, ctypes.byref(state)), what, comm)
            if time.monotonic() - begin > limit:
                raise NcclError(f"{what}: still in progress after {limit} s")
        self.check(state.value, what, comm)


class Job:
    def __init__(self, arguments):
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.arguments = arguments
        self.nccl = Nccl(arguments.nccl)
        if self.nccl.code() < SINCE_2_24 and "NCCL_ALGO" in os.environ:  # it ignores a list that names functions
            os.environ["NCCL_ALGO"] = os.environ["NCCL_ALGO"].removeprefix("allreduce:")
        self.iteration = 0
        self.comms, self.graphs = {}, {}
        self.stream = torch.cuda.Stream()
        try:
            self.event = ctypes.CDLL(None).faultinject_event
            self.event.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        except AttributeError:
            self.event = None

    def unique_id(self, name):
        path = f"{self.arguments.ids}.{name}"
        if self.rank == 0:
            made = UniqueId()
            self.nccl.check(self.nccl.lib.ncclGetUniqueId(ctypes.byref(made)), "ncclGetUniqueId")
            with open(path + ".part", "wb") as file:
                file.write(bytes(made))
            os.rename(path + ".part", path)
            return made
        begin = time.monotonic()
        while not os.path.exists(path):
            time.sleep(0.02)
            if time.monotonic() - begin > WAIT_S:
                raise NcclError("rank 0 has left no unique id")
        with open(path, "rb") as file:
            return UniqueId.from_buffer_copy(file.read())

    def comm(self, name):
        """Made when it is needed first."""
        if name not in self.comms:
            made, unset = ctypes.c_void_p(), -(1 << 31)
            config = Config(ctypes.sizeof(Config), 0xcafebeef, 22304, 0 if self.arguments.nonblocking else 1, unset, unset, unset, None, unset)
            self.nccl.check(self.nccl.lib.ncclCommInitRankConfig(ctypes.byref(made), self.ranks, self.unique_id(name), self.rank,
                                                                 ctypes.byref(config)), "ncclCommInitRankConfig")
            self.nccl.settle(made, "ncclCommInitRankConfig")
            self.comms[name] = made
        return self.comms[name]

    def values(self, step, rank, iteration):
        """What `rank` puts into an operation, as float64 (int64 for wide integers)."""
        index = torch.arange(step["count"], device="cuda", dtype=torch.int64)
        kind = step["dtype"]
        if step["op"] == "prod":
            return torch.ones_like(index) << ((index + rank + iteration) % 2)
        most = max(1, min(97, LARGEST_EXACT.get(kind, 1 << 22) // self.ranks))
        numbers = (index * 7 + index // 1000 + rank * 13 + iteration * 31) % most + 1
        if kind.startswith("float8"):  # few whole numbers: also powers of two, the same on all ranks
            numbers = numbers << (index % 4)
        return numbers

    def wanted(self, step, iteration):
        """(values, relative error that is allowed)"""
        op = step["op"]
        total = self.values(step, 0, iteration)
        for rank in range(1, self.ranks):
            more = self.values(step, rank, iteration)
            if op == "prod":
                total = total * more
            elif op in ("min", "max"):
                total = torch.minimum(total, more) if op == "min" else torch.maximum(total, more)
            else:
                total = total + more
        if op == "premulsum":
            return total.to(torch.float64) * PREMUL, 0
        if op == "avg":
            if not in_torch(step["dtype"]).is_floating_point:
                return total // self.ranks, 0
            exact = self.ranks & (self.ranks - 1) == 0
            return total.to(torch.float64) / self.ranks, 0 if exact else {"float32": 1e-6, "float64": 1e-14}.get(step["dtype"], 2e-2)
        return total, 0

    def operation(self, step, comm):
        if step["op"] != "premulsum":
            return OPERATIONS[step["op"]]
        scalar = torch.tensor([PREMUL], dtype=in_torch(step["dtype"]))
        made = ctypes.c_int()
        self.nccl.check(self.nccl.lib.ncclRedOpCreatePreMulSum(ctypes.byref(made), scalar.data_ptr(), TYPES[step["dtype"]], 1, comm),
                        "ncclRedOpCreatePreMulSum", comm)
        return made.value

    def all_reduce(self, step, comm, data, out):
        self.nccl.check(self.nccl.lib.ncclAllReduce(data.data_ptr(), out.data_ptr(), step["count"], TYPES[step["dtype"]],
                                                    self.operation(step, comm), comm, self.stream.cuda_stream), "ncclAllReduce", comm)

    def issue(self, step, pairs):
        """The operations of one iteration: `pairs` of buffers, over the step's communicators in turn."""
        comms = [self.comm(name) for name in step.get("comms", ["main"])]
        grouped = len(pairs) > 1
        if grouped:
            self.nccl.check(self.nccl.lib.ncclGroupStart(), "ncclGroupStart")
        for k, (data, out) in enumerate(pairs):
            self.all_reduce(step, comms[k % len(comms)], data, out)
        if grouped:
            self.nccl.check(self.nccl.lib.ncclGroupEnd(), "ncclGroupEnd")
        if self.arguments.nonblocking:
            for comm in comms:
                self.nccl.settle(comm, "ncclAllReduce")

    def wait(self, step):
        event, state, begin = torch.cuda.Event(), ctypes.c_int(), time.monotonic()
        event.record(self.stream)
        while not event.query():
            for name in step.get("comms", ["main"]):
                self.nccl.lib.ncclCommGetAsyncError(self.comms[name], ctypes.byref(state))
                self.nccl.check(state.value, f"{step['label']}, operation {self.iteration}", self.comms[name])
            if time.monotonic() - begin > WAIT_S:
                raise NcclError(f"{step['label']}, operation {self.iteration}: not done after {WAIT_S} s")

    def lacks(self, step):
        """Why this NCCL cannot run the step; None: it can."""
        if step["dtype"].startswith("float8") and self.nccl.code() < SINCE_2_24:
            return f"NCCL {self.nccl.version()} has no float8"
        return None

    def run(self, step):
        lacking = self.lacks(step)
        if lacking:
            return {"step": step["label"], "rank": self.rank, "left_out": lacking}
        how, torch_type = step.get("how", "eager"), in_torch(step["dtype"])
        graph = step.get("graph")
        many = step.get("together", 1)
        if how == "replay":
            pairs, replay = self.graphs[graph]
        else:
            datas = [torch.empty(step["count"], dtype=torch_type, device="cuda") for _ in range(many)]
            pairs = [(data, data if how == "in_place" else torch.empty_like(data)) for data in datas]
            replay = None
            self.issue(step, pairs)  # connections are made at a communicator's first operation
            self.wait(step)
            if how == "capture":
                replay = torch.cuda.CUDAGraph()
                torch.cuda.synchronize()
                with torch.cuda.graph(replay, stream=self.stream, capture_error_mode="relaxed"):
                    self.issue(step, pairs)
                self.graphs[graph] = (pairs, replay)
        times, worst, wrong, digest = [], 0.0, [], ""
        for i in range(step["iters"]):
            number = self.iteration
            for k, (data, out) in enumerate(pairs):
                if out is not data:
                    out.view(torch.uint8).fill_(0xff)
                data.copy_(converted(self.values(step, self.rank, number + 1000 * k), torch_type))
            torch.cuda.synchronize()
            if self.event is not None:
                self.event(b"iteration", number)
            begin = time.monotonic()
            if replay is None:
                self.issue(step, pairs)
            else:
                with torch.cuda.stream(self.stream):
                    replay.replay()
            self.wait(step)
            times.append(time.monotonic() - begin)
            if step.get("corrupt") and self.rank == 1 and i == step["iters"] - 1:
                pairs[0][1].view(torch.uint8)[step["count"] // 2] ^= 0x41
            bad = 0
            for k, (_, out) in enumerate(pairs):
                wanted, allowed = self.wanted(step, number + 1000 * k)
                if torch_type.is_floating_point:
                    got, wanted = converted(out, torch.float64), wanted.to(torch.float64)
                    error = ((got - wanted).abs() / wanted.abs().clamp(min=1e-30))
                    bad += int((~(error <= allowed)).sum().item())
                    worst = max(worst, float(torch.nan_to_num(error, nan=9e9).max().item()))
                else:
                    bad += int((out.to(torch.int64) != wanted).sum().item())
            wrong.append(bad)
            self.iteration += 1
        for _, out in pairs:
            digest = hashlib.sha256((digest + hashlib.sha256(out.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()).encode()).hexdigest()
        size = torch.empty(0, dtype=torch_type).element_size()
        return {"step": step["label"], "rank": self.rank, "bytes": step["count"] * size * len(pairs), "wrong": sum(wrong),
                "first_wrong": next((i for i, bad in enumerate(wrong) if bad), None), "iterations": len(times), "relative_error": worst,
                "first_iteration": self.iteration - len(times), "median_ms": round(1e3 * statistics.median(times), 3),
                "max_ms": round(1e3 * max(times), 3), "times_ms": [round(1e3 * t, 2) for t in times], "sha256": digest[:16]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", required=True, help="JSON file: a list of steps (label, count, dtype, op, iters; how, graph, together, comms, corrupt)")
    parser.add_argument("--ids", required=True, help="path prefix of the files in which rank 0 writes the unique ids")
    parser.add_argument("--nccl", default="libnccl.so.2", help="the libnccl to load (default: libnccl.so.2, as PyTorch does)")
    parser.add_argument("--nonblocking", action="store_true", help="communicators with blocking = 0")
    arguments = parser.parse_args()
    load_torch()
    with open(arguments.steps, encoding="utf-8") as file:
        steps = json.load(file)
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    status, end = 0, {"end": True, "rank": int(os.environ["RANK"]), "torch": torch.__version__, "nccl": "?", "error": None}
    job = None
    try:
        job = Job(arguments)
        end |= {"nccl": job.nccl.version(), "gpu": torch.cuda.get_device_name(), "injected": job.event is not None}
        job.comm("main")
        for step in steps:
            print(json.dumps(job.run(step)), flush=True)
    except NcclError as error:
        status, end["error"] = 3, str(error)
    except Exception as error:  # pylint: disable=broad-except  # whatever it is belongs into the result
        status, end["error"] = 5, f"{type(error).__name__}: {error}"
    print(json.dumps(end), flush=True)
    if status == 0:
        torch.cuda.synchronize()
        for _, replay in job.graphs.values():
            replay.reset()  # a communicator does not end before the graphs that were captured with it
        job.graphs.clear()
        for comm in job.comms.values():
            job.nccl.check(job.nccl.lib.ncclCommFinalize(comm), "ncclCommFinalize")
            job.nccl.settle(comm, "ncclCommFinalize")
            job.nccl.check(job.nccl.lib.ncclCommDestroy(comm), "ncclCommDestroy")
        return 0
    sys.stdout.flush()
    os._exit(status)  # its kernels may never end


if __name__ == "__main__":
    sys.exit(main())
