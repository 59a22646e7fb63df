"""Warnings about claims that are valid but easily misread: some from public facts, others from the private data.

The former are printed on both pages and by the command; the latter on the private page only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.guarantees import ApproxDP, ExPostDP, PureDP
from dpassay.base.number_format import format_number
from dpassay.claims.data import BuiltinData
from dpassay.data.cells import as_number
from dpassay.data.hashed_strings import hashes_of, multiplicities

if TYPE_CHECKING:
    from dpassay.claims.base import Claim
    from dpassay.data.records import Record

LARGE_EPSILON = 10.0
LARGE_DELTA = 0.01
MIN_TOKENS = 5
"""The fewest tokens that a text needs: four, as a record in a prompt does, and its end."""
FAR = 0.1
"""The number of units read is far from the public number n if it differs by more than max(0.1 n, 4 √n)."""


def public_warnings(claim: Claim) -> list[str]:
    """Warnings from the claim alone."""
    return [*_data_warnings(claim), *_guarantee_warnings(claim), *claim.parameter_warnings()]


def short_texts(tokens: int, what: str, *, kept: bool) -> list[str]:
    """Warns of a limit on the tokens of a text within which hardly any text ends.

    Args:
        tokens: the most that a text may have, its end included.
        what: sets this limit.
        kept: whether a text that did not end is kept.
    """
    if tokens >= MIN_TOKENS:
        return []
    last = "is kept as it was cut" if kept else "is not kept"
    return [
        f"{what} allow{'s' if ' and ' not in what else ''} a text {tokens} token{'s' if tokens > 1 else ''}, its end "
        f"included: hardly any text ends so soon, and one that did not end {last}. The run may cost its whole budget "
        "and make nothing of use."
    ]


def large_delta(delta: float) -> list[str]:
    """Warns of a δ at which (ε, δ)-DP means little."""
    if delta < LARGE_DELTA:
        return []
    return [f"δ = {format_number(delta)} is large: a mechanism that reveals all data with this probability meets it."]


def _data_warnings(claim: Claim) -> list[str]:
    if isinstance(claim.data, BuiltinData) and claim.data.name == "keys":
        return [
            "This is a demonstration: the data are made-up keys that come with dpassay. No person’s data were used, so "
            "the run shows how the mechanism behaves, not what real data cost."
        ]
    return []


def _guarantee_warnings(claim: Claim) -> list[str]:
    if claim.guarantee is None:
        return []
    guarantee, results = claim.claimed(), []
    if isinstance(guarantee, ApproxDP):
        delta, units = guarantee.delta, claim.public.records
        if units is not None and delta >= 1 / units:
            unit = Unit.parse(claim.unit)
            item = f"all records of one {unit.noun}" if unit.needs_user else f"one {unit.noun}"
            results.append(
                f"δ = {format_number(delta)} is at least 1/n = {format_number(1 / units)}: a mechanism that "
                f"publishes {item} in full, drawn at random, meets such a δ."
            )
        results += large_delta(delta)
    if isinstance(guarantee, PureDP | ApproxDP | ExPostDP) and guarantee.epsilon > LARGE_EPSILON:
        results.append(
            f"ε = {format_number(guarantee.epsilon)} is above {format_number(LARGE_EPSILON)}: the odds of any guess "
            f"about one {claim.unit} may change by a factor of e^{format_number(guarantee.epsilon)}."
        )
    if isinstance(guarantee, ExPostDP):
        results.append(
            "An ex-post ε is about one output only: it promises nothing before the run, and nothing about other "
            "outputs. Nor does it cover a choice among several outputs by their ε. What is proven before the run "
            "holds for every output."
        )
    return results


def private_warnings(claim: Claim, records: Sequence[Record], runs: Sequence[str]) -> list[str]:
    """Warnings from the private data and the ledger.

    Args:
        claim: of the run.
        records: all records that were read.
        runs: names of all runs in the ledger.
    """
    results = []
    users = multiplicities(hashes_of(record.user for record in records if record.user is not None))
    unit, stated = Unit.parse(claim.unit), claim.public.records
    read = len(multiplicities(hashes_of(map(unit.of, records))))
    if records and stated is not None and abs(read - stated) > max(FAR * stated, 4 * math.sqrt(stated)):
        of_all = f" in {len(records)} records" if unit.needs_user else ""
        counts = f" At unit {unit} it counts {unit.plural}, not records." if unit.needs_user else ""
        results.append(
            f"The claim states n = {stated} {unit.plural} as public (public.records), and {read}{of_all} were read."
            f"{counts} Whatever follows from the public number, δ among it, does not fit the data."
        )
    numbers = sum(as_number(record.text) is not None for record in records)
    if 2 * numbers > len(records):
        results.append(
            f"{numbers} of {len(records)} texts are numbers and nothing else. Check that data.text names the column of "
            "the text."
        )
    if unit == Unit() and users.max(initial=0) > 1:
        several = int((users > 1).sum())
        results.append(
            f"The unit is a record, and {several} of {len(users)} users have several. Their privacy loss adds up over "
            "their records; unit user bounds it."
        )
    if others := [name for name in runs if name != claim.name]:
        listed = ", ".join(map(repr, others[:5])) + (" and others" if len(others) > 5 else "")
        results.append(
            f"The ledger holds other runs, {listed}, which are not part of this claim. If they read the same data, "
            "what all cost together is larger: dpassay account says how much."
        )
    return results
