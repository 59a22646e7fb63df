"""`dpassay audit secrets`: guesses a secret from the releases that protect it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base import defaults
from dpassay.base.terminal import say
from dpassay.cli import completion
from dpassay.cli.options import Confidence, Json, Quiet, call, conclude

EXAMPLE = "Example: dpassay audit secrets --p .01 --r .1 --occurrences 80 --sampling-probability .013"


def secrets(
    p: Annotated[
        float,
        typer.Option("--p", help="Claim: largest probability of guessing the secret before the release, in [1e-5, 1)."),
    ],
    r: Annotated[float, typer.Option("--r", help="Claim: largest probability of guessing it after the release.")],
    occurrences: Annotated[int, typer.Option(help="Number of records that hold the secret.")],
    sampling_probability: Annotated[
        float, typer.Option(help="Probability that each of them is in a release, in [0, 1].")
    ],
    rounds: Annotated[int, typer.Option(help="Number of releases, each with fresh noise and sampling.")] = 1,
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise σ₁, where an occurrence contributes 1. Default: the smallest that meets the claim."),
    ] = None,
    variant: Annotated[
        str, typer.Option(help="Which release: sound or as_published.", autocompletion=completion.variant)
    ] = "sound",
    confidence: Confidence = defaults.CONFIDENCE,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for the result; an interrupted audit resumes."),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Guesses a secret from the noisy clusters of secret-protected evolution by the best attack: a lower bound on r."""
    options = locals()
    from dpassay import audit

    result = call(audit.secrets, options)
    conclude(result, lambda: say("\n".join(result.in_words())), json_, quiet)
