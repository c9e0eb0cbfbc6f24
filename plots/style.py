# SPDX-License-Identifier: Apache-2.0
"""The look that all figures share: paper column widths, fonts, and a palette that colour-blind readers can tell
apart (Okabe and Ito). Reads nothing and draws nothing."""

import hashlib
import importlib
import io
import os
import re
import sys
import textwrap

from whole_file import whole_file

SINGLE_COLUMN = 3.33  # inches
DOUBLE_COLUMN = 7.0

# Okabe-Ito; modes keep their colour in every figure.
VERMILION, BLUE, GREEN, ORANGE = "#D55E00", "#0072B2", "#009E73", "#E69F00"
PURPLE, SKY, YELLOW, INK = "#CC79A7", "#56B4E9", "#F0E442", "#333333"
MODE_COLOURS = {"baseline": VERMILION, "migrate": BLUE, "balance": GREEN, "allreduce": PURPLE}
SPARE_COLOURS = [SKY, ORANGE, GREEN, PURPLE, INK]
LINE_STYLES = ["-", "-", (0, (4, 1)), (0, (1, 1)), (0, (4, 1, 1, 1))]


def __getattr__(name):
    """style.pyplot, style.ticker …: these parts of matplotlib are loaded when a figure is drawn, so that --help answers without matplotlib.
    Where it is missing the program ends with one line and exit status 3."""
    if name not in ("colors", "lines", "patches", "pyplot", "ticker"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load("matplotlib." + name)


def _load(module="matplotlib"):
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is missing; install python3-matplotlib", file=sys.stderr)
        sys.exit(3)  # r2bench turns this into a hint
    matplotlib.use("Agg")
    return importlib.import_module(module)


def colours_of(modes):
    """One colour per label: the mode's own, or a spare one, never twice the same."""
    result, spare = {}, [c for c in SPARE_COLOURS if c not in [MODE_COLOURS.get(m) for m in modes]]
    for mode in modes:
        result[mode] = MODE_COLOURS.get(mode) or (spare.pop(0) if spare else INK)
    return result


def use():
    """Sets matplotlib's defaults. Text stays text in the PDF (type 42), so that it can be searched."""
    _load().rcParams.update({
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
        "font.size": 8,
        "axes.titlesize": 8.5,
        "axes.labelsize": 8,
        "legend.fontsize": 7.5,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#E3E3E3",
        "grid.linewidth": 0.5,
        "lines.linewidth": 1.2,
        "legend.frameon": False,
        "figure.dpi": 200,
        "savefig.dpi": 200,
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
    })


def footer(figure, text):
    """Where the numbers come from, the evidence label first, small, at the foot of the figure; broken into lines that fit its width."""
    lines = "\n".join(textwrap.wrap(text, int(22.4 * figure.get_figwidth())))
    figure.text(0.01, 0.008, lines, fontsize=5.8, color="#707070", ha="left", va="bottom")


def drawn(figure):
    """What was drawn of the data: {gid: [(x, y)]} of all lines whose gid says so. For tests."""
    return {line.get_gid(): list(zip(line.get_xdata(), line.get_ydata())) for axes in figure.axes for line in axes.lines
            if str(line.get_gid() or "").startswith(("data:", "median:"))}


def close():
    """Frees all figures."""
    _load("matplotlib.pyplot").close("all")


def digest(data):
    """Of what a figure is drawn from, which is plain values: the same for equal data, whatever version of Python reads it."""
    def words(value):
        if isinstance(value, dict):
            return "{" + ",".join(sorted(f"{words(key)}:{words(one)}" for key, one in value.items())) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ",".join(map(words, value)) + "]"
        if isinstance(value, float):
            return f"{value:.9g}"
        if value is None or isinstance(value, (str, bool, int)):
            return repr(value)
        raise TypeError(f"{type(value).__name__} is no plain value")
    return "data " + hashlib.sha256(words(data).encode()).hexdigest()[:32]


def drawn_from(path):
    """The digest in a PNG or PDF that save() wrote; None: there is none."""
    with open(path, "rb") as file:
        found = re.search(rb"data [0-9a-f]{32}", file.read())
    return found.group(0).decode() if found else None


def _save_png(figure, path, source):
    """With a palette of 32 colours of the figure: at each step the one that is most amiss, by its pixels and its distance to those before. So lines, areas
    and marks keep their colours, and what smooths their edges becomes the nearest of them. That shows no difference in a diagram and takes less than
    half the bytes."""
    import numpy
    from PIL import Image, PngImagePlugin
    text = PngImagePlugin.PngInfo()
    if source:
        text.add_text("Source", source)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    with Image.open(drawn) as image:
        pixels = numpy.asarray(image.convert("RGB")).astype(int)
        colours, which, counts = numpy.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
        chosen, amiss = [counts.argmax()], numpy.inf
        while len(chosen) < min(32, len(colours)):
            amiss = numpy.minimum(amiss, ((colours - colours[chosen[-1]]) ** 2).sum(axis=1))
            chosen.append((counts * amiss).argmax())
        palette = colours[chosen]
        nearest = ((colours[:, None, :] - palette[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
        paletted = Image.fromarray(nearest[which.reshape(-1)].reshape(pixels.shape[:2]).astype("uint8"), mode="P")
        paletted.putpalette(palette.astype("uint8").tobytes())
        paletted.save(path, format="png", optimize=True, dpi=image.info.get("dpi"), pnginfo=text)


def save(figure, folder, name, source=None):
    """Writes NAME.png and NAME.pdf into the folder, which is made where it is missing; the PDF holds no date, so that equal data gives equal files.
    Both hold `source`, the digest of what the figure was drawn from (all_figures_test.py compares it with the tables).
    Each is written as a whole or not at all: what a program that is killed leaves is removed by the next one (whole_file.py).
    Where they cannot be written the program ends with one line and exit status 64."""
    try:
        os.makedirs(folder, exist_ok=True)
        with whole_file(os.path.join(folder, f"{name}.png")) as path:
            _save_png(figure, path, source)
        with whole_file(os.path.join(folder, f"{name}.pdf")) as path:
            figure.savefig(path, format="pdf", metadata={"CreationDate": None} | ({"Keywords": source} if source else {}))
    except OSError as error:
        print(f"{folder}: {name} cannot be written there: {error.strerror}; choose another folder with --out", file=sys.stderr)
        raise SystemExit(64) from error
