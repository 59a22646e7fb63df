"""Renders the page of a finished assay again, from its document."""

from __future__ import annotations

from pathlib import Path

from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_files import PRIVATE, name_instead, write_private
from dpassay.jobs.assay import ASSAY, REPORT, AssayResult, private_page
from dpassay.reports.assay import load


def report(folder: str | Path) -> AssayResult:
    """Renders ``private/report.html`` of a run's folder from ``private/assay.json``.

    Args:
        folder: written by `dpassay.assay`.

    Raises:
        InputError: if the folder holds no assay that this version reads, or the page cannot be written.
    """
    private = Path(folder) / PRIVATE
    if not (private / ASSAY).exists():
        raise InputError(
            f"{folder}: expects the folder of a run, which `dpassay assay` wrote; there is no {private / ASSAY}"
            f"{name_instead(folder)}"
        )
    with input_errors():
        result = AssayResult(load(private / ASSAY), Path(folder))
    write_private(private / REPORT, private_page(result.document))
    return result
