"""`dpassay assay`: checks a claim and writes a report with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base.terminal import say
from dpassay.cli.exit_codes import of_verdict
from dpassay.cli.options import (
    AllowEndpoint,
    Anchor,
    Cluster,
    Device,
    Download,
    Json,
    Model,
    NewRun,
    Quiet,
    Workers,
    call,
    show,
)


def assay(
    claim: Annotated[Path, typer.Argument(help="The claim, a YAML file; `dpassay schema claim` prints its schema.")],
    output: NewRun = Path("report"),
    model: Model = None,
    device: Device = "auto",
    download: Download = False,
    allow_endpoint: AllowEndpoint = None,
    workers: Workers = None,
    cluster: Cluster = None,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Runs the claimed mechanism, bounds its privacy loss, audits it, and writes a report with a verdict.

    Everything is written to private/; `dpassay release` makes a folder that may be published. Every verdict is kept in
    the ledger and counts for the next one. The same command, given again, resumes an interrupted run.
    """
    options = locals()
    from dpassay.base.outputs import check_device, check_output_folder
    from dpassay.generators.registry import read_claim

    asserted = read_claim(claim)
    check_device(device)
    check_output_folder(output, asserted.reads(claim, model))
    from dpassay.jobs import assay as job  # loads torch, so the claim is checked first
    from dpassay.reports.text import output_in_words

    result = call(job.assay, options, claim=asserted)

    def in_words() -> None:
        made = result.document.output
        documents = "" if made is None else f" Output: {output_in_words(made, result.document.unfinished)}."
        say(f"{result.sentence}{documents}")
        for warning in result.document.private_warnings:
            say(f"Warning, private like the verdict: {warning}")
        say(f"Report: {result.report}\n{result.history}")

    show(result.to_json(), in_words, json_, quiet)
    raise typer.Exit(of_verdict(result.verdict))
