"""`cupel ledger`: what a ledger holds, and whether it was changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cupel.cli.options import Anchor, Json, Quiet, show
from cupel.terminal import say

app = typer.Typer(no_args_is_help=True, help="Checks ledgers, the records of what runs were charged.")


@app.command(epilog="Example: cupel ledger verify report/private/ledger.sqlite --expect 3f1c…")
def verify(
    file: Annotated[Path, typer.Argument(help="A ledger (.sqlite), or its export as JSON Lines (.jsonl).")],
    expect: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head that was printed; it must be the hash of an entry.")
    ] = None,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Checks every entry of a ledger against the hashes that chain them, and its head against the anchor.

    Exits with 2 and names the first bad entry where the ledger does not verify. A ledger that was replaced by an older
    copy shows only where an anchor, or a head that you kept, is known.
    """
    from cupel.jobs import verify_ledger as job

    state = job.verify_ledger(file, expect=expect, anchor=anchor)
    show(state.to_json(), lambda: say("\n".join(state.notes())), json_, quiet)
