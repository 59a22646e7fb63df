"""The design of an audit by canaries: what is fixed before the run, how the error rate is divided, what can be shown.

The error probability of all audits of a run is divided among them (`each_confidence`), and that of the audit by
canaries among the files that may be scored (`CanariesDesign.each`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Literal

from dpassay.accounting.adjacency import RECORD_UNITS, Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.group_privacy import for_group
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.auditing.canaries.kinds import CanaryKind
from dpassay.auditing.files import planned_claim
from dpassay.audits.detection import Detectable, detectable
from dpassay.audits.statistics.ceilings import OneRun
from dpassay.audits.statistics.one_run import canaries_needed, epsilon_one_run, epsilons_one_run
from dpassay.audits.statistics.one_run_gaussian import GaussianModel
from dpassay.audits.statistics.power import (
    AsPrinted,
    Leak,
    RandomizedResponse,
    StandOut,
    chance_to_show,
    quantile_shown,
)
from dpassay.audits.verdict import check_confidence, decide
from dpassay.base import validate
from dpassay.base.number_format import format_confidence, format_number, format_percent, format_upper

Claim = PureDP | ApproxDP

MAX_ROWS = 10**6
"""The most canaries, with all their copies."""

_CANARIES = 1000  # the default, which is doubled until the claim can be refuted
_WEAKER = (1, 2, 4)
"""By how many times the expected generators exceed the claimed ε, the claim itself first."""
_SHARES = (0.01, 0.1, 1.0)
"""The shares of their records, or of the canaries if these are no single records, that other generators copy."""
_MIN_EPSILON = 1e-6  # stands in for ε = 0, which takes equally many guesses
_RUN = "the run read the planted canaries and nothing else of the plan, and was decided on before any result was seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanariesDesign:
    """The parameters of the audit that are fixed before the run.

    Attributes:
        candidates: m, the number of candidates.
        guesses: r, how many of the highest scores are guessed "in"; None guesses every candidate that scores above 0.
        scorings: K, how many synthetic files and models may be scored.
        confidence: 1 − β, jointly for all scorings; with a claim, one at which claims are refuted (`check_confidence`).
        unit: what a candidate is.
        claim: the claim under adding or removing a unit; None for no claim.
        delta: δ at which ε is bounded; that of the claim, if there is one.
    """

    candidates: int
    guesses: int | None
    scorings: int
    confidence: float
    unit: Unit
    claim: Claim | None = None
    delta: float = 0.0

    def __post_init__(self) -> None:
        validate.integer(minimum=2, candidates=self.candidates)
        if self.guesses is not None:
            validate.integer(minimum=1, guesses=self.guesses)
            if self.guesses > self.candidates // 2:
                raise ValueError(
                    f"guesses must be at most half of the {self.candidates} candidates, since only about half of them "
                    f"are in the data; not {self.guesses}"
                )
        validate.integer(minimum=1, scorings=self.scorings)
        validate.open_probability(confidence=self.confidence)
        validate.probability_below_one(delta=self.delta)
        check_confidence(self.confidence, self.claim)
        if self.claim is not None and self.delta != (self.claim.delta if isinstance(self.claim, ApproxDP) else 0.0):
            raise ValueError(f"ε is bounded at the δ of the claim, not at {self.delta}")
        if self.unit.is_secret:
            raise ValueError(f"including or omitting canaries cannot test unit secret; use {RECORD_UNITS}")

    @property
    def rule(self) -> Literal["tight", "adaptive"]:
        """The rule of `epsilon_one_run` that accounts for δ."""
        return "adaptive" if self.guesses is None else "tight"

    @property
    def statistic(self) -> str:
        """The name of the statistic that bounds ε, as the plan and reports print it."""
        return f"one_run_{self.rule}"

    @property
    def claimed(self) -> float | None:
        """The claimed ε, or None."""
        return None if self.claim is None else float(self.claim.epsilon)

    @property
    def test(self) -> OneRun | AsPrinted:
        """The statistic and its size, whose power is computed."""
        return AsPrinted(self.candidates) if self.guesses is None else OneRun(self.candidates, self.guesses, self.rule)

    @property
    def each(self) -> float:
        """The confidence of the bound from one file: β is divided equally among the K that may be scored."""
        return 1 - (1 - self.confidence) / self.scorings

    def ceiling(self, guesses: int) -> float:
        """The largest ε that one file can show with this many guesses, if all of them are correct."""
        return self.epsilon(guesses, guesses)

    def needed(self, epsilon: float) -> int | None:
        """The fewest guesses that show ε, if all are correct; None if half of the candidates are not enough."""
        try:
            result = canaries_needed(
                max(epsilon, _MIN_EPSILON), confidence=self.each, delta=self.delta, m=self.candidates, rule=self.rule
            )
        except ValueError:
            return None
        return result if result <= self.candidates // 2 else None

    def bound(self, guesses: int, correct: int) -> Bound:
        """The lower bound from one file."""
        result = epsilon_one_run(
            self.candidates,
            guesses,
            correct,
            delta=self.delta,
            confidence=self.each,
            rule=self.rule,
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
        )
        return dataclasses.replace(result, assumptions=(*result.assumptions, _RUN), private=True)

    def epsilon(self, guesses: int, correct: int) -> float:
        """The value of `bound`."""
        result = epsilons_one_run(
            self.candidates, guesses, correct, delta=self.delta, confidence=self.each, rule=self.rule
        )
        return float(result)

    def gaussian(self, correct: int) -> GaussianModel | None:
        """What so many right guesses of one file show if the noise of each candidate is an independent Gaussian; None
        if the number of guesses is not fixed, since it must be."""
        if self.guesses is None:
            return None
        return GaussianModel.of(
            self.candidates,
            self.guesses,
            correct,
            delta=self.delta,
            each=self.each,
            confidence=self.confidence,
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
        )

    def refuted_by(self, bounds: Sequence[Bound]) -> bool | None:
        """Whether bounds refute the claim, by the rules of `dpassay.audits.verdict`; None without a claim or bounds."""
        if self.claim is None or not bounds:
            return None
        return decide(self.claim, adjacency=Adjacency.ADD_REMOVE, unit=self.unit, bounds=bounds).name == "REFUTED"

    def claim_in_words(self) -> list[str]:
        """Sentences that say what the claim is about, and for a group what a claim about one record implies."""
        claim, unit = self.claim, self.unit
        if claim is None:
            return []
        given = f"ε = {format_number(claim.epsilon)}"
        if isinstance(claim, ApproxDP):
            given += f" at δ = {format_number(claim.delta)}"
        if not unit.is_group:
            whose = f"one {unit.noun} with all records" if unit.needs_user else f"one {unit.noun}"
            return [f"The claim that is tested: {given} for adding or removing {whose}."]
        group = f"a group of {unit.size} records"
        tested = f"The claim that is tested: {given} for adding or removing {group} together."
        try:
            implied = for_group(claim, unit.size)
        except ValueError:
            return [tested, f"A claim of {given} per record says nothing about such a group: its δ grows to 1."]
        assert isinstance(implied, PureDP | ApproxDP)
        written, options = f"ε = {format_upper(implied.epsilon)}", f"--epsilon {format_upper(implied.epsilon)}"
        if isinstance(implied, ApproxDP):
            written += f" at δ = {format_upper(implied.delta)}"
            options += f" --delta {format_upper(implied.delta)}"
        return [tested, f"A claim of {given} per record is {written} for such a group; to test it, give {options}."]

    def detectable(self, by_chance: float = 0.0) -> Detectable:
        """The leak that one file shows with 50 % power.

        Args:
            by_chance: the share of the holdout that is guessed "in" all the same.
        """
        return detectable(self.test, self.claimed, confidence=self.each, delta=self.delta, by_chance=by_chance)

    def expected(self) -> tuple[Expected, ...]:
        """What one file shows of a mechanism exactly at the claim, and of weaker generators; computed, not simulated.

        Without a claim, mechanisms with ε = 1, 2 and 4 stand in the place of the claim and its multiples.
        """
        results = []
        for times in _WEAKER:
            epsilon = times * (1.0 if self.claimed is None else self.claimed)
            exactly = f"exactly ε = {format_number(epsilon)}"
            if self.claim is not None:
                exactly = "exactly the claimed ε" if times == 1 else f"{times} times the claimed ε"
            results.append(self._expected(f"has {exactly}", RandomizedResponse(epsilon)))
            if epsilon == 0:
                break
        for share in _SHARES:
            # A group, or a user, is copied in part with a larger probability than each of its records.
            whose = "its records" if self.unit == Unit() else "the canaries"
            copies = "every record" if share == 1 else f"{format_percent(share)} of {whose}"
            results.append(self._expected(f"copies {copies} verbatim", StandOut(share)))
        return tuple(results)

    def _expected(self, generator: str, leak: Leak) -> Expected:
        chance = chance_to_show(self.test, leak, self.claimed or 0.0, confidence=self.each, delta=self.delta)

        def quantile(at: float) -> float:
            return quantile_shown(self.test, leak, at, confidence=self.each, delta=self.delta)

        slow = isinstance(self.test, AsPrinted) and isinstance(leak, RandomizedResponse)
        low, high = (None, None) if slow else (quantile(0.05), quantile(0.95))
        return Expected(generator=generator, chance=chance, median=quantile(0.5), low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What one file of a planned audit shows of a generator.

    Attributes:
        generator: what it does, in words.
        chance: the probability that the bound is above the claim, or above 0 if there is none.
        median: of the bound.
        low, high: its quantiles at 5% and 95%; None where they are not computed.
    """

    generator: str
    chance: float
    median: float
    low: float | None
    high: float | None


def planned_design(
    kind: CanaryKind,
    unit: Unit,
    copies: int,
    *,
    canaries: int | None,
    guesses: int | None,
    scorings: int,
    epsilon: float | None,
    delta: float | None,
    confidence: float,
    holdout: bool,
) -> CanariesDesign:
    """The design, with defaults for numbers that were not given.

    Raises:
        ValueError: one line, if a number is invalid, or no number of canaries could refute the claim.
    """
    validate.integer(minimum=1, scorings=scorings)
    claim = planned_claim(epsilon, delta, confidence)  # the confidence is that of all audits together
    if holdout:
        audits = audits_of(kind.of_text, unit.needs_user)
        each_confidence(confidence, audits * scorings)  # of other audits, which must be below 1
        confidence = each_confidence(confidence, audits)

    def design(canaries: int, guesses: int | None) -> CanariesDesign:
        return CanariesDesign(
            candidates=canaries,
            guesses=guesses if kind.fixed_guesses else None,
            scorings=scorings,
            confidence=confidence,
            unit=unit,
            claim=claim,
            delta=delta or 0.0,
        )

    most = MAX_ROWS // copies
    if most < 2:
        what = "k" if unit.is_group else "copies"
        raise ValueError(
            f"at unit {unit} {what} must be at most {MAX_ROWS // 2}, not {copies}: at least two canaries are drawn, "
            f"and no more than {MAX_ROWS} records can be written"
        )
    if canaries is not None:
        validate.integer(minimum=2, maximum=MAX_ROWS, canaries=canaries)
        if canaries > most:
            raise ValueError(
                f"{canaries} canaries of {copies} records are more than the {MAX_ROWS} records that can be "
                "written; lower one of the two"
            )
    enough = _enough(lambda number: design(number, number // 2), most)
    if canaries is None:
        canaries = enough
    result = design(canaries, canaries // 2 if guesses is None else guesses)
    if kind.fixed_guesses and guesses is None:
        result = dataclasses.replace(result, guesses=_default_guesses(result))
    return result


def _enough(design: Callable[[int], CanariesDesign], most: int) -> int:
    """A number of canaries that is enough to refute the claim if half of the possible guesses are made and right.

    Args:
        design: the design of a number of canaries.
        most: the largest number.

    Raises:
        ValueError: if no number could refute the claim.
    """
    claim = design(2).claim
    sizes: list[int] = [_CANARIES << power for power in range(20)]
    sizes = [min(size, most) for size in sizes if size < 2 * most] or [most]
    if claim is None:
        return sizes[0]
    needed = {size: design(size).needed(claim.epsilon) for size in sizes}
    can = [size for size, guesses in needed.items() if guesses is not None]
    if not can:
        least = design(2)
        records = f" of {least.unit.size} records each" if least.unit.size > 1 else ""
        at = f" at δ = {format_number(least.delta)}" if least.delta else ""
        raise ValueError(
            f"no number of canaries can refute ε = {format_number(claim.epsilon)}{at} with confidence "
            f"{format_confidence(least.confidence)}: not even {most} of them{records}, with every guess right; test a "
            "smaller unit, a smaller δ or a lower confidence"
        )
    return next((size for size in can if 4 * (needed[size] or 0) <= size), can[-1])


def _default_guesses(design: CanariesDesign) -> int:
    """A tenth of the candidates, or twice the number that refutes the claim if all are correct; at most half."""
    needed = design.needed(design.claim.epsilon) if design.claim else None
    return max(1, min(design.candidates // 2, max(design.candidates // 10, 2 * (needed or 0))))


def audits_of(text: bool, user: bool) -> int:
    """The number of audits that a layout serves, among which the confidence is divided; for tables, of records only."""
    return 3 if text and not user else 2


def each_confidence(total: float, parts: int) -> float:
    """The confidence of each of some results that hold jointly with confidence `total` (union bound).

    It is rounded up to six digits, or to as many as keep it below 1, so that the errors add up to no more than that of
    `total` as it is written.

    Raises:
        ValueError: if no float below 1 is large enough.
    """
    exact = 1 - (1 - Decimal(repr(float(total)))) / parts
    for digits in range(6, 17):
        rounded = float(exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING))
        if rounded < 1:
            return rounded
    raise ValueError(f"confidence {total!r} is too near 1 to be divided among {parts} results; give a lower one")
