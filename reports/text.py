"""The words of a report: bounds rounded outward, names of methods, units and neighbouring data in plain English."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Bound, Direction, Risk
from dpassay.base.number_format import (
    Rounding,
    format_ceiling,
    format_confidence,
    format_interval,
    format_number,
    format_percent,
    power_of_ten,
)

if TYPE_CHECKING:
    from dpassay.reports.assay import Lengths, Output

SYMBOLS = dict.fromkeys(("epsilon", "ex_post_epsilon", "renyi_epsilon"), "ε")
SYMBOLS |= {"delta": "δ", "rho": "ρ", "mu": "μ", "beta": "β", "r": "r"}

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
    "distinguishing": "Neighbours told apart",
    "membership": "Membership",
    "many_runs": "Many runs on neighbours",
    "sequential": "Anytime-valid bound",
    "score_bets": "Bets on likelihood ratios",
    **dict.fromkeys(("one_run", "one_run_adaptive", "one_run_tight"), "One-run statistic"),
    "clopper_pearson": "Clopper–Pearson",
}

RIGOR_MEANS = {
    "certified": "holds by proof, numerical error included",
    "finite_sample": "holds with the stated confidence for any mechanism",
    "asymptotic": "holds in the limit only; neither supports nor refutes",
    "credible": "Bayesian; neither supports nor refutes",
    "model_conditional": "assumes a family of mechanisms; neither supports nor refutes",
    "estimate": "a calculation whose error is not bounded; neither supports nor refutes",
}

RIGOR = {name: name.replace("_", "-" if name == "model_conditional" else " ") for name in RIGOR_MEANS}

ADJACENCY = {
    "add_remove": "one {unit} is added or removed",
    "replace_one": "one {unit} is exchanged for another",
    "zero_out": "one {unit} is exchanged for a public null record",
    "secret": "the value of one secret changes wherever it occurs; where it occurs is public",
}

GLOSSARY = {
    "ε": ("ε", "privacy loss: neighbouring data change the probability of any outcome by a factor of at most e^ε"),
    "δ": ("δ", "a probability by which the factor e^ε may be exceeded"),
    "ρ": ("ρ", "privacy loss of zero-concentrated differential privacy"),
    "μ": ("μ", "privacy loss of Gaussian differential privacy"),
    "unit": ("unit", "whose data a guarantee protects: one record, all of a user, a group of k, or one secret"),
    "neighbouring": ("neighbour", "of two data sets: they differ in one unit"),
    "accountant": ("accountant", "a method that turns the events of a run into an upper bound"),
    "ledger": ("ledger", "the record of what a run was charged, each charge written before anything was sampled"),
    "a priori": ("a[ -]priori", "before the run, for every outcome"),
    "ex post": ("ex[ -]post", "after the run, for the one outcome that was drawn"),
    "bounded range": (
        "bounded[ -]range",
        "log-ratios of probabilities between neighbours lie in an interval of length η",
    ),
    "batching key": (
        "batching[ -]key",
        "a random key, independent of the data; a hash with it puts each record in a batch",
    ),
    "clip": ("clip", "a limit on the values that one record contributes"),
    "upper bound": ("upper bound", "the privacy loss is at most this"),
    "lower bound": ("lower bound", "the privacy loss is at least this, as an attack shows"),
    "advantage": ("advantage", "of a test: its true positive rate less its false positive rate"),
    "true positive rate": ("true positive rate", "how often a test says that a unit is in the data if it is"),
    "false positive rate": ("false positive rate", "how often a test says that a unit is in the data if it is not"),
    "FPR": ("FPR", "false positive rate, how often a test says that a unit is in the data if it is not"),
    "regret": ("regret", "how far what is proven for any test is from what the stated μ alone would say, at most"),
    "canary": ("canar(?:y|ies)", "a made-up record that is planted in the data to be looked for"),
    "ceiling": ("ceiling", "the largest lower bound that the same test could have shown"),
    "power": (r"\d+ % power", "the probability that a test detects a leak that is there"),
    **{RIGOR[name]: (RIGOR[name].replace("-", "[ -]"), meaning) for name, meaning in RIGOR_MEANS.items()},
}
"""Words of a page: what is looked for, without regard to case, and what it means."""

IN_GUIDES = {
    "adjacency": "which two data sets count as neighbours: one unit added or removed (`add_remove`), one exchanged for "
    "another (`replace_one`), or one made null (`zero_out`)",
    "AIM, MST": "two methods that choose marginals of a table to measure with noise, and draw rows that fit them",
    "anchor": "the last known head of a ledger, kept elsewhere, by which a replaced ledger is noticed",
    "assay": "one check of a claim: run, proof, audits and verdict",
    "assumption": "what a bound rests on and nothing here can check; each is listed beside the bound",
    "attack": "a procedure that sees what was released and gives scores or guesses",
    "audit": "an attack whose success is turned into a lower bound on the privacy loss, with a confidence",
    "budget": "the privacy loss that may be spent in all",
    "calibration": "finding the noise, the number of steps or the clip that meets a target",
    "center": "what logits are clipped about: nothing, or the prediction without a record",
    "certificate": "what a release says of itself: the claim, what is proven, and the SHA-256 of its files; signed if "
    "there is a key",
    "claim": "what is asserted of a procedure: mechanism, parameters, guarantee, unit, adjacency and what is public",
    "composition": "what several accesses to the same data cost together",
    "confidence": "how often, at least, a bound holds over repetitions of the audit",
    "control": "a run or records for which the answer is known; an attack that fails on it shows nothing",
    "differential privacy": "a bound on how much the data of one unit can change the probability of any outcome",
    "dominating pair": "two distributions that are at least as easy to tell apart as the outcomes on any neighbours",
    "DP-SGD": "training by noisy sums of clipped gradients of randomly sampled records",
    "enclosure": "an interval that contains the exact value, numerical error included",
    "event": "one access to the private data that has a privacy cost",
    "exposure": "how highly a model ranks a planted secret among all that it could have been",
    "false alarm": "a refutation of a claim that is true; its probability is at most 1 less the confidence",
    "filter": "a rule that stops a run before its adaptively chosen steps exceed a budget",
    "game": "the rules of an audit: what the attacker sees, what is guessed, and what counts as success",
    "Gaussian differential privacy": "μ-GDP: neighbours are as hard to tell apart as two Gaussians of variance 1 whose "
    "means differ by μ",
    "generator": "a program that makes synthetic texts or rows from private ones",
    "group": "k units that change together; their privacy loss is larger than that of one",
    "holdout": "records of the same kind that the generator did not see, for comparison",
    "lattice": "dpassay's own accountant, which encloses the exact privacy loss between two distributions on a lattice",
    "leave-one-out": "a comparison of a run with the same run without one record",
    "linkability": "whether two parts of a record lead to the same synthetic record",
    "lower end, upper end": "the ends of an enclosure, rounded outward",
    "manifest": "a file that names a function to audit and what is claimed of it",
    "marginal": "the counts of the combinations of values in some columns",
    "mechanism": "a randomised procedure that reads private data",
    "membership inference": "guessing whether a record was among the private ones",
    "multiplicity": "several tests are made, so each may err less often",
    "noise multiplier": "σ/Δ, the standard deviation of noise over the sensitivity of what it is added to",
    "null record": "a public record that takes the place of one that is removed",
    "odometer": "a running bound on what adaptively chosen steps have cost so far",
    "one run": "an audit of a single run, in which many canaries are planted or left out by independent coins",
    "p-value": "the probability of evidence at least as strong if the claim were true",
    "Poisson sampling": "each record is in a batch independently, with the same probability",
    "post-processing": "whatever is computed from a release alone; it costs no further privacy",
    "privacy loss": "the logarithm of how much more likely an outcome is on one data set than on a neighbour",
    "private inference": "generation of text by a language model that reads private records, with noisy or clipped "
    "aggregation of its predictions",
    "proof": "why an upper bound holds, from the events that were charged and listed assumptions",
    "public": "known to everyone whatever the data are, such as the number of records; stated, not computed",
    "pure differential privacy": "differential privacy with δ = 0",
    "randomised response": "answering truthfully or at random, by a coin",
    "reconstruction": "guessing the content of a record from what was released",
    "record": "one text or one row",
    "release": "what leaves: documents or rows, and a page on which only charged values depend on the data",
    "Rényi differential privacy": "a bound on the Rényi divergence, of some order α, between outcomes on neighbours",
    "rigor": "how a number is justified: certified, finite sample, asymptotic, credible, model-conditional or estimate",
    "risk": "in released data: how much better an attack does on records that the generator saw than on a holdout",
    "sampling probability": "the probability with which a record is in the batch of a step",
    "secret": "a value in records, such as a key or a name, whose places of occurrence are public",
    "secret protection": "(p, r): who guesses a secret with probability at most p before a release does so with "
    "probability at most r after it",
    "sensitivity": "Δ, the largest change of a statistic between neighbours",
    "singling out": "finding a combination of values that exactly one record has",
    "slot": "a set of records whose predictions are aggregated; a hash with the batching key puts each record in one",
    "synthetic data": "texts or rows that a generator made",
    "temperature": "τ, by which logits are divided before a token is drawn; larger values make draws more even",
    "threat model": "what an attacker sees and knows",
    "trade-off curve": "for every false positive rate, the smallest false negative rate of a test between neighbours",
    "type I error, type II error": "a test's wrong yes, and its wrong no",
    "user": "everyone's records together, where a column names whose each record is",
    "utility": "how well synthetic data serve in place of real ones",
    "verdict": "SUPPORTED, REFUTED or UNPROVEN",
    "worst case": "the largest privacy loss over all data, or over all outcomes",
    "zero-concentrated differential privacy": "ρ-zCDP: for every order α, a Rényi divergence of at most ρα",
}
"""Further words of the guides; the glossary of the site has these and those of pages."""


def glossary(page: str) -> list[tuple[str, str]]:
    """The words of the glossary that a page uses, each with its meaning.

    Args:
        page: HTML.
    """
    shown = re.sub(r"<[^>]*>", " ", page).replace("\u00a0", " ")
    return [
        (name, meaning)
        for name, (words, meaning) in GLOSSARY.items()
        if re.search(rf"(?<!\w)(?:{words})", shown, re.IGNORECASE)
    ]


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


def rounding_of(row: Bound) -> Rounding:
    """Outward: an upper bound up, a lower bound down."""
    return "up" if row.direction is Direction.UPPER else "down"


def bound(row: Bound) -> str:
    """``ε ≤ 1.282`` or ``ε ≥ 0.41``, rounded outward."""
    upper = row.direction is Direction.UPPER
    if upper and row.value == math.inf:
        return "no finite bound"
    return f"{symbol(row)} {'≤' if upper else '≥'} {format_number(row.value, rounding_of(row))}"


def bound_where(row: Bound) -> str:
    """The bound with the δ, or the argument, at which it holds, such as ``ε ≤ 1.282 at δ = 0.001``."""
    if row.at is not None:
        return f"{bound(row)} at {argument(row)}"
    return bound(row) + (f" at δ = {format_number(row.delta)}" if row.delta else "")


def ceiling(row: Bound) -> str:
    """What the test of a lower bound could have shown at most, rounded up; no more than it shows is the same number."""
    return format_ceiling(row.ceiling, row.value)


def symbol(row: Bound) -> str:
    """The letter of what a row bounds."""
    return SYMBOLS.get(row.quantity, row.quantity.replace("_", " "))


def risk_name(item: Risk) -> str:
    """What a number about the best test is of, such as ``true positive rate at false positive rate 0.01``."""
    at = "" if item.at is None else format_number(item.at)
    return {
        "advantage": "advantage of any test",
        "true_positive_rate": f"true positive rate at false positive rate {at}",
        "bayes_error": f"error of who guesses, prior {at}",
        "mu": f"μ of Gaussian DP, but for δ = {at}",
        "regret": "regret of that μ",
    }[item.name]


def risk_value(item: Risk) -> str:
    """``≤ 0.132365`` or ``≥ 0.433817``, rounded outward."""
    if math.isinf(item.value):
        return "no finite bound"
    upper = item.direction is Direction.UPPER
    return f"{'≤' if upper else '≥'} {format_number(item.value, 'up' if upper else 'down')}"


def risk_interval(item: Risk) -> str:
    """The interval of a number about the best test, rounded outward; a dash where none is known."""
    return "–" if item.interval is None else format_interval(item.interval.lower, item.interval.upper)


def risks_in_words(items: Sequence[Risk], relation: str, unit: Unit) -> str:
    """How to read such numbers: who attacks, and the first true positive rate; empty without one."""
    power = next((item for item in items if item.name == "true_positive_rate"), None)
    if power is None or power.at is None:
        return ""
    wrong, right = format_percent(power.at), format_percent(power.value, "up")
    start = "Somebody who sees all that is released and knows all data, but not"
    guess = f"a blind guess reaches {wrong}."
    if relation == "replace_one":
        several = f"groups of {unit.size} records" if unit.kind == "group" else f"{unit.kind}s"
        return (
            f"{start} which of two {several} is among them, tries to find out. Whoever wrongly says “the first” "
            f"{wrong} of the time rightly says so at most {right} of the time; {guess}"
        )
    one = {"group": f"a group of {unit.size} records", "user": f"a user with at most {unit.size} records"}
    which = one[unit.kind] if unit.is_group else f"one {unit}"
    return (
        f"{start} whether {which} is among them, tries to find out. Whoever is wrong about {wrong} of the "
        f"{unit.kind}s that are not in the data is right about at most {right} of those that are; {guess}"
    )


def argument(row: Bound) -> str:
    """At which ε, order, α or p a row holds, such as ``order = 8``; empty for a quantity that is no function."""
    return "" if row.at is None else f"{row.argument or 'at'} = {format_number(row.at)}"


def method(name: str) -> str:
    """The name of a method or an attack in words, with what it is about in brackets, if anything; one of a single
    unknown word without underscores."""
    word, bracket, about = name.partition(" (")
    known = METHODS.get(word) or (word if " " in word else capital(word.replace("_", " ")))
    return known + bracket + about


def method_within(name: str) -> str:
    """The method's name within a sentence; names of people keep their capitals."""
    words = method(name)
    return words if words[1:] != words[1:].lower() else words.lower()


def rigor(row: Bound) -> str:
    """The rigor in words, the confidence included."""
    if row.confidence is not None:
        return f"{RIGOR[row.rigor]}, confidence {format_confidence(row.confidence)}"
    return RIGOR[row.rigor]


def adjacency(name: str, unit: str | Unit) -> str:
    """The neighbouring relation in words."""
    return ADJACENCY.get(name, name.replace("_", " ")).format(unit=unit)


def neighbours(name: str, unit: str | Unit) -> str:
    """The neighbouring relation in a few words, for a cell of a table."""
    return SHORT_ADJACENCY.get(name, name.replace("_", " ") + ", {unit}").format(unit=unit)


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
    return capital(re.sub(rf"\b({names})\b", lambda match: method_within(match[1]), sentence))


def lengths(result: Lengths) -> str:
    """Lengths of texts in words."""
    if result.least == result.most:
        return f"{plain(result.most)} character{'s' if result.most != 1 else ''}"
    mean = "" if result.mean is None else f"mean {format_number(result.mean)}, "
    return f"{plain(result.least)} to {plain(result.most)} characters, {mean}median {format_number(result.median)}"


def output_in_words(made: Output, unfinished: int | None = None) -> str:
    """What a run made, such as ``12 complete documents (5 to 40 characters, median 12)``.

    Args:
        made: number and lengths of the documents.
        unfinished: how many more were begun and not finished.
    """
    what = "document" if made.characters or not made.documents else "row"
    complete = "complete " if made.complete is not None else ""
    result = f"{plain(made.documents)} {complete}{what}{'s' if made.documents != 1 else ''}"
    if made.characters is not None:
        result += f" ({lengths(made.characters)}{f'; {plain(made.empty)} without text' if made.empty else ''})"
    return result + (f", {plain(unfinished)} more cut when tokens ran out" if unfinished else "")
