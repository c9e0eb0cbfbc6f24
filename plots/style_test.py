#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saving a figure: its colours, the digest of its data, and that it is written as a whole or not at all."""

import errno
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import style  # noqa: E402

style.use()  # exit status 3 where matplotlib is missing


class Png(unittest.TestCase):
    def test_markers_keep_their_colours(self):
        """Among thousands of other colours, of which the palette has room for few."""
        import matplotlib.pyplot as plt
        import numpy
        import PIL.Image
        style.use()
        figure, axes = plt.subplots()
        axes.imshow(numpy.linspace(0, 1, 4096).reshape(64, 64), extent=(0, 1, 0, 1), cmap="gray")
        colours = [style.VERMILION, style.BLUE, style.GREEN, style.ORANGE, style.PURPLE, style.SKY, style.YELLOW, style.INK]
        for number, colour in enumerate(colours):
            axes.plot([2 + number], [0.5], marker="o", markersize=5, color=colour)
        with tempfile.TemporaryDirectory() as folder:
            style.save(figure, folder, "some")
            with PIL.Image.open(os.path.join(folder, "some.png")) as image:
                found = {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}
        plt.close(figure)
        for colour in colours:
            self.assertIn(tuple(bytes.fromhex(colour[1:])), found, colour)
        self.assertIn((255, 255, 255), found)
        self.assertLess(len(found), 60)


    def test_few_pale_dashes_keep_their_hue_among_much_text(self):
        import matplotlib.pyplot as plt
        import numpy
        import PIL.Image
        style.use()
        figure, axes = plt.subplots()
        axes.set_axis_off()
        axes.plot([0, 1, 0, 1], [0, 1, 1, 0], linestyle="", marker="_", markersize=8, markeredgewidth=2, color=style.ORANGE, alpha=0.6)
        for row in range(40):
            figure.text(0.1, row / 40, "evidence: emulated · medians, intervals and single jobs", fontsize=5.8, color=("#707070", style.INK, style.BLUE, style.GREEN)[row % 4])
        with tempfile.TemporaryDirectory() as folder:
            style.save(figure, folder, "some")
            with PIL.Image.open(os.path.join(folder, "some.png")) as image:
                found = numpy.array([colour for _, colour in image.convert("RGB").getcolors(1 << 24)])
        plt.close(figure)
        pale = [0.6 * part + 0.4 * 255 for part in bytes.fromhex(style.ORANGE[1:])]
        self.assertLess(numpy.abs(found - pale).max(axis=1).min(), 16)


class OldPillow(unittest.TestCase):
    def test_figures_are_saved_by_a_pillow_that_has_no_image_dither(self):
        """Ubuntu 22.04 has Pillow 9.0.1; the name came with 9.1."""
        import matplotlib.pyplot as plt
        import PIL.Image

        class Older:
            def __getattr__(self, name):
                if name == "Dither":
                    raise AttributeError(name)
                return getattr(newer, name)
        newer = PIL.Image
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(PIL, "Image", new=Older()):
            figure, _ = plt.subplots()
            style.save(figure, folder, "some")
            plt.close(figure)
            self.assertEqual(sorted(os.listdir(folder)), ["some.pdf", "some.png"])


class Saved(unittest.TestCase):
    def test_a_figure_that_cannot_be_written_to_its_end_replaces_none(self):
        with tempfile.TemporaryDirectory() as folder:
            figure, axes = style.pyplot.subplots()
            axes.plot([0, 1], [0, 1])
            style.save(figure, folder, "some")
            before = {name: pathlib.Path(folder, name).read_bytes() for name in ("some.png", "some.pdf")}
            draw = type(figure).savefig

            def full_disk(of, path, **more):
                if more.get("format") == "pdf":
                    pathlib.Path(path).write_bytes(b"half")
                    raise OSError(errno.ENOSPC, "No space left on device")
                draw(of, path, **more)

            with mock.patch.object(type(figure), "savefig", full_disk), self.assertRaises(SystemExit) as ended:
                style.save(figure, folder, "some")
            style.pyplot.close(figure)
            self.assertEqual(ended.exception.code, 64)
            self.assertEqual({path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}, before)

    def test_a_digest_is_of_values_and_of_nothing_else(self):
        self.assertEqual(style.digest({"a": [1.5, None], "b": (True, "x")}), style.digest({"b": [True, "x"], "a": (1.5, None)}))
        for one, other in (([1, 2], [2, 1]), ("1", 1), ({"a": 1}, {"a": 2}), (0.1, 0.1001), ([["a"], "b"], ["a", ["b"]])):
            self.assertNotEqual(style.digest(one), style.digest(other))
        with self.assertRaises(TypeError):
            style.digest([object()])

    def test_a_file_without_one_has_none(self):
        with tempfile.TemporaryDirectory() as folder:
            figure = style.pyplot.figure()
            style.save(figure, folder, "plain")
            style.save(figure, folder, "of_data", style.digest([1]))
            style.close()
            for kind in ("png", "pdf"):
                self.assertIsNone(style.drawn_from(os.path.join(folder, "plain." + kind)))
                self.assertEqual(style.drawn_from(os.path.join(folder, "of_data." + kind)), style.digest([1]))


if __name__ == "__main__":
    unittest.main()
