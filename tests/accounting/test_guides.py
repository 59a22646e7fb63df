"""The code of the guides to accounting runs, and its comments say what comes out."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from dpassay.accounting import ex_post

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("guide", ["accounting", "ex-post", "lattice"])
def test_the_code_runs(guide: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{guide}.md").read_text(), flags=re.DOTALL)
    assert blocks
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 (our own documentation)


def test_the_printed_values_are_those_of_the_code() -> None:
    """`expression  # 9.2492…` lines of accounting.md."""
    text = (DOCS / "accounting.md").read_text()
    block = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102 (our own documentation)
    shown = re.findall(r"^(.*\.value)  # ([\d.]+)…", block, flags=re.MULTILINE)
    assert len(shown) == 2
    for expression, digits in shown:
        assert str(eval(expression, names)).startswith(digits)


def test_what_a_median_costs_is_printed_as_the_guide_says() -> None:
    result = re.findall(r"```python\n([^`]*)```\n\n```text\n([^`]*)```", (DOCS / "ex-post.md").read_text())
    ((code, expected),) = result
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue() == expected


def test_what_the_guide_says_of_numbers_beside_its_code() -> None:
    """The published cost of the second row of the example."""
    split = np.array([[6.0, 0.0, 0.0]] * 3 + [[0.0, 6.0, 0.0]] * 2)
    published = ex_post.gamma(split, 0, clip=6.0, temperature=1.5)
    assert f"{published:.2f} for the second row above" in (DOCS / "ex-post.md").read_text()


def test_what_the_guide_to_conversions_says_of_a_better_reference() -> None:
    """A record that is removed is at half the distance of one that is replaced: r = Φ(Φ⁻¹(p) + μ/2)."""
    text = (DOCS / "guarantees.md").read_text()
    mu, p = float(re.findall(r"then ([\d.]+)-GDP", text)[0]), 1e-4
    assert f"is {mu / 2:.6f}, and gives r = {special.ndtr(special.ndtri(p) + mu / 2):.6f}" in text
    assert f"at most r = {special.ndtr(special.ndtri(p) + mu):.6f}" in re.sub(r"\s+", " ", text)
