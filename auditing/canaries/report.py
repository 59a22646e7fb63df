"""The report of a planned audit: a page and a JSON file, from the result of `dpassay audit bound`."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import scipy
from pydantic import ValidationError

from dpassay import __version__
from dpassay.auditing.canaries.bound import read_bound
from dpassay.auditing.canaries.files import Manifest, read_manifest
from dpassay.auditing.plan_files import BOUND, guarantee, version_error
from dpassay.audits.implications import describe
from dpassay.base.errors import input_errors
from dpassay.base.private_files import PRIVATE, make_private, write_private
from dpassay.reports.canaries import CanaryAudit, render


def report(folder: str | Path, *, expect: str | None = None) -> CanaryAudit:
    """Writes ``report.html`` and ``report.json``.

    Args:
        folder: of the plan, with a bound.
        expect: the hash of the manifest that was kept outside.

    Raises:
        InputError: if a file is missing or was changed, or the bound is not what the scores show.
    """
    folder = Path(folder)
    manifest, digest = read_manifest(folder, expect)
    found = read_bound(folder, expect=expect)
    with input_errors():
        make_private(folder / PRIVATE)
    try:
        document = _document(folder, manifest, digest, found, expected=expect is not None)
    except ValidationError as error:
        raise version_error(folder / BOUND, error) from None
    write_private(folder / "report.html", render(document))
    write_private(folder / "report.json", document.model_dump_json(by_alias=True, indent=2) + "\n")
    return document


def _document(folder: Path, manifest: Manifest, digest: str, found: dict[str, Any], *, expected: bool) -> CanaryAudit:
    claim = manifest.claim

    return CanaryAudit.model_validate(
        {
            "schema": 1,
            "name": folder.resolve().name,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "claim": claim.model_dump() if claim else None,
            "guarantee": describe(guarantee(claim.epsilon, claim.delta)) if claim else "",
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
            "synthetic": found.get("synthetic"),
            "unprotected": found.get("unprotected"),
            "refuted": found.get("refuted"),
            "audit": found.get("audit"),
            "limitations": _limitations(manifest),
            "versions": {
                "dpassay": __version__,
                "python": platform.python_version(),
                "numpy": numpy.__version__,
                "scipy": scipy.__version__,
            },
        }
    )


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
