"""The figure of a comparison at the edges: no curve, one point, infinities, zeros, many methods; and as a file."""

from __future__ import annotations

import io
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.image import imread

from dpassay.accounting import ACCOUNTANTS, Adjacency, Bound, Direction, Interval, Rigor, Unit
from dpassay.accounting.comparison.comparison import Comparison, Row
from dpassay.accounting.comparison.curves import Curve, Panel
from dpassay.reports import comparison as job
from dpassay.reports import svg

SVG = "{http://www.w3.org/2000/svg}"


def found(*methods: str) -> Comparison:
    rows = [
        Row(Bound(Direction.UPPER, 2.00001, name, Rigor.CERTIFIED, Adjacency.ADD_REMOVE, delta=1e-5), 0.1)
        for name in methods
    ]
    return Comparison({}, "epsilon", Adjacency.ADD_REMOVE, Unit(), 1e-5, tuple(rows), {})


def curve(method: str, arguments: list[float], values: list[float], others: list[float] | None = None) -> Curve:
    return Curve(method, Rigor.CERTIFIED, tuple(arguments), tuple(values), tuple(others or ()))


def words(drawing: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def outlines(drawing: str) -> list[str]:
    return re.findall(r' d="([^"]*)"', drawing)


values = st.one_of(st.just(0.0), st.just(math.inf), st.floats(1e-300, 1e12))


@given(
    st.sampled_from([("steps", "epsilon"), ("epsilon", "delta"), ("alpha", "beta"), ("p", "r"), ("rounds", "r")]),
    st.lists(st.lists(values, min_size=1, max_size=30), min_size=0, max_size=9),
)
@settings(max_examples=6, derandomize=True)
def test_any_curves_can_be_drawn(names: tuple[str, str], drawn: list[list[float]]) -> None:
    methods = [*ACCOUNTANTS, "one", "two", "three"]
    curves = [
        curve(name, [float(x + 1) for x in range(len(column))], column)
        for name, column in zip(methods, drawn, strict=False)
    ]
    figure = job.figure(found(*methods), [Panel(*names, tuple(curves))], "a mechanism")
    for drawing in (job.standalone(figure), figure.narrow):
        for part in (*outlines(drawing), *re.findall(r' (?:x|y)="([^"]*)"', drawing)):
            assert "nan" not in part
            assert "inf" not in part


def test_lines_are_told_apart_without_colours() -> None:
    looks = job.looks_of([*ACCOUNTANTS, "lattice", "advanced", "one", "two", "three", "four"])
    assert len(set(looks.values())) == len(looks)
    apart = {(str(dash), marker) for name, (_, dash, marker) in looks.items() if name in job._LOOKS}
    assert len(apart) >= len([name for name in looks if name in job._LOOKS])


def test_text_is_text_and_large_enough() -> None:
    panels = [
        Panel("steps", "epsilon", (curve("zcdp", [1.0, 10.0], [1.0, 2.0]),), ("prv: ε at 2 of 12 points",)),
        Panel("epsilon", "delta", (curve("zcdp", [0.0, 1.0], [0.1, 1e-7]),)),
        Panel("alpha", "beta", (curve("zcdp", [1e-5, 0.5], [0.9, 0.2]),)),
    ]
    figure = job.figure(found("zcdp"), panels, "ten releases <of> a & b")
    for drawing, width in ((job.standalone(figure), svg.WIDE), (figure.narrow, svg.NARROW)):
        told = " ".join(
            words(drawing.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', "xmlns" not in drawing))
        )
        for piece in (
            "ten releases <of> a & b",
            "Zero-concentrated DP",
            "number of steps",
            "type I error α",
            "power 1 − β",
        ):
            assert piece in told
        assert "prv: ε at" not in told
        sizes = [float(size) for size in re.findall(r"font(?:-size)?: [^;\"]*?([\d.]+)px", drawing)]
        assert min(sizes) >= 12
        assert f'width="{width}"' in drawing
    assert "prv: ε at 2 of 12 points" in figure.caption
    assert not re.search(r"(?:fill|stroke): (?!none|var)", figure.wide), "a colour of its own"


def test_the_trade_off_is_drawn_as_a_power_above_guessing() -> None:
    """Near 1 all β look alike; 1 − β rises from α to 1."""
    drawn = MatplotlibFigure().add_subplot()
    job.draw_panel(drawn, Panel("alpha", "beta", (curve("zcdp", [1e-5, 0.5], [0.9999, 0.2]),)), job.looks_of(["zcdp"]))
    guessing, power = (np.array(line.get_ydata(), dtype=np.float64) for line in drawn.get_lines())
    assert np.allclose(power, [1e-4, 0.8])
    assert np.allclose(guessing, [1e-5, 0.5])
    assert drawn.get_xscale() == drawn.get_yscale() == "log"


def test_other_files_have_the_colours_of_the_page() -> None:
    panels = [Panel("steps", "epsilon", (curve("zcdp", [1.0, 10.0], [1.0, 2.0]),))]
    assert job.image(panels, "m", "pdf").startswith(b"%PDF-")
    picture = imread(io.BytesIO(job.image(panels, "m", "png")))
    colours = {
        tuple(round(255 * float(part)) for part in pixel[:3]) for pixel in picture.reshape(-1, picture.shape[-1])
    }
    assert (255, 255, 255) in colours
    assert not {(n, n, n) for n in range(1, 9)} & colours, "a stand-in was not replaced"


def test_the_file_needs_nothing_else() -> None:
    figure = job.figure(found("zcdp"), [Panel("steps", "epsilon", (curve("zcdp", [1.0], [1.0]),))], "m")
    drawing = job.standalone(figure)
    assert ElementTree.fromstring(drawing).tag == f"{SVG}svg"
    assert "var(" not in drawing
    assert not re.search(r'(?:href|src)="(?!#)', drawing)
    assert "<script" not in drawing
    ids = re.findall(r' id="([^"]*)"', drawing)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', drawing)) <= {(i, "") for i in ids} | {
        ("", i) for i in ids
    }
    assert drawing == job.standalone(
        job.figure(found("zcdp"), [Panel("steps", "epsilon", (curve("zcdp", [1.0], [1.0]),))], "m")
    )


def test_estimates_are_markers_that_no_line_joins() -> None:
    """They are told apart from what is certified by form and by word, not by colour only."""
    arguments, values = [float(k) for k in range(1, 41)], [1.0 + k / 10 for k in range(40)]
    proven = Curve("pld", Rigor.CERTIFIED, tuple(arguments), tuple(values))
    guessed = Curve("pld", Rigor.ESTIMATE, tuple(arguments), tuple(values), tuple(value - 0.5 for value in values))
    drawn = {
        curve.rigor: job.figure(found("pld"), [Panel("epsilon", "delta", (curve,))], "m") for curve in (proven, guessed)
    }
    joined = {rigor: len(re.findall(r"(?:L [\d. -]+){20}", figure.wide)) for rigor, figure in drawn.items()}
    assert joined == {Rigor.CERTIFIED: 1, Rigor.ESTIMATE: 0}
    legends = {rigor: " ".join(words(job.standalone(figure))) for rigor, figure in drawn.items()}
    assert "Privacy-loss distribution (estimate)" in legends[Rigor.ESTIMATE]
    assert "(estimate)" not in legends[Rigor.CERTIFIED]
    assert "between them nothing was computed" in drawn[Rigor.ESTIMATE].caption
    assert "estimates" not in drawn[Rigor.CERTIFIED].caption


def test_what_no_line_can_show_is_said() -> None:
    figure = job.figure(found("rdp"), [Panel("steps", "epsilon", (curve("rdp", [1.0, 2.0], [1.0, math.inf]),))], "m")
    assert "rdp has no finite ε at 1 points" in figure.caption


def test_an_enclosure_is_a_band() -> None:
    plain = [curve("lattice", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])]
    enclosed = [curve("lattice", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.5, 1.0, 1.5])]
    without, with_band = (
        job.figure(found("lattice"), [Panel("epsilon", "delta", tuple(part))], "m").wide for part in (plain, enclosed)
    )
    assert "fill-opacity: 0.25" in with_band or "opacity: 0.25" in with_band
    assert "opacity: 0.25" not in without


def test_numbers_behind_the_figure_round_outward() -> None:
    enclosed = Bound(
        Direction.UPPER,
        1.23456789,
        "zcdp",
        Rigor.CERTIFIED,
        Adjacency.ADD_REMOVE,
        delta=1e-5,
        interval=Interval(1, 1.23456789),
    )
    comparison = Comparison({}, "epsilon", Adjacency.ADD_REMOVE, Unit(), 1e-5, (Row(enclosed, 0.1),), {})
    figure = job.figure(comparison, [], "m")
    assert figure.table == (("Zero-concentrated DP", "1.23457", "certified"),)
    assert "ε ≤ 1.23457" in figure.description


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_panels_fill_lines(count: int) -> None:
    panels = [Panel("steps", "epsilon", ())] * count
    lines = job._lines_of(panels, narrow=False)
    assert [panel for line in lines for panel in line] == panels
    assert [len(line) for line in lines] == [1] * (count % 2) + [2] * (count // 2)
    assert [len(line) for line in job._lines_of(panels, narrow=True)] == [1] * count
