"""Calibration: the noise, sampling probability, number of steps or clip that meets a privacy target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TypeVar

from dp_accounting import DpEvent, dp_event

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction
from dpassay.accounting.calibration.calibration import Calibration, calibrate
from dpassay.accounting.calibration.targets import Target, TradeOff, accountant_factory, decided, question_of
from dpassay.accounting.comparison.comparison import unit_of
from dpassay.accounting.events import SecretReleaseDpEvent
from dpassay.accounting.guarantees import GDP, ApproxDP, SecretProtection
from dpassay.accounting.lattice.pairs import WIDTH
from dpassay.accounting.registry import ACCOUNTANTS
from dpassay.accounting.secret_protection.accountant import SecretProtectionAccountant
from dpassay.base import defaults, validate
from dpassay.base.errors import input_errors
from dpassay.base.number_format import DIGITS, format_number
from dpassay.jobs.compare import dp_sgd_event, gaussian_event, selection_event, softmax_range
from dpassay.reports.text import SYMBOLS

_MOST_STEPS = 10**7
_MOST_TRIES = 4

T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Goal:
    """A privacy target, and how it is evaluated.

    Attributes:
        epsilon, mu, beta, r: the target; exactly one is given.
        delta: the δ of an ε; for a μ, values of δ(ε) below this need not be under the Gaussian curve, None for none.
        alpha: the type I error at which the type II error must be at least `beta`.
        p: the prior probability of guessing a secret; the posterior one must be at most `r`.
        adjacency: the neighbouring relation.
        method: an accountant's name; None for the certified lattice, or what the target needs.
        tolerance: relative.
    """

    adjacency: str
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    beta: float | None = None
    alpha: float | None = None
    r: float | None = None
    p: float | None = None
    method: str | None = None
    tolerance: float = defaults.TOLERANCE

    def target(self) -> Target:
        """The target as a guarantee.

        Raises:
            ValueError: unless exactly one target is given, with the parameter it needs and no other.
        """
        given = {name: value for name in ("epsilon", "mu", "beta", "r") if (value := getattr(self, name)) is not None}
        if len(given) != 1:
            raise ValueError("give one of --target-epsilon, --target-mu, --target-beta and --target-r")
        ((kind, _),) = given.items()
        needs = {"epsilon": "delta", "mu": "delta", "beta": "alpha", "r": "p"}[kind]
        for name in ("delta", "alpha", "p"):
            if (getattr(self, name) is None) == (name == needs) and (kind, name, self.delta) != ("mu", "delta", None):
                raise ValueError(f"--target-{kind} goes with --{needs}, and with no other of --delta, --alpha and --p")
        match kind:
            case "epsilon":
                return ApproxDP(self.epsilon or 0.0, self.delta or 0.0)
            case "mu":
                return GDP(self.mu or 0.0)
            case "beta":
                return TradeOff(self.alpha or 0.0, self.beta or 0.0)
            case _:
                return SecretProtection(self.p or 0.0, self.r or 0.0)

    def search(
        self,
        make_event: Callable[[float], DpEvent],
        parameter: str,
        bracket: tuple[float, float],
        start: float,
        *,
        decreasing: bool,
        integer: bool = False,
    ) -> Calibration:
        """The value of the parameter that meets the target.

        Raises:
            InputError: if no value in the bracket meets the target, or no accountant bounds the event.
        """
        hint = "--target-mu without --delta: " if self.mu is not None and self.delta is None else ""
        with input_errors(hint):
            if self.method is not None:
                validate.one_of(tuple(ACCOUNTANTS), method=self.method)
            found = calibrate(
                make_event,
                self.target(),
                adjacency=Adjacency(validate.one_of(tuple(map(str, Adjacency)), adjacency=self.adjacency)),
                decreasing=decreasing,
                bracket=bracket,
                parameter=parameter,
                integer=integer,
                tolerance=self.tolerance,
                method=self.method,
                unit=unit_of(self.adjacency),
                delta=self.delta if self.mu is not None else None,
                start=start,
            )
            return found if integer else self._as_printed(found, make_event, decreasing=decreasing)

    def _as_printed(
        self, found: Calibration, make_event: Callable[[float], DpEvent], *, decreasing: bool
    ) -> Calibration:
        """The answer at a value of few digits, as it is printed and given to other commands, with the bound there.

        It is rounded to the more private side, and further if the target is not met there.
        """
        question = question_of(self.target(), self.adjacency, self.delta if self.mu is not None else None)
        empty = accountant_factory(self.method or question.method, self.adjacency, unit_of(self.adjacency))(WIDTH)
        least = math.ceil(-math.log10(self.tolerance)) + 3  # rounding then changes little of the tolerance
        digits = Context(prec=max(least, DIGITS), rounding=ROUND_CEILING if decreasing else ROUND_FLOOR)
        value = digits.plus(Decimal(repr(found.value)))
        for tried in range(1, _MOST_TRIES + 1):
            answer = decided(empty.compose(make_event(float(value))), question)
            if question.meets(answer):
                bound = max(answer, key=lambda bound: question.loss(bound.at, bound.value))
                gap = 0.0 if found.beyond is None else abs(found.beyond / float(value) - 1)
                return replace(
                    found,
                    value=float(value),
                    bound=bound,
                    tolerance=max(found.tolerance, gap),
                    evaluations=found.evaluations + tried,
                )
            value = digits.next_plus(value) if decreasing else digits.next_minus(value)
        return found


def dp_sgd(
    goal: Goal, find: str, noise_multiplier: float | None, sampling_probability: float | None, steps: int | None
) -> Calibration:
    """Noise multiplier, sampling probability or number of steps of DP-SGD; the two others are given.

    Raises:
        InputError: if a parameter is missing, superfluous or out of range, or no value meets the target.
    """
    values = {"noise": noise_multiplier, "rate": sampling_probability, "steps": steps}
    with input_errors():
        goal.target()
        _check_given(values, find, {"noise": "noise-multiplier", "rate": "sampling-probability", "steps": "steps"})
        sigma, rate, count = _or(noise_multiplier, 1.0), _or(sampling_probability, 0.01), _or(steps, 1)
        dp_sgd_event(sigma, rate, count)
    if find == "noise":
        begin = max(1.0, 3 * rate * math.sqrt(count))
        return goal.search(
            lambda value: dp_sgd_event(value, rate, count), "noise_multiplier", (1e-2, 1e6), begin, decreasing=True
        )
    if find == "rate":
        return goal.search(
            lambda value: dp_sgd_event(sigma, value, count), "sampling_probability", (1e-9, 1.0), 1e-2, decreasing=False
        )
    return goal.search(
        lambda value: dp_sgd_event(sigma, rate, int(value)),
        "steps",
        (1, _MOST_STEPS),
        1000,
        decreasing=False,
        integer=True,
    )


def gaussian(goal: Goal, find: str, noise_multiplier: float | None, count: int | None) -> Calibration:
    """Noise multiplier or number of Gaussian releases.

    Raises:
        InputError: as for `dp_sgd`.
    """
    with input_errors():
        goal.target()
        _check_given({"noise": noise_multiplier, "count": count}, find, {"noise": "noise-multiplier", "count": "count"})
        sigma, releases = _or(noise_multiplier, 1.0), _or(count, 1)
        gaussian_event(sigma, releases)
    if find == "noise":
        return goal.search(
            lambda value: gaussian_event(value, releases), "noise_multiplier", (1e-4, 1e8), 1.0, decreasing=True
        )
    return goal.search(
        lambda value: gaussian_event(sigma, int(value)), "count", (1, _MOST_STEPS), 10, decreasing=False, integer=True
    )


def selection(
    goal: Goal, find: str, clip: float | None, temperature: float, batch_size: int, count: int | None
) -> Calibration:
    """Clip or number of selections by softmax of a mean of clipped logits.

    Raises:
        InputError: as for `dp_sgd`.
    """
    with input_errors():
        goal.target()
        _check_given({"clip": clip, "steps": count}, find, {"clip": "clip", "steps": "count"})
        width, steps = _or(clip, 1.0), _or(count, 1)
        softmax_range(width, temperature, batch_size, goal.adjacency)
        selection_event(1.0, steps)

    def event(bound: float, times: int) -> DpEvent:
        return selection_event(softmax_range(bound, temperature, batch_size, goal.adjacency), times)

    if find == "clip":
        scale = batch_size * temperature
        return goal.search(
            lambda value: event(value, steps), "clip", (1e-6 * scale, 50 * scale), 0.1 * scale, decreasing=False
        )
    return goal.search(
        lambda value: event(width, int(value)), "count", (1, _MOST_STEPS), 100, decreasing=False, integer=True
    )


def secret(
    goal: Goal, find: str, release: SecretReleaseDpEvent, sigma: float | None, rounds: int | None
) -> Calibration:
    """Noise or number of rounds of releases in which a secret may occur; σ is 0 if random occurrence suffices.

    Args:
        release: one round, with any noise.

    Raises:
        InputError: as for `dp_sgd`.
    """
    with input_errors():
        _check_given({"noise": sigma, "rounds": rounds}, find, {"noise": "sigma", "rounds": "rounds"})
        noise, times = _or(sigma, 0.0), validate.integer(minimum=1, maximum=10_000, rounds=_or(rounds, 1))
        target = goal.target()
        if not isinstance(target, SecretProtection):
            raise ValueError("the noise of a secret is calibrated to --target-r at --p; give both")

    def event(deviation: float, count: int) -> DpEvent:
        return dp_event.SelfComposedDpEvent(SecretReleaseDpEvent(deviation, release.weights, release.remainder), count)

    if find == "rounds":
        return goal.search(
            lambda value: event(noise, int(value)), "rounds", (1, 10_000), 10, decreasing=False, integer=True
        )
    bare = SecretProtectionAccountant(Adjacency.SECRET, Unit("secret")).compose(event(0.0, times)).protection(target.p)
    if bare.value <= target.r:
        return Calibration("sigma", 0.0, target, bare, None, None, goal.tolerance, 1)
    return goal.search(lambda value: event(value, times), "sigma", (1e-3, 1e8), 2.0, decreasing=True)


def _check_given(values: dict[str, float | int | None], find: str, options: dict[str, str]) -> None:
    """Raises `ValueError` unless all parameters but the one to find are given."""
    validate.one_of(tuple(values), find=find)
    for name, value in values.items():
        if name == find and value is not None:
            raise ValueError(f"--find {find} finds --{options[name]}, so leave it out")
        if name != find and value is None:
            raise ValueError(f"--find {find} needs --{options[name]}")


def _or(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value


def in_words(found: Calibration) -> list[str]:
    """The answer in sentences, with all digits of the value, which is rounded already."""
    name = found.parameter.replace("_", " ")
    value = str(int(found.value)) if _is_integer(found) else format_number(found.value, digits=17)
    lines = [f"{name} {value}: {_bound_in_words(found.bound)}, {found.bound.rigor}, by {found.bound.by}"]
    if found.beyond is None or found.beyond_bound is None:
        lines.append("Less privacy was not tried: this is the end of the range that is searched.")
        return lines
    beyond = str(int(found.beyond)) if _is_integer(found) else format_number(found.beyond)
    if found.refuted and found.beyond_bound.interval is not None:
        lines.append(
            f"At {name} {beyond} it does not: {_bound_in_words(found.beyond_bound, other_end=True)}, certified."
        )
    else:
        lines.append(f"At {name} {beyond} nothing is proven: {_bound_in_words(found.beyond_bound)} is the best bound.")
    return lines


def _is_integer(found: Calibration) -> bool:
    return found.parameter in ("steps", "count", "rounds")


def _bound_in_words(bound: Bound, *, other_end: bool = False) -> str:
    """``ε ≤ 0.999655 at δ = 1 × 10⁻⁵``; with `other_end`, the opposite end of the enclosing interval."""
    symbol = SYMBOLS.get(bound.quantity, bound.quantity.replace("_", " "))
    least, value = bound.direction is Direction.LOWER, bound.value
    if other_end and bound.interval is not None:
        least, value = not least, bound.interval.upper if least else bound.interval.lower
    at = f" at δ = {format_number(bound.delta)}" if bound.delta is not None else ""
    at += f" at {bound.argument} = {format_number(bound.at)}" if bound.at is not None else ""
    return f"{symbol} {'≥' if least else '≤'} {format_number(value, 'down' if least else 'up')}{at}"
