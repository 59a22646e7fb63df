"""Which ε a planned audit tests, in words: that of one record, of one user, or of a group."""

from __future__ import annotations

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.group_privacy import for_group
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.base.number_format import format_number, format_upper


def claim_in_words(claim: PureDP | ApproxDP | None, unit: Unit) -> list[str]:
    """Sentences that say what the claim is about, and for a group what a claim about one record implies.

    Args:
        claim: as given, for `unit`; None for no claim.
        unit: of the claim.
    """
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
