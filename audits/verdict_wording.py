"""The words of a verdict: SUPPORTED, REFUTED and UNPROVEN are worded here and nowhere else.

`dpassay.audits.verdict` decides and asks here for sentences; assay.json carries them; reports, the command line and its
exit codes print what is here. This module loads neither numpy nor a guarantee, because exit codes are known before
anything else is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dpassay.base.number_format import format_ceiling, format_confidence, format_lower, format_number, format_upper

if TYPE_CHECKING:
    from dpassay.accounting.bounds import Bound

Name: TypeAlias = Literal["SUPPORTED", "REFUTED", "UNPROVEN"]

MEANS: Final[dict[Name, str]] = {
    "SUPPORTED": "A certified upper bound for the mechanism, as the ledger or the claim describes it, is at most the "
    "claim, and nothing refutes it.",
    "REFUTED": "A certified or finite-sample lower bound, at the claim’s unit and adjacency, exceeds the claim.",
    "UNPROVEN": "Neither: no certified upper bound is at most the claim, and nothing refutes it.",
}
"""What each verdict means, for the reader of a report."""

SIGN: Final[dict[Name, str]] = {"SUPPORTED": "≤", "REFUTED": ">", "UNPROVEN": "?"}
"""The sign beside the word: how the privacy loss compares with the claim."""

EXIT: Final[dict[Name, str]] = {
    "SUPPORTED": "SUPPORTED; nothing refuted; done",
    "REFUTED": "REFUTED (`assay`, `audit`)",
    "UNPROVEN": "UNPROVEN (`assay`); no conclusion (`audit`): it could have found nothing, or a control failed",
}
"""What the exit code of each verdict says."""

AUDIT_EXIT: Final[dict[Literal["REFUTED", "DONE", "NO_CONCLUSION"], str]] = {
    "DONE": "done, and nothing was refuted, which is no evidence of privacy",
    "REFUTED": "the claim is refuted",
    "NO_CONCLUSION": "no conclusion: the audit could have found nothing, or a control failed; a sentence says why",
}
"""The same of audits, which support no claim."""

UNAUDITED: Final = "by proof alone: no audit was made"
UNTESTED: Final = "by proof alone: no audit is known that could have refuted it"
"""Beside SUPPORTED where nothing could have refuted the claim."""

CONTRADICTED: Final = "evidence contradicts the certified upper bounds"
"""Why no upper bound counts."""


def history(earlier: int, refuted_runs: Sequence[str] = ()) -> str:
    """Which of the earlier verdicts on a run in its ledger a verdict weighs, and which it does not know; `refuted_runs`
    are other runs in the ledger that charged the same plan and were refuted or contradicted."""
    weighed = {0: "It is the first verdict on this run", 1: "It weighs the earlier verdict on this run"}
    result = f"{weighed.get(earlier, f'It weighs the {earlier} earlier verdicts on this run')} in its ledger."
    if refuted_runs:
        result += (
            f" Audits refuted or contradicted {', '.join(map(repr, refuted_runs))} in this ledger, with the same plan; "
            "this verdict does not weigh that."
        )
    return f"{result} Verdicts in other folders or ledgers, and on runs of other names, are not weighed."


def named(name: Name, sentence: str) -> str:
    """A sentence after its verdict, as assay.json and the command line have it."""
    return f"{name}: {sentence}"


def without_name(sentence: str, name: Name) -> str:
    """A sentence without its verdict, for a page on which the verdict stands above it in large letters."""
    return sentence.removeprefix(named(name, "")) or sentence


def supported(value: float, what: str, method: str, claim: str) -> str:
    """The sentence of SUPPORTED: the certified upper bound, which quantity of several it bounds (`point`; empty where
    there is one), the method that certifies it, and the claim in words."""
    return (
        f"a certified upper bound of {format_upper(value)}{what} ({method}) is at most the claim, {claim}, and nothing "
        "refutes it."
    )


def refuted(bound: Bound, claim: str, limit: str) -> str:
    """The sentence of REFUTED: the lower bound that refutes, the claim, and what it allows of the bounded quantity, in
    words."""
    how = "certified" if bound.confidence is None else f"with confidence {format_confidence(bound.confidence)}"
    return f"{_shows(bound)} ({how}); the claim, {claim}, allows {limit}."


def unproven(claim: str, missing: str) -> str:
    """The sentence of UNPROVEN, which ends with what is missing."""
    return f"{claim} is neither proven nor refuted: {missing}."


def missing(value: float, claimed: float, best: Bound | None, what: str, contradicted: Sequence[str]) -> str:
    """What an UNPROVEN claim lacks: a proof that counts, any proof, or a better one than `value`, the smallest
    certified upper bound on the claimed quantity, from `best`."""
    if contradicted:
        return f"{CONTRADICTED}, so none of them counts"
    if best is None:
        return "no certified upper bound is known for this mechanism"
    return (
        f"the best certified upper bound{what} is {format_upper(value)} ({best.method}), "
        f"{format_upper(value - claimed)} above the claimed {format_number(claimed)}"
    )


def unheard(bound: Bound, made: int) -> str:
    """What an UNPROVEN claim lacks if the largest of so many audits' bounds, which do not hold jointly, contradicts its
    proof."""
    return (
        f"an audit shows at least {format_lower(bound.value)} ({bound.method}), which does not refute the claim only "
        f"because {made} bounds do not hold jointly; make each with more confidence"
    )


def point(epsilon: float) -> str:
    """Which point of a privacy profile a bound is about."""
    return f" on δ at ε = {format_number(epsilon)}"


def contradiction(lower: Bound, limit: float, method: str, *, sampled: bool) -> str:
    """That a lower bound exceeds what `method` certifies for the same mechanism, and what that can mean."""
    rare = ", or the sample is a rare one" if sampled else ""
    return (
        f"{_shows(lower)}, and {method} certifies at most {format_upper(limit)} for the mechanism as described: the "
        f"run did something else, an assumption fails, accounting or audit is wrong{rare}"
    )


def reason_contradicted(sentence: str) -> str:
    """The reason that follows from a contradiction."""
    return f"the upper bounds count as estimates: {sentence}"


def reasons_assumed(bound: Bound) -> list[str]:
    """The reasons that are assumptions of the bound which decides."""
    return [f"assumed by {bound.method}: {assumption}" for assumption in bound.assumptions]


def reason_rigor(bound: Bound) -> str:
    """Why a bound whose error is not controlled does not count."""
    rigor = "an estimate" if bound.rigor == "estimate" else bound.rigor.replace("_", "-")
    return f"{bound.method} is only {rigor}: it can neither support nor refute"


def reason_unlimited(bound: Bound) -> str:
    """Why a bound on another quantity does not count."""
    return f"{bound.method} bounds {_quantity(bound)}, which the claim does not limit"


def reason_jointly(bounds: int, confidence: float, needed: float, error: float) -> str:
    """Why several finite-sample bounds do not count together: the confidence with which they hold jointly, and that
    which refuting takes, 1 − `error`."""
    return (
        f"{bounds} finite-sample bounds hold jointly with confidence {format_confidence(confidence)} only, below "
        f"{format_confidence(needed)}, so none may refute: run each at 1 − {format_number(error)}/{bounds}"
    )


def reason_ceiling(bound: Bound) -> str:
    """Why it says nothing that a test with too low a ceiling found no leak."""
    return (
        f"{bound.method} could have shown at most {format_ceiling(bound.ceiling, bound.value)}, which is not above the "
        "claim: that it found no leak says nothing about the claim"
    )


def too_low(bound: Bound, claimed: float) -> str:
    """The same beside the audit's own table, which names the method."""
    return (
        "This audit could not have refuted the claim, whatever it had found: its ceiling, "
        f"{format_ceiling(bound.ceiling, bound.value)}, is not above the claimed {format_number(claimed)}. That it "
        "refutes nothing says nothing."
    )


def _shows(bound: Bound) -> str:
    return f"{bound.method} shows {_quantity(bound)} of at least {format_lower(bound.value)}"


def _quantity(bound: Bound) -> str:
    names = {
        "epsilon": "ε",
        "ex_post_epsilon": "ex-post ε",
        "renyi_epsilon": "Rényi ε",
        "delta": "δ",
        "rho": "ρ",
        "mu": "μ",
    }
    at = f" at δ = {format_number(bound.delta)}" if bound.delta else ""
    if bound.at is not None:
        at += f" at {bound.argument} {format_number(bound.at)}"
    return names.get(bound.quantity, bound.quantity) + at
