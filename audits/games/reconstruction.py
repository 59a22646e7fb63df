"""The reconstruction audit: are secrets of the data disclosed more often than secrets that were held out?"""

from __future__ import annotations

import dataclasses

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Interval
from dpassay.accounting.guarantees import ApproxDP, ExPostDP, Guarantee, PureDP
from dpassay.attacks.canaries.reconstruction import Reconstruction
from dpassay.audits.detection import Detectable, detectable, epsilon_shown
from dpassay.audits.result import AuditResult, Rate, no_conclusion
from dpassay.audits.statistics.binomial import difference_interval
from dpassay.audits.statistics.one_run import Disclosures, disclosures_with_holdout
from dpassay.audits.statistics.power import AsPrinted
from dpassay.base import defaults, validate
from dpassay.base.number_format import (
    format_difference,
    format_number,
    format_p_value,
    format_percent,
    format_upper,
)

NEGATIVE_CONTROL_CONFIDENCE = 0.999
"""A negative control fails by chance with probability at most one in a thousand."""

CURVE_DELTA = 1e-5
"""δ at which ε is bounded if the claim is a whole curve (zCDP, RDP, GDP); fixed before any run."""


def reconstruction_audit(
    result: Reconstruction,
    *,
    guarantee: Guarantee,
    adjacency: Adjacency | str,
    unit: Unit,
    control: Reconstruction | None = None,
    confidence: float = defaults.CONFIDENCE,
    required: float = 0.5,
) -> AuditResult:
    """Compares how many source and holdout candidates the released documents disclose.

    The ε bound guesses "in" for every disclosed candidate and abstains on the others; the number of guesses depends
    on the output, which the bound accounts for. The rates have Clopper–Pearson intervals that treat candidates as
    independent trials. Candidates of one run are not quite independent, so the rates are descriptive and never refute
    a claim; the p-value and the ε bound rest on the coins alone.

    Args:
        result: of the audited run.
        guarantee: the claim; it sets δ, and the conclusion compares it with the ceiling.
        adjacency: of the claim; must be add_remove, since a coin decides whether a candidate is in the data.
        unit: of the claim: a record; a user, if each candidate is one user; or group(k), if each has k records.
        control: the same attack on the same kind of data, generated without protection. None: no conclusion is drawn
            from the absence of a leak.
        confidence: of the intervals and of the ε bound; with k audits pass 1 − β/k to each.
        required: the fraction of the requested keys that the positive control must reproduce.

    Returns:
        The audit; without bounds if a control failed.

    Raises:
        ValueError: if the adjacency is not add_remove, or the candidates are not of this unit.
    """
    _check_unit(result, adjacency, unit)
    validate.open_probability(confidence=confidence)
    outcome = disclosures_with_holdout(
        result.disclosed,
        result.source_hits,
        result.candidates,
        source=result.source,
        delta=_delta(guarantee),
        confidence=confidence,
        adjacency=Adjacency.ADD_REMOVE,
        unit=unit,
    )
    bound = dataclasses.replace(outcome.epsilon, private=True)
    failures = _negative_failures(result, "audited run")
    control_difference = None
    if control is not None:
        control_difference = source_minus_holdout(control, confidence)
        failures += _positive_failures(control, control_difference, required)
        failures += _negative_failures(control, "positive control")
    limit = None if failures or bound.value > 0 else _detectable(result, guarantee, confidence)
    checked = control is not None or result.never > 0
    return AuditResult(
        name="reconstruction",
        game="each candidate key enters the data by its own fair coin; find which did from the released documents",
        attack="a candidate that a released document prints is guessed to be in the data",
        statistics=("one_run", "hypergeometric tail", "clopper_pearson"),
        conclusion=_conclusion(result, outcome, bound, guarantee, control, failures, confidence, limit),
        trials=result.candidates,
        bounds=() if failures else (bound,),
        rates=(
            Rate("source keys disclosed", result.source_hits, result.source, confidence),
            Rate("holdout keys disclosed", result.holdout_hits, result.holdout, confidence),
        ),
        controls=_control_rates(result, control, confidence),
        controls_passed=not failures if checked else None,
        difference=source_minus_holdout(result, confidence),
        control_difference=control_difference,
        p_value=outcome.p_value,
        multiplicity=(
            "one ε bound (one_run): one score (a key is printed), no threshold, one canary kind",
            "one p-value (hypergeometric tail) and one interval of rates, from which no ε follows",
        ),
        details={
            "documents": result.documents,
            "failures": list(failures),
            "required_reproduction": required,
            "negative_control_confidence": NEGATIVE_CONTROL_CONFIDENCE,
            "detectable": None if limit is None else limit.to_json(),
        },
    )


def source_minus_holdout(result: Reconstruction, confidence: float) -> Interval:
    """The interval of the source minus the holdout hit rate (conservative)."""
    return difference_interval(
        result.source_hits, result.source, result.holdout_hits, result.holdout, confidence=confidence
    )


def _detectable(result: Reconstruction, guarantee: Guarantee, confidence: float) -> Detectable:
    """What the audit detects with 50 % power; keys of the holdout are printed as often as in this run."""
    by_chance = result.holdout_hits / result.holdout if result.holdout else 0.0
    claim = float(guarantee.epsilon) if isinstance(guarantee, PureDP | ApproxDP) else None
    delta = _delta(guarantee)
    return detectable(AsPrinted(result.candidates), claim, confidence=confidence, delta=delta, by_chance=by_chance)


def _check_unit(result: Reconstruction, adjacency: Adjacency | str, unit: Unit) -> None:
    if Adjacency(adjacency) is not Adjacency.ADD_REMOVE:
        raise ValueError(
            f"including or omitting canaries tests add_remove, but the claim is at {Adjacency(adjacency)}: nothing "
            "follows for it; omit the reconstruction audit"
        )
    if unit.is_secret:
        raise ValueError("including or omitting canaries cannot test unit secret; omit the reconstruction audit")
    if not unit.needs_user and result.copies != unit.size:
        raise ValueError(
            f"at unit {unit} each candidate needs {unit.size} record{'s' if unit.size > 1 else ''} of its own, "
            f"not {result.copies}: the statistics count units"
        )


def _delta(guarantee: Guarantee) -> float:
    if isinstance(guarantee, ApproxDP):
        return guarantee.delta
    return 0.0 if isinstance(guarantee, PureDP | ExPostDP) else CURVE_DELTA


def _positive_failures(control: Reconstruction, difference: Interval, required: float) -> list[str]:
    failures = []
    if difference.lower <= 0:
        failures.append(
            "the positive control does not disclose more source than holdout keys "
            f"(difference {format_difference(difference.lower, difference.upper)})"
        )
    if control.asked == 0 or control.reproduced < required * control.asked:
        failures.append(
            f"the positive control reproduces {control.reproduced} of the {control.asked} keys that were requested, "
            f"fewer than {format_percent(required)}"
        )
    return failures


def _negative_failures(result: Reconstruction, name: str) -> list[str]:
    """Checks that holdout keys and keys in no list, which are exchangeable, are printed at equal rates."""
    if not result.never or not result.holdout:
        return []
    gap = difference_interval(
        result.holdout_hits, result.holdout, result.never_hits, result.never, confidence=NEGATIVE_CONTROL_CONFIDENCE
    )
    if 0 in gap:
        return []
    return [
        f"in the {name}, holdout keys and keys in no list are printed at different rates "
        f"(difference {format_difference(gap.lower, gap.upper)}): the holdout has leaked into the run"
    ]


def _control_rates(result: Reconstruction, control: Reconstruction | None, confidence: float) -> tuple[Rate, ...]:
    rates = []
    if control is not None:
        rates += [
            Rate("positive control: requested keys reproduced", control.reproduced, control.asked, confidence),
            Rate("positive control: source keys disclosed", control.source_hits, control.source, confidence),
            Rate("positive control: holdout keys disclosed", control.holdout_hits, control.holdout, confidence),
        ]
        if control.never:
            name = "negative control of the positive control: keys in no list printed"
            rates.append(Rate(name, control.never_hits, control.never, confidence))
    if result.never:
        rates.append(Rate("negative control: keys in no list printed", result.never_hits, result.never, confidence))
    return tuple(rates)


def _conclusion(
    result: Reconstruction,
    outcome: Disclosures,
    bound: Bound,
    guarantee: Guarantee,
    control: Reconstruction | None,
    failures: list[str],
    confidence: float,
    limit: Detectable | None,
) -> str:
    if failures:
        return no_conclusion(*failures)
    counts = (
        f"{result.source_hits} of {result.source} source keys and {result.holdout_hits} of {result.holdout} "
        f"holdout keys are disclosed (p-value {format_p_value(outcome.p_value)})"
    )
    if bound.value > 0:
        caveat = ", which says nothing about a claim for one outcome only" if isinstance(guarantee, ExPostDP) else ""
        return f"{counts}: a leak that shows {epsilon_shown(bound)}{caveat}."
    if outcome.p_value <= 1 - confidence:
        return f"{counts}: source keys are disclosed more often than chance explains; no ε follows from that alone."
    half = "" if limit is None else limit.sentence("of the source keys are printed")
    if control is None:
        return f"{counts}; without a positive control nothing follows from finding no leak. {half}"
    ceiling = bound.ceiling or 0.0
    text = f"{counts}: no leak found. {half} Even perfect guesses would have shown only ε = {format_upper(ceiling)}"
    claimed = getattr(guarantee, "epsilon", None)
    if isinstance(guarantee, PureDP | ApproxDP) and claimed is not None and ceiling <= claimed:
        return (
            f"{text}; that is not above the claim of ε = {format_number(claimed)}, so it says nothing about the claim."
        )
    return f"{text}."
