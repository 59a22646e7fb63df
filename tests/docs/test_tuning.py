"""The guide to tuning: its table, its code and its claim say what comes out."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from dpassay.accounting import account
from dpassay.accounting.tuning.statement import Tuning
from dpassay.generators.registry import make_claim

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "tuning.md").read_text()
RUN = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 1000)
WAYS = [
    *(Tuning(runs=runs) for runs in (1, 10, 40)),
    *(Tuning(mean=mean, distribution=law) for mean in (10, 40) for law in ("logarithmic", "geometric", "poisson")),
    Tuning(mean=1000),
]


def row(tuning: Tuning) -> list[str]:
    (line,) = (line for line in TEXT.splitlines() if line.startswith(f"| {tuning.in_words} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_has_these_rows() -> None:
    assert len(re.findall(r"^\| .* \| [\d.]+ \| [\d.]+ \|$", TEXT, re.M)) == len(WAYS)


@pytest.mark.grid
@pytest.mark.parametrize("tuning", WAYS, ids=lambda tuning: tuning.in_words)
def test_the_table_is_computed(tuning: Tuning) -> None:
    event = tuning.of(RUN)
    ours = account(event, adjacency="add_remove", delta=1e-5).value
    theirs = RdpAccountant().compose(event).get_epsilon(1e-5)
    assert row(tuning)[1:] == [f"{ours:.2f}", f"{theirs:.2f}"]


def test_the_code_and_the_claim_have_the_same_answer() -> None:
    ((code, digits),) = re.findall(r"```python\n(.*?)account\(whole[^\n]*# ([\d.]+)…\n```", TEXT, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 (our own documentation)
    ((claimed),) = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    plan = make_claim(yaml.safe_load(claimed)).plan().event
    values = [account(event, adjacency="add_remove", delta=1e-5).value for event in (names["whole"], plan)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert str(values[0]).startswith(digits)
    assert values[0] <= 3.5


def test_what_is_said_of_the_laws() -> None:
    assert 1 - stats.geom.cdf(120, 1 / 40) == pytest.approx(0.05, abs=0.005)
    assert "above 120 with probability 5%" in TEXT
    assert stats.poisson.cdf(53, 40) - stats.poisson.cdf(27, 40) > 0.95
    assert math.exp(-40) < 1e-17
