"""The claim of a report: its number, which bounds may be compared with it, what it means, and its tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import ARGUMENTS, Bound, Direction
from dpassay.base.number_format import format_number, format_upper
from dpassay.reports import text
from dpassay.reports.assay import Output, Secrets

Rows: TypeAlias = list[tuple[str, str]]
Table: TypeAlias = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Caption, header and rows."""

VARIANTS = {
    "sound": "sound",
    "as_published": "as published: the paper's steps to the letter, accounted as they are",
}


@dataclass(frozen=True, slots=True)
class ClaimedValue:
    """The number a claim stands or falls with.

    Attributes:
        kind: the guarantee's type in the claim file, such as ``ex_post``.
        quantity: what is bounded, as in `Bound.quantity`.
        value: the claimed bound.
        delta: the δ at which an ε is claimed; None where it has none.
        at: the order of a Rényi divergence, or the p of an r; None where it has none.
        unit: the privacy unit.
        adjacency: the neighbouring relation.
    """

    kind: str
    quantity: str
    value: float
    delta: float | None
    unit: Unit
    adjacency: str
    at: float | None = None

    @property
    def symbol(self) -> str:
        """The letter of the claimed quantity."""
        return text.SYMBOLS.get(self.quantity, self.quantity)

    @property
    def argument(self) -> str | None:
        """What `at` is: order or p; None if the claim is about no function."""
        return ARGUMENTS.get(self.quantity)

    def on_scale(self, row: Bound) -> bool:
        """Whether `row` can be drawn on the scale of the claim: same unit and adjacency, a comparable quantity.

        A pure ε also bounds an ε at any δ and an ex-post ε from above; an ex-post ε bounds nothing else from above. A
        Rényi divergence grows with its order and r with its p, so an upper bound may be at a larger one, a lower bound
        at a smaller one.
        """
        if (row.unit, row.adjacency) != (self.unit, self.adjacency):
            return False
        if self.quantity not in ("epsilon", "ex_post_epsilon"):
            return row.quantity == self.quantity and row.delta in (None, self.delta) and self._at_or_beyond(row)
        if row.quantity == "ex_post_epsilon":
            return self.quantity == "ex_post_epsilon" or (row.direction is Direction.LOWER and self.delta is None)
        if row.quantity != "epsilon":
            return False
        if row.direction is Direction.LOWER:  # an ε lower bound at a smaller δ says nothing of one at a larger δ
            return (row.delta or 0) == (self.delta or 0)
        return not row.delta or row.delta == self.delta

    def _at_or_beyond(self, row: Bound) -> bool:
        if self.at is None or row.at is None:
            return self.at is row.at
        return row.at >= self.at if row.direction is Direction.UPPER else row.at <= self.at

    def counts(self, row: Bound) -> bool:
        """Whether `row` may support (upper) or refute (lower) the claim."""
        if not self.on_scale(row):
            return False
        if row.direction is Direction.UPPER:
            return row.rigor.may_support
        # A lower bound on the ε of the mechanism says nothing of the ex-post ε of one output.
        return row.rigor.may_refute and (self.kind != "ex_post" or row.quantity == self.quantity)


def best_bound(rows: Iterable[Bound], what: ClaimedValue, direction: Direction) -> Bound | None:
    """The smallest upper or the largest lower bound among the rows that count for the claim."""
    rows = [row for row in rows if row.direction is direction and what.counts(row)]
    if not rows:
        return None
    return (min if direction is Direction.UPPER else max)(rows, key=lambda row: row.value)


_AT = {"rdp": "alpha", "secret_protection": "p"}
_CLAIMED = {
    "pure_dp": ("epsilon", "epsilon"),
    "approx_dp": ("epsilon", "epsilon"),
    "rdp": ("epsilon", "renyi_epsilon"),
    "ex_post": ("epsilon", "ex_post_epsilon"),
    "zcdp": ("rho", "rho"),
    "gdp": ("mu", "mu"),
    "secret_protection": ("r", "r"),
}


def claimed(claim: Mapping[str, Any]) -> ClaimedValue | None:
    """The claimed number of a claim as its file writes it; None for a guarantee that is not one number."""
    guarantee = claim.get("guarantee")
    kind = str(guarantee.get("type")) if isinstance(guarantee, Mapping) else ""
    if kind not in _CLAIMED or not isinstance(guarantee, Mapping):
        return None
    field, quantity = _CLAIMED[kind]
    try:
        value = float(guarantee[field])
        delta = _delta(guarantee.get("delta"), claim)
        at = float(guarantee[_AT[kind]]) if kind in _AT else None
        unit = Unit.parse(str(claim.get("unit", "record")))
    except (KeyError, TypeError, ValueError):
        return None
    return ClaimedValue(kind, quantity, value, delta, unit, str(claim.get("adjacency", "add_remove")), at)


def _delta(delta: Any, claim: Mapping[str, Any]) -> float | None:
    """δ as a number; ``n^-1.1`` is worked out from the public number of records."""
    if isinstance(delta, str) and delta.startswith("n^"):
        return float(float(claim["public"]["records"]) ** float(delta[2:]))
    return None if delta is None else float(delta)


def prefix_of(claim: Mapping[str, Any]) -> str:
    """The public text with which every document of a claim begins; empty for most claims."""
    parameters = claim.get("parameters")
    return str(parameters.get("prefix") or "") if isinstance(parameters, Mapping) else ""


def guarantee_means(claim: Mapping[str, Any]) -> str:
    """What the claimed guarantee says, for a reader who does not know it; empty for a guarantee not listed here."""
    what = claimed(claim)
    return "" if what is None else meaning(what.kind, what.value, what.delta, what.at, what.adjacency, what.unit)


def meaning(kind: str, value: float, delta: float | None, at: float | None, relation: str, unit: Unit) -> str:
    """What a guarantee says, in a sentence or two; empty for a kind that is not listed here.

    Args:
        kind: the guarantee's type in a claim file.
        value: its ε, ρ, μ or r; rounded up where it is printed.
        delta: its δ, if it has one.
        at: its order, or its p, if it has one.
        relation: the neighbouring relation.
        unit: the privacy unit.
    """
    times = format_upper(math.exp(value), 3) if value < 700 else "∞"
    change = {
        "add_remove": f"had one {unit} been added or removed",
        "replace_one": f"had one {unit} been exchanged for another",
    }.get(relation, "for neighbouring data")
    match kind:
        case "pure_dp":
            return f"Whatever is released, it would have been at most {times} times more or less likely {change}."
        case "approx_dp":
            return (
                f"Any statement about the release would be at most {times} times more or less likely {change}, "
                f"apart from a probability of δ = {format_number(delta)}."
            )
        case "ex_post":
            return (
                f"For the data and the output that occurred, and for these only: the output would have been at most "
                f"{times} times more or less likely {change}. The ε is itself a function of the private data."
            )
        case "secret_protection":
            return (
                f"An attacker who guesses a secret with probability at most {format_number(at)} before the release "
                f"guesses it with probability at most {format_upper(value)} after it."
            )
        case "zcdp":
            return (
                "For every order α > 1, the Rényi divergence between the distributions of the release on neighbouring "
                f"data is at most {format_upper(value)} α."
            )
        case "rdp":
            return (
                f"The Rényi divergence of order {format_number(at)} between the distributions of the release on "
                f"neighbouring data is at most {format_upper(value)}."
            )
        case "gdp":
            return (
                f"Telling neighbouring data apart is at least as hard as telling N(0, 1) from N({format_upper(value)}, "
                "1) by one draw."
            )
        case _:
            return ""


def claim_rows(claim: Mapping[str, Any], guarantee: str, mechanism: str) -> Rows:
    """What is claimed of what.

    Args:
        claim: as its file writes it.
        guarantee: in words.
        mechanism: in words; empty for its name.
    """
    unit = str(claim.get("unit", "record"))
    rows = [
        ("Guarantee", guarantee),
        ("What the claim says", guarantee_means(claim)),
        ("Unit", unit),
        ("Neighbouring data", text.adjacency(str(claim.get("adjacency", "")), unit)),
        ("Mechanism", mechanism or str(claim.get("mechanism", "")).replace("_", " ")),
        ("Variant", VARIANTS.get(str(claim.get("variant", "")), str(claim.get("variant", "")))),
        ("Language model", str(claim.get("model", ""))),
        *((key.capitalize(), str(claim.get(key, ""))) for key in ("purpose", "period", "contact")),
    ]
    audits = claim.get("audits")
    if isinstance(audits, list):
        rows.append(("Audits asked for", ", ".join(text.method_within(str(a)) for a in audits) or "none"))
    return [(label, value) for label, value in rows if value]


def parameters(claim: Mapping[str, Any]) -> list[tuple[str, Rows]]:
    """The tables of what a claim sets: of the mechanism, of the data, and what is public by assumption."""
    parts = [("Parameters", "parameters"), ("Data", "data"), ("Public by assumption", "public")]
    unit = Unit.parse(str(claim.get("unit", "record")))
    if unit.needs_user and isinstance(public := claim.get("public"), Mapping):
        claim = {**claim, "public": {unit.plural if key == "records" else key: value for key, value in public.items()}}
    tables = [(caption, _given(claim.get(key))) for caption, key in parts]
    return [(caption, rows) for caption, rows in tables if rows]


def _given(values: Any) -> Rows:
    """The entries of a mapping that are set, a row each."""
    if not isinstance(values, Mapping):
        return []
    given = {key: value for key, value in values.items() if value not in (None, "", [])}
    return [(text.capital(str(key).replace("_", " ")), text.quoted(value)) for key, value in given.items()]


_TAKING_PART = {
    "coins": "Private records in a release, on average",
    "weights": "Sum of the weights of private records in a release",
}


def secret_rows(secrets: Secrets) -> Rows:
    """Which records hold secrets, and how they are released."""
    return [
        ("Records that hold a secret", text.plain(secrets.private_records)),
        ("Records without a secret", text.plain(secrets.public_records)),
        ("Noisy releases", text.plain(secrets.releases)),
        (_TAKING_PART[secrets.inclusion], format_number(secrets.expected_sample)),
        ("Noise σ, for an occurrence of length 1", format_number(secrets.sigma)),
    ]


def secrets_tables(secrets: Secrets) -> list[Table]:
    """What the sources found, and the groups of secrets if there are several."""
    sources: list[tuple[str, ...]] = [
        (item.kind, *map(text.plain, (item.secrets, item.records, item.occurrences, item.nowhere)))
        for item in secrets.sources
    ]
    header = ("Source", "Secrets", "Records that hold one", "Occurrences", "Found nowhere")
    tables: list[Table] = [("What the sources found", header, sources)]
    if len(secrets.groups) > 1:
        groups: list[tuple[str, ...]] = [
            (
                str(number),
                text.plain(item.secrets),
                text.plain(item.records),
                format_number(item.p),
                format_number(item.claimed),
                format_upper(item.certified),
            )
            for number, item in enumerate(secrets.groups, 1)
        ]
        of_groups = ("Group", "Secrets", "Records", "p", "r claimed", "r certified")
        tables.append(("Secrets by their budgets", of_groups, groups))
    return tables


def output_rows(made: Output | None, unfinished: int | None = None) -> Rows:
    """How many documents there are, how long, and how many complete; empty if the mechanism ran elsewhere.

    Args:
        made: what was made.
        unfinished: how many documents were begun and not finished.
    """
    if made is None:
        return []
    rows = [("Documents" if made.characters or not made.documents else "Rows", text.plain(made.documents))]
    if made.characters is not None:
        rows.append(("Length", text.lengths(made.characters)))
    if made.empty:
        rows.append(("Without text", text.plain(made.empty)))
    complete = "not recorded" if made.complete is None else text.plain(made.complete)
    if made.complete is not None and unfinished is not None:
        complete += f" of {text.plain(made.complete + unfinished)} that were begun"
    return [*rows, ("Complete", complete)]
