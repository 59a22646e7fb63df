"""`dpassay verify`: checks a release against its certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base.terminal import say
from dpassay.cli.options import Anchor, Json, Quiet, show


def verify(
    folder: Annotated[Path, typer.Argument(metavar="RELEASE", help="The folder that `dpassay release` made.")],
    key: Annotated[
        str | None,
        typer.Option(metavar="PUBLIC_KEY", help="The key that must have signed, as its owner published it."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The run's ledger, or its export: it must record this release. Private.")
    ] = None,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Checks a release against its certificate: its SHA-256 and signature, then every file, then the ledger.

    If something was changed, it exits with 2 and says in one line which file, and why. It needs neither the private
    data nor the generator.
    """
    from dpassay.jobs import verify_release as job

    verified = job.verify_release(folder, key=key, ledger=ledger, anchor=anchor)
    show(verified.to_json(), lambda: say("\n".join(verified.in_words(key is not None))), json_, quiet)
