"""Numbers and words of a report: outward rounding, names of methods, guarantees and units in plain English."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from cupel.accounting.number_format import (
    Rounding,
    format_ceiling,
    format_confidence,
    format_number,
    format_upper,
    power_of_ten,
)
from cupel.reports.assay import BoundRow

SYMBOLS = dict.fromkeys(("epsilon", "ex_post_epsilon", "renyi_epsilon"), "ε")
SYMBOLS |= {"delta": "δ", "rho": "ρ", "mu": "μ", "beta": "β", "r": "r"}

ARGUMENTS = {"delta": "ε", "renyi_epsilon": "order", "beta": "α", "r": "p"}
"""What `BoundRow.at` is, by quantity."""

SHORT_ADJACENCY = {
    "add_remove": "one {unit} added or removed",
    "replace_one": "one {unit} exchanged",
    "zero_out": "one {unit} made null",
    "secret": "one secret changed",
}

METHODS = {
    "lattice": "Privacy-loss lattice",
    "basic": "Basic composition",
    "advanced": "Advanced composition",
    "zcdp": "Zero-concentrated DP",
    "gdp": "Gaussian DP",
    "rdp": "Rényi DP",
    "pld": "Privacy-loss distribution",
    "prv": "Privacy random variable",
    "ex_post": "Ex-post accounting",
    "secret_protection": "Secret protection",
    "adaptive": "Adaptive optimum",
    "exact": "Exact, jointly",
    "analytic": "Analytic, layer by layer",
    "classical": "Classical, layer by layer",
    "concave_majorant": "Composed curves",
    "single_gaussian": "Single Gaussian",
    "leave_one_out": "Leave-one-out loss",
    "leave_one_out_rerun": "Leave-one-out, run again",
    "reconstruction": "Canary reconstruction",
    "secret_reconstruction": "Secret reconstruction",
    "record_replay": "Record and replay",
    "third_party": "Planted canaries",
    **dict.fromkeys(("one_run", "one_run_adaptive", "one_run_tight"), "One-run statistic"),
    "clopper_pearson": "Clopper–Pearson",
}

RIGOR = {
    "certified": "certified",
    "finite_sample": "finite sample",
    "asymptotic": "asymptotic",
    "credible": "credible",
    "model_conditional": "model-conditional",
    "estimate": "estimate",
}

RIGOR_MEANS = {
    "certified": "holds by proof, numerical error included",
    "finite_sample": "holds with the stated confidence for any mechanism",
    "asymptotic": "holds in the limit only; neither supports nor refutes",
    "credible": "Bayesian; neither supports nor refutes",
    "model_conditional": "assumes a family of mechanisms; neither supports nor refutes",
    "estimate": "a calculation whose error is not bounded; neither supports nor refutes",
}

ADJACENCY = {
    "add_remove": "one {unit} is added or removed",
    "replace_one": "one {unit} is exchanged for another",
    "zero_out": "one {unit} is exchanged for a public null record",
    "secret": "the value of one secret changes wherever it occurs; where it occurs is public",
}

MECHANISMS = {
    "private_inference": "Private inference: each token of a synthetic document is drawn from an aggregate over a "
    "batch of records, each of which is shown to the language model on its own",
    "secret_evolution": "Secret-protected evolution of synthetic documents by noisy votes",
    "aug_pe": "Private evolution of synthetic documents by noisy votes",
    "dataset_vectors": "Noisy dataset vectors that steer a language model",
    "two_stage": "Two-stage differentially private fine-tuning",
}

VARIANTS = {
    "sound": "sound",
    "as_published": "as published: the paper's steps to the letter, accounted as they are",
}

AUDITS = {
    "leave_one_out": "leave-one-out loss",
    "reconstruction": "canary reconstruction",
    "record_replay": "record and replay",
    "secret_reconstruction": "secret reconstruction",
}

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


def clean(text: str) -> str:
    """`text` with control and text-direction characters shown as U+FFFD, so that no name can disguise itself."""
    return _CONTROL.sub("�", text.encode("utf-8", "replace").decode("utf-8"))


def tied(text: str) -> str:
    """`text` with formulas that no line break tears apart."""
    return re.sub(r" (?=[≤≥×%=])|(?<=[≤≥×=]) ", "\u00a0", text)


def tick(value: float) -> str:
    """A round number on an axis; large and small powers of ten as such."""
    value = float(value)  # matplotlib asks with numbers of numpy
    if 0 < value < math.inf and not 1e-4 < value < 1e5:
        exact = Decimal(repr(value))
        if exact == Decimal(1).scaleb(exact.adjusted()):
            return power_of_ten(exact.adjusted())
    return format_number(value, digits=3)


def rounding_of(row: BoundRow) -> Rounding:
    """Outward: an upper bound up, a lower bound down."""
    return "up" if row.direction == "upper" else "down"


def bound(row: BoundRow) -> str:
    """``ε ≤ 1.282`` or ``ε ≥ 0.41``, rounded outward."""
    sign = "≤" if row.direction == "upper" else "≥"
    if row.direction == "upper" and float(row.value) == math.inf:
        return "no finite bound"
    return f"{symbol(row)} {sign} {format_number(row.value, rounding_of(row))}"


def ceiling(row: BoundRow) -> str:
    """What the test of a lower bound could have shown at most, rounded up; no more than it shows is the same number."""
    return format_ceiling(row.ceiling, row.value)


def symbol(row: BoundRow) -> str:
    """The letter of what a row bounds."""
    return SYMBOLS.get(row.quantity, row.quantity.replace("_", " "))


def argument(row: BoundRow) -> str:
    """At which ε, order, α or p a row holds, such as ``order = 8``; empty for a quantity that is no function."""
    return "" if row.at is None else f"{ARGUMENTS.get(row.quantity, 'at')} = {format_number(row.at)}"


def method(name: str) -> str:
    """The method's name in words; an unknown one as it is, without underscores."""
    return METHODS.get(name, name.replace("_", " ") if " " not in name else name)


def rigor(row: BoundRow) -> str:
    """The rigor in words, the confidence included."""
    if row.confidence is not None:
        return f"{RIGOR[row.rigor]}, confidence {format_confidence(row.confidence)}"
    return RIGOR[row.rigor]


def adjacency(name: str, unit: str) -> str:
    """The neighbouring relation in words."""
    return ADJACENCY.get(name, name.replace("_", " ")).format(unit=unit)


def neighbours(name: str, unit: str) -> str:
    """The neighbouring relation in a few words, for a cell of a table."""
    return SHORT_ADJACENCY.get(name, name.replace("_", " ") + ", {unit}").format(unit=unit)


def without_verdict(sentence: str, verdict: str | None) -> str:
    """A sentence that starts with its own verdict, without it: the verdict stands above it in large letters."""
    start = f"{verdict}: "
    rest = sentence.removeprefix(start)
    return rest if verdict and sentence.startswith(start) and rest else sentence


def plain(value: Any) -> str:
    """Any JSON value as words: a mapping as ``a = 1, b = 2``, a list with commas."""
    if isinstance(value, Mapping):
        return ", ".join(f"{str(key).replace('_', ' ')} = {quoted(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format_number(value)
    return "none" if value in (None, "") else str(value)


def quoted(value: Any) -> str:
    """`value` as `plain` has it; a text with spaces in quotation marks, since some end in one."""
    return f"“{value}”" if isinstance(value, str) and re.search(r"\s", value) else plain(value)


def capital(words: str) -> str:
    """`words` with a capital first letter; Greek and other letters stay, since they are symbols."""
    return words[:1].upper() + words[1:] if words[:1].isascii() else words


def in_words(sentence: str) -> str:
    """A sentence with the registry names of methods in it replaced by words."""
    names = "|".join(name for name in METHODS if "_" in name)

    def words(match: re.Match[str]) -> str:
        name = METHODS[match[1]]
        return name if name[1:] != name[1:].lower() else name.lower()  # names of people keep their capitals

    return capital(re.sub(rf"\b({names})\b", words, sentence))


@dataclass(frozen=True, slots=True)
class Claimed:
    """The number a claim stands or falls with.

    Attributes:
        kind: the guarantee's type in the claim file, such as ``ex_post``.
        quantity: what is bounded, as in `BoundRow.quantity`.
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
    unit: str
    adjacency: str
    at: float | None = None

    @property
    def symbol(self) -> str:
        return SYMBOLS.get(self.quantity, self.quantity)

    def on_scale(self, row: BoundRow) -> bool:
        """Whether `row` can be drawn on the scale of the claim: same unit, adjacency and currency.

        A pure ε also bounds an ε at any δ and an ex-post ε from above; an ex-post ε bounds nothing else from above. A
        Rényi divergence grows with its order and r with its p, so an upper bound may be at a larger one, a lower bound
        at a smaller one.
        """
        if (row.unit, row.adjacency) != (self.unit, self.adjacency):
            return False
        if self.quantity not in ("epsilon", "ex_post_epsilon"):
            return row.quantity == self.quantity and row.delta in (None, self.delta) and self._at_or_beyond(row)
        if row.quantity == "ex_post_epsilon":
            return self.quantity == "ex_post_epsilon" or (row.direction == "lower" and self.delta is None)
        if row.quantity != "epsilon":
            return False
        if row.direction == "lower":  # an ε lower bound at a smaller δ says nothing of one at a larger δ
            return (row.delta or 0) == (self.delta or 0)
        return not row.delta or row.delta == self.delta

    def _at_or_beyond(self, row: BoundRow) -> bool:
        if self.at is None or row.at is None:
            return self.at is row.at
        return float(row.at) >= self.at if row.direction == "upper" else float(row.at) <= self.at

    def counts(self, row: BoundRow) -> bool:
        """Whether `row` may support (upper) or refute (lower) the claim."""
        if not self.on_scale(row):
            return False
        if row.direction == "upper":
            return row.rigor == "certified"
        # A lower bound on the ε of the mechanism says nothing of the ex-post ε of one output.
        return row.rigor in ("certified", "finite_sample") and (self.kind != "ex_post" or row.quantity == self.quantity)


def best(rows: Iterable[BoundRow], what: Claimed, direction: Literal["upper", "lower"]) -> BoundRow | None:
    """The smallest upper or the largest lower bound among the rows that count for the claim."""
    rows = [row for row in rows if row.direction == direction and what.counts(row)]
    if not rows:
        return None
    return (min if direction == "upper" else max)(rows, key=lambda row: float(row.value))


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


def claimed(claim: Mapping[str, Any]) -> Claimed | None:
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
    except (KeyError, TypeError, ValueError):
        return None
    return Claimed(
        kind, quantity, value, delta, str(claim.get("unit", "record")), str(claim.get("adjacency", "add_remove")), at
    )


def _delta(delta: Any, claim: Mapping[str, Any]) -> float | None:
    """δ as a number; ``n^-1.1`` is worked out from the public number of records."""
    if isinstance(delta, str) and delta.startswith("n^"):
        return float(float(claim["public"]["records"]) ** float(delta[2:]))
    return None if delta is None else float(delta)


def mechanism(claim: Mapping[str, Any]) -> str:
    """The mechanism of a claim in words."""
    name, parameters = str(claim.get("mechanism", "")), claim.get("parameters")
    if name == "private_inference" and isinstance(parameters, Mapping) and parameters.get("aggregate") == "none":
        return (
            "Private inference with its protection taken out, as a control: each synthetic document is written by the "
            "language model from one record of a batch"
        )
    return MECHANISMS.get(name, name.replace("_", " "))


def guarantee_means(claim: Mapping[str, Any]) -> str:
    """What the claimed guarantee says, for a reader who has not met it; empty where there is nothing to add."""
    what = claimed(claim)
    if what is None:
        return ""
    times = format_upper(math.exp(what.value), 3) if what.value < 700 else "∞"
    change = {
        "add_remove": f"had one {what.unit} been added or removed",
        "replace_one": f"had one {what.unit} been exchanged for another",
    }.get(what.adjacency, "for neighbouring data")
    match what.kind:
        case "pure_dp":
            return f"Whatever is released, it would have been at most {times} times more or less likely {change}."
        case "approx_dp":
            return (
                f"Any statement about the release would be at most {times} times more or less likely {change}, "
                f"apart from a probability of δ = {format_number(what.delta)}."
            )
        case "ex_post":
            return (
                f"For the data and the output that occurred, and for these only: the output would have been at most "
                f"{times} times more or less likely {change}. The ε is itself a function of the private data."
            )
        case "secret_protection":
            p = format_number(claim["guarantee"].get("p"))
            return (
                f"Who guesses a secret with probability at most {p} before the release guesses it with at most r after."
            )
        case "zcdp":
            return f"The Rényi divergence of every order α > 1 between the release and what it {change} is at most ρα."
        case "gdp":
            return "Telling neighbouring data apart is at least as hard as telling N(0, 1) from N(μ, 1) by one draw."
        case _:
            return ""
