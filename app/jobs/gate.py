"""Whether a total privacy cost is within a policy, for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from dpassay.accounting.bounds import Bound
from dpassay.accounting.interop.conditions import options
from dpassay.accounting.ledger.evidence import NEWEST
from dpassay.base import validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_number, format_upper
from dpassay.jobs.account import Account, account
from dpassay.jobs.inputs import StatementWords, is_claim_file, is_foreign

MAX_DELTA = 0.01
"""From this δ on, a policy would allow to publish one record of a hundred."""


@dataclass(frozen=True)
class Policy:
    """What a total privacy cost may be.

    Attributes:
        epsilon: the largest ε.
        delta: the δ at which it is meant.
        unit: the unit that must be protected, such as ``user``; None for any.
        adjacency: the neighbouring relation; None for any.
    """

    epsilon: float
    delta: float
    unit: str | None = None
    adjacency: str | None = None


@dataclass(frozen=True)
class Gated:
    """A total privacy cost beside a policy.

    Attributes:
        policy: what may be.
        account: all bounds on the cost.
        bound: the best certified one, with the whole plan of unfinished runs; None if there is none.
        reasons: why the policy is not kept; empty if it is.
    """

    policy: Policy
    account: Account
    bound: Bound | None
    reasons: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the cost is proven to be within the policy."""
        return not self.reasons

    def sentence(self) -> str:
        """The answer in one sentence."""
        limit = f"ε = {format_number(self.policy.epsilon)} at δ = {format_number(self.policy.delta)}"
        if self.bound is None or not self.passed:
            return f"NOT within {limit}: {'; '.join(self.reasons)}"
        return f"within {limit}: at most {format_upper(self.bound.value)} by {self.bound.method}, certified"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the answer rests on, sentences."""
        if self.bound is None:
            return ()
        newest = (f"{state.path}: {NEWEST}" for state in self.account.ledgers if not state.anchored)
        return (*self.bound.assumptions, *newest)

    def in_words(self) -> str:
        """The answer, and a line for each assumption."""
        return "\n".join([self.sentence(), *(f"assumed: {item}" for item in self.assumptions)])

    def markdown(self) -> str:
        """The answer as a section in Markdown, for the summary of a workflow."""
        lines = [f"### Privacy budget: {'kept' if self.passed else 'NOT kept'}", "", self.sentence(), ""]
        assumed = self.assumptions
        return "\n".join([*lines, *(f"- assumed: {item}" for item in assumed), *([""] if assumed else [])])

    def to_json(self) -> dict[str, Any]:
        """The answer as plain JSON types."""
        return {
            "passed": self.passed,
            "max_epsilon": self.policy.epsilon,
            "delta": self.policy.delta,
            "bound": None if self.bound is None else self.bound.to_json(),
            "reasons": list(self.reasons),
            "assumptions": list(self.assumptions),
            "account": self.account.to_json(),
        }


def gate(
    files: Sequence[str | Path],
    policy: Policy,
    *,
    assume: bool = False,
    anchor: Path | None = None,
    summary: Path | None = None,
    **statements: Unpack[StatementWords],
) -> Gated:
    """Compares a total privacy cost with a policy.

    Args:
        files, anchor: as for `dpassay.account`.
        policy: unit and neighbouring relation are stated of files of other libraries that do not record them.
        assume: whether to take as given what neither the files nor the user state. Without it, a cost that is within
            the policy only under such conditions is no answer.
        summary: file to which the answer is appended in Markdown.
        statements: as for `dpassay.account`; unit and neighbouring relation are those of the policy.

    Raises:
        InputError: as for `dpassay.account`; for an ε that is negative, or a δ of .01 or more; if the cost is within
            the policy only under conditions that nobody states; if the summary cannot be written.
    """
    if unknown := statements.keys() - StatementWords.__annotations__.keys():
        raise TypeError(f"gate takes no {', '.join(sorted(unknown))}")
    with input_errors():
        validate.non_negative(max_epsilon=policy.epsilon)
        validate.open_probability(delta=policy.delta)
    if policy.delta >= MAX_DELTA:
        raise InputError(
            f"delta must be below {MAX_DELTA} for a policy, not {policy.delta!r}: publishing a share of {MAX_DELTA} of "
            "the records as they are would be within it"
        )
    foreign = any(is_foreign(Path(file)) and not is_claim_file(file) for file in files)
    if not foreign and any(statements.get(name) is not None for name in ("sampler", "records", "normalizer")):
        raise InputError(
            "--sampler, --records and --normalizer are for files of other libraries; ledgers and claims say them"
        )
    if foreign:
        statements |= {"adjacency": policy.adjacency, "unit": policy.unit}
    total = account(files, delta=policy.delta, anchor=anchor, limit=policy.epsilon, **statements)
    result = _compared(total, policy)
    if result.passed and total.unstated and not assume:
        files_of = dict.fromkeys(of for of, _ in total.unstated)
        raise InputError(
            f"{', '.join(files_of)}: the cost is within the policy only under conditions that nobody states; if they "
            f"hold, give {options(item for _, item in total.unstated)}, or --assume to take all of them as given "
            "(without it, dpassay account prints them)"
        )
    if summary is not None:
        try:
            with summary.open("a", encoding="utf-8") as file:
                file.write(result.markdown() + "\n")
        except OSError as error:
            raise InputError(f"{summary}: cannot be written: {error.strerror or error}") from None
    return result


def _compared(total: Account, policy: Policy) -> Gated:
    bounds = total.whole_plan if any(state.unfinished for state in total.ledgers) else total.bounds
    certified = [
        bound for bound in bounds if bound.rigor.may_support and bound.quantity == "epsilon" and not bound.private
    ]
    best = min(certified, key=lambda bound: bound.value, default=None)
    reasons = []
    if policy.unit not in (None, str(total.unit)):
        reasons.append(f"the cost is of unit {total.unit}, and the policy is for {policy.unit}")
    if policy.adjacency not in (None, str(total.adjacency)):
        reasons.append(f"the cost is at {total.adjacency}, and the policy is for {policy.adjacency}")
    if best is None:
        reasons.append(": ".join(["no certified bound on ε", *(["; ".join(total.doubts)] if total.doubts else [])]))
    elif best.value > policy.epsilon:
        reasons.append(f"the best certified bound is {format_upper(best.value)}, by {best.method}")
    if reasons and (best is None or best.value == math.inf):
        reasons += [hint[0].lower() + hint[1:].rstrip(".") for hint in total.hints]
    return Gated(policy, total, best, tuple(reasons))
