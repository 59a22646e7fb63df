"""`dpassay audit text` and `dpassay audit table`: attacks on released data, compared with a holdout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from dpassay.base import defaults
from dpassay.base.errors import InputError
from dpassay.base.number_format import format_confidence, format_lower, format_p_value, format_points
from dpassay.base.terminal import say
from dpassay.cli.options import (
    FORMATS,
    BoundDelta,
    Confidence,
    Ignore,
    Json,
    Quiet,
    Seed,
    Synthetic,
    SyntheticText,
    call,
    conclude,
    with_fields,
)
from dpassay.data.chats import TEXTS, TextOptions
from dpassay.data.reader import FOUND, FileOptions

if TYPE_CHECKING:
    from rich.table import Table

    from dpassay.auditing.released.run import HoldoutAudit

TEXT_EXAMPLE = (
    "Example: dpassay audit text report --source seen.jsonl --holdout unseen.jsonl\n\n"
    "dpassay audit text report --source seen.jsonl --holdout unseen.jsonl --coins --epsilon 3 --delta 1e-5"
)
TABLE_EXAMPLE = (
    "Example: dpassay audit table synthetic.csv --source seen.csv --holdout unseen.csv --secret income\n\n"
    "dpassay audit table synthetic.csv --source seen.csv --holdout unseen.csv --link age --link city"
)

Source = Annotated[Path, typer.Option(help="File of the records that the generator saw.")]
Holdout = Annotated[
    Path | None,
    typer.Option(help="File of records of the same kind that it did not see; required."),
]
Coins = Annotated[
    bool,
    typer.Option(
        "--coins", help="An independent fair coin put each unit into source or holdout: then ε is bounded, too."
    ),
]

ClaimedEpsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon", help="Claimed ε under adding or removing one unit; needs --coins. Exits with 1 if it is refuted."
    ),
]


@with_fields
def text(
    synthetic: Synthetic,
    source: Source,
    holdout: Holdout = None,
    text: Annotated[str, typer.Option(help="Column of the text in source and holdout.")] = "text",
    user: Annotated[str | None, typer.Option(help="Column of the user; users are then the units.")] = None,
    synthetic_text: SyntheticText = "text",
    words: Annotated[int, typer.Option(help="Consecutive words that make a verbatim copy.")] = defaults.VERBATIM_WORDS,
    near_words: Annotated[int, typer.Option(help="Near-verbatim copies: words in a run.")] = defaults.NEAR_WORDS,
    near_share: Annotated[
        float, typer.Option(help="Near-verbatim copies: smallest share of a record's runs, in (0, 1].")
    ] = defaults.NEAR_SHARE,
    reading: TextOptions = TEXTS,
    coins: Coins = False,
    epsilon: ClaimedEpsilon = None,
    delta: BoundDelta = 0.0,
    confidence: Confidence = defaults.CONFIDENCE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file; private/text-audit.json by default.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Searches synthetic texts for records and personal data of the source, and of a holdout for comparison.

    The generator did not see the holdout, so what is found of it shows what records have in common. Without --coins
    there is a p-value but no bound on ε. Personal data are counted and hashed with a key, never printed.
    """
    options = locals()
    from dpassay import audit
    from dpassay.auditing.released.run import TEXT_NAME

    _audit(audit.text, options, TEXT_NAME, "dpassay audit plan")


@with_fields
def table(
    synthetic: Annotated[Path, typer.Argument(metavar="FILE", help=f"A {FORMATS} file.")],
    source: Source,
    holdout: Holdout = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(help="Column whose value is inferred from the others; repeatable, but each is paid for."),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(
            help="Column that one of two parties knows, while the other knows those that are not named: linkability; "
            "repeatable. Default: none."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Column of the user; users are then the units.")] = None,
    ignore: Ignore = None,
    number: Annotated[
        list[str] | None,
        typer.Option(help="Column of numbers or dates, in which all other cells count as missing; repeatable."),
    ] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="Column of numbers to treat as categories; repeatable.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Public schema (`dpassay table schema`), which says what columns hold.")
    ] = None,
    reading: FileOptions = FOUND,
    limit: Annotated[
        int, typer.Option(help="Largest number of units, of source and holdout together.")
    ] = defaults.TABLE_UNITS,
    coins: Coins = False,
    epsilon: ClaimedEpsilon = None,
    delta: BoundDelta = 0.0,
    confidence: Confidence = defaults.CONFIDENCE,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file; private/table-audit.json by default.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attacks a synthetic table: exact and near copies of its source, linkability, attribute inference, singling out.

    Each attack is also made on the holdout, which the generator did not see, so that what rows have in common does not
    count. Without --coins there is a p-value but no bound on ε. What each column was taken for is shown first.
    """
    options = locals()
    from dpassay import audit
    from dpassay.auditing.released.run import TABLE_NAME

    _audit(audit.table, options, TABLE_NAME, "dpassay audit plan --kind table")


def _audit(function: Callable[..., HoldoutAudit], options: dict[str, Any], name: str, instead: str) -> NoReturn:
    """Makes the audit of a command, and writes the result to `output`, or beside a file or in the folder of a run.

    Raises:
        InputError: if there is no holdout; the message says why one is needed, and what can be done without.
    """
    from dpassay.base.private_results import output_file

    if options["holdout"] is None:
        raise InputError(
            "--holdout is missing: it names records of the same kind that the generator did not see. Without them a "
            "match with the source may show no more than what such records have in common. If there are none, keep "
            f"some records back and run the generator again, or audit it with canaries: `{instead}`"
        )
    path = output_file(options["synthetic"], options["output"], name, (options["source"], options["holdout"]))
    result = call(function, options, output=path)

    def in_words() -> None:
        print_audits(result)
        say(f"Written to {path}")

    conclude(result, in_words, options["json_"], options["quiet"])


def print_audits(result: HoldoutAudit) -> None:
    """Prints a table of all audits, the personal data that were found, and the conclusions."""
    from dpassay.auditing.released.run import TableAudit, TextAudit
    from dpassay.base.private_results import PRIVATE
    from dpassay.cli.column_table import print_columns
    from dpassay.cli.table_console import TableConsole

    console = TableConsole()
    console.print(f"PRIVATE. {PRIVATE}", markup=False, highlight=False)
    if isinstance(result, TableAudit):
        print_columns(result.columns, result.written)
    console.print(_audits(result))
    if isinstance(result, TextAudit):
        counts = {kind: of for kind, of in result.personal_data.counts().items() if any(of.values())}
        console.print(
            _personal(counts) if counts else "No personal data on any side, of the kinds that are looked for."
        )
    for audit in result.audits:
        console.print(f"{audit.name}: {audit.conclusion}", markup=False, highlight=False)
    if result.conclusion:
        console.print(result.conclusion, markup=False, highlight=False)


def _audits(result: HoldoutAudit) -> Table:
    from rich.table import Table

    confidence = format_confidence(result.settings.confidence)
    title = f"Units hit ({result.unit}); all bounds hold jointly with confidence {confidence}"
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(("audit", "source", "holdout", "difference in points", "risk in %", "p", "ε ≥")):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for audit in result.audits:
        assert audit.difference is not None
        assert audit.p_value is not None
        rates = [f"{rate.hits}/{rate.trials}" for rate in audit.rates[:2]]
        bound = format_lower(audit.bounds[0].value) if audit.bounds else "–"
        points = f"{format_points(audit.difference.lower, 'down')} to {format_points(audit.difference.upper, 'up')}"
        low, high = audit.details["risk"]["interval"]
        risk = f"{'−∞' if low is None else format_points(low, 'down')} to {format_points(high, 'up')}"
        table.add_row(audit.name, *rates, points, risk, format_p_value(audit.p_value), bound)
    return table


def _personal(counts: dict[str, dict[str, int]]) -> Table:
    from rich.table import Table

    table = Table(title="Distinct values in the synthetic texts, by where else they occur", title_justify="left")
    for number, column in enumerate(("kind", "source only", "holdout only", "both", "neither", "occurrences")):
        table.add_column(column, justify="right" if number else "left")
    for kind, of in counts.items():
        columns = ("source", "holdout", "both", "neither", "occurrences")
        table.add_row(kind.replace("_", " "), *(str(of[column]) for column in columns))
    return table
