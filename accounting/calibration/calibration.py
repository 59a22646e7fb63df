"""Calibration: the noise, rate, number of steps, clip or temperature that meets a target, by a certified bound.

    from dpassay.accounting import ApproxDP, calibrate, noise_for_dp_sgd

    found = noise_for_dp_sgd(1.0, 1e-5, sampling_probability=0.01, steps=1000, adjacency="add_remove")
    found = calibrate(make_event, ApproxDP(1.0, 1e-5), adjacency="add_remove", parameter="noise_multiplier",
                      decreasing=True, bracket=(0.3, 100.0))
    found.value         # meets the target, by found.bound, the accountant's own bound at it
    found.beyond        # within the tolerance of it, not certified (found.beyond_bound); found.refuted: is that proven?
    many = calibrate_many(make_event, [ApproxDP(e, 1e-5) for e in (0.5, 1.0, 2.0)], ...)  # shares the measurements

Privacy must be monotone in the parameter; this is assumed. Nothing else is: the search only proposes values, and the
accountant's bound at a value accepts or rejects it. If `refuted` is true, the exact threshold lies between `value` and
`beyond`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from dp_accounting import DpEvent, dp_event

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, fields_to_json
from dpassay.accounting.calibration.search import LossCurve, Measurement, NotMonotone, Unreachable
from dpassay.accounting.calibration.targets import (
    Answer,
    Question,
    Target,
    accountant_factory,
    optimistic_end,
    query,
    question_of,
)
from dpassay.accounting.guarantees import ApproxDP
from dpassay.accounting.lattice import gaussian_curve
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.lattice.pairs import WidthNotMet
from dpassay.base import defaults, validate

MakeEvent: TypeAlias = Callable[[Any], DpEvent]
"""Maps a value of the parameter (a float, or an int for integers) to the event that runs."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A value of a parameter that meets a target, and the nearest value that is not certified to.

    Attributes:
        parameter: its name.
        value: meets the target, by `bound`.
        target: the target.
        bound: the accountant's bound at `value`; for a profile, at the point nearest to its limit.
        beyond: the nearest value that was tried and not certified to meet the target; None if `value` is the end of the
            bracket.
        beyond_bound: the bound at `beyond`, with its interval if one is known.
        tolerance: |beyond − value| is at most this times `value`; integers are adjacent.
        evaluations: the number of accountant evaluations for this target.
    """

    parameter: str
    value: float
    target: Target
    bound: Bound
    beyond: float | None
    beyond_bound: Bound | None
    tolerance: float
    evaluations: int

    @property
    def refuted(self) -> bool:
        """Whether the target is proven not to hold at `beyond`; otherwise it is only not certified there."""
        bound = self.beyond_bound
        return bound is not None and question_of(self.target, bound.adjacency, bound.delta).refuted(bound)

    def to_json(self) -> dict[str, Any]:
        """The calibration as plain JSON types."""
        target = {"type": type(self.target).__name__, **fields_to_json(self.target)}
        return fields_to_json(self) | {"target": target, "refuted": self.refuted}


def calibrate(
    make_event: MakeEvent,
    target: Target,
    *,
    adjacency: Adjacency | str,
    decreasing: bool,
    bracket: tuple[float, float],
    parameter: str = "parameter",
    integer: bool = False,
    tolerance: float = defaults.TOLERANCE,
    method: str | None = None,
    unit: Unit | str | None = None,
    delta: float | None = None,
    start: float | None = None,
) -> Calibration:
    """The least private value of a parameter whose certified bound meets a target.

    Args:
        make_event: the event at a value of the parameter.
        target: (ε, δ), a privacy profile, μ, ρ, (α, ε) of Rényi DP, pure ε, (p, r), or a `TradeOff`.
        adjacency: the neighbouring relation.
        decreasing: whether the privacy loss decreases in the parameter, as with noise, or increases, as with steps.
        bracket: the least and the largest value to try, 0 < low < high. The ends are tried only if needed.
        parameter: its name, for messages and records.
        integer: only whole numbers; the answer is then exact, since the next one was tried too.
        tolerance: relative, in [1e-9, 0.5]: the distance from the answer to a value that does not meet the target.
        method: an accountant's name, by default ``lattice``, and ``secret_protection`` if the adjacency is secret.
        unit: the privacy unit, by default one record.
        delta: for a `GDP` target with method ``lattice``: the δ(ε) below which the Gaussian curve need not be a bound.
        start: the first value to try, by default the geometric middle of the bracket.

    Returns:
        A `Calibration`; if the whole bracket meets the target, its least private end.

    Raises:
        ValueError: if no value in the bracket is certified to meet the target (with the bound at the best end), if an
            argument is invalid, or if the accountant has no bound (with the reason).
    """
    return calibrate_many(
        make_event,
        [target],
        adjacency=adjacency,
        decreasing=decreasing,
        bracket=bracket,
        parameter=parameter,
        integer=integer,
        tolerance=tolerance,
        method=method,
        unit=unit,
        delta=delta,
        start=start,
    )[0]


def calibrate_many(
    make_event: MakeEvent,
    targets: Iterable[Target],
    *,
    adjacency: Adjacency | str,
    decreasing: bool,
    bracket: tuple[float, float],
    parameter: str = "parameter",
    integer: bool = False,
    tolerance: float = defaults.TOLERANCE,
    method: str | None = None,
    unit: Unit | str | None = None,
    delta: float | None = None,
    start: float | None = None,
) -> list[Calibration]:
    """`calibrate` for many targets, which share the measurements of the bound.

    Arguments as for `calibrate`; the answers are in the order of the targets.
    """
    ends, begin = _validated(bracket, start, tolerance, integer=integer)
    questions = [question_of(target, adjacency, delta) for target in targets]
    results: dict[int, Calibration] = {}
    for key in dict.fromkeys(question.key for question in questions):
        same = [index for index, question in enumerate(questions) if question.key == key]
        measure = _loss_measurement(make_event, questions[same[0]], adjacency, unit, method, integer=integer)
        slope = questions[same[0]].slope
        curve = LossCurve(measure, ends, rising=not decreasing, integer=integer, tolerance=tolerance, slope=slope)
        for index in sorted(same, key=lambda index: questions[index].level):
            results[index] = _calibrated(curve, questions[index], begin, parameter, tolerance)
            begin = results[index].value
    return [results[index] for index in range(len(questions))]


def noise_for_dp_sgd(
    target_epsilon: float,
    delta: float,
    *,
    sampling_probability: float,
    steps: int,
    adjacency: Adjacency | str,
    tolerance: float = defaults.TOLERANCE,
    unit: Unit | str | None = None,
) -> Calibration:
    """The least noise multiplier at which Poisson-sampled Gaussian steps are certified to be (ε, δ)-DP.

    Args:
        target_epsilon: ε, above 0.
        delta: δ in (0, 1).
        sampling_probability: of a unit in a step, in (0, 1].
        steps: at least 1.
        adjacency: add_remove, replace_one or zero_out.
        tolerance: relative, of the noise multiplier.
        unit: the privacy unit, by default one record. "user" if whole users are drawn, with the sampling probability,
            and clipped with all their records; "user(k)" or "group(k)" if records are, and a user has at most k.
    """
    target = ApproxDP(validate.positive(target_epsilon=target_epsilon), delta)
    rate = validate.probability(sampling_probability=sampling_probability)
    validate.integer(minimum=1, steps=steps)
    if not rate:
        raise ValueError("sampling_probability must be above 0; without samples no noise is needed")

    def make_event(noise_multiplier: float) -> DpEvent:
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise_multiplier))
        return dp_event.SelfComposedDpEvent(step, steps)

    start, nearby = (
        _noise_by_central_limit(each, delta, rate, steps) for each in (target_epsilon, 1.1 * target_epsilon)
    )
    slope = math.log(1.1) / math.log(start / nearby)
    if adjacency == Adjacency.REPLACE_ONE:
        start *= 2
    ends, _ = _validated((start / 1e3, start * 1e3), start, tolerance, integer=False)
    question = question_of(target, adjacency, None)
    measure = _loss_measurement(make_event, question, adjacency, unit, None, integer=False)
    curve = LossCurve(measure, ends, rising=False, integer=False, tolerance=tolerance, slope=slope)
    return _calibrated(curve, question, start, "noise_multiplier", tolerance)


def _noise_by_central_limit(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """σ with q·√(n(e^{1/σ²} − 1)) equal to the μ of (ε, δ): the limit for many steps, used as a first guess.

    Source: Bu, Dong, Long and Su, "Deep Learning with Gaussian Differential Privacy" (2020).
    """
    low, mu = 0.0, 1.0
    while gaussian_curve.delta(mu, epsilon).upper < delta:
        low, mu = mu, 2 * mu
    for _ in range(16):
        middle = (low + mu) / 2
        low, mu = (middle, mu) if gaussian_curve.delta(middle, epsilon).upper < delta else (low, middle)
    return 1 / math.sqrt(math.log1p(mu**2 / (rate**2 * steps)))


# A single search


def _loss_measurement(
    make_event: MakeEvent,
    question: Question,
    adjacency: Adjacency | str,
    unit: Unit | str | None,
    method: str | None,
    *,
    integer: bool,
) -> Callable[[float, float], tuple[float, float, Answer]]:
    """Maps a value and a width to the loss at that value, from below and from above, with its bounds."""
    start = accountant_factory(method or question.method, adjacency, unit)

    def measure(value: float, width: float) -> tuple[float, float, Answer]:
        composed = start(width * question.width_factor).compose(make_event(int(value) if integer else value))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WidthNotMet)  # the interval itself is used
            answer = tuple(query(composed, name, arguments) for name, arguments in question.calls)
        ends = []
        for bound in answer:
            high = question.loss(bound.at, bound.value)
            room = width if isinstance(composed, Lattice) else 0.0
            low = high - room if bound.interval is None else question.loss(bound.at, optimistic_end(bound))
            ends.append((low, high))
        return max(low for low, _ in ends), max(high for _, high in ends), answer

    return measure


def _calibrated(
    curve: LossCurve[Answer], question: Question, start: float, parameter: str, tolerance: float
) -> Calibration:
    try:
        result = curve.crossing(question.level, question.meets, start)
    except Unreachable as error:
        raise ValueError(_unreachable(error.sample, question, parameter)) from None
    except NotMonotone as error:
        low, high = sorted(error.samples, key=lambda sample: sample.value)
        ends = (_worst(low, question).value, _worst(high, question).value)
        raise ValueError(
            f"privacy does not change with {parameter} as decreasing says: the bound is {ends[0]:.6g} at "
            f"{low.value:.6g} and {ends[1]:.6g} at {high.value:.6g}"
        ) from None
    beyond = result.beyond
    return Calibration(
        parameter=parameter,
        value=result.last.value,
        target=question.target,
        bound=_worst(result.last, question),
        beyond=None if beyond is None else beyond.value,
        beyond_bound=None if beyond is None else _worst(beyond, question),
        tolerance=tolerance,
        evaluations=result.measurements,
    )


def _worst(sample: Measurement[Answer], question: Question) -> Bound:
    """Of several bounds, the one nearest to its limit, or furthest beyond it."""
    return max(sample.answer, key=lambda bound: question.loss(bound.at, bound.value))


def _unreachable(sample: Measurement[Answer], question: Question, parameter: str) -> str:
    bound = _worst(sample, question)
    limit = question.limits[bound.at]
    relation = "≥" if bound.direction is Direction.LOWER else "≤"
    where = f" at {bound.argument} = {bound.at:g}" if bound.at is not None else ""
    where += f" at δ = {bound.delta:g}" if bound.delta is not None else ""
    return (
        f"no {parameter} in the bracket is certified to give {bound.quantity} {relation} {limit:g}{where}: at "
        f"{sample.value:g}, its most private end, {bound.method} has {bound.value:g}; widen the bracket or the target"
    )


def _validated(
    bracket: tuple[float, float], start: float | None, tolerance: float, *, integer: bool
) -> tuple[tuple[float, float], float]:
    """The bracket, as numbers of the parameter's kind, and the first value to try, each checked."""
    if len(bracket) != 2:
        raise ValueError(f"bracket must be (low, high), not {bracket!r}")
    low, high = (validate.positive(bracket=end) for end in bracket)
    if low >= high:
        raise ValueError(f"bracket must be (low, high) with 0 < low < high, not {bracket!r}")
    if integer and (int(low) != low or int(high) != high):
        raise ValueError(f"the bracket of an integer must be two whole numbers, not {bracket!r}")
    if not 1e-9 <= validate.positive(tolerance=tolerance) <= 0.5:
        raise ValueError(f"tolerance must be between 1e-9 and 0.5, not {tolerance!r}")
    kind = int if integer else float
    begin = math.sqrt(low * high) if start is None else min(max(validate.positive(start=start), low), high)
    return (kind(low), kind(high)), begin
