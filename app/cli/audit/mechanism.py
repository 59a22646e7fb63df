"""`dpassay audit mechanism`: checks what a function of an installed library declares about its noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base.terminal import say
from dpassay.cli.options import Json, Quiet, call, conclude

EXAMPLE = "Example: dpassay audit mechanism examples/manifests/diffprivlib-mean.yaml -o mean-audit"


def mechanism(
    manifest: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="YAML manifest: the function, its arguments, which draws are its noise, what is claimed of them.",
        ),
    ],
    runs: Annotated[
        int, typer.Option(help="Recorded runs of the function, at least 2; more see smaller faults of the noise.")
    ] = 1000,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Private folder for the page and the JSON.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares the noise and the queries of a function of an installed library with what a manifest declares of them.

    The function runs many times while its noise is recorded, and again on neighbours with the same releases. The
    library is imported, which runs its code."""
    options = locals()
    from dpassay import audit

    result = call(audit.mechanism, options)
    conclude(result, lambda: say("\n".join(result.in_words())), json_, quiet)
