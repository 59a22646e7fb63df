"""The parsers of `cupel audit text` and `cupel audit table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cupel.terminal import say

if TYPE_CHECKING:
    from cupel.progress import Progress

TEXT_EXAMPLE = "Example: cupel audit text report --source seen.jsonl --holdout unseen.jsonl"
TABLE_EXAMPLE = "Example: cupel audit table synthetic.csv --source seen.csv --holdout unseen.csv --secret income"

Source = Annotated[Path, typer.Option(help="File of the records that the generator saw.")]
Holdout = Annotated[Path, typer.Option(help="File of records of the same kind that it did not see.")]
Coins = Annotated[
    bool,
    typer.Option("--coins", help="Each unit is in source or holdout by its own fair coin: then ε is bounded too."),
]
Delta = Annotated[float, typer.Option(help="δ at which ε is bounded, in [0, 1).")]
Confidence = Annotated[float, typer.Option(help="Of all bounds together, in (0, 1).")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable: results on stdout, progress on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")]


def text(
    synthetic: Annotated[
        Path, typer.Argument(metavar="RUN_FOLDER_OR_FILE", help="A run's folder, or a .jsonl, .csv or .parquet file.")
    ],
    source: Source,
    holdout: Holdout,
    text: Annotated[str, typer.Option(help="Column of the text in source and holdout.")] = "text",
    user: Annotated[str | None, typer.Option(help="Column of the user, who is then the unit.")] = None,
    synthetic_text: Annotated[str, typer.Option(help="Column of the text in the synthetic file.")] = "text",
    words: Annotated[int, typer.Option(help="Verbatim from so many consecutive words on.")] = 8,
    near_words: Annotated[int, typer.Option(help="Words in the runs that near-verbatim counts.")] = 4,
    near_share: Annotated[float, typer.Option(help="Near-verbatim from this share of them on, in (0, 1].")] = 0.75,
    coins: Coins = False,
    delta: Delta = 0.0,
    confidence: Confidence = 0.95,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file; private/text-audit.json by default.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Looks for records and personal data of the source in synthetic texts, and in the same way for the holdout's.

    What is found of the holdout is what records have in common. Without --coins there is a p-value and no ε. Personal
    data are counted and hashed with a key, never printed.
    """
    from cupel.audit_jobs import released as job
    from cupel.utility.measures import output_file

    path = output_file(synthetic, output, job.TEXT_NAME, (source, holdout))
    options = job.TextOptions(
        source=source,
        holdout=holdout,
        text=text,
        user=user,
        synthetic_text=synthetic_text,
        words=words,
        near_words=near_words,
        near_share=near_share,
        coins=coins,
        delta=delta,
        confidence=confidence,
        progress=_progress(json_, quiet),
    )
    _finish(job.audit_text(synthetic, options, path), path, json_, quiet)


def table(
    synthetic: Annotated[Path, typer.Argument(metavar="FILE", help="A .jsonl, .csv or .parquet file.")],
    source: Source,
    holdout: Holdout,
    secret: Annotated[str | None, typer.Option(help="Column to guess from the others; none if not given.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A column to leave out, such as an id; repeatable.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="A column of numbers to take for categories; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many units of both sides together.")] = 20_000,
    coins: Coins = False,
    delta: Delta = 0.0,
    confidence: Confidence = 0.95,
    seed: Annotated[int, typer.Option(help="Of what is drawn; fix it before you look. It protects nothing.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file; private/table-audit.json by default.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Looks for rows of the source in a synthetic table: the same, near, guessed from, or singled out by it.

    Each against the holdout: what is found there follows from what rows have in common. Without --coins there is a
    p-value and no ε.
    """
    from cupel.audit_jobs import released as job
    from cupel.utility.measures import output_file

    path = output_file(synthetic, output, job.TABLE_NAME, (source, holdout))
    options = job.TableOptions(
        source=source,
        holdout=holdout,
        secret=secret,
        ignore=tuple(ignore or ()),
        categorical=tuple(categorical or ()),
        limit=limit,
        coins=coins,
        delta=delta,
        confidence=confidence,
        seed=seed,
        progress=_progress(json_, quiet),
    )
    _finish(job.audit_table(synthetic, options), path, json_, quiet)


def _progress(json_: bool, quiet: bool) -> Progress:
    from cupel.progress import Progress

    return Progress("quiet" if quiet else "json" if json_ else "bar")


def _finish(found: dict[str, Any], path: Path, json_: bool, quiet: bool) -> None:
    from cupel.utility.measures import write

    write(found, path)
    if json_:
        print(json.dumps(found))
    elif not quiet:
        from cupel.audit_jobs.released_table import print_audits

        print_audits(found)
        say(f"Written to {path}")
