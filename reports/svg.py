"""From a matplotlib figure to SVG that belongs to the page: its colours, its font, text as text, its own ids."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.figure import Figure as MatplotlibFigure

from dpassay.reports.text import clean

# Stand-ins that matplotlib draws with; the page's style sheet gives each its colour, for light, dark and print.
INK, MUTED, RULE, PAGE = "#010101", "#020202", "#030303", "#040404"
UPPER, LOWER, CEILING, PUBLISHED = "#050505", "#060606", "#070707", "#080808"
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule-strong",
    PAGE: "--page",
    UPPER: "--upper",
    LOWER: "--lower",
    CEILING: "--ceiling",
    PUBLISHED: "--published",
}

WIDE, NARROW = 760, 320
"""Widths in CSS pixels. Each figure is drawn twice, so that its text is never scaled below 12 pixels."""

TEXT, SMALL = 13.5, 12.5
_FONT = "font-family=\"system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif\""

HALO: dict[str, Any] = {"facecolor": PAGE, "edgecolor": "none", "pad": 1.5}
"""Behind a text that may lie on a line."""

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dpassay",
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": SMALL,
    "axes.linewidth": 1.0,
    "axes.unicode_minus": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "grid.alpha": 0.35,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "figure.dpi": 72,
    "savefig.dpi": 72,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


_OF_IMAGES: Mapping[str, dict[str, Any]] = {"pdf": {"CreationDate": None, "Creator": None}, "png": {"Software": None}}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the page, with what a screen reader says of it and the numbers behind it.

    Attributes:
        key: identifier within the page.
        title: what the figure shows.
        description: what a reader who cannot see it should know.
        caption: how to read it.
        wide: SVG for screens of 45rem and up.
        narrow: SVG for phones.
        header: the columns of the table behind the figure.
        table: its rows, as text.
    """

    key: str
    title: str
    description: str
    caption: str
    wide: str
    narrow: str
    header: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]


def canvas(width: float, height: float) -> tuple[MatplotlibFigure, Axes]:
    """A figure whose coordinates are CSS pixels, the origin at the top left."""
    figure = MatplotlibFigure(figsize=(width / 72, height / 72), dpi=72)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    return figure, axes


def plot(width: float, *, wide: float, narrow: float) -> tuple[MatplotlibFigure, Axes]:
    """A figure with one pair of axes, which is so high, in CSS pixels, on wide screens and on phones."""
    height, top, left, bottom = (narrow, 86, 62, 52) if width == NARROW else (wide, 44, 62, 52)
    figure = MatplotlibFigure(figsize=(width / 72, height / 72), dpi=72)
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - 10) / width, (height - top - bottom) / height)
    )
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    return figure, axes


def both(
    key: str,
    draw: Callable[[int], MatplotlibFigure],
    *,
    title: str,
    description: str,
    caption: str,
    header: Sequence[str],
    table: Sequence[Sequence[str]],
) -> Figure:
    """The figure that `draw(width)` draws, for wide screens and for phones."""
    with matplotlib.rc_context(_STYLE):
        wide = _svg(draw(WIDE), f"{key}-wide", title, description)
        narrow = _svg(draw(NARROW), f"{key}-narrow", title, description)
    return Figure(key, title, description, caption, wide, narrow, tuple(header), tuple(map(tuple, table)))


def drawn(draw: Callable[[], MatplotlibFigure], key: str, *, title: str, description: str) -> str:
    """The figure that `draw()` draws, as an SVG file of its own."""
    with matplotlib.rc_context(_STYLE):
        return standalone(_svg(draw(), f"{key}-wide", title, description))


def standalone(drawing: str) -> str:
    """An inline `<svg>` as a file of its own: fixed colours of the light page, a background, text as text."""
    colours = _palette()
    drawing = re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], drawing)
    opening, rest = drawing.split(">", 1)
    names, rest = re.split(r"(?<=</desc>)", rest, maxsplit=1)
    background = f'<rect width="100%" height="100%" fill="{colours["--page"]}"/>'
    return f'{opening} xmlns="http://www.w3.org/2000/svg" {_FONT}>{names}{background}{rest}\n'


def _palette() -> Mapping[str, str]:
    """The colours of the light page, by name."""
    style = (files("dpassay.reports") / "templates" / "style.css").read_text(encoding="utf-8").split("@media")[0]
    return dict(re.findall(r"(--[\w-]+): (#\w+)", style))


def image(draw: Callable[[], MatplotlibFigure], kind: str) -> bytes:
    """The figure that `draw()` draws, in the colours of the light page, as a file.

    Args:
        draw: draws it.
        kind: of the file, ``pdf`` or ``png``.
    """
    with matplotlib.rc_context({**_STYLE, "pdf.fonttype": 42}):
        drawing = draw()
        drawing.canvas.draw()  # makes the ticks
        recolour(drawing.findobj())
        buffer = io.BytesIO()
        drawing.savefig(buffer, format=kind, facecolor=_palette()["--page"], dpi=144, metadata=_OF_IMAGES[kind])
    return buffer.getvalue()


def recolour(artists: Iterable[Any]) -> None:
    """Gives artists that are drawn in stand-ins the colours of the light page."""
    palette = _palette()
    colours = {stand_in: palette[name] for stand_in, name in _VARIABLES.items()}
    for artist in artists:
        _recolour(artist, colours)


def _recolour(artist: Any, colours: Mapping[str, str]) -> None:
    for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
        get, put = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
        if get is None or put is None:
            continue
        try:
            own = to_rgba_array(get())
        except ValueError:  # none
            continue
        if len(own) and (known := colours.get(to_hex(own[0]))):
            put((known, float(own[0][3])))


def _svg(figure: MatplotlibFigure, key: str, title: str, description: str) -> str:
    """`figure` as an inline `<svg>`: the same input gives the same bytes."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    body = re.sub(r"^.*?<svg[^>]*>|</svg>\s*$|<style.*?</style>", "", buffer.getvalue(), flags=re.DOTALL)
    body = re.sub(r"<defs>\s*</defs>", "", body)
    body = re.sub(r'<g id="patch_1">.*?</g>', "", body, count=1, flags=re.DOTALL)
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)
    body = re.sub(r"(stroke|fill): (#0[1-8]0[1-8]0[1-8])\b", lambda m: f"{m[1]}: var({_VARIABLES[m[2]]})", body)
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r' id="(?!m[0-9a-f]{10}"|p[0-9a-f]{10}")[^"]*"', "", body)
    body = re.sub(r'(id="|href="#|url\(#)', lambda m: f"{m[1]}{key}-", body)
    body = re.sub(r" transform=\"rotate\(-0 [^)]*\)\"", "", body)
    body = re.sub(r"\s*\n\s*", " ", body)
    width, height = (figure.get_size_inches() * 72).round().astype(int)
    return (
        f'<svg class="{key.rsplit("-", 1)[1]}" role="img" aria-labelledby="{key}-title {key}-desc" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<title id="{key}-title">{_escape(title)}</title><desc id="{key}-desc">{_escape(description)}</desc>'
        f"{body.strip()}</svg>"
    )


def _escape(words: str) -> str:
    return clean(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
