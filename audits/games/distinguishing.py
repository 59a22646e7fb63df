"""The many-runs game: decide from one output of the mechanism whether it ran on D or on its neighbour D′.

The mechanism is run many times on both. The first runs are for *training*: scores are fitted on one part of them; the
score, the threshold and the δ are chosen on the other part. The remaining runs are tested once: the numbers of outputs
on either side of one threshold bound ε at one δ. The tested runs are not used in training, so no correction for
multiple testing is needed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.guarantees import Guarantee
from dpassay.attacks.black_box.distinguishing import Outputs, key, plain
from dpassay.audits.detection import Detectable, detectable, epsilon_shown
from dpassay.audits.games.distinguishing_bets import bet
from dpassay.audits.games.distinguishing_choice import (
    TRAINING,
    Statistic,
    epsilon_limits,
    select_test,
    training_runs,
)
from dpassay.audits.implications import describe, describe_limit, implied_limit
from dpassay.audits.result import AuditResult, Rate, refuted_where_concluded
from dpassay.audits.statistics.binomial import epsilon_clopper_pearson
from dpassay.audits.statistics.ceilings import ErrorRates
from dpassay.audits.statistics.score_bets import DetectableByBets, detectable_by_bets
from dpassay.audits.statistics.sequential import Sequential
from dpassay.base import defaults, validate
from dpassay.base.number_format import format_ceiling


def distinguishing_audit(
    on_d: Outputs,
    on_d_prime: Outputs,
    *,
    guarantee: Guarantee,
    adjacency: Adjacency | str,
    unit: Unit | None = None,
    confidence: float = defaults.CONFIDENCE,
    score: Callable[[Any], float] | None = None,
    training: float | None = None,
    statistic: Statistic = "clopper_pearson",
) -> AuditResult:
    """A lower bound on ε from a test that distinguishes outputs on D from outputs on D′.

    If the runs are independent, the bound exceeds the true ε with probability at most 1 − confidence, for any
    mechanism: given the training runs, the test is fixed, and the other runs are independent of them.

    Args:
        on_d: one output for each independent run on D, in order: numbers, arrays, texts or lists of them; with a
            `score`, any objects.
        on_d_prime: as many outputs on D′.
        guarantee: the claim. For zCDP, GDP, RDP and profiles, training chooses a δ, and the bound is compared with
            the ε that the claim implies at this δ.
        adjacency: the relation of D and D′, which is that of the claim.
        unit: in which D and D′ differ; a record by default.
        confidence: of the bound; with k audits pass 1 − β/k to each.
        score: function of one output, larger for D′. The log-likelihood ratio is optimal where it is known. It must
            not have been chosen on these outputs. By default scores are fitted
            (`dpassay.attacks.black_box.distinguishing`).
        training: fraction of the runs on each side, the first ones, on which the test is selected; 0.3 by default, and
            0.1 for ``score_bets``, if there are many runs.
        statistic: ``clopper_pearson``, of one threshold; ``sequential``, whose bound may be read after every round; or
            ``score_bets``, which bets on estimated likelihood ratios, and shows the most of shifts of noise.

    Raises:
        ValueError: if the runs are unequal in number or too few, if the game cannot test the claim, or if no score
            suits the outputs.
        TypeError: if an output is not a JSON value and no `score` is given.
    """
    validate.open_probability(confidence=confidence)
    validate.one_of(("clopper_pearson", "sequential", "score_bets"), statistic=statistic)
    if len(on_d) != len(on_d_prime):
        raise ValueError(f"both data sets need the same number of runs, not {len(on_d)} and {len(on_d_prime)}")
    if score is None:
        on_d, on_d_prime = [plain(output) for output in on_d], [plain(output) for output in on_d_prime]
    if statistic == "score_bets":
        return _by_bets(on_d, on_d_prime, guarantee, Adjacency(adjacency), unit or Unit(), confidence, score, training)
    first = training_runs(len(on_d), TRAINING if training is None else training)
    tested = len(on_d) - first
    test = select_test(on_d[:first], on_d_prime[:first], score, guarantee, tested=tested, confidence=confidence)
    no, yes = test.classify(on_d[first:]), test.classify(on_d_prime[first:])
    fp, tp = int(no.sum()), int(yes.sum())
    relation, unit = Adjacency(adjacency), unit or Unit()
    bound = epsilon_clopper_pearson(
        tp, tested - tp, fp, tested - fp, delta=test.delta, confidence=confidence, adjacency=relation, unit=unit
    )
    if statistic == "sequential":
        state = Sequential(delta=test.delta, confidence=confidence, adjacency=relation, unit=unit)
        state.update_all(zip(no.tolist(), yes.tolist(), strict=True))
        bound = state.bound()
    selection = f"score, threshold and δ were selected on {first} other runs on each side"
    bound = dataclasses.replace(bound, assumptions=(*bound.assumptions, selection), private=True)
    limit = implied_limit(guarantee, bound)
    notes = [] if score is not None else _notes(on_d, on_d_prime)
    found_half = None  # the power of the sequential statistic has no such formula
    if statistic == "clopper_pearson" and bound.value <= limit:
        size = ErrorRates(tested, tested)
        found_half = detectable(size, limit, confidence=confidence, delta=test.delta, share=False)
    return AuditResult(
        name="distinguishing",
        game="the mechanism is run many times on D and on its neighbour D′; decide from one output which it was",
        attack=f"an output is attributed to D′ if {test.event}",
        statistics=(statistic,),
        conclusion=" ".join([_conclusion(guarantee, bound, limit, tp, fp, tested, found_half), *notes]),
        trials=2 * tested,
        bounds=(bound,),
        rates=(
            Rate("runs on D′ attributed to D′", tp, tested, confidence),
            Rate("runs on D attributed to D′", fp, tested, confidence),
        ),
        multiplicity=(
            f"{test.tried} pairs of score and threshold and {len(epsilon_limits(guarantee))} δ were compared on "
            "training runs only; one test of one ε bound on the other runs",
        ),
        details={
            "score": test.score.name,
            "threshold": test.threshold,
            "delta": test.delta,
            "limit": limit,
            "refuted": refuted_where_concluded(bound.value > limit, _says_something(bound, limit)),
            "training_runs": first,
            "detectable": None if found_half is None else found_half.to_json(),
            "notes": notes,
        },
    )


def _by_bets(
    on_d: Outputs,
    on_d_prime: Outputs,
    guarantee: Guarantee,
    adjacency: Adjacency,
    unit: Unit,
    confidence: float,
    score: Callable[[Any], float] | None,
    training: float | None,
) -> AuditResult:
    found = bet(
        on_d,
        on_d_prime,
        guarantee,
        confidence=confidence,
        adjacency=adjacency,
        unit=unit,
        score=score,
        training=training,
    )
    limit, tested = found.limit, len(on_d) - found.trained
    training_said = (
        f"δ was chosen, and likelihood ratios were first estimated, on {found.trained} other runs on each side"
    )
    bound = dataclasses.replace(found.bound, assumptions=(*found.bound.assumptions, training_said), private=True)
    notes = [] if score is not None else _notes(on_d, on_d_prime)
    # Ratios of two parameters are learned from all earlier runs, and one of `tried` estimates may be right.
    learning = math.log(found.tried) + math.log(len(on_d) / found.trained)
    half = detectable_by_bets(tested, limit, delta=bound.delta or 0.0, confidence=confidence, learning=learning)
    refuted = bound.value > limit
    words = _conclusion(guarantee, bound, limit, found.on_d_prime, found.on_d, tested, None if refuted else half)
    return AuditResult(
        name="distinguishing",
        game="the mechanism is run many times on D and on its neighbour D′; decide from one output which it was",
        attack=f"bets on the estimated likelihood ratio of each output, of which {found.score} gained most",
        statistics=("score_bets",),
        conclusion=" ".join([words, *notes]),
        trials=2 * tested,
        bounds=(bound,),
        rates=(
            Rate("runs on D′ attributed to D′", found.on_d_prime, tested),
            Rate("runs on D attributed to D′", found.on_d, tested),
        ),
        multiplicity=(
            f"{found.tried} estimates of the likelihood ratio were bet on in parallel, and the wealth is their mean; "
            f"{len(epsilon_limits(guarantee))} δ were compared on training runs only",
        ),
        details={
            "score": found.score,
            "threshold": 0.0,
            "delta": bound.delta or 0.0,
            "limit": limit,
            "refuted": refuted_where_concluded(refuted, _says_something(bound, limit)),
            "training_runs": found.trained,
            "detectable": None if refuted else half.to_json(),
            "notes": notes,
        },
    )


def _notes(on_d: Outputs, on_d_prime: Outputs) -> list[str]:
    """Remarks on data sets whose outputs are all equal, which need no bound."""
    constant = [all(key(output) == key(side[0]) for output in side) for side in (on_d, on_d_prime)]
    if not any(constant):
        return []
    if not all(constant):
        side = "D" if constant[0] else "D′"
        return [f"Every run on {side} gave the same output; the runs on its neighbour did not."]
    if key(on_d[0]) == key(on_d_prime[0]):
        return ["Every run on both data sets gave the same output: this pair tests nothing."]
    return [
        "Every run on D gave one output, and every run on D′ another: the outputs have no noise, or it comes from a "
        "fixed seed. (If noise is drawn once and shared by all runs, the runs are not independent, and the bound is "
        "for a mechanism whose noise is known.)"
    ]


def _says_something(bound: Bound, limit: float) -> bool:
    """Whether a test without errors would have refuted the claim."""
    return (bound.ceiling or 0.0) > limit


def _conclusion(
    guarantee: Guarantee,
    bound: Bound,
    limit: float,
    tp: int,
    fp: int,
    tested: int,
    found_half: Detectable | DetectableByBets | None,
) -> str:
    counts = f"of {tested} tested runs each, {tp} on D′ and {fp} on D are attributed to D′"
    shown = f"which shows {epsilon_shown(bound)}"
    claimed = f"{describe(guarantee)}, allows {describe_limit(guarantee, limit)}{' there' if bound.delta else ''}"
    if bound.value > limit:
        return f"{counts}, {shown}; the claim, {claimed}: it is refuted."
    ceiling = format_ceiling(bound.ceiling, bound.value)
    if not _says_something(bound, limit):
        return (
            f"{counts}, {shown}; this many runs can show at most {ceiling}, and the claim, {claimed}: the result says "
            "nothing about the claim."
        )
    half = "" if found_half is None else f" {found_half.sentence()}"
    most = f"A test without errors would have shown only {ceiling}."
    return f"{counts}, {shown}; the claim, {claimed}: it is not refuted.{half} {most}"
