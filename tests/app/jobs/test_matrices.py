"""Trees and matrix mechanisms on the command line and in a claim."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run, written

from dpassay.accounting.conversions import formulas

DELTA = ["--delta", "1e-5"]
THREE = ["--steps", "128", "--epochs", "3"]


def lattice_row(*arguments: object) -> dict[str, Any]:
    result = written("compare", *arguments, *DELTA, "--method", "lattice")
    row: dict[str, Any] = result["rows"][0]
    return row | {"mechanism": result["mechanism"], "risks": result["risks"]}


def gaussian(mu: float) -> float:
    """ε at δ = 1e-5 of μ-GDP."""
    return formulas.epsilon_from_gdp(mu, 1e-5)


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        (["--restart-every", "128"], 24),
        ([], 28),
        (["--order", "same"], 28),
        (["--restart-every", "32"], 18),
        (["--restart-every", "1"], 3),
    ],
)
def test_trees_of_three_epochs(options: list[str], nodes: int) -> None:
    row = lattice_row("tree", "--noise-multiplier", 6, *THREE, *options)
    assert f"as {nodes} Gaussian releases" in row["mechanism"]
    assert row["value"] == pytest.approx(gaussian(math.sqrt(nodes) / 6), rel=1e-9)
    assert row["interval"][0] <= gaussian(math.sqrt(nodes) / 6) * (1 + 1e-9)
    assert row["adjacency"] == "zero_out"


def test_a_tree_once() -> None:
    assert lattice_row("tree", "--noise-multiplier", 6, "--steps", 128)["value"] == pytest.approx(1.8664, abs=5e-5)


def test_the_noise_of_a_tree() -> None:
    found = written("calibrate", "tree", "--target-epsilon", 3, *DELTA, *THREE, "--restart-every", 128)
    mu = math.sqrt(24) / found["value"]
    assert gaussian(mu) <= 3 <= gaussian(mu * (1 + 1e-3))
    assert found["refuted"] is True


def test_matrices_in_files_and_by_coefficients(tmp_path: Path) -> None:
    """One strategy in every form: the norm of its columns 0, 3 and 6 together, which is the largest."""
    coefficients, steps = [1.0, 0.5, 0.375, 0.3125], 9
    matrix = np.array([[coefficients[t - s] if 0 <= t - s < 4 else 0.0 for s in range(steps)] for t in range(steps)])
    np.save(tmp_path / "c.npy", matrix)
    np.savetxt(tmp_path / "c.csv", matrix, delimiter=",")
    moved = float(np.linalg.norm(matrix[:, [0, 3, 6]].sum(axis=1)))
    forms = [
        ["--matrix", tmp_path / "c.npy"],
        ["--matrix", tmp_path / "c.csv"],
        ["--toeplitz", ",".join(map(str, coefficients)), "--steps", steps],
    ]
    for form in forms:
        for schema in (["--separation", 3], ["--participations", 3, "--separation", 3], ["--every", 3]):
            row = lattice_row("matrix", "--noise-multiplier", 4, *form, *schema)
            assert row["value"] == pytest.approx(gaussian(moved / 4), rel=1e-6)
            assert row["interval"] is not None
    once = lattice_row("matrix", "--noise-multiplier", 4, *forms[0])
    assert once["value"] == pytest.approx(gaussian(math.hypot(*coefficients) / 4), rel=1e-6)


def test_buffered_and_normalized_strategies() -> None:
    buffered = lattice_row("matrix", "--noise-multiplier", 4, "--blt", ".2:.9,.1:.5", "--steps", 50, "--separation", 10)
    lags = np.arange(49)
    coefficients = np.concatenate([[1.0], 0.2 * 0.9**lags + 0.1 * 0.5**lags])
    total = sum(np.concatenate([np.zeros(first), coefficients[: 50 - first]]) for first in range(0, 50, 10))
    assert buffered["value"] == pytest.approx(gaussian(float(np.linalg.norm(total)) / 4), rel=1e-6)
    banded = lattice_row("matrix", "--noise-multiplier", 4, "--bands", 8, "--steps", 50, "--separation", 10)
    assert banded["value"] == pytest.approx(gaussian(math.sqrt(5) / 4), rel=1e-6)


def test_cyclic_samples_are_those_of_dp_sgd() -> None:
    """⌈2000/32⌉ = 63 sampled Gaussians, whose noise `calibrate dp-sgd` finds, too."""
    target = ["--target-epsilon", 3, *DELTA, "--sampling-probability", ".1", "--adjacency", "zero_out"]
    banded = written("calibrate", "matrix", *target, "--bands", 32, "--steps", 2000)
    plain = written("calibrate", "dp-sgd", *target, "--steps", 63)
    assert banded["value"] == pytest.approx(plain["value"], rel=1e-3)  # the tolerance of both searches
    assert banded["refuted"] is True


def test_an_upper_bound_on_a_sensitivity_has_no_interval(tmp_path: Path) -> None:
    """Columns at 120°: no contributions add up, so nothing is known from below, and nothing is refuted."""
    np.save(tmp_path / "c.npy", np.array([[1.0, -0.5, -0.5], [0.0, math.sqrt(0.75), -math.sqrt(0.75)]]))
    form = ["--matrix", tmp_path / "c.npy", "--participations", 3]
    row = lattice_row("matrix", "--noise-multiplier", 4, *form)
    assert row["interval"] is None
    assert {risk["name"] for risk in row["risks"]} >= {"advantage", "mu"}
    assert all(risk["interval"] is None and risk["name"] != "regret" for risk in row["risks"])
    assert "an upper bound, as products of columns have opposite signs; at least 2 is attained" in row["mechanism"]
    found = written("calibrate", "matrix", "--target-epsilon", 3, *DELTA, *form)
    assert found["refuted"] is False
    assert found["sensitivity"] == pytest.approx(math.sqrt(6))
    cut = ["--toeplitz", ".8,.6", "--steps", 9, "--sampling-probability", ".1"]  # the last column of a group is cut off
    assert lattice_row("matrix", "--noise-multiplier", 1, *cut)["interval"] is None
    assert lattice_row("matrix", "--noise-multiplier", 1, *cut[:3], 10, *cut[4:])["interval"] is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give one of --matrix, --toeplitz, --blt, --bands"),
        (["--toeplitz", "1", "--bands", "2", "--steps", "3"], "give one of"),
        (["--toeplitz", "1,.5"], "--steps is needed with --toeplitz"),
        (["--toeplitz", "1,x", "--steps", "3"], "toeplitz must be numbers"),
        (["--blt", ".2", "--steps", "3"], "scale:decay pairs"),
        (["--blt", ".2:1.5", "--steps", "3"], "decays must be"),
        (["--bands", "9", "--steps", "3"], "bands must be at most 3"),
        (["--bands", "2", "--steps", "9", "--participations", "2"], "must be at least 2 apart"),
        (["--bands", "2", "--steps", "9", "--every", "2", "--separation", "2"], "leave --participations and"),
        (["--bands", "3", "--steps", "9", "--every", "2", "--sampling-probability", ".1"], "at least the 3 bands"),
        (["--bands", "3", "--steps", "9", "--separation", "3", "--sampling-probability", ".1"], "groups take turns"),
        (["--bands", "3", "--steps", "9", "--sampling-probability", "2"], "sampling_probability must be"),
        (["--bands", "3", "--steps", "9", "--sampling-probability", ".1", "--adjacency", "replace_one"], "not under"),
        (["--matrix", "nothing.npy"], "nothing.npy: no such file"),
        (["--matrix", "nothing.txt"], "is a .npy or a .csv file"),
        (["--toeplitz", "1", "--steps", "0"], "steps must be at least 1"),
        (["--toeplitz", "nan", "--steps", "2"], "coefficients must be finite"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(options: list[str], message: str) -> None:
    result = run("compare", "matrix", "--noise-multiplier", 4, *DELTA, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "0"], "steps must be at least 1"),
        (["--steps", "8", "--order", "some"], "order must be one of any, same"),
        (["--steps", "8", "--restart-every", "0"], "restart_every must be at least 1"),
        (["--steps", "8", "--epochs", "1000000"], "at most 1048576 steps"),
    ],
)
def test_trees_that_are_none_are_one_line(options: list[str], message: str) -> None:
    result = run("compare", "tree", "--noise-multiplier", 4, *DELTA, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "accounting.md").read_text(encoding="utf-8")


def section() -> str:
    """What the guide says of trees and matrices."""
    return GUIDE.split("\n## Trees and matrices\n")[1].split("\n## ")[0]


def test_a_claim_states_a_tree(tmp_path: Path) -> None:
    (claim,) = re.findall(r"```yaml\n(.*?)```", section(), re.S)
    (tmp_path / "claim.yaml").write_text(claim)
    result = written("account", tmp_path / "claim.yaml")
    bounds = {bound["method"]: bound for bound in result["bounds"]}
    assert bounds["lattice"]["value"] == pytest.approx(3.46683, abs=1e-5)
    assert any("at most one step of all trees" in sentence for sentence in bounds["lattice"]["assumptions"])


def test_what_the_guide_says() -> None:
    """Its code runs, and prints what its comments say."""
    first, second = re.findall(r"```python\n(.*?)```", section(), re.S)
    of_first, of_second = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for code in (first, second)
    )
    assert [f"{float(line):.4f}" for line in of_first.split()] == re.findall(r"# (\d\.\d{4})", first)
    assert "True the largest of the cycles" in of_second
    lines = [float(line) for line in of_second.splitlines()[:2]]
    assert lines == pytest.approx([math.sqrt(8), math.sqrt(8 + 7 + 2 * 7)])


def test_a_figure_of_a_tree(tmp_path: Path) -> None:
    """Its sums are not steps, so nothing is drawn against a number of steps."""
    arguments = ["--noise-multiplier", 6, *THREE, "--restart-every", 128, *DELTA, "--method", "gdp"]
    result = written("compare", "tree", *arguments, "-o", tmp_path / "tree.svg")
    assert [panel["argument"] for panel in result["panels"]] == ["epsilon", "alpha"]
