#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where make_guest.py finds the kernel in an image: in images made here, of each compression."""
import gzip
import lzma
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "guest"))
import make_guest  # noqa: E402

ELF = b"\x7fELF" + bytes(range(256)) * 64
SECTORS = 3  # of the setup code


def bz_image(payload, before=b""):
    """As Linux's boot protocol has it: the setup code with its header, then the decompressor, `before`, and the payload."""
    setup = bytearray(512 * (SECTORS + 1))
    setup[0x1f1] = SECTORS
    setup[0x202:0x206] = b"HdrS"
    decompressor = b"\x90" * 4096 + before
    struct.pack_into("<II", setup, 0x248, len(decompressor), len(payload))
    return bytes(setup) + decompressor + payload + b"\x00" * 512


class Kernel(unittest.TestCase):
    def found(self, image):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "vmlinuz"
            path.write_bytes(image)
            return make_guest.decompressed_kernel(path)

    def test_xz_and_gzip(self):
        self.assertEqual(self.found(bz_image(lzma.compress(ELF))), ELF)
        self.assertEqual(self.found(bz_image(gzip.compress(ELF))), ELF)

    @unittest.skipUnless(shutil.which("zstd"), "zstd is missing")
    def test_zstd(self):
        packed = subprocess.run(["zstd", "-cq"], input=ELF, stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(self.found(bz_image(packed)), ELF)
        # The size follows the frame there, as `make bzImage` appends it.
        self.assertEqual(self.found(bz_image(packed + struct.pack("<I", len(ELF)))), ELF)

    def test_bytes_that_look_like_a_beginning_are_none(self):
        for likeness in (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff\xff", b"\xfd7zXZ\x00\x00\x00", b"\x28\xb5\x2f\xfd\x04"):
            self.assertEqual(self.found(bz_image(lzma.compress(ELF), before=likeness)), ELF)

    def test_what_is_no_kernel_is_said(self):
        for image in (b"", b"\x00" * 8192, bz_image(b"nothing of that kind"), bz_image(gzip.compress(b"no ELF file")),
                      bz_image(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff\xff"), bz_image(lzma.compress(ELF)[:20] + b"\xff" * 64), bz_image(lzma.compress(ELF))[:-600], bz_image(lzma.compress(ELF)[:-20]),
                      bz_image(gzip.compress(ELF)[:-8])):
            with self.assertRaises(make_guest.Missing) as caught:
                self.found(image)
            self.assertIn("vmlinuz", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
