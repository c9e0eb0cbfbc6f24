# SPDX-License-Identifier: Apache-2.0
"""When, and with what code, a script measured: what it writes beside its numbers.

    sys.path.insert(0, …/harness/base);  import origin

    origin.today()                 '2026-11-25', in UTC
    origin.now()                   '2026-11-25T14:03:00Z'
    origin.of_program(r2bench)     the commit that `r2bench --version` names; 'unknown' when it says none or cannot be run
    origin.of_checkout(folder)     the commit of a checkout, '-dirty' behind it with changed files; 'unknown' outside of one

Shell scripts call it: origin.py today, origin.py now, origin.py of_program R2BENCH, origin.py of_checkout FOLDER.
"""

import argparse
import subprocess
import time


def today():
    return time.strftime("%Y-%m-%d", time.gmtime())


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def said(command):
    """What a program prints, None when it is not there, fails, or takes more than a minute."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def of_program(program):
    words = (said([program, "--version"]) or "").split()
    return words[-1] if "commit" in words else "unknown"


def of_checkout(folder, but=()):
    """`but`: paths whose changes do not count, such as 'results'."""
    commit = said(["git", "-C", str(folder), "rev-parse", "--short=10", "HEAD"])
    if not commit:
        return "unknown"
    changed = said(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no", "--", ":/", *(f":(top,exclude){path}" for path in but)])
    return commit + ("-dirty" if changed else "")


def main():
    parser = argparse.ArgumentParser(description="Prints the date or time in UTC, or the commit of a program or of a checkout.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("today", help="such as 2026-11-25")
    commands.add_parser("now", help="such as 2026-11-25T14:03:00Z")
    commands.add_parser("of_program", help="the commit that R2BENCH --version names").add_argument("path", metavar="R2BENCH")
    commands.add_parser("of_checkout", help="the commit of a checkout").add_argument("path", metavar="FOLDER")
    arguments = parser.parse_args()
    print(globals()[arguments.command](*([arguments.path] if "path" in arguments else [])))


if __name__ == "__main__":
    main()
