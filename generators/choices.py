"""What can be had of a claim's generator: parameters at which a run meets the claimed guarantee.

A generator's `choices.py` has a function `choices`, which returns its `ParameterChoices`: which settings of its
parameters are tried, and which parameter is then found so that a certified bound just meets the guarantee. The bounds
are those of a verdict on the planned run, and no choice reads a record, unless where secrets occur decides the plan.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from dp_accounting import DpEvent

from dpassay.accounting.accountants.alternatives import DistributionAccountant
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.calibration.calibration import calibrate
from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.accounting.calibration.search import CAP, LossCurve, Unreachable
from dpassay.accounting.calibration.targets import question_of
from dpassay.accounting.guarantees import ExPostDP, Guarantee, PureDP
from dpassay.accounting.registry import ACCOUNTANTS, upper_bounds
from dpassay.audits.verdict import decide
from dpassay.base import defaults
from dpassay.base.errors import InputError
from dpassay.claims.base import Claim
from dpassay.claims.read import validated

if TYPE_CHECKING:
    from dpassay.generators.base import RunSettings

ClaimT = TypeVar("ClaimT", bound=Claim)

CERTIFYING = tuple(name for name, kind in ACCOUNTANTS.items() if not issubclass(kind, DistributionAccountant))
"""The accountants whose bounds may support a claim; the others take long, and only estimate."""


@dataclass(frozen=True)
class Choice:
    """One choice: parameters of a claim at which it is certified.

    Attributes:
        claim: with these parameters.
        parameters: of the setting, by name, then the one that was found.
        follows: other parameters, which changed with those of the setting.
        bound: the best certified bound on what a run of the claim charges.
        beyond: the nearest value of the parameter that was found which is not certified; None if none was tried.
        facts: public numbers that follow, by name.
    """

    claim: Claim
    parameters: Mapping[str, Any]
    follows: Mapping[str, Any]
    bound: Bound
    beyond: float | None
    facts: Mapping[str, float]


@dataclass(frozen=True)
class Unmet:
    """A setting of parameters at which no value of the parameter that is found meets the guarantee.

    Attributes:
        parameters: of the setting, with the most private value that was tried.
        bound: the best certified bound there; None if there is none.
    """

    parameters: Mapping[str, Any]
    bound: Bound | None


class ParameterChoices(ABC, Generic[ClaimT]):
    """What a generator's claims leave to choose.

    Args:
        claim: with the guarantee to meet.
    """

    def __init__(self, claim: ClaimT) -> None:
        self.claim = claim

    @abstractmethod
    def search(self, claim: ClaimT) -> ParameterSearch | None:
        """How the parameter that meets the guarantee is found for a setting; None if the generator finds it itself."""

    @abstractmethod
    def settings(self) -> Iterable[Mapping[str, Any]]:
        """The settings that are tried, by default; those that are no valid claim are left out."""

    def follows(self, claim: ClaimT) -> Mapping[str, Any]:
        """Parameters that change with those of a setting, of which the claim is."""
        return {}

    def facts(self, claim: ClaimT) -> dict[str, float]:
        """Public numbers that follow from a claim's parameters, by name."""
        return {}

    def notes(self) -> list[str]:
        """What to know before one is chosen, a sentence each."""
        return []

    def hint(self) -> str:
        """What to do if no choice meets the guarantee, the end of a sentence."""
        return "; raise the target"

    def timer(self, settings: RunSettings) -> Callable[[ClaimT], float] | None:
        """Measures a short run on made-up data on this machine.

        Args:
            settings: of a run: model and device.

        Returns:
            The estimated seconds of the run of a claim; None if they are not known, such as those of an endpoint.

        Raises:
            InputError: if there is no such model on this machine.
        """
        return None

    def parts(self, claim: ClaimT) -> list[tuple[Guarantee, DpEvent]]:
        """The guarantees that a run must meet, the claimed one first, each with the event that it is about."""
        return [(claim.claimed(), claim.plan().event)]

    def choose(self, settings: Iterable[Mapping[str, Any]] | None = None) -> Iterator[Choice | Unmet]:
        """Each setting with the value that meets the guarantee.

        Args:
            settings: values of parameters by name; None for those of the generator, of which the valid ones are used.

        Raises:
            InputError: one line, if a given setting is no valid claim.
        """
        for setting in self.settings() if settings is None else settings:
            try:
                follows = self.follows(self.changed(setting))
                claim = self.changed({**setting, **follows})
            except InputError:
                if settings is not None:
                    raise
                continue
            yield self._chosen(claim, setting, follows)

    def changed(self, changes: Mapping[str, Any]) -> ClaimT:
        """The claim with other values of parameters, validated.

        Raises:
            InputError: one line that names the parameter.
        """
        body = self.claim.model_dump(exclude_unset=True)
        body["parameters"] = {**body["parameters"], **changes}
        claim: Any = validated(body, "", {self.claim.mechanism: type(self.claim)})
        result: ClaimT = claim
        return result

    def _chosen(self, claim: ClaimT, setting: Mapping[str, Any], follows: Mapping[str, Any]) -> Choice | Unmet:
        """The least private value of the parameter that is found, which meets the guarantee with the setting."""
        search = self.search(claim)
        if search is None:
            decided = self._decided(claim)
            if decided.bound is None or not decided.met:
                return Unmet(setting, decided.bound)
            return Choice(claim, setting, follows, decided.bound, None, self.facts(claim))
        parameter, kind = search.parameter, int if search.integer else float

        @functools.cache
        def decided_at(value: float) -> _Decided:
            return self._decided(claim.with_parameters(**{parameter: kind(value)}))

        value, beyond = self._least_private(claim, search, decided_at)
        decided, chosen = decided_at(value), {**setting, parameter: kind(value)}
        if decided.bound is None or not decided.met:
            return Unmet(chosen, decided.bound)
        found = claim.with_parameters(**{parameter: kind(value)})
        return Choice(found, chosen, follows, decided.bound, beyond, self.facts(found))

    def _decided(self, claim: ClaimT) -> _Decided:
        """What a verdict on the planned run of a claim would say of its proof."""
        unit, results = Unit.parse(claim.unit), []
        for guarantee, event in self.parts(claim):
            bounds = upper_bounds(event, guarantee, adjacency=claim.adjacency, unit=unit, methods=CERTIFYING)
            verdict = decide(guarantee, adjacency=claim.adjacency, unit=unit, bounds=bounds)
            question, bound = question_of(_target(guarantee), claim.adjacency, None), verdict.best_upper
            excess = CAP if bound is None else question.loss(bound.at, bound.value) - question.level
            results.append(_Decided(verdict.name == "SUPPORTED", bound, excess))
        excess = min(max(part.excess for part in results), CAP)
        return _Decided(all(part.met for part in results), results[0].bound, max(excess, -CAP))

    def _least_private(
        self, claim: ClaimT, search: ParameterSearch, decided_at: Callable[[float], _Decided]
    ) -> tuple[float, float | None]:
        """The least private value that meets the guarantee, and the nearest that does not; None if all do.

        If none does, the first is the most private value.
        """

        def measure(value: float, _: float) -> tuple[float, float, _Decided]:
            decided = decided_at(value)
            return decided.excess, decided.excess, decided

        curve = LossCurve(
            measure,
            search.bracket,
            rising=not search.decreasing,
            integer=search.integer,
            tolerance=defaults.TOLERANCE,
        )
        try:
            result = curve.crossing(0.0, lambda decided: decided.met, self._start(claim, search))
        except Unreachable as error:
            return error.sample.value, None
        beyond = None if result.beyond is None else result.beyond.value
        rounded = search.rounded(result.last.value, defaults.TOLERANCE)
        return next((value for value in rounded if decided_at(value).met), result.last.value), beyond

    def _start(self, claim: ClaimT, search: ParameterSearch) -> float:
        """Where the search begins: near the answer by zCDP, which takes microseconds, if that has one."""
        kind = int if search.integer else float
        try:
            return calibrate(
                lambda value: self.parts(claim.with_parameters(**{search.parameter: kind(value)}))[0][1],
                _target(claim.claimed()),
                adjacency=claim.adjacency,
                unit=Unit.parse(claim.unit),
                decreasing=search.decreasing,
                bracket=search.bracket,
                integer=search.integer,
                method=ZeroConcentrated.name,
                start=search.start,
            ).value
        except ValueError:
            return search.start


class _Decided(NamedTuple):
    """Whether a proof supports a claim, the best certified bound on its guarantee, and the log of bound over claim, the
    largest over all parts."""

    met: bool
    bound: Bound | None
    excess: float


def _target(guarantee: Guarantee) -> Guarantee:
    """The guarantee that can be proven before a run."""
    return PureDP(guarantee.epsilon) if isinstance(guarantee, ExPostDP) else guarantee


def grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """All combinations of values of parameters, each as a setting; the last parameter changes first."""
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def around(value: int, factors: Sequence[float], most: int) -> list[int]:
    """Whole numbers from 1 to `most` around a value, which is one of them."""
    return sorted({min(max(1, round(factor * value)), most) for factor in (1.0, *factors)})
