# SPDX-License-Identifier: Apache-2.0
"""geni-lib for the tests of profile.py: PyPI's package, in part Python 2, converted in a virtual environment."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile

REQUIRES = ["lxml", "six", "fissix"]
WITH = "geni-lib==0.9.9.4"
DONE = "ready-2"


class Missing(Exception):
    """geni-lib cannot be had here: one sentence."""


def run(command, seconds=600):
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


def convert(package, python):
    """Python 2 to 3; and the request is written as text, which it is not there."""
    changed = run([python, "-m", "fissix", "-w", "-n", "--no-diffs", os.path.join(package, "portal.py"),
                   os.path.join(package, "rspec"), os.path.join(package, "urn.py")])
    if changed.returncode:
        raise Missing("fissix could not convert geni-lib: " + changed.stderr.strip()[-300:])
    path = os.path.join(package, "rspec", "pg.py")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text, count = re.subn(r"buf = self\.toXMLString\(True\)", "buf = self.toXMLString(True, ucode=True)", text)
    if count != 1:
        raise Missing("this geni-lib is not the one that the test knows how to convert")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def environment(folder):
    """(python, PYTHONPATH) of a virtual environment in `folder` with geni-lib, made once. Throws Missing."""
    python, source = os.path.join(folder, "bin", "python"), os.path.join(folder, "geni-lib")
    if os.path.exists(os.path.join(folder, DONE)):
        return python, source
    shutil.rmtree(folder, ignore_errors=True)
    made = run([sys.executable, "-m", "venv", folder])
    if made.returncode:
        raise Missing("no virtual environment can be made (python3-venv is missing?): " + (made.stdout + made.stderr).strip()[-200:])
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q"]
    for words in ([*pip, "install", *REQUIRES],
                  [*pip, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", folder, WITH]):
        if "download" in words:
            run([*pip, "install", "setuptools", "wheel"])
        got = run(words)
        if got.returncode:
            raise Missing("PyPI cannot be reached, or lacks a package: " + (got.stdout + got.stderr).strip()[-200:])
    archive = glob.glob(os.path.join(folder, "geni*lib-*.tar.gz"))[0]
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(folder)
    os.rename(re.sub(r"\.tar\.gz$", "", archive), source)
    convert(os.path.join(source, "geni"), python)
    with open(os.path.join(folder, DONE), "w", encoding="utf-8"):
        pass
    return python, source
