"""The leave-one-out audit: the privacy loss of the released outcome between D and D with one record removed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dpassay.accounting.adjacency import SINGLE_UNITS, Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor, json_number
from dpassay.accounting.guarantees import ApproxDP, ExPostDP, Guarantee, PureDP
from dpassay.attacks.private_inference.leave_one_out import ROW_MARGIN
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics.one_outcome import SIGNIFICANCE_LEVEL, Profile, loss_probability
from dpassay.base import validate
from dpassay.base.number_format import digits_apart, format_lower, format_upper

_FORWARD = "the float32 forward pass is part of the mechanism; the error of the log-softmax after it is subtracted"
_RERUN = (
    "scoring the released tokens gives the logits of the generation: bit for bit where rows were verified to be "
    f"exact, else to within the error that is subtracted, {ROW_MARGIN:g} times the largest difference in a public spot "
    "check. No proof covers the rows that were not checked, so this is an estimate"
)
_WITHIN = "within its batch"
_TAKEN_OUT = "taken out of the whole pipeline"
_CUT = "batches are cut, so a batch with one row removed is not the pipeline's batch without the record: an estimate"
_ONE_OUTCOME = "one outcome's log-ratio: it bounds no ε at a δ above 0, so it is an estimate here"


def leave_one_out_audit(
    losses: Mapping[int, float],
    rerun_losses: Sequence[float] = (),
    *,
    records: int,
    guarantee: Guarantee,
    adjacency: Adjacency | str,
    unit: Unit,
    errors: Mapping[int, float] | None = None,
    rerun_error: float = 0.0,
    ex_post_by_slot: Mapping[int, tuple[float, float]] | None = None,
    a_priori: float | None = None,
    realised: float | None = None,
    profile: Profile | None = None,
    batches_are_kept: bool = True,
    published_is_bound: bool = True,
) -> AuditResult:
    """A lower bound on ε: the largest |log-ratio| of the released tokens; checks it against the accounting.

    |log P(x)/Q(x)| of the released x, for one pair of neighbours, is at most ε under pure DP and at most the ex-post ε
    of x. It can refute only these two guarantees. `contradictions` of the result lists where a loss, minus its error,
    exceeds what is certified for the run:

    - a loss within a batch must be at most the batch's ε*, and, where rows are added or removed, ε* at most the
      published cost Σ γ;
    - any loss must be at most the pure ε of the charged events, and that of a record taken out of the whole pipeline
      at most the ex-post ε of the run. The latter is an estimate, so it refutes no claim;
    - if no pure ε is claimed or certified, the largest loss must not be less likely than `SIGNIFICANCE_LEVEL` under
      the certified curve δ(ε), over all units that were, or could have been, compared.

    Args:
        losses: slot → largest |loss| of a unit of its batch.
        rerun_losses: losses of units taken out of the whole pipeline. They are scored by a different forward pass than
            that of the run. The difference is checked but not bounded, so bounds from them are estimates.
        records: number of units that were compared: of records, or at unit user of users.
        guarantee: the claim; it determines the quantity and the rigor of the bounds.
        adjacency: of the claim; must be add_remove, since one unit is removed.
        unit: of the claim, and of the losses: a record, or a user with one context.
        errors: slot → bound on the error of its loss, log-softmax and rounding of the sampled law.
        rerun_error: subtracted from every rerun loss, for the difference of the forward passes.
        ex_post_by_slot: slot → (ε*, Σ γ); None for a mechanism without ex-post accounting.
        a_priori: the certified pure ε of the charged events: the largest loss that any outcome can have, and hence
            the ceiling.
        realised: the certified ex-post ε of the run.
        profile: the certified curve δ(ε) of the charged events.
        batches_are_kept: whether removing a unit changes only its own batch (sound hashing). If False, losses within
            batches are estimates: removing a row from a batch then differs from removing the unit from the data.
        published_is_bound: whether adding or removing a unit only adds or removes a row of its batch, so that
            ε* ≤ Σ γ must hold. False if it may *replace* a row (contexts of several records, pieces of a fixed size):
            ε* covers a replacement, the published cost does not, and ε* may exceed it without contradiction.

    Raises:
        ValueError: if the adjacency or unit is not supported, if there is no loss, or if the slots do not match.
    """
    _check(losses, rerun_losses, records, adjacency, unit, ex_post_by_slot)
    errors = errors or {}
    within = max((losses[slot] - errors.get(slot, 0.0) for slot in losses), default=0.0)
    taken_out = max(map(abs, rerun_losses), default=0.0) - validate.non_negative(rerun_error=rerun_error)
    bounds = []
    if losses:
        bound = _bound("leave_one_out", within, guarantee, unit, a_priori, (_FORWARD,))
        if not batches_are_kept:
            bound = _estimate(bound, _CUT)
        bounds.append(bound)
    if rerun_losses:
        bound = _bound("leave_one_out_rerun", taken_out, guarantee, unit, a_priori, (_FORWARD,))
        bounds.append(_estimate(bound, _RERUN))
    contradictions = _contradictions(losses, errors, ex_post_by_slot, published_is_bound, unit)
    seen = {_WITHIN: within} if losses and batches_are_kept else {}
    seen |= {_TAKEN_OUT: taken_out} if rerun_losses else {}
    above_certified = _above_certified(seen, a_priori, realised, unit)
    contradictions += above_certified
    pure_is_certified = a_priori is not None and math.isfinite(a_priori)
    if seen and profile and not above_certified and not (_is_pointwise(guarantee) and pure_is_certified):
        contradictions += _too_unlikely(seen, records, unit, profile)
    return AuditResult(
        name="leave_one_out",
        game=f"leave one out: was this {unit} in the data, given everything the released tokens were drawn from",
        attack=f"exact log-likelihood ratio of the released tokens with and without the {unit}",
        statistics=("largest absolute log-ratio",),
        conclusion=_conclusion(losses, rerun_losses, ex_post_by_slot, contradictions, published_is_bound, unit),
        trials=records,
        bounds=tuple(bounds),
        multiplicity=(
            f"largest over {records} {unit}s in {len(losses)} batches (exact losses need no correction)",
            f"largest over {len(rerun_losses)} {unit}s taken out of the whole pipeline (an estimate, refutes nothing)",
        ),
        contradictions=tuple(contradictions),
        details={"batches": _rows(losses, errors, ex_post_by_slot), "rerun": [json_number(x) for x in rerun_losses]},
    )


def _check(
    losses: Mapping[int, float],
    rerun_losses: Sequence[float],
    records: int,
    adjacency: Adjacency | str,
    unit: Unit,
    ex_post_by_slot: Mapping[int, tuple[float, float]] | None,
) -> None:
    validate.integer(records=records)
    if Adjacency(adjacency) is not Adjacency.ADD_REMOVE:
        raise ValueError(
            f"the leave_one_out audit compares neighbours under add_remove, but the claim is at {Adjacency(adjacency)}:"
            " nothing follows for it; omit the audit"
        )
    if not unit.is_single:
        raise ValueError(f"the leave_one_out audit needs unit {SINGLE_UNITS}, not {unit}; omit the audit")
    if not losses and not rerun_losses:
        raise ValueError("the leave-one-out audit needs at least one loss")
    if any(math.isnan(loss) or loss < 0 for loss in losses.values()) or any(math.isnan(x) for x in rerun_losses):
        raise ValueError("losses must not be NaN, and losses by slot must be at least 0")
    if ex_post_by_slot is not None and set(losses) - set(ex_post_by_slot):
        raise ValueError("a slot has a loss but no ex-post cost; both must come from the same run")


def _bound(
    method: str, value: float, guarantee: Guarantee, unit: Unit, ceiling: float | None, assumptions: tuple[str, ...]
) -> Bound:
    pointwise = _is_pointwise(guarantee)
    return Bound(
        direction=Direction.LOWER,
        value=max(0.0, value),
        method=method,
        rigor=Rigor.CERTIFIED if pointwise else Rigor.ESTIMATE,
        adjacency=Adjacency.ADD_REMOVE,
        quantity="ex_post_epsilon" if isinstance(guarantee, ExPostDP) else "epsilon",
        unit=unit,
        delta=guarantee.delta if isinstance(guarantee, ApproxDP) else None,
        ceiling=ceiling,
        assumptions=assumptions if pointwise else (*assumptions, _ONE_OUTCOME),
        private=True,
    )


def _is_pointwise(guarantee: Guarantee) -> bool:
    """Whether the guarantee bounds the loss of every outcome."""
    return isinstance(guarantee, PureDP | ExPostDP)


def _estimate(bound: Bound, why: str) -> Bound:
    return dataclasses.replace(bound, rigor=Rigor.ESTIMATE, assumptions=(*bound.assumptions, why))


def _contradictions(
    losses: Mapping[int, float],
    errors: Mapping[int, float],
    ex_post_by_slot: Mapping[int, tuple[float, float]] | None,
    published_is_bound: bool,
    unit: Unit,
) -> list[str]:
    """One sentence for each violated inequality that must hold if accounting and audit are both correct."""
    if ex_post_by_slot is None:
        return []
    results = []
    for slot in sorted(losses):
        exact, published = ex_post_by_slot[slot]
        error = errors.get(slot, 0.0)
        if losses[slot] - error > exact:
            larger, smaller = _distinguishable(losses[slot], exact)
            results.append(f"batch {slot}: a {unit}'s loss {larger} exceeds the ex-post ε* {smaller}")
        if published_is_bound and exact - error > published:
            larger, smaller = _distinguishable(exact, published)
            results.append(f"batch {slot}: the ex-post ε* {larger} exceeds the published cost {smaller}")
    return results


def _distinguishable(larger: float, smaller: float) -> tuple[str, str]:
    """Two numbers of which the first exceeds the second, with enough digits to tell them apart."""
    digits = digits_apart(larger, smaller)
    return format_lower(larger, digits), format_upper(smaller, digits)


def _above_certified(
    seen: Mapping[str, float], a_priori: float | None, realised: float | None, unit: Unit
) -> list[str]:
    """One sentence for each loss, minus its error, above a certified bound for every outcome, or for this one."""
    limits = [(what, a_priori, "the certified pure ε of the charged events") for what in seen]
    if _TAKEN_OUT in seen:
        limits.append((_TAKEN_OUT, realised, "the certified ex-post ε of the run"))
    return [
        f"{what}, the privacy loss of a {unit} is at least {larger}, above {name}, {smaller}"
        for what, limit, name in limits
        if limit is not None and seen[what] > limit
        for larger, smaller in (_distinguishable(seen[what], limit),)
    ]


def _too_unlikely(seen: Mapping[str, float], units: int, unit: Unit, profile: Profile) -> list[str]:
    """One sentence if the largest loss is too unlikely under the certified curve; else none.

    The units that are taken out of the pipeline are chosen by their losses within batches. So the union bound is over
    all units, and counts them twice if there are losses of both kinds.
    """
    what = max(seen, key=lambda name: seen[name])
    chance = len(seen) * units * loss_probability(seen[what], profile)
    if chance >= SIGNIFICANCE_LEVEL:
        return []
    return [
        f"{what}, the privacy loss of a {unit} is at least {format_lower(seen[what])}, which the certified curve δ(ε) "
        f"of the charged events allows with probability at most {format_upper(chance, 2)} for any of {units} {unit}s"
    ]


def _conclusion(
    losses: Mapping[int, float],
    rerun_losses: Sequence[float],
    ex_post_by_slot: Mapping[int, tuple[float, float]] | None,
    contradictions: Sequence[str],
    published_is_bound: bool,
    unit: Unit,
) -> str:
    if contradictions:
        return (
            f"Accounting and audit contradict each other in {len(contradictions)} "
            f"place{'s' if len(contradictions) > 1 else ''}: at least one of them is wrong ({contradictions[0]})."
        )
    parts = []
    if losses:
        parts.append(f"the largest loss of a {unit} within its batch is {format_lower(max(losses.values()))}")
    if rerun_losses:
        worst = max(abs(loss) for loss in rerun_losses)
        parts.append(
            f"the largest of {len(rerun_losses)} taken out of the whole pipeline is {format_lower(worst)}, an estimate"
        )
    if losses and ex_post_by_slot is not None:
        exact, published = (max(ex_post_by_slot[slot][side] for slot in losses) for side in (0, 1))
        order = "loss ≤ ex-post ε* ≤ published cost" if published_is_bound else "loss ≤ ex-post ε*"
        text = f"{order} in every one of {len(losses)} batches (largest ε* {format_upper(exact)}, published "
        text += (
            f"{format_upper(published)})" if published_is_bound else f"{format_upper(published)}, no bound on ε* here)"
        )
        parts.append(text)
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def _rows(
    losses: Mapping[int, float],
    errors: Mapping[int, float],
    ex_post_by_slot: Mapping[int, tuple[float, float]] | None,
) -> list[dict[str, float | str | int | None]]:
    rows: list[dict[str, float | str | int | None]] = []
    for slot in sorted(losses):
        exact, published = (None, None) if ex_post_by_slot is None else ex_post_by_slot[slot]
        rows.append(
            {
                "slot": slot,
                "loss": json_number(losses[slot]),
                "error": errors.get(slot, 0.0),
                "epsilon": exact,
                "epsilon_published": published,
            }
        )
    return rows
