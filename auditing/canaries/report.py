"""The report of a planned audit: a page and a JSON file, from the result of `dpassay audit bound`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpassay.auditing.canaries.bound import read_bound
from dpassay.auditing.canaries.files import Manifest, read_manifest
from dpassay.auditing.plan_files import report_header, write_report
from dpassay.base.errors import input_errors
from dpassay.base.private_files import PRIVATE, make_private
from dpassay.reports.canaries import CanaryAudit, render


def report(folder: str | Path, *, expect: str | None = None) -> CanaryAudit:
    """Writes ``report.html`` and ``report.json``.

    Args:
        folder: of the plan, with a bound.
        expect: the hash of the manifest that was kept outside.

    Returns:
        The content of ``report.json``.

    Raises:
        InputError: if a file is missing or was changed, or the bound is not what the scores show.
    """
    folder = Path(folder)
    manifest, digest = read_manifest(folder, expect)
    result = read_bound(folder, expect=expect)
    with input_errors():
        make_private(folder / PRIVATE)
    return write_report(
        folder, CanaryAudit, _document(folder, manifest, digest, result, expected=expect is not None), render
    )


def _document(
    folder: Path, manifest: Manifest, digest: str, result: dict[str, Any], *, expected: bool
) -> dict[str, Any]:
    return {
        **report_header(folder, manifest.claim),
        "plan": {
            "kind": manifest.kind,
            "candidates": len(manifest.candidates),
            "unit": manifest.unit,
            "copies": manifest.copies,
            "adjacency": "add_remove",
            "guesses": manifest.guesses,
            "scorings": manifest.scorings,
            "confidence": manifest.confidence,
            "statistic": manifest.statistic,
            "manifest_sha256": digest,
            "manifest_expected": expected,
        },
        "synthetic": result.get("synthetic"),
        "unprotected": result.get("unprotected"),
        "refuted": result.get("refuted"),
        "audit": result.get("audit"),
        "limitations": _limitations(manifest),
    }


def _limitations(manifest: Manifest) -> list[str]:
    lines = [
        "The result is about the run that read the planted canaries. A release that was made by another run, or with "
        "other settings, is not covered.",
        "It says nothing if somebody took canaries out, treated them otherwise than records, or knew the coins.",
        f"It is about adding or removing one unit ({manifest.unit}), not about exchanging one.",
        "It is a lower bound: the attack reads what was scored and nothing else; a better attack may find more.",
    ]
    if manifest.canary_kind.like_data:
        lines.append(
            "Canaries are made up from what the data look like; the rarest records may leak more than they do."
        )
    return lines
