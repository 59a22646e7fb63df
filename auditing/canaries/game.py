"""Audits of third-party generators: fair coins decide which canaries are planted, and only synthetic data are read.

Everything is drawn before the run and committed to by a hash: the candidates, the control candidates in no list, the
coins S, the number r of guesses, the confidence 1 − β, and the number K of synthetic files that will be scored.

*One file.* A score is a function of the synthetic data T and of the candidates. It does not depend on the coins; ties
go to the candidate that was drawn first. The r highest scores are guessed "in". So the guesses are a function of T and
their number is fixed before the run, as the `tight` rule of `audits.one_run` requires. Keys are guessed "in" if they
are printed; then r depends on T, which the `adaptive` rule allows. No candidate is guessed "out": a generator
reproduces little of its data, so the absence of a trace is no evidence.

*K files.* Each file is bounded at confidence 1 − β/K, whether or not all K files are used. If every run satisfies the
claim, each bound exceeds it with probability at most β/K, so any of them does with probability at most β, whichever is
reported (Bonferroni). K has to be fixed in advance: if K were counted afterwards, at β, β/2, β/3, …, an auditor who
continues until one bound refutes would err more often than β. All runs must also be decided on before any result is
seen. A run that is chosen because of an earlier result can repeat the output of that earlier run; the audit would then
refute its claim although the run never read the data. Scoring the *same* file again before any result is seen costs
nothing: the choice of score then depends on T alone, so the guesses remain a function of T.

*Controls.* Negative: given the output of a run that did not see them, holdout and control candidates are exchangeable.
So the number of holdout candidates among the k highest scores of both is exactly hypergeometric. Positive: a run of the
same generator with its protection off, which read the same canaries, is scored by the same attack. What the audit shows
of it says whether it sees leaks of this generator; it bounds nothing of the protected runs and is none of the K files.

*Check of the search.* On the same data plus one copy of every planted canary, the attack must guess nine in ten
correctly: a search that misses verbatim copies says nothing by finding nothing; what it finds counts. The check says
nothing of leaks that look otherwise. Keys need none, because a printed key is always found, and models have none,
because it would take another training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpassay.accounting.bounds import Bound
from dpassay.auditing.canaries.design import CanariesDesign
from dpassay.audits.detection import Detectable, epsilon_shown
from dpassay.audits.result import AuditResult, Rate, no_conclusion
from dpassay.audits.statistics.binomial import difference_interval
from dpassay.audits.statistics.one_run import hypergeometric_tail
from dpassay.base.arrays import Bools, Floats
from dpassay.base.number_format import (
    format_ceiling,
    format_confidence,
    format_lower,
    format_number,
    format_percent,
)

NEGATIVE_CONTROL_ERROR = 0.001
"""The probability, at most, with which a negative control fails by chance, for each file."""
MIN_COPIES_FOUND = 0.9
"""The fraction of guesses that can be right which the check of the search must get right."""

_TOP = 10  # the negative control uses the highest tenth of the scores
_TRUSTED = (
    "That this output came from the same generator with its protection off is taken on the word of whoever scored it."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scoring:
    """The scores of one synthetic file; larger means stronger evidence that a canary was planted.

    Attributes:
        name: of the file, as shown in reports.
        candidates: shape (m,), scores of the candidates.
        never: shape (n,), scores of the control candidates, which are in no list.
        copied: shape (m,), scores of the candidates if one copy of each planted canary is added to the file; None for a
            model, to which nothing can be added.
    """

    name: str
    candidates: Floats
    never: Floats
    copied: Floats | None

    def __post_init__(self) -> None:
        copied = self.candidates if self.copied is None else self.copied
        if self.candidates.shape != copied.shape or self.candidates.ndim != 1 or self.never.ndim != 1:
            raise ValueError("each candidate of a file needs exactly one score, in one-dimensional arrays")
        if any(np.isnan(scores).any() for scores in (self.candidates, self.never, copied)):
            raise ValueError("scores must be numbers, not NaN")


def guessed_in(scores: Floats, guesses: int | None) -> Bools:
    """Which candidates, in the order in which they were drawn, are guessed to be in the data, shape (m,): so many of
    the highest scores, ties to the first; None guesses every score above 0."""
    if guesses is None:
        return np.asarray(scores > 0, dtype=np.bool_)
    result = np.zeros(len(scores), dtype=np.bool_)
    result[np.argsort(-scores, kind="stable")[:guesses]] = True
    return result


def third_party_audit(
    design: CanariesDesign,
    included: Bools,
    scorings: Sequence[Scoring],
    *,
    attack: str,
    kind: str,
    unprotected: Scoring | None = None,
) -> AuditResult:
    """Bounds the ε of a third-party generator from the scores of planted canaries.

    Args:
        design: what was fixed before the run.
        included: shape (m,), the coins: whether each candidate was planted.
        scorings: one for each file that was scored, at most `design.scorings`.
        attack: how canaries were scored, in words.
        kind: of the canaries, in a word.
        unprotected: of a run with the protection off that read the same planted canaries: the positive control. It
            counts as no file; None if there was no such run.

    Returns:
        The audit, with one bound for each file; without bounds if a control failed. What it concludes of the claim is
        what `CanariesDesign.refuted_by` says of these bounds.

    Raises:
        ValueError: if there is no file, more files than planned, or scores of other candidates.
    """
    if not 1 <= len(scorings) <= design.scorings:
        raise ValueError(f"the plan has {design.scorings} synthetic files; {len(scorings)} were scored")
    every = [*scorings, *([] if unprotected is None else [unprotected])]
    if included.shape != (design.candidates,) or any(s.candidates.shape != included.shape for s in every):
        raise ValueError(f"each of the {design.candidates} candidates needs one coin and one score")
    results = [guessed_in(scoring.candidates, design.guesses) for scoring in scorings]
    bounds = [design.bound(int(guess.sum()), int((guess & included).sum())) for guess in results]
    failures = [
        failure
        for scoring, bound in zip(scorings, bounds, strict=True)
        for failure in _failures(design, included, scoring, bound)
    ]
    shown = () if failures else tuple(bounds)
    best = max(range(len(bounds)), key=lambda index: bounds[index].value)
    control = None if unprotected is None else _unprotected(design, included, unprotected)
    holdout = int((~included).sum())  # of whose keys as many are printed by chance as in this file
    by_chance = int((results[best] & ~included).sum()) / holdout if design.guesses is None and holdout else 0.0
    limit = design.detectable(by_chance)
    refuted = design.refuted_by(shown)
    gaussian = None if failures else design.gaussian(int((results[best] & included).sum()))
    said = _conclusion(design, included, results[best], bounds[best], scorings[best], failures, refuted, limit, control)
    return AuditResult(
        name="third_party",
        game="each canary enters the data by its own fair coin; find which did from the synthetic data alone",
        attack=attack,
        statistics=(bounds[0].method, "hypergeometric tail", "clopper_pearson"),
        conclusion=said,
        trials=design.candidates,
        bounds=shown,
        rates=tuple(
            rate
            for scoring, guess in zip(scorings, results, strict=True)
            for rate in _rates(design, included, guess, f"{scoring.name}: " if len(scorings) > 1 else "")
        ),
        controls=tuple(rate for scoring in scorings for rate in _controls(design, included, scoring))
        + (() if control is None else control.rates),
        controls_passed=not failures,
        difference=difference_interval(
            int((results[best] & included).sum()),
            int(included.sum()),
            int((results[best] & ~included).sum()),
            holdout,
            confidence=design.each,
        ),
        p_value=min(1.0, design.scorings * min(_p_value(included, guess) for guess in results)),
        multiplicity=_multiplicity(design, kind, scorings),
        details={
            "failures": failures,
            "planned_files": design.scorings,
            "scored_files": len(scorings),
            "guesses": "every canary that is printed" if design.guesses is None else design.guesses,
            "detectable": limit.to_json(),
            "gaussian": None if gaussian is None else gaussian.to_json(),
            "unprotected": None if control is None else control.to_json(),
        },
    )


def _p_value(included: Bools, guess: Bools) -> float:
    """The probability of at least as many correct guesses if the output does not depend on the coins."""
    return hypergeometric_tail(int((guess & included).sum()), len(included), int(included.sum()), int(guess.sum()))


@dataclass(frozen=True, slots=True)
class _Unprotected:
    """What the audit shows of a run with the protection off; `leaked` says why nothing follows from it, and is empty if
    its negative control passed."""

    name: str
    guesses: int
    right: int
    epsilon: float
    leaked: str
    rates: tuple[Rate, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.name,
            "guesses": self.guesses,
            "right": self.right,
            "epsilon": None if self.leaked else self.epsilon,
        }


def _unprotected(design: CanariesDesign, included: Bools, scoring: Scoring) -> _Unprotected:
    guess = guessed_in(scoring.candidates, design.guesses)
    made, right = int(guess.sum()), int((guess & included).sum())
    rates = _rates(design, included, guess, "without protection: ")
    leaked = _negative_failure(design, included, scoring)
    return _Unprotected(scoring.name, made, right, design.epsilon(made, right), leaked, rates)


def _copies_found(design: CanariesDesign, included: Bools, scoring: Scoring) -> tuple[int, int] | None:
    """Of copied canaries, how many are guessed and how many can be.

    None for keys, which are always found, and for models, which would have to be trained again.
    """
    if design.guesses is None or scoring.copied is None:
        return None
    right = int((guessed_in(scoring.copied, design.guesses) & included).sum())
    return right, min(design.guesses, int(included.sum()))


def negative_control_counts(scoring: Scoring, included: Bools, guesses: int | None) -> tuple[int, int, int, int]:
    """The counts of the negative control: who has the highest tenth of the holdout and control scores, ties included.

    If `guesses` is None, all scores above 0 count in place of the highest tenth.

    Returns:
        Holdout candidates among the highest, size of the highest, all holdout candidates, all control candidates.
    """
    holdout = scoring.candidates[~included]
    both = np.concatenate([holdout, scoring.never])
    if not both.size:
        return 0, 0, 0, 0
    high = both > 0 if guesses is None else both >= np.sort(both)[-math.ceil(both.size / _TOP)]
    return int(high[: holdout.size].sum()), int(high.sum()), holdout.size, scoring.never.size


def negative_control_p_value(top: int, drawn: int, holdout: int, never: int) -> float:
    """The two-sided p-value of the number of holdout candidates among the highest scores, if they are exchangeable, for
    the values of `negative_control_counts`, in this order."""
    more = hypergeometric_tail(top, holdout + never, holdout, drawn)
    fewer = hypergeometric_tail(drawn - top, holdout + never, never, drawn)
    return min(1.0, 2 * more, 2 * fewer)


def _failures(design: CanariesDesign, included: Bools, scoring: Scoring, bound: Bound) -> list[str]:
    """Why nothing follows from a file. A bound above 0 holds whatever a positive control says of the attack's power."""
    failures = []
    copies = _copies_found(design, included, scoring)
    if not bound.value and copies is not None and copies[0] < MIN_COPIES_FOUND * copies[1]:
        failures.append(
            f"{scoring.name}: the search finds {copies[0]} of {copies[1]} canaries that are copied verbatim into it, "
            f"fewer than {format_percent(MIN_COPIES_FOUND)}"
        )
    leaked = _negative_failure(design, included, scoring)
    return [*failures, *([f"{scoring.name}: {leaked}"] if leaked else [])]


def _negative_failure(design: CanariesDesign, included: Bools, scoring: Scoring) -> str:
    """Why the negative control of a file fails; empty if it passes."""
    top, drawn, holdout, never = negative_control_counts(scoring, included, design.guesses)
    if negative_control_p_value(top, drawn, holdout, never) > NEGATIVE_CONTROL_ERROR:
        return ""
    return (
        f"of the {drawn} highest-scoring canaries that were not planted, {top} are among the {holdout} of the holdout "
        f"and {drawn - top} among the {never} of the negative control: the manifest has leaked into the run"
    )


def _rates(design: CanariesDesign, included: Bools, guess: Bools, where: str) -> tuple[Rate, ...]:
    sides = (("planted", included), ("holdout", ~included))
    return tuple(
        Rate(f"{where}{name} canaries guessed in", int((guess & side).sum()), int(side.sum()), design.each)
        for name, side in sides
    )


def _controls(design: CanariesDesign, included: Bools, scoring: Scoring) -> list[Rate]:
    copies = _copies_found(design, included, scoring)
    top, drawn, holdout, never = negative_control_counts(scoring, included, design.guesses)
    where = "guessed in" if design.guesses is None else f"among the {drawn} highest that were not planted"
    negative = Rate(f"negative control: canaries in no list {where}", drawn - top, never, design.each)
    if copies is None:  # keys: the rate of their holdout is already among the rates of the audit
        return [negative]
    return [
        Rate("check of the search: copied canaries found", *copies, design.each),
        negative,
        Rate(f"holdout canaries {where}", top, holdout, design.each),
    ]


def _multiplicity(design: CanariesDesign, kind: str, scored: Sequence[Scoring]) -> tuple[str, ...]:
    printed = "every one that is printed"
    if any(item.copied is None for item in scored):
        printed += ", or that a model finds likelier than every control"
    guesses = printed if design.guesses is None else f"the {design.guesses} highest scores"
    return (
        f"one canary kind ({kind}), one score, one rule of guessing ({guesses}), fixed before the run",
        f"{design.scorings} planned synthetic file{'s' if design.scorings > 1 else ''}, {len(scored)} scored; each "
        f"bound holds with confidence {format_confidence(design.each)}, all of them with "
        f"{format_confidence(design.confidence)}",
        "one p-value (hypergeometric tail, times the number of planned files) and intervals of rates, from which no ε "
        "follows",
    )


def _conclusion(
    design: CanariesDesign,
    included: Bools,
    guess: Bools,
    bound: Bound,
    scoring: Scoring,
    failures: Sequence[str],
    refuted: bool | None,
    limit: Detectable,
    control: _Unprotected | None,
) -> str:
    """What the file with the largest bound shows; of the claim, only whether the bounds of all files refute it."""
    if failures:
        return no_conclusion(*failures)
    right, made = int((guess & included).sum()), int(guess.sum())
    where = f"in {scoring.name}, " if design.scorings > 1 else ""
    counts = f"{where}{right} of {made} guesses are right" if made else f"{where}no canary is guessed to be in the data"
    ceiling = format_ceiling(bound.ceiling, bound.value)
    if not bound.value and limit.is_blind:
        does = "show a leak" if design.claim is None else "refute the claim"
        return no_conclusion(
            f"{counts}, but a test of this size has less than 50 % power to {does}, even if all planted canaries "
            f"{'are printed' if design.guesses is None else 'stand out'}; plan more canaries, or more guesses, and run "
            "again"
        )
    shown = f"{counts}: no leak is shown"
    if bound.value > 0:
        shown = f"{counts}: a leak that shows {epsilon_shown(bound, design.confidence)}"
    if design.claim is None:
        if bound.value > 0:
            return f"{shown}; even perfect guesses would have shown only ε = {ceiling}."
        return " ".join([f"{shown}.", *_missed(design, bound, limit), _seen_without_protection(design, control)])
    claimed = format_number(design.claim.epsilon)
    if refuted:
        return f"{shown}, which refutes the claim of ε = {claimed}."
    said = [f"{shown}, and the claim of ε = {claimed} is not refuted.", *_missed(design, bound, limit)]
    return " ".join([*said, _seen_without_protection(design, control)])


def _missed(design: CanariesDesign, bound: Bound, limit: Detectable) -> list[str]:
    """What an audit that found too little detects with 50 % power, and what it could have shown at most."""
    ceiling, keys = format_ceiling(bound.ceiling, bound.value), design.guesses is None
    half = limit.sentence("of the planted canaries are printed" if keys else "of the planted canaries stand out")
    if design.claim is not None and (bound.ceiling or 0.0) <= design.claim.epsilon:
        never = (
            f"With as many guesses as here it could not have been, since all of them right show at most ε = {ceiling}: "
            "the result says nothing about the claim."
        )
        return [never, half] if keys else [never]
    return [half, f"Even perfect guesses would have shown only ε = {ceiling}."]


def _seen_without_protection(design: CanariesDesign, control: _Unprotected | None) -> str:
    if control is None:
        return (
            "No run without protection was scored, so it is not known whether this attack sees leaks of this generator."
        )
    if control.leaked:
        return f"The run without protection, {control.name}, does not count: {control.leaked}."
    where, claim = f"With protection off ({control.name}) the same audit shows", design.claim
    if not control.epsilon:
        about = "the generator" if claim is None else "the claim"
        return (
            f"{where} nothing: finding nothing says nothing about {about}, whatever could have been shown. {_TRUSTED}"
        )
    shown = f"{where} ε ≥ {format_lower(control.epsilon)}"
    if claim is not None and control.epsilon <= claim.epsilon:
        weakly = "no more than the claim: it sees this kind of leak, but too weakly to refute the claim"
        return f"{shown}, {weakly}. {_TRUSTED}"
    return f"{shown}: it can see this kind of leak. {_TRUSTED}"
