# SPDX-License-Identifier: Apache-2.0
"""What the figures read: results and tables, and the two ways in which they cannot be had. Draws nothing."""

import argparse
import json
import sys

KNOWN_VERSIONS = (1, 2)  # of result.json; the meaning of older ones differs: results/README.md
BAD_INPUT = 64           # exit status


class NoData(Exception):
    """There is nothing to draw yet. The text is the command that makes it."""


class BadInput(Exception):
    """A file that cannot be used: one sentence that begins with its name."""


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            raise BadInput(f"{path}: was cut off, its JSON does not end; copy it again, or run the scenario again") from error
        raise BadInput(f"{path}: is not JSON ({error.msg} at line {error.lineno}); give a result.json of r2bench run") from error


def read_result(path):
    result = read_json(path)
    if not isinstance(result, dict) or "schema_version" not in result or "runs" not in result:
        raise BadInput(f"{path}: is JSON, but no result of r2bench run; give the result.json that a run left")
    if result["schema_version"] not in KNOWN_VERSIONS:
        raise BadInput(f"{path}: schema_version {result['schema_version']} is not known to this script, which reads "
                       f"{' and '.join(map(str, KNOWN_VERSIONS))}; take the r2bench that wrote it, or run the scenario again")
    return result


def read_lines(path):
    """The objects of a .jsonl file."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise BadInput(f"{path}:{number}: was cut off, or is not JSON; copy it again, or make it again") from error
    return found


def size(value, _=None):
    """'64 KiB'; the second parameter is matplotlib's."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g} B"


def one_evidence(labels):
    """The label that all share, or all of them: no figure mixes two without saying so."""
    return " and ".join(sorted(set(labels)))


def run_main(module, doc):
    """The command line of a figure that draws what lies in results/."""
    import style
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="folder of the results (results)")
    parser.add_argument("--out", default=".", help="folder of the figure")
    arguments = parser.parse_args()
    style.use()
    try:
        data = module.data(arguments.results)
        style.save(module.draw(data), arguments.out, module.NAME, style.digest(data))
    except NoData as missing:
        print(f"{module.NAME}: no data: run {missing}", file=sys.stderr)
        return 1
    except BadInput as error:
        print(f"{module.NAME}: {error}", file=sys.stderr)
        return BAD_INPUT
    except (KeyError, TypeError, ValueError) as error:
        print(f"{module.NAME}: a file of {arguments.results} has unexpected content: {error!r}", file=sys.stderr)
        return BAD_INPUT
    return 0
