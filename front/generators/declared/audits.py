"""Audits that a declared claim names: results of `cupel audit`, read back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent
from pydantic import TypeAdapter, ValidationError

from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound, Direction, Rigor
from cupel.accounting.guarantees import ApproxDP, PureDP
from cupel.accounting.registry import upper_bounds
from cupel.audit_jobs.canaries import files
from cupel.audit_jobs.canaries.bound import read_bound as of_canaries_bound
from cupel.audit_jobs.runs.bound import read_bound as of_runs_bound
from cupel.audit_jobs.runs.files import read_plan
from cupel.audits.result import AuditResult
from cupel.audits.verdict_wording import contradiction
from cupel.errors import InputError
from cupel.reports.json_form import AuditResult as AuditForm

OF_THIS = "That the audit is of the declared procedure is stated, not checked."
"""What every bound of such an audit assumes."""

AT_ITS_WORD = "Its file has no seal, and no scores from which its bounds could be computed again."
"""What bounds from a file assume, besides."""

_LARGEST = 2**26
_FORM: TypeAdapter[list[AuditResult]] = TypeAdapter(list[AuditForm])


def read_audits(path: Path, *, adjacency: Adjacency, unit: Unit) -> list[AuditResult]:
    """The results in the folder of a planned audit, or in a JSON file that `cupel audit` wrote.

    A folder is verified: its bound is computed again from its scores or its runs, which must belong to its plan. A file
    is taken at its word, and bounds from it say so; so the result of a planned audit is read from its folder only.

    Args:
        path: of the folder or the file.
        adjacency, unit: of the claim; bounds of audits must be at both.

    Raises:
        InputError: one line that names the file.
    """
    found = _of_folder(path) if path.is_dir() else _of_file(path)
    stated = OF_THIS if path.is_dir() else f"{OF_THIS} {AT_ITS_WORD}"
    for audit in found:
        for bound in audit.bounds:
            if bound.direction is not Direction.LOWER:
                raise InputError(f"{path}: holds an upper bound, which no audit shows; name a result of cupel audit")
            if (bound.adjacency, bound.unit) != (adjacency, unit):
                raise InputError(
                    f"{path}: its bound is at {bound.adjacency} and unit {bound.unit}, the claim at {adjacency} and "
                    f"unit {unit}"
                )
    return [_assuming(audit, stated) for audit in found]


def with_contradictions(
    audits: Sequence[AuditResult], event: DpEvent, *, adjacency: Adjacency, unit: Unit
) -> list[AuditResult]:
    """The audits, with a contradiction for each lower bound on ε above what is proven of `event` at the same δ.

    A verdict compares with the claim and what it implies, which may be nothing at the δ of an audit.
    """
    found = []
    for audit in audits:
        above = [one for bound in audit.bounds if (one := _contradiction(bound, event, adjacency, unit)) is not None]
        found.append(dataclasses.replace(audit, contradictions=(*audit.contradictions, *above)))
    return found


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
    of_runs = not (folder / "private" / files.MANIFEST).is_file() and (folder / "private" / files.PLAN).is_file()
    found = of_runs_bound(read_plan(folder)) if of_runs else of_canaries_bound(folder)
    return _audits([found.get("audit")], folder / files.BOUND)


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
        raise InputError(f"{path}: is not JSON; name a folder or a result of cupel audit") from None
    if not isinstance(body, dict) or not ("audits" in body or "audit" in body):
        raise InputError(f"{path}: is no result of cupel audit")
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
