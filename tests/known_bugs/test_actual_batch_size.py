"""A mean of clipped logits over the number of records that are in the batch, charged as if that number were fixed."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from exhibits import Exhibit, claimed, on_the_page, verdict
from scipy import optimize, special

from dpassay.accounting import ApproxDP, Bound, DominatingPair, accountant
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.bounds import Direction, Rigor
from dpassay.accounting.events import BoundedRangeSelectionDpEvent
from dpassay.attacks.black_box.recorder import Mechanism, Recorder, record, replay
from dpassay.audits.games.replay.record_replay import record_replay_findings
from dpassay.base.number_format import format_lower

CLIP, TEMPERATURE, BATCH, TOKENS, RECORDS = 9.0, 1.5, 64, 367, 108_000
DELTA = RECORDS**-1.1
EVENT = BoundedRangeSelectionDpEvent(2 * CLIP / (BATCH * TEMPERATURE))
CLAIM = ApproxDP(9.9, DELTA)
DATA = [1.0] * 63 + [-1.0]  # sixty-three records are sure of token 0, one is sure that it is any other
NEIGHBOR = DATA[:63]


def mechanism(vocabulary: int, tokens: int = 1, *, bug: bool) -> Mechanism[list[float]]:
    def run(data: list[float], recorder: Recorder) -> list[int]:
        logits = np.full(vocabulary, -CLIP)
        logits[0] = CLIP
        mean = sum(data) * logits / (len(data) if bug else BATCH)
        return [recorder.select(mean / TEMPERATURE, EVENT) for _ in range(tokens)]

    return run


def test_record_and_replay_finds_twice_the_declared_range() -> None:
    """The spread of the mean's logits is 2c·62/64 with the record and 2c without it: the range is 4c/(64τ), and
    2c/(64τ) with a fixed denominator."""
    (result,) = record_replay_findings(mechanism(1024, bug=True), DATA, [NEIGHBOR], adjacency="add_remove", plan=EVENT)
    assert (result.kind, result.declared) == ("range", 2 * CLIP / (64 * TEMPERATURE))
    assert result.measured == pytest.approx(4 * CLIP / (64 * TEMPERATURE), rel=1e-12)
    assert not record_replay_findings(mechanism(1024, bug=False), DATA, [NEIGHBOR], adjacency="add_remove", plan=EVENT)


@functools.cache
def exact(vocabulary: int, *, bug: bool = True) -> Bound:
    """The ε of this pair of data sets for all tokens: those of one law each, as nothing here depends on the history.
    What is told apart is whether a token is 0, because all others keep their ratio.

    A sum of V floats and what is made of it have a relative error below 1e-10, and products of 367 of them below κ =
    4e-8: P(S) − e^ε Q(S) is at least e^−κ of what floats say at ε + 2κ, so that the value at δ·e^κ less 2κ is certain.
    """
    run = record(mechanism(vocabulary, bug=bug), DATA)
    laws = [step.query for step in (run.steps[0], replay(mechanism(vocabulary, bug=bug), NEIGHBOR, run).steps[0])]
    pair = DominatingPair.finite(*([math.exp(law[0]), -math.expm1(law[0])] for law in laws))
    interval = pair.self_compose(TOKENS).epsilon(DELTA * (1 + 1e-7))
    return Bound(
        direction=Direction.LOWER,
        value=interval.lower - 1e-7,
        method="laws of one pair",
        rigor=Rigor.CERTIFIED,
        adjacency=Adjacency.ADD_REMOVE,
        delta=DELTA,
    )


def by_binomials(vocabulary: int) -> float:
    """The same from sums of two binomial laws: δ(ε) = Σ_k max(0, P(k) − e^ε Q(k)), in the worse direction."""
    chances = [1 / (1 + (vocabulary - 1) * math.exp(-2 * CLIP * share / TEMPERATURE)) for share in (62 / 64, 1)]
    k = np.arange(TOKENS + 1)
    ways = special.gammaln(TOKENS + 1) - special.gammaln(k + 1) - special.gammaln(TOKENS - k + 1)
    p, q = (ways + k * math.log(c) + (TOKENS - k) * math.log1p(-c) for c in chances)

    def epsilon(p: np.ndarray, q: np.ndarray) -> float:
        def excess(e: float) -> float:
            gain = -np.expm1(np.minimum(0.0, e + q - p))
            return float((np.exp(p) * gain).sum() - DELTA)

        return float(optimize.brentq(excess, 0, 60, xtol=1e-12))

    return max(epsilon(p, q), epsilon(q, p))


@pytest.mark.grid
@pytest.mark.parametrize(("vocabulary", "stated"), [(1024, 3.91), (50_257, 20.07), (128_256, 21.895)])
def test_what_is_lost_grows_with_the_vocabulary(vocabulary: int, stated: float) -> None:
    """Binomial sums of logarithms of factorials: relative errors of 1e-12."""
    result = exact(vocabulary)
    assert result.value == pytest.approx(by_binomials(vocabulary), abs=1e-4)
    assert result.value == pytest.approx(stated, abs=5e-3)
    assert verdict(CLAIM, result) == ("REFUTED" if vocabulary > 1024 else "UNPROVEN")


def test_a_fixed_denominator_keeps_the_claim() -> None:
    """9.888715 is what zCDP gives for it; the event's double is 23.416, which bounds the bug from above."""
    for event, epsilon in ((EVENT, 9.888715), (BoundedRangeSelectionDpEvent(2 * EVENT.eta), 23.416)):
        upper = accountant("zcdp", "add_remove").compose(dp_event.SelfComposedDpEvent(event, TOKENS)).epsilon(DELTA)
        assert upper.value == pytest.approx(epsilon, abs=1e-3)
    assert verdict(CLAIM, exact(50_257, bug=False)) == "UNPROVEN"
    assert exact(128_256).value < 23.416


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "a mean over the actual batch size, charged as over a fixed one",
        'equation (1) of "Clustering and Median Aggregation Improve Differentially Private Inference", read as printed',
        "record and replay; exact laws of the pair",
        claimed(CLAIM),
        f"{format_lower(exact(50_257).value, 4)} at 50257 tokens "
        f"({format_lower(exact(1024).value, 3)} at 1024: unproven there)",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
