"""What the tests of known bugs share: runs on two neighbours that are told apart, and the rows of the page."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.guarantees import ApproxDP, Guarantee, PureDP
from dpassay.attacks.black_box.distinguishing import Outputs
from dpassay.attacks.black_box.recorder import Mechanism, record
from dpassay.audits.games.distinguishing import distinguishing_audit
from dpassay.audits.verdict import decide

Floats: TypeAlias = NDArray[np.float64]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "known-bugs.md"
CONFIDENCE = 0.999


@dataclass(frozen=True)
class Exhibit:
    """A row of the table in `docs/measurements/known-bugs.md`."""

    bug: str
    seen: str
    audit: str
    claimed: str
    shown: str

    def __str__(self) -> str:
        return f"| {self.bug} | {self.seen} | {self.audit} | {self.claimed} | {self.shown} |"


def on_the_page(exhibit: Exhibit) -> bool:
    return str(exhibit) in PAGE.read_text(encoding="utf-8").splitlines()


Runs: TypeAlias = Callable[[Any, int, np.random.Generator], Outputs]
"""From data, a number of runs and a generator to the outputs of so many independent runs."""


def told_apart(
    runs_of: Runs,
    data: Any,
    neighbor: Any,
    claim: Guarantee,
    *,
    adjacency: str = "add_remove",
    runs: int = 4000,
    score: Callable[[Any], float] | None = None,
) -> Bound:
    """The bound that so many runs on each data set give, with a test that is found on .3 of them."""
    rng = np.random.default_rng(1)
    outputs = [runs_of(each, runs, rng) for each in (data, neighbor)]
    result = distinguishing_audit(*outputs, guarantee=claim, adjacency=adjacency, confidence=CONFIDENCE, score=score)
    return result.bounds[0]


def one_by_one(mechanism: Mechanism[Any]) -> Runs:
    """Every run by itself."""
    return lambda data, runs, rng: [record(mechanism, data, rng=rng).output for _ in range(runs)]


def redrawn(mechanism: Mechanism[Any]) -> Callable[[Any, int, np.random.Generator], Floats]:
    """All runs at once, for a mechanism that returns its releases, whose queries are fixed before the first of them and
    whose noise is the recorder's: what was read once, with noise drawn anew for each run."""

    def runs_of(data: Any, runs: int, rng: np.random.Generator) -> Floats:
        steps = record(mechanism, data, rng=rng).steps
        assert steps
        assert not any(step.own for step in steps)
        draw = {"gaussian": rng.normal, "laplace": rng.laplace}
        columns = [step.query + draw[step.kind](scale=step.scale, size=(runs, step.query.size)) for step in steps]
        result = np.concatenate(columns, axis=1)
        return result[:, 0] if result.shape[1] == 1 else result

    return runs_of


def verdict(claim: Guarantee, bound: Bound) -> str:
    """REFUTED or UNPROVEN, by this bound alone."""
    return decide(claim, adjacency=Adjacency(bound.adjacency), unit=Unit(), bounds=[bound]).name


def claimed(claim: PureDP | ApproxDP) -> str:
    """The claimed ε for the page, and of which guarantee it is."""
    kind = f"δ = {claim.delta:.2g}" if isinstance(claim, ApproxDP) else "pure"
    return f"{claim.epsilon:.4g} ({kind})"


def at_least(bound: Bound) -> str:
    """A sampled bound for the page, rounded down to halves, so that another stream of numbers leaves it as it is."""
    return f"≥ {math.floor(2 * bound.value) / 2:g} (sampled)"
