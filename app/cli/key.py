"""`dpassay key`: keys that sign the certificates of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base.terminal import say
from dpassay.cli.options import Json, Quiet, show

app = typer.Typer(no_args_is_help=True, help="Makes keys that sign the certificates of releases.")


@app.command(epilog="Example: dpassay key new release.key")
def new(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Makes an Ed25519 key, writes it to a file that only you can read, and prints its public key.

    Publish the public key where readers of your releases find it. Whoever has the file can sign in your name.
    """
    from dpassay.base.signing import new_key

    public = new_key(file)
    show({"file": str(file), "public_key": public}, lambda: say(f"Public key: {public}"), json_, quiet)
