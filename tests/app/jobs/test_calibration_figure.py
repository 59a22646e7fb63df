"""The figure of `dpassay calibrate -o`: its numbers by closed forms, its files, and what it refuses."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import command
import pytest
from dp_accounting import dp_event
from scipy import stats

from dpassay.accounting import accountant
from dpassay.accounting.adjacency import Unit
from dpassay.accounting.comparison.risk_curves import RiskCurve, RiskCurves, risk_curves
from dpassay.reports.calibration import CalibrationFigure

NOISE = ["gaussian", "--count", 4]
SECRET = ["secret", "--p", 1e-4, "--rounds", 1]
STARTS = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}


def dpassay(*arguments: object) -> command.Result:
    return command.run("calibrate", *arguments)


def drawn(*arguments: object) -> dict[str, Any]:
    result: dict[str, Any] = command.written("calibrate", *arguments)
    return result


def mu_of(parameter: str, value: float) -> float:
    """μ of four Gaussians with so much noise, or of so many with a noise of 3."""
    return 2 / value if parameter == "noise_multiplier" else math.sqrt(value) / 3


@pytest.mark.parametrize(
    ("arguments", "targets"),
    [
        ([*NOISE, "--target-advantage", 0.1], {("advantage", None): 0.1}),
        ([*NOISE, "--target-tpr", 0.1, "--fpr", 0.05], {("true_positive_rate", 0.05): 0.1}),
        ([*NOISE, "--target-epsilon", 2, "--delta", 1e-5], {("epsilon", 1e-5): 2}),
        ([*NOISE, "--target-mu", 1, "--delta", 1e-5], {}),
        ([*NOISE, "--target-mu", 1], {}),
        (["gaussian", "--find", "count", "--noise-multiplier", 3, "--target-beta", 0.5, "--alpha", 0.05], None),
    ],
)
def test_gaussians_in_closed_form(arguments: list[object], targets: dict[Any, float] | None, tmp_path: Path) -> None:
    file = tmp_path / "figure.svg"
    answer = drawn(*arguments, "-o", file)
    assert answer["figure"] == str(file)
    risks = answer["risks"]
    points = risks["arguments"]
    assert points == sorted(points)
    assert (len(points), risks["skipped"]) == (13, 0)
    assert answer["value"] in points
    assert points[-1] == pytest.approx(4 * answer["value"], rel=0.01)
    for point in range(13):
        mu = mu_of(risks["parameter"], points[point])
        for curve in risks["curves"]:
            value, at = curve["values"][point], curve["at"]
            match curve["name"]:
                case "advantage":
                    exact = 2 * stats.norm.cdf(mu / 2) - 1
                case "true_positive_rate":
                    exact = stats.norm.cdf(stats.norm.ppf(at) + mu)
                case _:  # δ at the bound on ε is the δ of the curve
                    upper = stats.norm.cdf(mu / 2 - value / mu) - math.exp(value) * stats.norm.cdf(-mu / 2 - value / mu)
                    value, exact = upper, at
            assert value == pytest.approx(exact, rel=1e-6)
    found = {(curve["name"], curve["at"]): curve["target"] for curve in risks["curves"] if curve["target"] is not None}
    assert found == (targets if targets is not None else {("true_positive_rate", 0.05): 0.5})
    names = [(curve["name"], curve["at"]) for curve in risks["curves"]]
    assert {("advantage", None), ("true_positive_rate", 0.01), ("true_positive_rate", 0.001)} <= set(names)
    assert (("epsilon", 1e-5) in names) == ("--delta" in arguments)
    words = " ".join(re.findall(r">([^<>]*)</text>", file.read_text(encoding="utf-8")))
    assert "true positive rate at 1 % false positives: at most" in words
    assert "the target" in words if found else "the target" not in words


@pytest.mark.parametrize("kind", sorted(STARTS))
def test_files_of_every_kind(kind: str, tmp_path: Path) -> None:
    """Twice the same bytes, and nothing beside the file."""
    file = tmp_path / f"figure.{kind.upper()}"
    contents = []
    for _ in range(2):
        result = dpassay(*NOISE, "--target-advantage", 0.1, "-o", file, "--title", "Noise & <attacks>")
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines()[-1] == f"Figure: {file}"
        contents.append(file.read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(STARTS[kind])
    assert [item.name for item in tmp_path.iterdir()] == [file.name]
    if kind == "svg":
        assert b"Noise &amp; &lt;attacks&gt;" in contents[0]


def test_the_figure_of_a_secret_is_of_its_guess(tmp_path: Path) -> None:
    arguments = [*SECRET, "--target-r", 2e-4, "--occurrences", 1, "--sampling-probability", 1]
    answer = drawn(*arguments, "-o", tmp_path / "figure.png")
    (curve,) = answer["risks"]["curves"]
    assert (curve["name"], curve["at"], curve["target"]) == ("r", 1e-4, 2e-4)
    for sigma, value in zip(answer["risks"]["arguments"], curve["values"], strict=True):
        assert value == pytest.approx(stats.norm.cdf(stats.norm.ppf(1e-4) + 1 / sigma), rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "title", "along"),
    [
        (
            ["selection", "--temperature", 1.5, "--batch-size", 64, "--count", 8, "--target-epsilon", 3],
            "8 tokens drawn at temperature 1.5 from a mean of logits, clip",
            "clip (the smaller, the safer)",
        ),
        (
            ["tree", "--steps", 8, "--target-epsilon", 3],
            "Tree of Gaussian sums, noise multiplier",
            "noise multiplier (the larger, the safer)",
        ),
        (
            ["gaussian", "--find", "count", "--noise-multiplier", 10, "--target-epsilon", 3],
            "releases",
            "number of releases (the smaller, the safer)",
        ),
    ],
)
def test_the_title_and_the_axis_say_what_is_drawn(
    arguments: list[object], title: str, along: str, tmp_path: Path
) -> None:
    file = tmp_path / "figure.svg"
    answer = drawn(*arguments, "--delta", 1e-5, "-o", file)
    assert answer["risks"]["skipped"] == 0
    drawing = file.read_text(encoding="utf-8")
    assert title in drawing
    assert drawing.count(along) == 2  # of the probabilities, and of ε


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*NOISE, "--target-advantage", 0.1, "-o", "figure.gif"], "must end in .svg, .pdf or .png, not 'figure.gif'"),
        ([*NOISE, "--target-advantage", 0.1, "-o", "nowhere/figure.svg"], "there is no such folder"),
        ([*NOISE, "--target-advantage", 0.1, "--title", "Noise"], "name a file for it with -o"),
        ([*NOISE, "--target-advantage", 2, "-o", "figure.svg"], "target_advantage must be strictly between 0 and 1"),
        (
            [*SECRET, "--occurrences", 80, "--sampling-probability", 0.01, "--target-r", 0.6, "-o", "figure.svg"],
            "the target is met without noise",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    arguments: list[object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = dpassay(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.strip().splitlines()
    assert says in line
    assert list(tmp_path.iterdir()) == []


def test_points_without_a_bound_or_time_are_left_out() -> None:
    """The value that was found is always there; at it, having no bound is an error."""

    def event(noise: float) -> dp_event.DpEvent:
        return dp_event.GaussianDpEvent(noise if noise < 3 else math.nan)

    asked = [RiskCurve("advantage"), RiskCurve("true_positive_rate", 0.01)]
    common: dict[str, Any] = {"adjacency": "add_remove", "unit": Unit()}
    curves = risk_curves(event, asked, "noise", [1.0, 2.0, 3.0, 4.0], 2.0, **common)
    assert (curves.arguments, curves.skipped) == ((1.0, 2.0), 2)
    hurried = risk_curves(event, asked, "noise", [1.0, 1.5, 2.0, 2.5], 2.0, seconds=-1.0, **common)
    assert (hurried.arguments, hurried.skipped) == ((2.0,), 3)
    with pytest.raises(ValueError, match="noise_multiplier"):
        risk_curves(event, asked, "noise", [1.0, 3.0], 3.0, **common)


def test_one_point_and_losses_without_a_bound_are_drawn() -> None:
    losses = RiskCurve("advantage", None, None, (0.0,)), RiskCurve("epsilon", 1e-5, 1.0, (math.inf,))
    drawing = CalibrationFigure(RiskCurves("noise_multiplier", (1.0,), losses), 1.0, True, "One point").draw("svg")
    assert isinstance(drawing, str)
    assert "at most ∞" in drawing
    assert "nan" not in drawing


def test_the_guide_says_what_half_the_noise_costs() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "calibration.md"
    (said,) = re.findall(
        r"a noise of ([\d.]+) in place of ([\d.]+) an attack might find up to ([\d.]+) % .* instead of ([\d.]+) %",
        " ".join(page.read_text(encoding="utf-8").split()),
    )
    for noise, percent in zip(said[:2], said[2:], strict=True):
        step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(float(noise)))
        power = accountant("lattice", "add_remove").compose(dp_event.SelfComposedDpEvent(step, 1000)).blowup(0.01).value
        assert 100 * power == pytest.approx(float(percent), abs=0.05)
