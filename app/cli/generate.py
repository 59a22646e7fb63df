"""`dpassay generate`: runs a generator without a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base.terminal import say
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


def generate(
    config: Annotated[Path, typer.Argument(help="A claim file; it needs neither guarantee nor audits.")],
    output: NewRun,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="Released vectors: write texts that they steer. No records are read, so this costs no privacy."
        ),
    ] = None,
    texts: Annotated[
        int | None,
        typer.Option(min=1, help="With --vectors: number of texts of each label; by default the claim's."),
    ] = None,
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
    """Runs a generator; writes the synthetic data, and the ledger of their privacy cost, to private/.

    With --vectors, a model writes texts that are steered by vectors released before (post-processing), into DIR itself.
    """
    options = locals()
    from dpassay.base.errors import InputError
    from dpassay.base.outputs import check_device, check_output_folder
    from dpassay.generators.registry import read_claim

    claim = read_claim(config)
    check_device(device)
    check_output_folder(output, claim.reads(config, model))
    from dpassay.jobs import generate as job  # loads torch, so the claim is checked first
    from dpassay.reports.text import output_in_words

    if vectors is not None:
        written = call(job.generate_from_vectors, options, claim=claim, config=None, anchor=None)
        show(written.to_json(), lambda: say(f"{output_in_words(written.output)} in {written.path}"), json_, quiet)
        return
    if texts is not None:
        raise InputError("--texts: goes with --vectors; a run writes as many texts as the claim says")
    run = call(job.generate, options, claim=claim, config=None)
    summary = run.to_json()

    def in_words() -> None:
        made = run.output()
        documents = "0 documents" if made is None else output_in_words(made, run.unfinished)
        say(f"{documents} in {summary['path']}; their privacy cost is in {summary['ledger']}")
        say(f"Head of the ledger: {summary['head']}")

    show(summary, in_words, json_, quiet)
