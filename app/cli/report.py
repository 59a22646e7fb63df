"""`dpassay report`: draws the page of a finished assay again."""

from __future__ import annotations

from dpassay.base.terminal import say
from dpassay.cli.options import Json, Quiet, RunFolder, show


def report(run_folder: RunFolder, json_: Json = False, quiet: Quiet = False) -> None:
    """Draws private/report.html again from private/assay.json, for example after an update. Nothing is recomputed."""
    from dpassay.jobs import report as job

    drawn = job.report(run_folder)
    results = {"verdict": drawn.verdict, "report": str(drawn.report)}
    show(results, lambda: say(f"{drawn.sentence} Report: {drawn.report}\n{drawn.history}"), json_, quiet)
