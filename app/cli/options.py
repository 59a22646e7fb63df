"""Options that several commands share, and how commands print results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpassay.accounting.adjacency import RECORD_UNITS

if TYPE_CHECKING:
    from dpassay.base.progress import Progress

Json = Annotated[
    bool, typer.Option("--json", help="Print results as JSON on stdout, progress and errors as JSON on stderr.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

# Where things are.
Anchor = Annotated[
    Path | None,
    typer.Option(
        help="File of the last known heads of ledgers, to notice replaced ones. Default: one in your state folder."
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="The folder that `dpassay assay` wrote.")]
SyntheticTexts = Annotated[
    Path, typer.Argument(metavar="RUN_FOLDER_OR_FILE", help="A run's folder, or a .jsonl, .csv or .parquet file.")
]
SyntheticText = Annotated[str, typer.Option(help="Column of the text in the synthetic file.")]

# Models.
Model = Annotated[str | None, typer.Option(help="A local model folder or a hub id, used instead of the claim's model.")]
Device = Annotated[str, typer.Option(help="Where models run: auto, cpu or cuda.")]
Download = Annotated[
    bool, typer.Option("--download", help="Download models and data sets that are not on this machine.")
]
Embedder = Annotated[str, typer.Option(help="builtin, or a sentence-transformers model: a local folder or a hub id.")]
AllowEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Allow sending prompts, and the API key that the claim names, to the claim's endpoint at this address.",
    ),
]

# What files of other libraries do not record.
Sampler = Annotated[
    str | None,
    typer.Option(help="Of files of other libraries: records were sampled by poisson, fixed, shuffled or unknown."),
]
Records = Annotated[int | None, typer.Option(help="Likewise, the number of records, for the sampler fixed.")]
FileAdjacency = Annotated[
    str | None, typer.Option("--adjacency", help="Likewise, the neighbours: add_remove, replace_one or zero_out.")
]
FileUnit = Annotated[str | None, typer.Option("--unit", help=f"Likewise, the unit: {RECORD_UNITS}.")]
Normalizer = Annotated[
    str | None,
    typer.Option(
        help="Likewise, what noisy sums were divided by: public (a number that is the same for neighbours), batch (one "
        "that follows the size of the data) or unknown."
    ),
]
Conditions = Annotated[
    list[str] | None,
    typer.Option(
        "--condition",
        help="A condition that holds, though no file records it: clipping, noise, once, epochs, independent, event, "
        "disjoint, run, newest or recorded. May be given several times.",
    ),
]

# Accounting.
Delta = Annotated[float, typer.Option(help="δ at which ε is computed, in (0, 1).")]
Adjacency = Annotated[str, typer.Option(help="Which data sets are neighbours: add_remove, replace_one or zero_out.")]
Occurrences = Annotated[int | None, typer.Option(help="Number of records that hold the secret.")]
SamplingProbability = Annotated[
    float | None, typer.Option(help="With --occurrences: probability that each of these records is drawn.")
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Instead of --occurrences: probabilities that 0, 1, … such records are drawn, separated by commas."
    ),
]

# Audits.
BoundDelta = Annotated[float, typer.Option(help="δ at which ε is bounded, in [0, 1).")]
Confidence = Annotated[float, typer.Option(help="Confidence with which all bounds hold jointly, in (0, 1).")]
Seed = Annotated[
    int, typer.Option(help="Seed of public choices, such as tie-breaking and sampling; noise does not depend on it.")
]


def progress(json_: bool, quiet: bool) -> Progress:
    """How a command shows its progress: as a bar, as JSON lines, or not at all."""
    from dpassay.base.progress import Progress

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
