"""Options that several commands have, each declared once, and how their results are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cupel.progress import Progress

Json = Annotated[bool, typer.Option("--json", help="Machine-readable: results on stdout; progress, errors on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

# Where things are.
Anchor = Annotated[
    Path | None,
    typer.Option(help="File that keeps the heads of ledgers; one in your state folder if not given."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="The folder that `cupel assay` wrote.")]
SyntheticTexts = Annotated[
    Path, typer.Argument(metavar="RUN_FOLDER_OR_FILE", help="A run's folder, or a .jsonl, .csv or .parquet file.")
]
SyntheticText = Annotated[str, typer.Option(help="Column of the text in the synthetic file.")]

# Models.
Model = Annotated[
    str | None, typer.Option(help="A local model folder or a hub id, in place of the one the claim names.")
]
Device = Annotated[str, typer.Option(help="Where models run: auto, cpu or cuda.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch a hub id that is not on this machine.")]
Embedder = Annotated[str, typer.Option(help="builtin, or a sentence-transformers model: a local folder or a hub id.")]
AllowEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Address of the claim's endpoint: allows sending it prompts and the API key that the claim names.",
    ),
]

# Accounting.
Delta = Annotated[float, typer.Option(help="The δ at which ε is asked for, in (0, 1).")]
Adjacency = Annotated[str, typer.Option(help="Which data sets are neighbours: add_remove, replace_one or zero_out.")]
Occurrences = Annotated[int | None, typer.Option(help="How many records hold the secret.")]
SamplingProbability = Annotated[
    float | None, typer.Option(help="With --occurrences: probability of each of them to be drawn.")
]
Weights = Annotated[
    str | None, typer.Option(help="In their place: probabilities that 0, 1, … of them are drawn, with commas.")
]

# Audits.
BoundDelta = Annotated[float, typer.Option(help="δ at which ε is bounded, in [0, 1).")]
Confidence = Annotated[float, typer.Option(help="With which all bounds hold together, in (0, 1).")]
Seed = Annotated[int, typer.Option(help="Of public choices, such as ties and draws; it protects nothing.")]


def progress(json_: bool, quiet: bool) -> Progress:
    """Where a command shows how long its work takes: a bar, JSON lines, or nothing."""
    from cupel.progress import Progress

    return Progress("quiet" if quiet else "json" if json_ else "bar")


def show(found: Any, in_words: Callable[[], None], json_: bool, quiet: bool) -> None:
    """Prints a result: as JSON, for people, or not at all.

    Args:
        found: the result in JSON types.
        in_words: prints it for people.
        json_, quiet: what was asked for; with both, JSON.
    """
    if json_:
        print(json.dumps(found))
    elif not quiet:
        in_words()
