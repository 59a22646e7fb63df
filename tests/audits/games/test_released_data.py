"""Source against holdout: rates, p-values and ε, and how often they are wrong where nothing leaks."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.guarantees import PureDP
from dpassay.attacks.released.attribute_inference import attribute_inference
from dpassay.attacks.released.holdout import Hits, Units
from dpassay.attacks.released.linkability import linkability
from dpassay.attacks.released.nearest_record import closest_records, exact_matches
from dpassay.attacks.released.singling_out import singling_out
from dpassay.attacks.released.tables import encode
from dpassay.attacks.released.text_extraction import Criteria, extraction
from dpassay.audits.games.released_data import holdout_audit
from dpassay.audits.statistics.binomial import difference_interval
from dpassay.audits.statistics.one_run import epsilon_one_run
from dpassay.audits.verdict import decide
from dpassay.data.word_runs import Words


def hits(source: int, of_source: int, holdout: int, of_holdout: int) -> Hits:
    flags = [np.arange(n) < k for k, n in ((source, of_source), (holdout, of_holdout))]
    return Hits("test", "a game", "an attack", "hit", flags[0], flags[1])


def test_a_leak_is_counted_and_without_coins_there_is_no_epsilon() -> None:
    result = holdout_audit(hits(45, 1000, 15, 1000), coins=False, confidence=0.95)
    assert result.bounds == ()
    assert result.p_value == pytest.approx(stats.hypergeom.sf(44, 2000, 1000, 60), rel=1e-9)
    assert result.p_value == pytest.approx(5.34e-5, rel=1e-3)
    assert result.difference == difference_interval(45, 1000, 15, 1000, confidence=0.95)
    assert "nothing follows for ε" in result.conclusion
    assert "45 of 1000 source units and 15 of 1000 holdout units are hit" in result.conclusion
    assert "more source units than chance explains" in result.conclusion
    assert result.controls_passed


def test_all_intervals_of_an_attack_hold_jointly() -> None:
    """The errors of all rates, those beside the attack included, add up to β; difference and risk follow from the
    rectangle of the first two."""
    beside = (("by a constant", 30, 1000), ("of the holdout by a constant", 20, 1000))
    result = holdout_audit(dataclasses.replace(hits(45, 1000, 15, 900), beside=beside), coins=False, confidence=0.9)
    errors = [1 - rate.confidence for rate in result.rates if rate.confidence is not None]
    assert len(errors) == 4
    assert sum(errors) <= 0.1 + 1e-12
    a, b = (rate.interval for rate in result.rates[:2])
    assert a is not None
    assert b is not None
    assert result.difference is not None
    assert (result.difference.lower, result.difference.upper) == (a.lower - b.upper, a.upper - b.lower)
    risk = result.details["risk"]
    corners = [(p - q) / (1 - q) for p in (a.lower, a.upper) for q in (b.lower, b.upper)]
    assert risk["interval"] == pytest.approx([min(corners), max(corners)], rel=1e-12)
    assert risk["value"] == pytest.approx((0.045 - 15 / 900) / (1 - 15 / 900), rel=1e-12)


def test_an_attack_that_is_no_better_than_one_guess_for_all_says_so() -> None:
    same, worse = (
        holdout_audit(dataclasses.replace(hits(45, 1000, 15, 900), naive=naive), coins=False, confidence=0.9)
        for naive in (45, 44)
    )
    assert "A guess that is the same for all hits 45 of 1000 source units" in same.conclusion
    assert "the same for all" not in worse.conclusion


def test_a_risk_whose_control_is_always_hit_has_no_lower_end() -> None:
    result = holdout_audit(hits(10, 10, 10, 10), coins=False, confidence=0.95)
    assert result.details["risk"]["value"] is None
    assert result.details["risk"]["interval"] == [None, 1.0]


def test_with_coins_there_is() -> None:
    result = holdout_audit(hits(45, 1000, 15, 1000), coins=True, confidence=0.95, unit=Unit("user"))
    (bound,) = result.bounds
    assert bound.value == pytest.approx(0.5817, abs=1e-4)
    assert bound.value == epsilon_one_run(2000, 60, 45, delta=0, confidence=0.95).value
    assert (bound.rigor, bound.adjacency, bound.unit) == (Rigor.FINITE_SAMPLE, Adjacency.ADD_REMOVE, Unit("user"))
    assert bound.private
    assert "a leak that shows ε ≥ 0.581707 with confidence 0.95" in result.conclusion
    assert decide(PureDP(0.5), adjacency="add_remove", unit=Unit("user"), bounds=result.bounds).name == "REFUTED"
    with_delta = holdout_audit(hits(45, 1000, 15, 1000), coins=True, confidence=0.95, delta=1e-5).bounds[0]
    assert 0 < with_delta.value < bound.value
    assert with_delta.delta == 1e-5


def test_finding_nothing_is_no_proof() -> None:
    result = holdout_audit(hits(3, 100, 2, 100), coins=True, confidence=0.95)
    assert result.bounds[0].value == 0
    assert "no leak found by this attack, which does not mean that there is none" in result.conclusion
    assert (
        "As many hits, all in the source, would have shown only ε = 0.1" in result.conclusion
    )  # ln(1/(.05^(-1/5) − 1)) = .19…


def test_a_holdout_that_is_hit_more_often_ends_it() -> None:
    result = holdout_audit(hits(5, 500, 40, 500), coins=True, confidence=0.95)
    assert result.controls_passed is False
    assert result.bounds == ()
    assert result.conclusion.startswith("No conclusion: holdout units are hit more often")


def test_so_few_hits_say_nothing() -> None:
    """Four hits, all in the source, have p = C(50, 4)/C(100, 4) = .0587."""
    result = holdout_audit(hits(4, 50, 0, 50), coins=False, confidence=0.95)
    assert result.details["least_p_value"] == result.p_value == pytest.approx(0.0587, abs=5e-5)
    assert "this many hits could not have shown a leak" in result.conclusion


@pytest.mark.parametrize(("source", "holdout"), [(0, 5), (5, 0)])
def test_without_units_there_is_no_conclusion(source: int, holdout: int) -> None:
    result = holdout_audit(hits(0, source, 0, holdout), coins=True, confidence=0.95)
    assert result.bounds == ()
    counts = f"{source} units in the source and {holdout} in the holdout"
    assert result.conclusion == f"No conclusion: there are {counts}; both need at least one."


def test_what_was_tried_is_listed() -> None:
    result = holdout_audit(hits(1, 5, 1, 5), coins=False, confidence=0.95, tried=("test", "other"))
    assert "one of 2 tests of the same data (test, other)" in result.multiplicity[1]


@pytest.mark.parametrize("bad", [{"confidence": 1.0}, {"delta": 1.0}, {"delta": -0.1}])
def test_numbers_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        holdout_audit(hits(1, 5, 1, 5), coins=True, **{"confidence": 0.95, **bad})


REPETITIONS = 2000
MAX_ALARMS = stats.binom.ppf(1 - 1e-4, REPETITIONS, 0.05)
"""More false alarms than this happen with probability below 1e-4, if each does with 5%."""


@pytest.mark.grid
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_coverage_at_the_boundary(epsilon: float) -> None:
    """Each unit is hit by randomised response to its own coin, which is exactly ε-DP: no bound has more power."""
    rng = np.random.default_rng(5)
    right = math.exp(epsilon) / (1 + math.exp(epsilon))

    @functools.cache
    def wrong(of_source: int, source: int, of_holdout: int, holdout: int) -> tuple[bool, bool]:
        result = holdout_audit(hits(of_source, source, of_holdout, holdout), coins=True, confidence=0.95)
        return bool(result.bounds) and result.bounds[0].value > epsilon, (result.p_value or 0) <= 0.05

    alarms = small = 0
    for _ in range(REPETITIONS):
        coins = rng.random(24) < 0.5
        hit = (rng.random(24) < right) == coins
        counts = (hit & coins).sum(), coins.sum(), (hit & ~coins).sum(), (~coins).sum()
        alarm, rejected = wrong(*map(int, counts))
        alarms, small = alarms + alarm, small + rejected
    assert alarms <= MAX_ALARMS
    assert (small <= MAX_ALARMS) if epsilon == 0 else (small > MAX_ALARMS)


def test_no_attack_on_tables_sees_the_split_but_through_the_synthetic_rows() -> None:
    """Given the synthetic rows, the same units are hit whichever side each is on; 15 are tied for 12 guesses."""
    rng = np.random.default_rng(6)
    people: list[dict[str, int | float | str]] = [
        {"a": int(x), "b": float(y), "c": f"c{z}"}
        for x, y, z in zip(rng.integers(0, 30, 80), rng.random(80), rng.integers(0, 6, 80), strict=True)
    ]
    pool, synthetic = people[:60], people[:15] + people[60:]

    def attacked(source: Sequence[int], holdout: Sequence[int]) -> list[Hits]:
        tables = encode(synthetic, [pool[i] for i in source], [pool[i] for i in holdout])
        return [
            exact_matches(tables),
            closest_records(tables, seed=1, share=0.2),
            attribute_inference(tables, "c"),
            linkability(tables, ["a"], seed=0),
            singling_out(tables, seed=2, attempts=25),
        ]

    check_that_sides_do_not_matter(attacked, rng)


def test_no_attack_on_text_does() -> None:
    """The same for records of which 10 are repeated, which ties them for 6 guesses, and some in part."""
    rng = np.random.default_rng(7)
    pool = [" ".join(rng.choice(list("abcdefgh"), 12)) for _ in range(60)]
    synthetic = Words.of(pool[:10] + [text[: len(text) // 2] for text in pool[10:30]])

    def attacked(source: Sequence[int], holdout: Sequence[int]) -> list[Hits]:
        sides = [[pool[i] for i in side] for side in (source, holdout)]
        words = [Words.of(side) for side in sides]
        return list(extraction(synthetic, words[0], words[1], Units.of(*sides), Criteria(words=5)))

    check_that_sides_do_not_matter(attacked, rng)


def check_that_sides_do_not_matter(
    attacked: Callable[[Sequence[int], Sequence[int]], list[Hits]], rng: np.random.Generator
) -> None:
    """That the same of 60 units are hit for five splits, some of them and not all."""
    first: dict[str, set[int]] = {}
    for _ in range(5):
        coins = rng.permutation(60) < rng.integers(20, 40)
        source, holdout = (rng.permutation(np.flatnonzero(side)).tolist() for side in (coins, ~coins))
        for result in attacked(source, holdout):
            flags = zip((*source, *holdout), (*result.source.tolist(), *result.holdout.tolist()), strict=True)
            units = {unit for unit, hit in flags if hit}
            assert first.setdefault(result.name, units) == units, result.name
            assert 0 < len(units) < 60
