"""Power: what an audit of a given size shows of a given leak, and which leak it detects with 50 % power.

A ceiling is what perfect guesses would show. It says nothing of what *likely* guesses show. Here the numbers of right
and wrong guesses are random, by a stated law, and the law of the bound follows by summation: nothing is simulated.
Tails of probability below 1e-13 are left out of sums over two numbers, so that a probability is off by less than 1e-12.

The leaks:

- `RandomizedResponse`: each guess is right with probability q = e^ε/(1 + e^ε), independently. No ε-DP mechanism has
  stochastically more right guesses among r (`dpassay.audits.statistics.one_run`), so with r fixed it is the best that
  an attack on an ε-DP mechanism can do.
- `StandOut`: each candidate in the data stands out with probability s, and nothing else does. It is guessed first; the
  remaining guesses know nothing. A candidate that does not stand out is in the data with probability (1 − s)/(2 − s),
  since its coin was fair. So with K ~ Bin(m, s/2), min(K, r) + Bin(r − min(K, r), (1 − s)/(2 − s)) guesses are right.
- `Rates`: a candidate is guessed "in" with probability a if it is in the data, and b if it is not, independently.

*Monotone.* The chance to show more than a value increases with ε, with s and with a, so that bisection finds the limit
of detection. With independent uniform numbers U_j behind the events, and everything else equal, a larger ε or a turns
wrong guesses into right ones, adds right ones, or removes wrong ones. A larger s moves a candidate that is in the data
to the first places; if it was not guessed before, it replaces the last guess, which was right or wrong. So the number
of right guesses never falls. And no bound falls if a right guess is added or put in the place of a wrong one, or if a
wrong one is removed: for v right and w wrong guesses the tail f = P[Bin(v + w, q) ≥ v] and f/w_v = Σ_j Π_{i≤j} e^ε (w −
i + 1)/(v + i) decrease in v and increase in w (`adaptive`; `tight` has v + w fixed, and a p-value that is a largest
probability of at least v right guesses); the limits of error rates are monotone in their counts; and one hit more, or
one draw more, changes a hypergeometric number by one at most.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy import special

from dpassay.audits.statistics.binomial import epsilons_from_limits, lower_limit, upper_limit
from dpassay.audits.statistics.ceilings import ErrorRates, OneRun, ceiling
from dpassay.audits.statistics.counts import count
from dpassay.audits.statistics.one_run import Rule, epsilons_one_run, hypergeometric_tail, p_value
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats, Integers

_LEFT_OUT = 1e-13  # probability of each tail that sums over two numbers leave out
_ROUNDING = 1e-9  # far above the float error of a ceiling
_APART = 32  # every so many numbers are searched for from scratch, and those between them between their results
_STEPS = 50  # bisections: below 1e-15 of the interval
_TINY = 1e-290  # below it, quotients of probabilities may be of numbers that underflowed
_LARGEST = 1e3  # ε at which randomised response never lies, in floats


@dataclass(frozen=True, slots=True)
class AsPrinted:
    """The size of a one-run test that guesses every candidate that the output reveals, by the `adaptive` rule.

    Attributes:
        m: number of candidates, each in the data by a fair coin.
    """

    m: int


@dataclass(frozen=True, slots=True)
class SourceAndHoldout:
    """The size of the test that more units of a source than of a holdout are hit: the hypergeometric p-value.

    It shows no ε: a p-value of at most 1 − confidence shows that the output depends on the source.

    Attributes:
        source: number of units of the source.
        holdout: number of units of the holdout.
    """

    source: int
    holdout: int


Test: TypeAlias = OneRun | AsPrinted | ErrorRates | SourceAndHoldout


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """A mechanism that is exactly ε-DP: it tells each bit truly with probability e^ε/(1 + e^ε).

    Attributes:
        epsilon: ε ≥ 0.
    """

    epsilon: float

    def __post_init__(self) -> None:
        validate.non_negative(epsilon=self.epsilon)

    @property
    def right(self) -> float:
        """The probability q of a true answer."""
        return float(special.expit(self.epsilon))

    @property
    def wrong(self) -> float:
        """1 − q, without cancellation."""
        return float(special.expit(-self.epsilon))


@dataclass(frozen=True, slots=True)
class StandOut:
    """A generator that reveals a share of the candidates that are in its data, and nothing of the others.

    Attributes:
        share: s, the probability with which each candidate that is in the data stands out.
    """

    share: float

    def __post_init__(self) -> None:
        validate.probability(share=self.share)


@dataclass(frozen=True, slots=True)
class Rates:
    """Independent guesses "in", at two rates.

    Attributes:
        inside: the probability for what is in the data (for `ErrorRates`: the true-positive rate).
        outside: the probability for what is not (the false-positive rate).
    """

    inside: float
    outside: float

    def __post_init__(self) -> None:
        validate.probability(inside=self.inside)
        validate.probability(outside=self.outside)


Leak: TypeAlias = RandomizedResponse | StandOut | Rates


def chance_to_show(test: Test, leak: Leak, epsilon: float = 0.0, *, confidence: float, delta: float = 0.0) -> float:
    """The probability that the bound of a test is above ε.

    Args:
        test: a statistic and its size.
        leak: of the mechanism that is tested.
        epsilon: ε ≥ 0, such as a claim; 0 for "something is shown".
        confidence: 1 − β of the bound, in (0, 1).
        delta: δ in [0, 1) at which ε is bounded.

    Raises:
        ValueError: if an argument is out of range, or the leak is not described for this test.
    """
    _check(test, epsilon, confidence, delta)
    if isinstance(test, OneRun):
        return _chance_of_right(test, leak, _least_right(test, epsilon, confidence, delta))
    rates = _rates(leak)
    if isinstance(test, ErrorRates):
        return _chance_of_few_errors(test, rates, epsilon, confidence, delta)
    return _chance_of_enough(test, rates, _least_inside(test, rates.outside, epsilon, confidence, delta))


def quantile_shown(
    test: OneRun | AsPrinted | ErrorRates,
    leak: Leak,
    probability: float,
    *,
    confidence: float,
    delta: float = 0.0,
) -> float:
    """The smallest value that the bound exceeds with probability at most 1 − `probability`; 0.5 gives its median.

    Args:
        test, leak: as for `chance_to_show`.
        probability: in (0, 1).
        confidence, delta: of the bound.

    Returns:
        The quantile; for `AsPrinted` at most 1e-11 of the largest possible bound above it, and 1e-9.
    """
    validate.open_probability(probability=probability)
    _check(test, 0.0, confidence, delta)
    if isinstance(test, OneRun):
        # The bound increases with the number of right guesses, so its quantile is the bound of their quantile.
        right = bisect.bisect_left(
            range(test.guesses), True, key=lambda v: 1 - _chance_of_right(test, leak, v + 1) >= probability
        )
        rule = _rule(test, delta)
        return float(epsilons_one_run(test.m, test.guesses, right, delta=delta, confidence=confidence, rule=rule))
    if isinstance(test, ErrorRates):
        values, weights = _error_rates(test, _rates(leak), confidence, delta)
        values, weights = values.ravel(), weights.ravel()
        order = np.argsort(values)
        index = int(np.searchsorted(np.cumsum(weights[order]), probability))
        return float(values[order[min(index, order.size - 1)]])

    def exceeded(epsilon: float) -> bool:
        return chance_to_show(test, leak, epsilon, confidence=confidence, delta=delta) > 1 - probability

    most = ceiling(OneRun(test.m, test.m, "adaptive"), confidence=confidence, delta=delta)
    result = _first(lambda epsilon: not exceeded(epsilon), most + _ROUNDING, steps=40)
    assert result is not None, "no bound is above the ceiling"
    return result


def detectable_epsilon(
    test: Test, epsilon: float = 0.0, *, confidence: float, delta: float = 0.0, chance: float = 0.5
) -> float | None:
    """The smallest ε of randomised response at which the bound is above a value with this chance.

    For a fixed number of guesses of one run, no attack on an (ε, 0)-DP mechanism with a smaller ε does as well.

    Args:
        test: a statistic and its size.
        epsilon: the value, such as a claim; 0 for "something is shown".
        confidence, delta: of the bound.
        chance: in (0, 1).

    Returns:
        ε; None if even a mechanism that always tells the truth is not found with this chance.
    """
    validate.open_probability(chance=chance)

    def detects(of: float) -> bool:
        return chance_to_show(test, RandomizedResponse(of), epsilon, confidence=confidence, delta=delta) >= chance

    largest = 1.0
    while not detects(largest):
        largest *= 2
        if largest > _LARGEST:
            return None
    return _first(detects, largest)


def detectable_share(
    test: Test,
    epsilon: float = 0.0,
    *,
    confidence: float,
    delta: float = 0.0,
    by_chance: float = 0.0,
    chance: float = 0.5,
) -> float | None:
    """The smallest share of what is in the data that must be given away for a bound above a value with this chance.

    Args:
        test: a statistic and its size. With a fixed number of guesses the share stands out (`StandOut`), otherwise it
            is guessed "in" (`Rates`).
        epsilon: the value, such as a claim; 0 for "something is shown".
        confidence, delta: of the bound.
        by_chance: the share of what is *not* in the data that is guessed "in" all the same; 0 for `OneRun`.
        chance: in (0, 1).

    Returns:
        The share; None if even all of it is not found with this chance.
    """
    validate.open_probability(chance=chance)
    validate.probability(by_chance=by_chance)
    _check(test, epsilon, confidence, delta)
    if isinstance(test, OneRun):
        if by_chance:
            raise ValueError(f"with a fixed number of guesses nothing else stands out: by_chance is 0, not {by_chance}")
        right = _least_right(test, epsilon, confidence, delta)
        return _first(lambda share: _chance_of_right(test, StandOut(share), right) >= chance, 1.0)
    if isinstance(test, ErrorRates):
        return _first(
            lambda share: (
                chance_to_show(test, Rates(share, by_chance), epsilon, confidence=confidence, delta=delta) >= chance
            ),
            1.0,
        )
    least = _least_inside(test, by_chance, epsilon, confidence, delta)  # the same for every share
    return _first(lambda share: _chance_of_enough(test, Rates(share, by_chance), least) >= chance, 1.0)


def _first(holds: Callable[[float], bool], largest: float, steps: int = _STEPS) -> float | None:
    """The smallest number in [0, largest] for which a monotone condition holds, from above; None if it never does."""
    if not holds(largest):
        return None
    if holds(0.0):
        return 0.0
    low, high = 0.0, largest
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _check(test: Test, epsilon: float, confidence: float, delta: float) -> None:
    validate.non_negative(epsilon=epsilon)
    validate.open_probability(confidence=confidence)
    validate.probability_below_one(delta=delta)
    match test:
        case OneRun(m, guesses):
            if count(guesses=guesses) > count(1, m=m):
                raise ValueError(f"guesses must be at most m = {m}, not {guesses}")
            _rule(test, delta)
        case AsPrinted(m):
            count(1, m=m)
        case ErrorRates(runs_in, runs_out, quantity):
            count(1, runs_in=runs_in), count(1, runs_out=runs_out)
            validate.one_of(("epsilon",), quantity=quantity)
        case SourceAndHoldout(source, holdout):
            count(1, source=source), count(1, holdout=holdout)


def _rule(test: OneRun, delta: float) -> Literal["tight", "adaptive"]:
    """The rule of a test; with δ = 0 all rules are one."""
    if delta == 0:
        return "tight"
    if test.rule not in ("tight", "adaptive"):
        raise ValueError(f"power is known for the rules tight and adaptive if δ > 0, not for {test.rule!r}")
    return "tight" if test.rule == "tight" else "adaptive"


def _rates(leak: Leak) -> Rates:
    match leak:
        case RandomizedResponse():
            return Rates(leak.right, leak.wrong)
        case StandOut(share):
            return Rates(share, 0.0)
        case Rates():
            return leak


def _least_right(test: OneRun, epsilon: float, confidence: float, delta: float) -> int:
    """The fewest right guesses whose bound is above ε; one more than there are if no number is enough."""
    right = np.arange(test.guesses + 1)
    shown = _Rejected(epsilon, test.m * delta, 1 - confidence, _rule(test, delta))
    return bisect.bisect_left(right, True, key=lambda v: bool(shown(np.array([v]), np.array([test.guesses - v]))[0]))


@dataclass(frozen=True, slots=True)
class _Rejected:
    """Whether numbers of right and wrong guesses reject ε, so that the bound is above it.

    `p_value` for arrays: with f/w_v as the quotient of f and w_v, unless they underflow.
    """

    epsilon: float
    failures: float
    beta: float
    rule: Rule

    def __call__(self, right: Integers, wrong: Integers) -> Bools:
        v = np.maximum(right, 1).astype(np.float64)
        tail = special.betaincc(wrong + 1.0, v, special.expit(-self.epsilon))
        if self.failures == 0:
            return np.asarray((tail < self.beta) & (right > 0))
        log_weight = (
            special.gammaln(v + wrong + 1) - special.gammaln(v + 1) - special.gammaln(wrong + 1.0)
            - v * np.logaddexp(0.0, -self.epsilon) - wrong * np.logaddexp(0.0, self.epsilon)
        )  # fmt: skip
        tiny = (tail < _TINY) | (log_weight < np.log(_TINY))
        ratio = np.where(wrong == 0, 1.0, tail / np.exp(np.where(tiny, 0.0, log_weight)))
        delta_term = self.failures * ratio / v
        p = 2 * np.maximum(tail, delta_term) if self.rule == "adaptive" else tail + delta_term * (1 - tail)
        for index in np.flatnonzero(tiny & (right > 0)):
            p[index] = p_value(int(right[index] + wrong[index]), int(right[index]), self.failures, self.rule)(
                self.epsilon
            )
        return np.asarray((p < self.beta) & (right > 0))


def _chance_of_right(test: OneRun, leak: Leak, least: int) -> float:
    """The probability of at least so many right guesses among a fixed number."""
    m, r = test.m, test.guesses
    match leak:
        case RandomizedResponse():
            return float(_at_least(np.array(least), r, leak.right))
        case StandOut(share):
            standing, weights = _likely(m, share / 2)
            first = np.minimum(standing, r)
            return float(weights @ _at_least(least - first, r - first, (1 - share) / (2 - share)))
        case _:
            raise ValueError("with a fixed number of guesses a leak is a RandomizedResponse or StandOut, not Rates")


@dataclass(frozen=True, slots=True)
class _Least:
    """For likely numbers of outside hits: the probability of each, and the fewest inside hits that are enough."""

    outside: Integers
    weights: Floats
    inside: Integers


def _least_inside(
    test: AsPrinted | SourceAndHoldout, by_chance: float, epsilon: float, confidence: float, delta: float
) -> _Least:
    """The fewest hits of what is in the data that are enough, for each likely number of other hits."""
    if isinstance(test, AsPrinted):
        outside, weights = _likely(test.m, by_chance / 2)
        rejected = _Rejected(epsilon, test.m * delta, 1 - confidence, "adaptive")
        some = np.append(np.arange(0, outside.size - 1, _APART), outside.size - 1)
        most = np.full_like(some, test.m + 1)
        ends = _bisect_all(lambda right: rejected(right, outside[some]), np.zeros_like(some), most)
        # What is enough increases with every hit outside, so it lies between the ends.
        before = np.searchsorted(some, np.arange(outside.size), side="right") - 1
        low, high = ends[before], ends[np.minimum(before + 1, some.size - 1)]
        return _Least(outside, weights, _bisect_all(lambda right: rejected(right, outside), low, high))
    if epsilon:
        raise ValueError(f"a comparison of source and holdout shows no ε: epsilon must be 0, not {epsilon:g}")
    outside, weights = _likely(test.holdout, by_chance)
    total, inside = test.source + test.holdout, np.empty_like(outside)

    def enough(hits: int, other: int) -> bool:
        return hypergeometric_tail(hits, total, test.source, hits + other) <= 1 - confidence

    first = int(outside[0])
    needed = bisect.bisect_left(range(test.source + 1), True, key=lambda hits: enough(hits, first))
    for index, other in enumerate(outside.tolist()):  # what is needed never falls with a further hit of the holdout
        while needed <= test.source and not enough(needed, other):
            needed += 1
        inside[index] = needed
    return _Least(outside, weights, inside)


def _bisect_all(enough: Callable[[Integers], Bools], low: Integers, high: Integers) -> Integers:
    """For each place the smallest number of [low, high] that is enough, where `high` is, or stands for none."""
    while np.any(low < high):
        middle = (low + high) // 2
        fewer = enough(middle)
        low, high = np.where(fewer, low, np.minimum(middle + 1, high)), np.where(fewer, middle, high)
    return low


def _chance_of_enough(test: AsPrinted | SourceAndHoldout, rates: Rates, least: _Least) -> float:
    if isinstance(test, SourceAndHoldout):
        return float(least.weights @ _at_least(least.inside, test.source, rates.inside))
    # Given that w of the m candidates are hit without being in the data, each other one is hit at rate a/(2 − b).
    each = rates.inside / (2 - rates.outside)
    return float(least.weights @ _at_least(least.inside, test.m - least.outside, each))


def _error_rates(test: ErrorRates, rates: Rates, confidence: float, delta: float) -> tuple[Floats, Floats]:
    """The bounds of all likely pairs of true and false positives, and their probabilities, as matrices."""
    (tp, p), (fp, q) = _likely(test.runs_in, rates.inside), _likely(test.runs_out, rates.outside)
    tail, n1, n0 = (1 - confidence) / 2, test.runs_in, test.runs_out
    values = epsilons_from_limits(
        lower_limit(tp, n1, tail)[:, None],
        upper_limit(n1 - tp, n1, tail)[:, None],
        upper_limit(fp, n0, tail)[None, :],
        lower_limit(n0 - fp, n0, tail)[None, :],
        delta,
    )
    return values, p[:, None] * q[None, :]


def _chance_of_few_errors(test: ErrorRates, rates: Rates, epsilon: float, confidence: float, delta: float) -> float:
    """The chance to show more than ε. Either direction does if there are few enough false positives."""
    (tp, p), (fp, q) = _likely(test.runs_in, rates.inside), _likely(test.runs_out, rates.outside)
    tail, n1, n0, growth = (1 - confidence) / 2, test.runs_in, test.runs_out, math.exp(min(epsilon, 700.0))
    first = np.searchsorted(growth * upper_limit(fp, n0, tail), lower_limit(tp, n1, tail) - delta)
    second = np.searchsorted(delta - lower_limit(n0 - fp, n0, tail), -growth * upper_limit(n1 - tp, n1, tail))
    within = np.concatenate([[0.0], np.cumsum(q)])  # by the number of entries of fp that are few enough
    return float(p @ within[np.maximum(first, second)])


def _likely(trials: int, probability: float) -> tuple[Integers, Floats]:
    """The numbers of hits but for two tails of `_LEFT_OUT`, and their probabilities."""
    from scipy import stats  # takes half a second, and most commands do without

    mean, log = trials * probability, -math.log(_LEFT_OUT)
    apart = log / 3 + math.sqrt(log**2 / 9 + 2 * log * mean * (1 - probability))  # Bernstein 1946
    hits = np.arange(max(0, math.floor(mean - apart)), min(trials, math.ceil(mean + apart)) + 1)
    return hits, np.asarray(stats.binom.pmf(hits, trials, probability), dtype=np.float64)


def _at_least(hits: Integers, trials: int | Integers, probability: float) -> Floats:
    """P[Bin(trials, probability) ≥ hits], for arrays."""
    inside = np.clip(hits, 1, np.maximum(trials, 1))
    tail = special.betainc(inside, trials - inside + 1, probability)
    return np.where(hits <= 0, 1.0, np.where(hits > trials, 0.0, tail))
