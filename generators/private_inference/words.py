"""The sentences of a report on private inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.ledger.evidence import Basis
from dpassay.base.number_format import format_number
from dpassay.claims.base import Claim
from dpassay.generators.base import in_common
from dpassay.generators.private_inference.claim import ROWS_ALIKE

if TYPE_CHECKING:
    from dpassay.mechanisms.models.row_shapes import RowPlan
    from dpassay.mechanisms.private_inference.transcripts import Generation


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
        f"Every forward pass has a public shape ({shapes_of(plan)}). The logits of random tokens were verified bit for "
        "bit at this shape, with other rows exchanged, moved and removed, before the run."
    )


def _influenced(plan: RowPlan) -> str:
    if plan.shapes is None:
        return "Rows are packed: the shapes of forward passes follow the data, and so may the rounding of every row."
    return (
        "On this device, a row's logits depend on the rows beside it, in their last digits, although every forward "
        "pass has the same public shape."
    )


def shapes_of(plan: RowPlan) -> str:
    """The shapes of a plan in words, without duplicates."""
    shapes = dict.fromkeys((plan.shapes or {}).values())
    return "; ".join(
        f"{shape.rows} rows of {shape.context} tokens, with a cache of {shape.positions} positions" for shape in shapes
    )


def not_protected(claim: Claim) -> list[str]:
    """What is not protected even if the claim holds."""
    lines = [
        f"The number of {claim.unit}s ({claim.public.records}) and the set of labels are public by assumption.",
        in_common("records"),
        f"One {claim.unit} is protected; what several of them hold in common, such as copies of one record, is "
        "protected less.",
    ]
    if not Unit.parse(claim.unit).needs_user:
        lines.append("A person with several records is not protected as one unit.")
    return lines


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
