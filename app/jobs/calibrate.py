"""Calibration: the noise, sampling probability, number of steps or clip that meets a privacy target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dp_accounting import DpEvent

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction
from dpassay.accounting.calibration.calibration import Calibration, calibrate
from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.accounting.calibration.targets import Target, TradeOff, accountant_factory, decided, question_of
from dpassay.accounting.comparison.comparison import unit_of
from dpassay.accounting.guarantees import GDP, ApproxDP, SecretProtection
from dpassay.accounting.lattice.pairs import WIDTH
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.registry import ACCOUNTANTS
from dpassay.accounting.secret_protection.accountant import SecretProtectionAccountant
from dpassay.base import defaults, validate
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number, format_upper
from dpassay.claims.lints import large_delta
from dpassay.jobs.mechanisms import Mechanism
from dpassay.reports.text import SYMBOLS, neighbours

_NEEDS = {"epsilon": "delta", "mu": "delta", "beta": "alpha", "advantage": "", "tpr": "fpr", "r": "p"}
"""The targets, and what each is at."""


@dataclass(frozen=True)
class Goal:
    """A privacy target, and how it is evaluated.

    Attributes:
        epsilon, mu, beta, r, advantage, tpr: the target; exactly one is given.
        delta: the δ of an ε; for a μ, values of δ(ε) below this need not be under the Gaussian curve, None for none.
        alpha: the type I error at which the type II error must be at least `beta`.
        fpr: the false positive rate at which the true positive rate of any test must be at most `tpr`.
        p: the prior probability of guessing a secret; the posterior one must be at most `r`.
        adjacency: the neighbouring relation.
        unit: what is protected; None for one record, or one secret.
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
    advantage: float | None = None
    tpr: float | None = None
    fpr: float | None = None
    unit: Unit | None = None
    method: str | None = None
    tolerance: float = defaults.TOLERANCE

    @property
    def protected(self) -> Unit:
        """The unit, by default that of the adjacency."""
        return self.unit or unit_of(self.adjacency)

    def target(self) -> Target:
        """The target; a `ValueError` unless exactly one is given, with the parameter it needs and no other."""
        given = {name: value for name in _NEEDS if (value := getattr(self, name)) is not None}
        if len(given) != 1:
            *first, last = [f"--target-{name}" for name in _NEEDS]
            raise ValueError(f"give one of {', '.join(first)} and {last}")
        ((kind, value),) = given.items()
        validate.non_negative(**{f"target_{kind}": value})
        needs = _NEEDS[kind]
        for name in ("delta", "alpha", "p", "fpr"):
            if (getattr(self, name) is None) == (name == needs) and (kind, name, self.delta) != ("mu", "delta", None):
                goes = f"with --{needs}, and with no other" if needs else "with none"
                raise ValueError(f"--target-{kind} goes {goes} of --delta, --alpha, --p and --fpr")
        match kind:
            case "epsilon":
                return ApproxDP(value, self.delta or 0.0)
            case "mu":
                return GDP(value)
            case "beta":
                return TradeOff(self.alpha or 0.0, value)
            case "advantage":  # δ(0) is the largest advantage
                return ApproxDP(0.0, validate.open_probability(target_advantage=value))
            case "tpr":
                return TradeOff(self.fpr or 0.0, 1 - validate.open_probability(target_tpr=value))
            case _:
                return SecretProtection(self.p or 0.0, value)

    def search(self, make_event: Callable[[float], DpEvent], search: ParameterSearch) -> Calibration:
        """The value that meets the target; an `InputError` if none in the bracket does, or nothing is bounded."""
        hint = "--target-mu without --delta: " if self.mu is not None and self.delta is None else ""
        with input_errors(hint):
            if self.method is not None:
                validate.one_of(tuple(ACCOUNTANTS), method=self.method)
            result = calibrate(
                make_event,
                self.target(),
                adjacency=Adjacency(validate.one_of(tuple(map(str, Adjacency)), adjacency=self.adjacency)),
                decreasing=search.decreasing,
                bracket=search.bracket,
                parameter=search.parameter,
                integer=search.integer,
                tolerance=self.tolerance,
                method=self.method,
                unit=self.protected,
                delta=self.delta if self.mu is not None else None,
                start=search.start,
            )
            return result if search.integer else self._as_printed(result, make_event, search)

    def _as_printed(
        self, result: Calibration, make_event: Callable[[float], DpEvent], search: ParameterSearch
    ) -> Calibration:
        """The answer at a value of few digits, as it is printed and given to other commands, with the bound there.

        It is rounded to the more private side, and further if the target is not met there.
        """
        question = question_of(self.target(), self.adjacency, self.delta if self.mu is not None else None)
        empty = accountant_factory(self.method or question.method, self.adjacency, self.protected)(WIDTH)
        for tried, value in enumerate(search.rounded(result.value, self.tolerance), 1):
            answer = decided(empty.compose(make_event(value)), question)
            if question.meets(answer):
                bound = max(answer, key=lambda bound: question.loss(bound.at, bound.value))
                gap = 0.0 if result.beyond is None else abs(result.beyond / value - 1)
                return replace(
                    result,
                    value=value,
                    bound=bound,
                    tolerance=max(result.tolerance, gap),
                    evaluations=result.evaluations + tried,
                )
        return result


def calibrate_mechanism(
    mechanism: type[Mechanism], goal: Goal, find: str, given: Mapping[str, float | int | str | None]
) -> Calibration:
    """The value of one parameter of a mechanism that meets a target; the noise of a secret is 0 if that suffices.

    Args:
        mechanism: a class of `CALIBRATED`.
        goal: the target; an `InputError` if no value meets it.
        find: a word of `mechanism.finds`.
        given: the other parameters; an `InputError` if one is missing, superfluous or out of range.
    """
    with input_errors():
        target = goal.target()
    others, search, event = varied(mechanism, goal, find, given)
    if isinstance(target, SecretProtection) and search.parameter == "sigma":
        silent = SecretProtectionAccountant(Adjacency.SECRET, Unit("secret")).compose(event(0.0)).protection(target.p)
        if silent.value <= target.r:
            return Calibration("sigma", 0.0, target, silent, None, None, goal.tolerance, 1)
    result = goal.search(event, search)
    if others.attained():
        return result
    upper, beyond = Basis(exact=False), result.beyond_bound
    return replace(
        result, bound=upper.under(result.bound), beyond_bound=None if beyond is None else upper.under(beyond)
    )


def varied(
    mechanism: type[Mechanism], goal: Goal, find: str, given: Mapping[str, float | int | str | None]
) -> tuple[Mechanism, ParameterSearch, Callable[[float], DpEvent]]:
    """A mechanism with any value of one parameter, how that is searched, and the event of each value.

    Args and errors are those of `calibrate_mechanism`.
    """
    with input_errors():
        _check_given(mechanism, given, find)
        others = mechanism(**{**given, mechanism.finds[find]: 1})  # any value: it is replaced
        others.event(goal.adjacency)
        search = others.search(find)

    def event(value: float) -> DpEvent:
        return replace(others, **{search.parameter: int(value) if search.integer else value}).event(goal.adjacency)

    return others, search, event


def _check_given(mechanism: type[Mechanism], given: Mapping[str, object], find: str) -> None:
    """Raises `ValueError` unless all parameters but the one to find are given, or follow from those that are."""
    validate.one_of(tuple(mechanism.finds), find=find)
    for word, parameter in mechanism.finds.items():
        others = mechanism.stands_in.get(parameter, ())
        follows = bool(others) and all(given[other] is not None for other in others)
        if word == find and (given[parameter] is not None or follows):
            known = "it" if given[parameter] is not None else _options(others[:1])
            raise ValueError(f"--find {find} finds {_options([parameter])}, so leave {known} out")
        if word != find and given[parameter] is None and not follows:
            instead = f" or {_options(others)}" if others else ""
            raise ValueError(f"--find {find} needs {_options([parameter])}{instead}")


def _options(names: Sequence[str]) -> str:
    """Options by the names of parameters, in words."""
    *first, last = [f"--{name.replace('_', '-')}" for name in names]
    return f"{', '.join(first)} and {last}" if first else last


def in_words(result: Calibration) -> list[str]:
    """The answer in sentences, with all digits of the value, which is rounded already."""
    name = result.parameter.replace("_", " ")
    value = str(int(result.value)) if _is_integer(result) else format_number(result.value, digits=17)
    lines = [f"{name} {value}: {_bound_in_words(result.bound)}, {result.bound.rigor}, by {result.bound.by}, "]
    lines[0] += f"for {neighbours(str(result.bound.adjacency), result.bound.unit)}"
    if result.beyond is None or result.beyond_bound is None:
        lines.append("Less privacy was not tried: this is the end of the range that is searched.")
        return lines
    lines += large_delta(result.bound.delta or 0.0)
    match result.target:
        case ApproxDP(epsilon=0.0):
            lines.append(f"The advantage of any test is at most {format_upper(result.bound.value)}.")
        case TradeOff(alpha=alpha):
            power = format_upper(1 - result.bound.value)
            at = f"at a false positive rate of {format_number(alpha)}"
            lines.append(f"The true positive rate of any test {at} is at most {power}.")
    beyond = str(int(result.beyond)) if _is_integer(result) else format_number(result.beyond)
    if result.refuted and result.beyond_bound.interval is not None:
        lines.append(
            f"At {name} {beyond} it does not: {_bound_in_words(result.beyond_bound, other_end=True)}, certified."
        )
    else:
        lines.append(f"At {name} {beyond} nothing is proven: {_bound_in_words(result.beyond_bound)} is the best bound.")
    return lines


def _is_integer(result: Calibration) -> bool:
    return result.parameter in ("steps", "count", "rounds")


def _bound_in_words(bound: Bound, *, other_end: bool = False) -> str:
    """``ε ≤ 0.999655 at δ = 1 × 10⁻⁵``; with `other_end`, the opposite end of the enclosing interval."""
    symbol = SYMBOLS.get(bound.quantity, bound.quantity.replace("_", " "))
    least, value = bound.direction is Direction.LOWER, bound.value
    if other_end and bound.interval is not None:
        least, value = not least, bound.interval.upper if least else bound.interval.lower
    at = f" at δ = {format_number(bound.delta)}" if bound.delta is not None else ""
    at += f" at {bound.argument} = {format_number(bound.at)}" if bound.at is not None else ""
    return f"{symbol} {'≥' if least else '≤'} {format_number(value, 'down' if least else 'up')}{at}"
