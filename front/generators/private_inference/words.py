"""The sentences of a report on private inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cupel.accounting.bounds import Bound
from cupel.accounting.guarantees import ApproxDP, Guarantee
from cupel.accounting.number_format import format_number
from cupel.accounting.registry import upper_bounds
from cupel.claims.base import Claim
from cupel.generators.base import CHANGES, NOT_SEEN
from cupel.generators.private_inference.claim import ROWS_ALIKE
from cupel.io.ledger_evidence import Basis

if TYPE_CHECKING:
    from cupel.generators.private_inference.run import InferenceRun
    from cupel.mechanisms.models.row_shapes import RowPlan
    from cupel.mechanisms.private_inference.transcripts import Generation


def rows_basis(plan: RowPlan) -> Basis:
    """What follows for bounds from how rows were verified, before anything is charged."""
    if plan.exact:
        return Basis((_tested(plan),))
    return Basis(estimates=(f"{_influenced(plan)} So every bound on this run is an estimate.",))


def row_channel(plan: RowPlan, difference: float) -> str:
    """How rows of a batch may influence each other, and how it was tested."""
    if plan.exact:
        return f"{ROWS_ALIKE} {_tested(plan)}"
    return (
        f"{_influenced(plan)} In a spot check on random tokens, a row's logits among other rows and by itself differed "
        f"by {format_number(difference)}. That bounds nothing, so every bound on this run is an estimate."
    )


def _tested(plan: RowPlan) -> str:
    return (
        f"Every forward pass has a public shape ({_shapes(plan)}). The logits of random tokens were verified bit for "
        "bit at this shape, with other rows exchanged, moved and removed, before the run."
    )


def _influenced(plan: RowPlan) -> str:
    if plan.shapes is None:
        return "Rows are packed: the shapes of forward passes follow the data, and so may the rounding of every row."
    return (
        "On this device, a row's logits depend on the rows beside it, in their last digits, although every forward "
        "pass has the same public shape."
    )


def _shapes(plan: RowPlan) -> str:
    """The shapes of a plan in words, without duplicates."""
    shapes = dict.fromkeys((plan.shapes or {}).values())
    return "; ".join(
        f"{shape.rows} rows of {shape.context} tokens, with a cache of {shape.positions} positions" for shape in shapes
    )


def not_protected(claim: Claim) -> list[str]:
    """What is not protected even if the claim holds."""
    lines = [
        f"The number of {claim.unit}s ({claim.public.records}) and the set of labels are public by assumption.",
        "What many records say together may appear in the output: that is what synthetic data are for.",
        f"One {claim.unit} is protected; what several of them hold in common, such as copies of one record, is "
        "protected less.",
    ]
    if claim.unit == "record":
        lines.append("A person with several records is not protected as one unit.")
    return lines


def threat_model(claim: Claim) -> list[str]:
    """The adversary that the guarantee is about."""
    return [
        "The adversary knows the mechanism, its parameters, the batching key, the language model, and every record "
        "but the one in question; it sees all released tokens.",
        f"Neighbouring data sets differ by one {claim.unit}, {CHANGES[claim.adjacency]}.",
        NOT_SEEN,
    ]


def side_channels(generation: Generation) -> list[str]:
    """Leakage outside the model of the proof."""
    plan = generation.row_plan
    follows = (
        "Timing and memory use of the run depend on the data"
        if plan.shapes is None
        else "All forward passes have the same shape, whatever they hold, but how many of them a slot takes follows "
        "the number of its records"
    )
    return [
        f"{follows}; do not let an adversary measure them.",
        "The forward pass is floating-point arithmetic and is taken as part of the mechanism; aggregation after it is "
        "exact on a fixed grid, and the error of softmax and sampling is charged in the ledger.",
        row_channel(plan, generation.row_difference),
    ]


def implementation(done: InferenceRun) -> dict[str, str]:
    """Hashes, seeds of public choices, source of noise."""
    facts = {
        "language model": done.model.name,
        "model fingerprint (SHA-256)": done.model.fingerprint,
        "device": f"{done.model.device} (asked for: {done.settings.device})",
        "source of noise": "operating system entropy",
        "batching key": done.key.hex(),
        "precision": done.model.dtype,
        "rows": "packed" if done.generation.row_plan.shapes is None else _shapes(done.generation.row_plan),
        "records that were cut to the public length": _cut_records(done),
    }
    if done.mechanism.centres is not None:
        facts["fingerprint of centres and embedder (SHA-256)"] = done.mechanism.clusters().fingerprint
    facts |= done.claim.data.facts()
    return facts


def _cut_records(done: InferenceRun) -> str:
    """How many of the records that were used have more tokens than a context has room for; private.

    Not used are records of a user of whom another record was, records beyond the last full piece (as published), and
    those of slots that did not run.
    """
    mechanism, running = done.mechanism, done.generation.transcript.running
    room = {label: mechanism.prompt(done.model, label).record_tokens for label in mechanism.labels or (None,)}
    used = [
        (record.text, room[record.label if mechanism.labels else None])
        for record, slot in zip(done.records, done.generation.assignment.tolist(), strict=True)
        if slot >= 0 and running[slot]
    ]
    cut = sum(len(text) > most and len(done.model.encode(text[: 64 * (most + 1)])) > most for text, most in used)
    unused = len(done.records) - len(used)
    return f"{cut} of {len(used)}" + (f"; {unused} more were not used" if unused else "")


def differences(done: InferenceRun, guarantee: Guarantee, bounds: Sequence[Bound]) -> list[dict[str, Any]]:
    """Where published accounting of this mechanism and ours differ, and why."""
    rows: list[dict[str, Any]] = []
    spent = done.generation.spent
    ours = next((bound.value for bound in bounds if bound.method == "ex_post"), None)
    if spent is not None and ours is not None and len(spent):
        rows.append(
            {
                "statement": "Ex-post cost of the costliest batch, median aggregation",
                "published": float(spent[:, 2].max()),
                "recomputed": ours,
                "why": "The published cost per token bounds numerator and normaliser apart and takes the whole gap "
                "beside the median; the exact cost takes both at once over the medians a neighbour can reach.",
                "private": True,
            }
        )
    if done.mechanism.variant == "as_published" and isinstance(guarantee, ApproxDP):
        published = upper_bounds(
            done.mechanism.published_plan(),
            guarantee,
            adjacency=done.mechanism.adjacency,
            unit=done.mechanism.unit,
            methods=["zcdp"],
        )
        best = min((bound.value for bound in bounds if bound.rigor.may_support), default=None)
        if published and best is not None:
            rows.append(
                {
                    "statement": "Clusters cut into batches of a fixed size",
                    "published": published[0].value,
                    "recomputed": best,
                    "why": "One record more shifts every later batch: batches compose instead of running in parallel, "
                    "and each shifted batch has a row replaced, which doubles the range of a mean.",
                    "private": False,
                }
            )
    return rows
