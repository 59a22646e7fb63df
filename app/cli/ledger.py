"""`dpassay ledger`: verifies ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base.terminal import say
from dpassay.cli.options import Anchor, Json, Quiet, show

app = typer.Typer(no_args_is_help=True, help="Verifies ledgers, the records of what runs were charged.")


@app.command(epilog="Example: dpassay ledger verify report/private/ledger.sqlite --expect 3f1c…")
def verify(
    file: Annotated[Path, typer.Argument(help="A ledger (.sqlite), or its export as JSON Lines (.jsonl).")],
    expect: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="A head that was printed earlier; it must be the hash of an entry."),
    ] = None,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Verifies the hash chain of all entries of a ledger, and its head against the anchor.

    If an entry was changed, it exits with 2 and names the first bad one. That the ledger was replaced by an older copy
    is seen only from an anchor, or from a head that you kept. What bounds on its runs assume is printed, and why they
    are estimates, if they are.
    """
    from dpassay.jobs import verify_ledger as job

    state = job.verify_ledger(file, expect=expect, anchor=anchor)
    show(state.to_json(), lambda: say("\n".join([*state.notes(), *state.evidence()])), json_, quiet)
