# SPDX-License-Identifier: Apache-2.0
"""What a long test ran where, and whether it held: a line of JSON a case, for plots/collect.py cluster. Into the file that
R2BENCH_CLUSTER_RECORD names; nothing is written without it.

    begin("rxe", "2 guests", "mpi", "nic_down")   the case that is tried from now on; `test`: another name than the program's
    passed(result)                                it held; `result`: of result.json, where there is one; `commit`: of what was
                                                  tested, where it is not the program that is the first argument
    failed()                                      it did not; nothing where no case is open
"""

import json
import os
import pathlib
import platform
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "base"))
import origin  # noqa: E402

_open = None


def begin(evidence, hosts, launcher, scenario, test=None):
    global _open
    _open = {"test": test or pathlib.Path(sys.argv[0]).stem, "evidence": evidence, "hosts": hosts, "launcher": launcher, "scenario": scenario}


def passed(result=None, commit=None):
    _write("pass", result, commit)


def failed():
    _write("fail", None)


def _write(verdict, result, commit=None):
    global _open
    case, _open = _open, None
    path = os.environ.get("R2BENCH_CLUSTER_RECORD")
    if case is None or not path:
        return
    judged = result["expectations"] if result else []
    clocks = [run["hosts"]["clock_bound_ms"] for run in result["runs"] if run.get("hosts")] if result else []
    line = {**case, "verdict": verdict, "fabric": result["fabric"]["kind"] if result else None, "expectations": len(judged) or None,
            "met": sum(bool(each["ok"]) for each in judged) if judged else None, "clock_bound_ms": max(clocks, default=None),
            "date": origin.today(),
            "commit": commit or origin.of_program(sys.argv[1]),
            "machine": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}", "cores": os.cpu_count()}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
