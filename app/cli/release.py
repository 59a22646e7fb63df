"""`dpassay release`: makes the folder of a finished run that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base.terminal import say
from dpassay.cli.options import Anchor, Json, Quiet, RunFolder, show


def release(
    run_folder: RunFolder,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make; it must be new or empty.")],
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            help="Why a run is released although its proof falls short of its claim. PUBLIC: printed on the page.",
        ),
    ] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run, if the ledger holds several.")] = None,
    key: Annotated[
        Path | None, typer.Option(help="A key that signs the certificate, made with `dpassay key new`.")
    ] = None,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Makes the folder of a finished run that may be published: documents, claim, a page and a certificate.

    Everything is rendered from the ledger, and the release is recorded there. Whether a run is released depends on its
    plan, its a-priori bound and its claim, which are public. A run whose events an audit contradicts is not released.
    """
    from dpassay.base.outputs import check_output_folder
    from dpassay.jobs import release as job
    from dpassay.reports.text import output_in_words

    check_output_folder(output, (run_folder, run_folder / "private", anchor, key))
    made = job.release(run_folder, output, accept=accept, run=run, anchor=anchor, key=key)

    def in_words() -> None:
        what = output_in_words(made.output, made.unfinished)
        say(f"Released {what} to {made.folder}: {', '.join(made.files)}. Head of the ledger: {made.head}")
        if made.key is not None:
            say(f"Signed: readers check it with dpassay verify {made.folder} --key {made.key}")
        if not made.anchored:
            say("No anchor of this ledger was found, so a restored or rewritten file would not show.")

    show(made.to_json(), in_words, json_, quiet)
