"""The report of an audit of a library's function: a page and a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpassay.auditing.files import report_header, write_report
from dpassay.auditing.mechanism.files import Manifest
from dpassay.reports.mechanism import MechanismReport, render


def write_page(folder: Path, manifest: Manifest, result: Mapping[str, Any], confidence: float) -> MechanismReport:
    """Writes ``report.html`` and ``report.json``.

    Args:
        folder: where to.
        manifest: what was audited.
        result: the audit as JSON types.
        confidence: with which no finding is by chance.
    """
    header = report_header(folder, None)
    return write_report(
        folder,
        MechanismReport,
        {
            **header,
            "name": manifest.name,
            "versions": {**header["versions"], **result["versions"]},
            "plan": {
                "adjacency": manifest.adjacency,
                "unit": "record",
                "confidence": confidence,
                "call": manifest.call,
                "library": manifest.library,
                "version": result["versions"][manifest.library],
                "object": ""
                if manifest.object is None
                else json.dumps(manifest.object, ensure_ascii=False, default=str),
                "arguments": json.dumps(manifest.arguments, ensure_ascii=False, default=str),
                "records": result["records"],
                "neighbors": result["neighbors"],
                "runs": result["runs"],
                "draws": [{**item.model_dump(), "values": result["values"][item.draw]} for item in manifest.noise],
                "manifest_sha256": result["manifest"]["sha256"],
            },
            **{name: result[name] for name in ("refuted", "findings", "limitations", "audit")},
        },
        render,
    )
