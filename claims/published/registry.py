"""Reads the registry of published claims, and checks its claims."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from typing import Any

import yaml
from pydantic import ValidationError

from dpassay.accounting.bounds import json_number
from dpassay.audits.verdict_wording import Name
from dpassay.claims.published.ids import ROWS, published_ids
from dpassay.claims.published.statement import Check, CheckResult, PublishedClaim, source_in_words, verdict


@dataclass(frozen=True)
class CheckedClaim:
    """A published claim and what its check found.

    Attributes:
        claim: as its file has it.
        finding: of its check.
        claimed: the number that was published, or that the published formula gives.
    """

    claim: PublishedClaim
    finding: CheckResult
    claimed: float

    @property
    def verdict(self) -> Name:
        """SUPPORTED, REFUTED or UNPROVEN, by the numbers."""
        return verdict(self.claimed, self.finding)

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is that of the file."""
        return self.verdict == self.claim.recorded

    def to_json(self) -> dict[str, Any]:
        """The claim, its verdict and its numbers, in JSON types."""
        return {
            "id": self.claim.id,
            "statement": self.claim.statement,
            "source": source_in_words(self.claim.source),
            "adjacency": None if self.claim.adjacency is None else str(self.claim.adjacency),
            "quantity": self.claim.quantity,
            "verdict": self.verdict,
            "note": self.claim.note,
            "published": json_number(self.claimed),
            "recomputed": {"lower": json_number(self.finding.lower), "upper": json_number(self.finding.upper)},
            "recorded": self.claim.recorded,
            "as_recorded": self.as_recorded,
            "steps": list(self.finding.steps),
        }


@cache
def read_published_claims() -> tuple[PublishedClaim, ...]:
    """All claims of the registry, by id.

    Raises:
        ValueError: if a file is no published claim, names no check, or has the id of another.
    """
    results = []
    for name in published_ids():
        content = yaml.safe_load((resources.files(ROWS) / f"{name}.yaml").read_text(encoding="utf-8"))
        try:
            claim = PublishedClaim.model_validate(content)
        except ValidationError as error:
            raise ValueError(f"{name}.yaml: {error}") from None
        if claim.id != name:
            raise ValueError(f"{name}.yaml: its id is {claim.id}")
        _check_of(claim)
        results.append(claim)
    return tuple(results)


def check_claim(claim: PublishedClaim) -> CheckedClaim:
    """Computes what a claim states.

    Raises:
        ValueError: if the check needs a number that the file does not have.
    """
    finding = _check_of(claim)(**claim.parameters)
    claimed = claim.published if finding.claimed is None else finding.claimed
    if claimed is None or (claim.published is not None and finding.claimed is not None):
        raise ValueError(f"{claim.id}: either the file states the published number, or the check computes it")
    return CheckedClaim(claim, finding, claimed)


def checks_of(file: str) -> dict[str, Check]:
    """The checks in a file of this package, by name: its public functions that return a `CheckResult`."""
    module = import_module(f"dpassay.claims.published.{file}")
    functions = inspect.getmembers(module, lambda item: inspect.isfunction(item) and item.__module__ == module.__name__)
    return {
        name: check
        for name, check in functions
        if not name.startswith("_") and check.__annotations__.get("return") == CheckResult.__name__
    }


def _check_of(claim: PublishedClaim) -> Check:
    file, name = claim.check.split(".")
    try:
        checks = checks_of(file)
    except ModuleNotFoundError:
        raise ValueError(f"{claim.id}: there is no file {file!r} of checks") from None
    if name not in checks:
        raise ValueError(f"{claim.id}: {file} has no check {name!r}; it has {', '.join(checks)}")
    return checks[name]
