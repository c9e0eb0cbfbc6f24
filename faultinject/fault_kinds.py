# SPDX-License-Identifier: Apache-2.0
"""The kinds of fault for scripts: what faultinject/faults declares, as `r2bench list --faults --json` wrote it to
fault_kinds.json (cli_test fails if that file is out of date)."""

import json
import os

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fault_kinds.json"), encoding="utf-8") as _file:
    KINDS = {kind["name"]: kind for kind in json.load(_file)}


def names(**wanted):
    """The kinds for which each of `wanted` holds: names(takes="port", ends="when_healed")."""
    return {name for name, kind in KINDS.items() if all(kind[key] == value for key, value in wanted.items())}
