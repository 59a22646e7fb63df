"""Power: against enumeration of every outcome, and against simulated audits through the functions that audits call."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.auditing.canaries.design import CanariesDesign
from dpassay.auditing.canaries.game import Scoring, third_party_audit
from dpassay.audits.games.distinguishing import distinguishing_audit
from dpassay.audits.games.distinguishing_choice import training_runs
from dpassay.audits.statistics.binomial import epsilon_clopper_pearson
from dpassay.audits.statistics.ceilings import ErrorRates, OneRun
from dpassay.audits.statistics.one_run import epsilon_one_run
from dpassay.audits.statistics.power import (
    AsPrinted,
    Leak,
    RandomizedResponse,
    Rates,
    SourceAndHoldout,
    StandOut,
    Test,
    chance_to_show,
    detectable_epsilon,
    detectable_share,
    quantile_shown,
)

EXACT = 1e-11
"""Tails of 2e-13 are left out, and sums of up to 10⁴ terms have a float error of about as many times 1e-16."""
Law = list[tuple[float, float]]
"""Pairs of a bound and its probability."""


def truth(epsilon: float) -> float:
    return math.exp(epsilon) / (1 + math.exp(epsilon))


@functools.cache
def right_of_fixed(m: int, r: int, leak: Leak) -> list[float]:
    """The probability of each number of right guesses among r, summed over every state of every candidate."""
    law = [0.0] * (r + 1)
    for right, probability in outcomes(m, r, leak):
        law[right] += probability
    return law


def outcomes(m: int, r: int, leak: Leak) -> Iterator[tuple[int, float]]:
    if isinstance(leak, RandomizedResponse):
        for answers in itertools.product((0, 1), repeat=r):
            yield (
                sum(answers),
                math.prod(truth(leak.epsilon) if right else 1 - truth(leak.epsilon) for right in answers),
            )
        return
    assert isinstance(leak, StandOut)
    states = {"out": 0.5, "in": (1 - leak.share) / 2, "stands out": leak.share / 2}
    for pattern in itertools.product(states, repeat=m):
        probability = math.prod(states[state] for state in pattern)
        first, rest = pattern.count("stands out"), pattern.count("in")
        others = max(r - first, 0)
        for more in range(others + 1):  # drawn from those that do not stand out
            drawn = stats.hypergeom.pmf(more, m - first, rest, others) if m > first else float(more == 0)
            yield min(first, r) + more, probability * float(drawn)


def law(test: Test, leak: Leak, delta: float, confidence: float) -> Law:
    """Every bound of a small test with its probability, from the functions that audits call."""
    if isinstance(leak, RandomizedResponse) and not isinstance(test, OneRun):
        leak = Rates(truth(leak.epsilon), 1 - truth(leak.epsilon))
    match test:
        case OneRun(m, r, rule):
            assert rule in ("tight", "adaptive", "published")
            bounds = [
                epsilon_one_run(m, r, v, delta=delta, confidence=confidence, rule=rule).value for v in range(r + 1)
            ]
            return list(zip(bounds, right_of_fixed(m, r, leak), strict=True))
        case AsPrinted(m):
            assert isinstance(leak, Rates)
            cells = (leak.inside / 2, leak.outside / 2, 1 - (leak.inside + leak.outside) / 2)
            return [
                (
                    epsilon_one_run(m, v + w, v, delta=delta, confidence=confidence, rule="adaptive").value,
                    float(stats.multinomial.pmf([v, w, m - v - w], m, cells)),
                )
                for v in range(m + 1)
                for w in range(m + 1 - v)
            ]
        case ErrorRates(n1, n0):
            assert isinstance(leak, Rates)
            return [
                (
                    epsilon_clopper_pearson(tp, n1 - tp, fp, n0 - fp, delta=delta, confidence=confidence).value,
                    float(stats.binom.pmf(tp, n1, leak.inside) * stats.binom.pmf(fp, n0, leak.outside)),
                )
                for tp in range(n1 + 1)
                for fp in range(n0 + 1)
            ]
        case SourceAndHoldout(source, holdout):
            assert isinstance(leak, Rates)
            return [
                (
                    float(
                        stats.fisher_exact(np.array([[x, source - x], [y, holdout - y]]), "greater")[1]
                        <= 1 - confidence
                    ),
                    float(stats.binom.pmf(x, source, leak.inside) * stats.binom.pmf(y, holdout, leak.outside)),
                )
                for x in range(source + 1)
                for y in range(holdout + 1)
            ]


CASES: list[tuple[Test, Leak]] = [
    *((OneRun(12, r, "tight"), RandomizedResponse(e)) for r in (1, 6, 11) for e in (0, 2)),
    *((OneRun(12, r, "adaptive"), RandomizedResponse(e)) for r in (1, 10) for e in (0, 2)),
    *((OneRun(7, r, "tight"), StandOut(s)) for r in (1, 3, 7) for s in (0.0, 0.3, 1.0)),
    *((AsPrinted(m), Rates(s, f)) for m in (4, 20) for s, f in ((0.3, 0.0), (0.9, 0.1), (1.0, 0.0), (0.0, 0.2))),
    (AsPrinted(15), RandomizedResponse(1.5)),
    *((ErrorRates(13, 9), leak) for leak in (RandomizedResponse(2.0), Rates(0.4, 0.0), Rates(0.1, 0.8))),
    *((SourceAndHoldout(14, 11), leak) for leak in (RandomizedResponse(1.0), Rates(0.4, 0.0), Rates(0.5, 0.5))),
]  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize(("test", "leak"), CASES, ids=str)
def test_power_is_that_of_every_outcome(test: Test, leak: Leak, delta: float) -> None:
    for confidence in (0.6, 0.95):
        every = law(test, leak, delta, confidence)
        thresholds = (0.0,) if isinstance(test, SourceAndHoldout) else (0.0, 0.4, 1.0, 2.5)
        for epsilon in thresholds:
            expected = math.fsum(probability for bound, probability in every if bound > epsilon)
            result = chance_to_show(test, leak, epsilon, confidence=confidence, delta=delta)
            assert result == pytest.approx(expected, abs=EXACT)
        if isinstance(test, SourceAndHoldout):
            continue
        for probability in (0.05, 0.5, 0.95):
            result = quantile_shown(test, leak, probability, confidence=confidence, delta=delta)
            # From above within 1e-11, and any smaller bound is exceeded too often.
            assert math.fsum(p for bound, p in every if bound <= result + 1e-9) >= probability - EXACT
            assert math.fsum(p for bound, p in every if bound < result - 1e-9) < probability + EXACT


@pytest.mark.grid("test", "epsilon", "delta")
@pytest.mark.parametrize("delta", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(
    "test", [OneRun(400, 30, "tight"), OneRun(400, 200, "adaptive"), AsPrinted(400), ErrorRates(300, 200)], ids=str
)
def test_a_mechanism_exactly_at_its_claim_is_refuted_with_at_most_the_stated_error(
    test: Test, epsilon: float, delta: float
) -> None:
    for confidence in (0.7, 0.95):
        alarm = chance_to_show(test, RandomizedResponse(epsilon), epsilon, confidence=confidence, delta=delta)
        assert alarm <= 1 - confidence + EXACT


@pytest.mark.grid
@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("test", [OneRun(300, 40, "tight"), AsPrinted(300), ErrorRates(150, 200)], ids=str)
def test_power_increases_with_the_leak_and_half_of_it_is_at_the_limit(test: Test, delta: float) -> None:
    for claim in (0.0, 1.0):
        args = {"confidence": 0.95, "delta": delta}
        for grid in (
            [RandomizedResponse(float(e)) for e in np.linspace(0, 8, 33)],
            [StandOut(float(s)) for s in np.linspace(0, 1, 33)],
        ):
            chances = [chance_to_show(test, leak, claim, **args) for leak in grid]
            assert all(less <= more + EXACT for less, more in itertools.pairwise(chances))
        for result, leak in (
            (detectable_epsilon(test, claim, **args), RandomizedResponse),
            (detectable_share(test, claim, **args), StandOut),
        ):
            assert result is not None
            at_limit, below = (chance_to_show(test, leak(value), claim, **args) for value in (result, 0.999 * result))
            assert below < 0.5 <= at_limit < 0.5 + 0.01


def test_limits_of_guesses_that_are_also_right_by_chance() -> None:
    for test in (AsPrinted(300), SourceAndHoldout(150, 150)):
        shares = [detectable_share(test, by_chance=f, confidence=0.95) for f in (0.0, 0.05, 0.2)]
        assert None not in shares
        assert shares == sorted(shares, key=lambda share: share or 0.0)
        for share, f in zip(shares, (0.0, 0.05, 0.2), strict=True):
            assert chance_to_show(test, Rates(share or 0.0, f), confidence=0.95) == pytest.approx(0.5, abs=1e-6)


def test_what_no_leak_shows_is_said() -> None:
    """Four right guesses show nothing at 95 %, since ½⁴ is above .05; and ten show at most 1.05."""
    for test in (OneRun(8, 4, "tight"), AsPrinted(8)):
        assert detectable_epsilon(test, 1.1, confidence=0.95) is None
        assert detectable_share(test, 1.1, confidence=0.95) is None
    assert detectable_share(OneRun(100, 10, "tight"), 1.1, confidence=0.95) is None
    assert detectable_share(OneRun(100, 10, "tight"), 1.0, confidence=0.95) is not None
    assert detectable_epsilon(ErrorRates(3, 3), 0.0, confidence=0.95) is None
    assert chance_to_show(AsPrinted(50_000), StandOut(0.0), confidence=0.95) == 0


def test_ties_of_floats_fall_as_in_the_bound_itself() -> None:
    """20 printed keys of 50000 at δ = 10⁻⁵: p = 2·0.5/20 is β = .05 but for rounding, and the bound is above 1."""
    m, delta = 50_000, 1e-5
    bounds = [epsilon_one_run(m, v, v, delta=delta, confidence=0.95, rule="adaptive").value for v in (19, 20)]
    least = 20 if bounds[1] > 1 else 21
    share = detectable_share(AsPrinted(m), 1.0, confidence=0.95, delta=delta)
    assert stats.binom.sf(least - 1, m, (share or 0) / 2) == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize(
    ("test", "leak", "given", "message"),
    [
        (OneRun(10, 11, "tight"), StandOut(0.1), {}, "guesses must be at most m"),
        (OneRun(10, 5, "published"), StandOut(0.1), {"delta": 0.1}, "not for 'published'"),
        (OneRun(10, 5, "tight"), Rates(0.1, 0.0), {}, "is a RandomizedResponse or StandOut"),
        (AsPrinted(0), StandOut(0.1), {}, "m must be at least 1"),
        (ErrorRates(1, 1, "mu"), StandOut(0.1), {}, "quantity must be"),
        (SourceAndHoldout(3, 3), StandOut(0.1), {"epsilon": 1.0}, "shows no ε"),
        (AsPrinted(3), StandOut(0.1), {"confidence": 1.0}, "confidence must"),
        (AsPrinted(3), StandOut(0.1), {"epsilon": -1.0}, "epsilon must"),
    ],
)
def test_arguments_that_cannot_be(test: Test, leak: Leak, given: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chance_to_show(test, leak, **{"confidence": 0.95, **given})


def test_leaks_and_shares_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="share must"):
        StandOut(1.5)
    with pytest.raises(ValueError, match="inside must"):
        Rates(-0.1, 0.0)
    with pytest.raises(ValueError, match="epsilon must"):
        RandomizedResponse(-1.0)
    with pytest.raises(ValueError, match="by_chance is 0"):
        detectable_share(OneRun(10, 5, "tight"), by_chance=0.1, confidence=0.95)
    with pytest.raises(ValueError, match="probability must"):
        quantile_shown(AsPrinted(9), StandOut(0.1), 1.0, confidence=0.95)


M, ROUNDS = 240, 400


def refuted(design: CanariesDesign, leak: Leak, rng: np.random.Generator) -> bool:
    """Whether one audit of a generator with this leak refutes the claim, through `third_party_audit`."""
    included = rng.integers(0, 2, size=M).astype(np.bool_)
    if isinstance(leak, RandomizedResponse):
        leak = Rates(truth(leak.epsilon), 1 - truth(leak.epsilon))
    inside, outside = (leak.share, 0.0) if isinstance(leak, StandOut) else (leak.inside, leak.outside)
    scores = (rng.random(M) < np.where(included, inside, outside)).astype(np.float64)
    never = (rng.random(M) < outside).astype(np.float64)
    if design.guesses is not None:  # equal scores in random order
        scores, never = scores + rng.random(M) / 2, never + rng.random(M) / 2
    scoring = Scoring(name="s", candidates=scores, never=never, copied=np.where(included, 9.0, scores))
    return bool(design.refuted_by(third_party_audit(design, included, [scoring], attack="a", kind="key").bounds))


@pytest.mark.grid
@pytest.mark.parametrize(
    ("guesses", "leak", "claim", "delta"),
    [
        (60, RandomizedResponse(1.0), 1.0, 0.0),
        pytest.param(60, RandomizedResponse(1.6), 1.0, 1e-3, marks=pytest.mark.slow),
        (60, StandOut(0.25), 0.5, 0.0),
        (None, RandomizedResponse(1.5), 1.0, 0.0),
        (None, StandOut(0.06), 0.5, 1e-4),
        (None, Rates(0.25, 0.1), 0.3, 0.0),
    ],
    ids=str,
)
def test_stated_power_is_that_of_simulated_audits(guesses: int | None, leak: Leak, claim: float, delta: float) -> None:
    """The number of refutations is binomial; outside the interval with probability at most 1e-6.

    A control fails by chance with probability at most .001, and then nothing is refuted.
    """
    test = AsPrinted(M) if guesses is None else OneRun(M, guesses, "tight")
    stated = chance_to_show(test, leak, claim, confidence=0.95, delta=delta)
    design = CanariesDesign(
        candidates=M,
        guesses=guesses,
        scorings=1,
        confidence=0.95,
        unit=Unit(),
        claim=ApproxDP(claim, delta) if delta else PureDP(claim),
        delta=delta,
    )
    rng = np.random.default_rng(1)
    result = sum(refuted(design, leak, rng) for _ in range(ROUNDS))
    assert 0.02 < stated < 0.98
    low, high = stats.binom.ppf(5e-7, ROUNDS, stated - 0.001), stats.binom.ppf(1 - 5e-7, ROUNDS, stated)
    assert low <= result <= high


def test_stated_power_is_that_of_simulated_distinguishing_tests() -> None:
    """Randomised response of ε = 1.2 against a claim of 1; outside the interval with probability at most 1e-6.

    The other threshold that training may choose calls every output D′: it never refutes, and is chosen only if no
    threshold shows anything on the training runs, in far fewer than one of 10⁴ rounds.
    """
    rng, claim, of, runs, rounds = np.random.default_rng(2), PureDP(1.0), 1.2, 1000, 400
    tested = runs - training_runs(runs)
    stated = chance_to_show(ErrorRates(tested, tested), RandomizedResponse(of), 1.0, confidence=0.95)
    result = 0
    for _ in range(rounds):
        on_d, on_d_prime = ((rng.random(runs) < p).astype(float).tolist() for p in (1 - truth(of), truth(of)))
        audit = distinguishing_audit(
            on_d, on_d_prime, guarantee=claim, adjacency=Adjacency.ADD_REMOVE, score=lambda output: output
        )
        result += bool(audit.details["refuted"])
    assert 0.1 < stated < 0.9
    low, high = stats.binom.ppf(np.array([5e-7, 1 - 5e-7]), rounds, stated)
    assert low <= result <= high
