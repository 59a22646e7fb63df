"""Audits that a declared claim names: results of `dpassay audit`, read back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent
from pydantic import TypeAdapter, ValidationError

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.accounting.registry import upper_bounds
from dpassay.auditing.canaries.bound import read_bound as of_canaries_bound
from dpassay.auditing.canaries.files import read_plan as canaries_plan
from dpassay.auditing.files import BOUND, MANIFEST, PLAN
from dpassay.auditing.many_runs.bound import read_bound as of_runs_bound
from dpassay.auditing.many_runs.files import read_plan as runs_plan
from dpassay.audits.result import AuditResult
from dpassay.audits.verdict_wording import contradiction
from dpassay.base.errors import InputError
from dpassay.reports.json_form import AuditResult as AuditForm

OF_THIS = "That the audit is of the declared procedure is stated, not checked."
"""What every bound of such an audit assumes."""

AT_ITS_WORD = "Its file has no seal, and no scores from which its bounds could be computed again."
"""What bounds from a file assume, besides."""

_LARGEST = 2**26
_FORM: TypeAdapter[list[AuditResult]] = TypeAdapter(list[AuditForm])


def read_audits(path: Path, *, adjacency: Adjacency, unit: Unit) -> list[AuditResult]:
    """The results in the folder of a planned audit, or in a JSON file that `dpassay audit` wrote.

    A folder is verified: its bound is computed again from its scores or its runs, which must belong to its plan. A file
    is taken at its word, and bounds from it say so; so the result of a planned audit is read from its folder only.

    Args:
        path: of the folder or the file.
        adjacency, unit: of the claim; bounds of audits must be at both.

    Raises:
        InputError: one line that names the file.
    """
    result = _of_folder(path) if path.is_dir() else _of_file(path)
    stated = OF_THIS if path.is_dir() else f"{OF_THIS} {AT_ITS_WORD}"
    for audit in result:
        for bound in audit.bounds:
            if bound.direction is not Direction.LOWER:
                raise InputError(f"{path}: holds an upper bound, which no audit shows; name a result of dpassay audit")
            if (bound.adjacency, bound.unit) != (adjacency, unit):
                raise InputError(
                    f"{path}: its bound is at {bound.adjacency} and unit {bound.unit}, the claim at {adjacency} and "
                    f"unit {unit}"
                )
    return [_assuming(audit, stated) for audit in result]


def with_contradictions(
    audits: Sequence[AuditResult], event: DpEvent, *, adjacency: Adjacency, unit: Unit
) -> list[AuditResult]:
    """The audits, with a contradiction for each lower bound on ε above what is proven of `event` at the same δ.

    A verdict compares with the claim and what it implies, which may be nothing at the δ of an audit.
    """
    results = []
    for audit in audits:
        above = [item for bound in audit.bounds if (item := _contradiction(bound, event, adjacency, unit)) is not None]
        results.append(dataclasses.replace(audit, contradictions=(*audit.contradictions, *above)))
    return results


def _contradiction(lower: Bound, event: DpEvent, adjacency: Adjacency, unit: Unit) -> str | None:
    if lower.quantity not in ("epsilon", "ex_post_epsilon") or not lower.rigor.may_refute:
        return None
    question = ApproxDP(0.0, lower.delta) if lower.delta else PureDP(0.0)
    uppers = upper_bounds(event, question, adjacency=adjacency, unit=unit)
    best = next((bound for bound in uppers if bound.rigor.may_support), None)
    if best is None or lower.value <= best.value:
        return None
    return contradiction(lower, best.value, best.method, sampled=lower.rigor is Rigor.FINITE_SAMPLE)


def _assuming(audit: AuditResult, stated: str) -> AuditResult:
    """An audit whose controls failed shows nothing."""
    bounds = () if audit.controls_passed is False else audit.bounds
    assumed = tuple(dataclasses.replace(bound, assumptions=(*bound.assumptions, stated)) for bound in bounds)
    return dataclasses.replace(audit, bounds=assumed)


def _of_folder(folder: Path) -> list[AuditResult]:
    of_runs = not (folder / "private" / MANIFEST).is_file() and (folder / "private" / PLAN).is_file()
    result = of_runs_bound(runs_plan(folder)) if of_runs else of_canaries_bound(canaries_plan(folder))
    return _audits([result.get("audit")], folder / BOUND)


def _of_file(path: Path) -> list[AuditResult]:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise InputError(f"{path}: is larger than {_LARGEST} bytes, which no result of an audit is")
        body = json.loads(content)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is not JSON; name a folder or a result of dpassay audit") from None
    if not isinstance(body, dict) or not ("audits" in body or "audit" in body):
        raise InputError(f"{path}: is no result of dpassay audit")
    if "manifest_sha256" in body or "plan_sha256" in body:
        raise InputError(
            f"{path}: is the bound of a planned audit, which is computed again from the scores or the runs in its "
            "folder; name that folder"
        )
    return _audits(body.get("audits", [body.get("audit")]), path)


def _audits(content: Sequence[Any], path: Path) -> list[AuditResult]:
    try:
        return _FORM.validate_python(content)
    except (ValidationError, ValueError, TypeError):
        raise InputError(f"{path}: holds no result of an audit that this version reads") from None
