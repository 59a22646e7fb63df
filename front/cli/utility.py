"""The parser of `cupel utility`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cupel.terminal import say


def utility(
    synthetic: Annotated[
        Path, typer.Argument(metavar="RUN_FOLDER_OR_FILE", help="A run's folder, or a .jsonl, .csv or .parquet file.")
    ],
    real: Annotated[Path, typer.Option(help="File of the private texts that the generator saw.")],
    held_out: Annotated[
        Path | None, typer.Option(help="File of real texts that it did not see, with the same columns as --real.")
    ] = None,
    text: Annotated[str, typer.Option(help="Column of the text in real files.")] = "text",
    label: Annotated[
        str | None, typer.Option(help="Column of the label in real files; trains classifiers, if given.")
    ] = None,
    synthetic_text: Annotated[str, typer.Option(help="Column of the text in the synthetic file.")] = "text",
    synthetic_label: Annotated[str, typer.Option(help="Column of the label in the synthetic file.")] = "label",
    embedder: Annotated[
        str, typer.Option(help="builtin, or a sentence-transformers model: a local folder or a hub id.")
    ] = "builtin",
    device: Annotated[str, typer.Option(help="Where such a model runs: auto, cpu or cuda.")] = "auto",
    download: Annotated[bool, typer.Option("--download", help="Fetch a hub id that is not on this machine.")] = False,
    mauve: Annotated[
        bool, typer.Option("--mauve", help="Also MAUVE, by the package mauve-text (GPL), from cupel\\[mauve].")
    ] = False,
    mauve_buckets: Annotated[int, typer.Option(help="Number of clusters of MAUVE.")] = 50,
    limit: Annotated[
        int, typer.Option(help="Use at most so many texts of a file, drawn evenly; overlap looks at all real ones.")
    ] = 100_000,
    embedded: Annotated[int, typer.Option(help="Embed at most so many of the texts of a file.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of draws, splits and resamples; it protects nothing.")] = 0,
    confidence: Annotated[float, typer.Option(help="Of all intervals, in (0, 1).")] = 0.95,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file; private/utility.json by default.")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Machine-readable: results on stdout, progress on stderr.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Measures how far synthetic texts are from real ones: embeddings, words, lengths, a classifier, overlap.

    Every number is computed from private data without noise, so it is private too: it goes to private/, is covered by
    no guarantee, and must not decide the parameters of a claimed run.
    """
    from cupel.progress import Progress
    from cupel.utility import measures as job

    path = job.output_file(synthetic, output, inputs=(real, held_out))
    options = job.Options(
        real=real,
        held_out=held_out,
        text=text,
        label=label,
        synthetic_text=synthetic_text,
        synthetic_label=synthetic_label,
        embedder=embedder,
        device=device,
        download=download,
        mauve=mauve,
        mauve_buckets=mauve_buckets,
        limit=limit,
        embedded=embedded,
        seed=seed,
        confidence=confidence,
        progress=Progress("quiet" if quiet else "json" if json_ else "bar"),
    )
    found = job.measure(synthetic, options)
    job.write(found, path)
    if json_:
        print(json.dumps(found))
    elif not quiet:
        from cupel.utility.tables import print_tables

        print_tables(found)
        say(f"Written to {path}")
