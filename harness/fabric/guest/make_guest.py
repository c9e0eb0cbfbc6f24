#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the kernel and the initramfs with which the rxe fabric's QEMU guest boots, from Debian packages only.

Prints the folder, which holds `vmlinux`, `initrd.cpio` and `about.json`. The folder lies in the cache
($XDG_CACHE_HOME or ~/.cache, then r2ccl/) and is named after all that went into it, so another busybox or a change of
these scripts makes a new one, and a newer kernel does with --newest. It is made in a temporary folder and renamed: one that
is there is whole, and two makers at once do not disturb each other.

Exit status: 0, or 3 with one sentence on stderr that says what is missing and how to get it.
"""

import argparse
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
META_PACKAGE = "linux-image-amd64"
# What the init script loads, each after what it depends on. crc32_generic alone: the accelerated one is slower
# under emulation, and rxe takes the best that is there.
MODULES = """qemu_fw_cfg virtio_pci virtio_net 9pnet_virtio 9p crc32c_generic crc32_generic veth bridge sch_netem sch_tbf
             ib_uverbs rdma_ucm rdma_rxe""".split()


class Missing(Exception):
    """One sentence for the user."""


def output_of(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
                            env={**os.environ, "LC_ALL": "C"})
    return result.stdout if result.returncode == 0 else ""


def is_static(elf):
    """Whether no program header names an interpreter. A dynamic one would need its libraries before the host's root
    is mounted."""
    start, = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    return all(struct.unpack_from("<I", elf, start + i * size)[0] != 3 for i in range(count))  # PT_INTERP


def find_busybox():
    for path in ("/bin/busybox", "/usr/bin/busybox"):
        if os.access(path, os.X_OK) and is_static(pathlib.Path(path).read_bytes()):
            return pathlib.Path(path)
    raise Missing("the guest needs a static busybox: apt-get install --no-install-recommends busybox-static")


def newest_kernel_package():
    """Name and version of the kernel package that the metapackage stands for, from apt's lists; no network."""
    for line in output_of("apt-cache", "depends", META_PACKAGE).splitlines():
        if found := re.match(r"\s*Depends:\s*(linux-image-\S+-amd64)$", line):
            name = found.group(1)
            if version := re.search(r"Candidate:\s*(\S+)", output_of("apt-cache", "policy", name)):
                if version.group(1) != "(none)":
                    return name, version.group(1)
    return None


def fetch_kernel(name, version, folder):
    """Downloads and unpacks the package below `folder`. It is not installed."""
    result = subprocess.run(["apt-get", "download", f"{name}={version}"], cwd=folder, text=True, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    packages = list(folder.glob("*.deb"))
    if result.returncode != 0 or not packages:
        last = [line for line in result.stdout.splitlines() if line.startswith("E:")][-1:]
        raise Missing(f"the guest's kernel cannot be fetched ('apt-get download {name}={version}': "
                      f"{''.join(last) or 'no package came'}); try: apt-get update")
    root = folder / "kernel"
    subprocess.run(["dpkg-deb", "-x", packages[0], root], check=True)
    return root


def decompressed_kernel(image):
    """The ELF file inside a bzImage: QEMU starts it directly, without BIOS and decompression (some seconds). Where it lies, the
    image's header says (Linux, Documentation/arch/x86/boot.rst: setup_sects, header, payload_offset, payload_length). What bytes
    look like says nothing: the start of a gzip file may lie in any."""
    data = image.read_bytes()
    if len(data) < 0x250 or data[0x202:0x206] != b"HdrS":
        raise Missing(f"{image} is no bzImage")
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = 512 * ((data[0x1f1] or 4) + 1) + offset
    payload = data[start:start + length]
    if len(payload) < length:
        raise Missing(f"the kernel in {image} is cut off: take the file again")
    for magic, decompress in ((b"\xfd7zXZ\x00", lambda d: whole(lzma.LZMADecompressor(), d)),
                              (b"\x1f\x8b\x08", lambda d: whole(zlib.decompressobj(zlib.MAX_WBITS | 16), d)), (b"\x28\xb5\x2f\xfd", zstd)):
        if payload.startswith(magic):
            try:
                elf = decompress(payload)
            except (EOFError, lzma.LZMAError, zlib.error) as error:
                raise Missing(f"the kernel in {image} cannot be decompressed ({error}): is the file whole?") from error
            if elf.startswith(b"\x7fELF"):
                return elf
    raise Missing(f"{image} holds no kernel compressed with xz, gzip or zstd")


def whole(decompressor, data):
    """What follows the stream is not its own."""
    out = decompressor.decompress(data)
    if not decompressor.eof:
        raise EOFError("its end is missing")
    return out


def zstd(data):
    if not shutil.which("zstd"):
        raise Missing("the kernel is compressed with zstd: apt-get install --no-install-recommends zstd")
    # What follows the frame is not its own: the tool says so, and has written the frame by then.
    return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=False).stdout


class Modules:
    """The modules of an unpacked kernel, by name, with what they depend on."""

    def __init__(self, folder):
        self.files = {}
        for path in folder.rglob("*.ko*"):
            self.files[path.name.split(".")[0].replace("-", "_")] = path
        builtin = folder / "modules.builtin"
        lines = builtin.read_text().splitlines() if builtin.exists() else []
        self.builtin = {pathlib.Path(line).name.split(".")[0].replace("-", "_") for line in lines}

    def read(self, name):
        path = self.files[name]
        data = path.read_bytes()
        if path.suffix == ".xz":
            return lzma.decompress(data)
        return zstd(data) if path.suffix == ".zst" else data

    def in_order(self, wanted):
        """(name, content) of each wanted module and all that it needs, what is needed first."""
        done = {}

        def add(name):
            if name in done or name in self.builtin:
                return
            if name not in self.files:
                raise Missing(f"the guest's kernel has no module {name}")
            data = self.read(name)
            depends = next((entry[8:] for entry in data.split(b"\0") if entry.startswith(b"depends=")), b"")
            for needed in filter(None, depends.decode().split(",")):
                add(needed.replace("-", "_"))
            done[name] = data

        for name in wanted:
            add(name)
        return list(done.items())


class Cpio:
    """An initramfs in the 'newc' format."""

    def __init__(self):
        self.bytes = bytearray()
        self.inode = 0

    def add(self, name, mode, data=b""):
        self.inode += 1
        encoded = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        self.bytes += b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
        self.bytes += b"\0" * (-len(self.bytes) % 4) + data
        self.bytes += b"\0" * (-len(self.bytes) % 4)

    def finish(self):
        self.add("TRAILER!!!", 0)
        return bytes(self.bytes)


def initramfs(busybox, modules):
    cpio = Cpio()
    for folder in ("bin", "proc", "sys", "dev", "host", "modules"):
        cpio.add(folder, 0o040755)
    cpio.add("bin/busybox", 0o100755, busybox.read_bytes())
    cpio.add("bin/sh", 0o120777, b"busybox")
    cpio.add("init", 0o100755, (HERE / "init.sh").read_bytes())
    for name, data in modules:
        cpio.add(f"modules/{name}.ko", 0o100644, data)
    cpio.add("modules/order", 0o100644, "".join(f"{name}\n" for name, _ in modules).encode())
    return cpio.finish()


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "r2ccl"


def make(cache, name, version, busybox, key):
    cache.mkdir(parents=True, exist_ok=True)
    for left in cache.glob("making-*"):  # by a maker that was killed
        if not pathlib.Path("/proc", left.name.split("-")[1]).exists():
            shutil.rmtree(left, ignore_errors=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"making-{os.getpid()}-", dir=cache))
    try:
        kernel = fetch_kernel(name, version, work)
        image = next((kernel / "boot").glob("vmlinuz-*"))
        release = image.name.removeprefix("vmlinuz-")
        tree = next(path for path in (kernel / "lib/modules" / release, kernel / "usr/lib/modules" / release)
                    if path.exists())
        modules = Modules(tree).in_order(MODULES)
        done = work / "guest"
        done.mkdir()
        (done / "vmlinux").write_bytes(decompressed_kernel(image))
        (done / "initrd.cpio").write_bytes(initramfs(busybox, modules))
        (done / "about.json").write_text(json.dumps(
            {"kernel": release, "package": name, "version": version, "modules": [m for m, _ in modules]}, indent=1))
        try:
            done.rename(cache / key)
        except OSError:
            if not (cache / key / "about.json").exists():  # else another maker was faster
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def newest_made(cache, digest):
    made = sorted(cache.glob(f"guest-*-{digest}/about.json"), key=lambda path: path.stat().st_mtime)
    return made[-1].parent if made else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=pathlib.Path, default=cache_folder(), help="folder of the guests")
    parser.add_argument("--check", action="store_true", help="make nothing; exit status 3 if there is no guest yet")
    parser.add_argument("--newest", action="store_true", help="ask apt for the newest kernel even if there is a guest")
    arguments = parser.parse_args()
    try:
        busybox = find_busybox()
        parts = hashlib.sha256(busybox.read_bytes())
        for script in ("make_guest.py", "init.sh"):
            parts.update((HERE / script).read_bytes())
        digest = parts.hexdigest()[:12]
        made = newest_made(arguments.cache, digest)
        if made and not arguments.newest:
            print(made)
            return 0
        package = newest_kernel_package()
        if package is None:
            raise Missing(f"apt knows no {META_PACKAGE}, of which the guest's kernel is made; try: apt-get update "
                          "(the guest is made on Debian for x86-64)")
        name, version = package
        key = f"guest-{name.removeprefix('linux-image-')}-{version}-{digest}"
        if not (arguments.cache / key / "about.json").exists():
            if arguments.check:
                raise Missing(f"not made yet ({name} {version} will be fetched, 70 MB, at the first use)")
            make(arguments.cache, name, version, busybox, key)
        print(arguments.cache / key)
        return 0
    except Missing as problem:
        print(problem, file=sys.stderr)
        return 3
    except (OSError, subprocess.CalledProcessError, StopIteration) as problem:
        print(f"the guest cannot be made: {problem!r}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
