"""A published statement, as its file has it, and what a check of it finds.

Every statement is read as "a quantity is at most a number". A check computes the quantity for an explicit case: a lower
bound by a pair of neighbouring data sets or an adversary that it constructs, an upper bound by a proof. The verdict
follows from the numbers: nothing in a file decides it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.bounds import Interval
from dpassay.audits.verdict_wording import Name
from dpassay.claims.base import no_bool
from dpassay.claims.data import Strict

Value: TypeAlias = int | float | str | list[int] | list[float] | list[str] | list[list[float]]


class Paper(Strict):
    """Where a paper states it."""

    title: str
    place: str = Field(description="theorem, section, equation or table")


class Software(Strict):
    """Where a library's code or documentation states it."""

    library: str
    version: str
    released: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="the date of that version")
    place: str = Field(description="class, function or file")


class PublishedClaim(Strict):
    """A published statement: a quantity is at most a number.

    Attributes:
        id: a stable label.
        statement: in one sentence, with its assumptions.
        source: where it is stated.
        quantity: what is bounded, with its δ or other argument, as in "ε at δ = 1e-5".
        adjacency: the neighbouring relation, where there is one.
        published: the number as printed; None if it is a formula, which the check evaluates.
        check: ``file.function`` in this package.
        parameters: of the check.
        beyond_source: whether the source does not claim this case itself; the statement is about a use of its result.
        recorded: the verdict when the claim was entered; a check that finds another is reported.
        note: what a reader must know to read the verdict rightly, such as that a misprint explains it.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    statement: str
    source: Paper | Software
    quantity: str
    adjacency: Adjacency | None = None
    published: Annotated[float, BeforeValidator(no_bool)] | None = None
    check: str = Field(pattern=r"^[a-z_]+\.[a-z_]+$")
    parameters: dict[str, Value] = Field(default={})
    beyond_source: bool = False
    recorded: Name
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a check computed.

    Attributes:
        lower: the quantity is at least this for the case that `steps` construct, numerical error included; None if
            nothing is shown.
        upper: the quantity is at most this in every case, by proof, numerical error included; None if nothing is.
        claimed: the value of the published formula for this case; None if the paper prints the number.
        steps: sentences that lead from the statement to the numbers: the neighbouring data sets or the adversary, what
            the mechanism does with them, and the loss.
    """

    lower: float | None = None
    upper: float | None = None
    claimed: float | None = None
    steps: tuple[str, ...]

    @classmethod
    def of(
        cls,
        *steps: str,
        within: Interval | None = None,
        lower: float | None = None,
        upper: float | None = None,
        claimed: float | None = None,
    ) -> CheckResult:
        """The result with these steps; `within` gives both ends at once."""
        if within is not None:
            lower, upper = within.lower, within.upper
        return cls(lower=lower, upper=upper, claimed=claimed, steps=steps)


Check: TypeAlias = Callable[..., CheckResult]
"""Takes the parameters of a published claim by name."""


def verdict(claimed: float, result: CheckResult) -> Name:
    """REFUTED if the quantity is proven to exceed the claim, SUPPORTED if it is proven not to, else UNPROVEN."""
    if result.lower is not None and result.lower > claimed:
        return "REFUTED"
    if result.upper is not None and result.upper <= claimed:
        return "SUPPORTED"
    return "UNPROVEN"


def name_of(source: Paper | Software) -> str:
    """The title of a paper, or the name of a library."""
    return source.title if isinstance(source, Paper) else source.library


def place_of(source: Paper | Software) -> str:
    """Where in a paper, or in which version of a library and where there."""
    return source.place if isinstance(source, Paper) else f"{source.version} ({source.released}), {source.place}"


def source_in_words(source: Paper | Software) -> str:
    """A source as a reader cites it."""
    return (
        f"“{name_of(source)}”, {place_of(source)}"
        if isinstance(source, Paper)
        else f"{name_of(source)} {place_of(source)}"
    )
