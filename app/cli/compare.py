"""`dpassay compare`: a subcommand for each mechanism; any other word is taken for the path of a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpassay.base import defaults
from dpassay.base.number_format import format_duration, format_interval, format_upper
from dpassay.cli import completion
from dpassay.cli.completion import complete
from dpassay.cli.default_command import DefaultCommandGroup
from dpassay.cli.options import (
    REQUIRED,
    Adjacency,
    AllStatements,
    Anchor,
    Delta,
    Json,
    Quiet,
    options_of,
    progress,
    show,
    unit_of_options,
    unit_options,
    with_fields,
    with_options,
)
from dpassay.jobs.mechanisms import COMPARED, Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from dpassay.accounting.bounds import Risk
    from dpassay.jobs.compare import Compared, ComparisonSettings


class _LedgerByDefault(DefaultCommandGroup):
    """`dpassay compare PATH` is `dpassay compare ledger PATH`."""

    default = "ledger"


app = typer.Typer(
    cls=_LedgerByDefault,
    no_args_is_help=True,
    help="Compares all accountants that support a mechanism, in a table and a figure.\n\n"
    "`dpassay compare LEDGER` compares them on what a ledger was charged.",
    epilog="Example: dpassay compare dp-sgd --noise-multiplier 1 --sampling-probability .01 --steps 10000 --delta 1e-5",
)

_METHOD = "Use this accountant; repeatable. Default: all."
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Draw all curves into this .svg, .pdf or .png file.")
]
Title = Annotated[str, typer.Option(help="Of the figure. Default: the mechanism in words.")]
Seconds = Annotated[float, typer.Option(help="Time limit of each accountant in each panel of the figure.")]

Prior = Annotated[float, typer.Option(help="Probability that the unit is in the data, for who guesses, in (0, 1).")]


def _settings(
    method: list[str] | None, output: Path | None, title: str, seconds: float, prior: float, json_: bool, quiet: bool
) -> ComparisonSettings:
    from dpassay.jobs.compare import ComparisonSettings

    return ComparisonSettings(tuple(method or ()), output, title, seconds, prior, progress(json_, quiet))


def _show(compared: Compared, json_: bool, quiet: bool) -> None:
    show(compared.to_json(), lambda: _print(compared), json_, quiet)


P = Annotated[float, typer.Option(help="Largest probability of guessing the secret before the release, in (0, 1).")]


def _mechanism(name: str, command: Command) -> None:
    """Adds the command about a mechanism."""
    mechanism = command.mechanism
    parameters = options_of(mechanism)

    def run(
        method: list[str] | None,
        output: Path | None,
        title: str,
        seconds: float,
        prior: float,
        json_: bool,
        quiet: bool,
        adjacency: str | None = None,
        **given: Any,
    ) -> None:
        from dpassay.jobs.compare import compare_mechanism

        settings = _settings(method, output, title, seconds, prior, json_, quiet)
        at = given.pop(mechanism.at)
        unit = unit_of_options(mechanism, given)
        compared = compare_mechanism(mechanism(**given), at, adjacency=adjacency, unit=unit, settings=settings)
        _show(compared, json_, quiet)

    secret = mechanism.at == "p"
    method_option = typer.Option(help=_METHOD, autocompletion=complete(mechanism.methods))
    options = [
        *(option for option in parameters if option[2] is REQUIRED),
        (mechanism.at, P if secret else Delta, REQUIRED),
        *(option for option in parameters if option[2] is not REQUIRED),
        *([] if secret else [("adjacency", Adjacency, mechanism.adjacency), *unit_options(mechanism)]),
        ("method", Annotated[list[str] | None, method_option], None),
        ("output", Output, None),
        ("title", Title, ""),
        ("seconds", Seconds, defaults.COMPARISON_SECONDS),
        ("prior", Prior, defaults.PRIOR),
        ("json_", Json, False),
        ("quiet", Quiet, False),
    ]
    app.command(name, epilog=f"Example: dpassay compare {name} {command.example}")(
        with_options(run, command.help, options)
    )


for _name, _row in COMPARED.items():
    _mechanism(_name, _row)


@app.command(epilog="Example: dpassay compare ledger report/private/ledger.sqlite --delta 1e-5")
@with_fields
def ledger(
    ledgers: Annotated[
        list[Path],
        typer.Argument(help="Ledgers of runs on one data set, and files of other libraries about it; they compose."),
    ],
    delta: Delta,
    statements: AllStatements,
    method: Annotated[list[str] | None, typer.Option(help=_METHOD, autocompletion=completion.method)] = None,
    anchor: Anchor = None,
    output: Output = None,
    title: Title = "",
    seconds: Seconds = defaults.COMPARISON_SECONDS,
    prior: Prior = defaults.PRIOR,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares the accountants on what ledgers were charged, and on files of other libraries; the word `ledger` may be
    left out."""
    from dpassay.jobs import compare as job

    settings = _settings(method, output, title, seconds, prior, json_, quiet)
    compared = job.ledgers(ledgers, delta=delta, settings=settings, anchor=anchor, **statements.words())
    _show(compared, json_, quiet)


def _print(compared: Compared) -> None:
    """Prints the comparison as a table, and below it which accountants have no bound, and why."""
    from rich.table import Table

    from dpassay.cli.table_console import TableConsole
    from dpassay.jobs.compare import relation_in_words
    from dpassay.reports.text import SYMBOLS

    result = compared.comparison
    sign = SYMBOLS.get(result.quantity, result.quantity.replace("_", " "))
    table = Table(title=f"{compared.about}\n{relation_in_words(result)}")
    least = sign if result.quantity == "noise_multiplier" else f"{sign} at most"
    for column in ("accountant", least, "certified interval", "rigor", "time"):
        table.add_column(column)
    for row in result.rows:
        bound = row.bound
        interval = format_interval(bound.interval.lower, bound.interval.upper) if bound.interval else "–"
        table.add_row(bound.method, format_upper(bound.value), interval, bound.rigor, format_duration(row.seconds))
    console = TableConsole()
    console.print(table)
    if compared.taken_for is not None:
        console.print(_taken_for(compared))
    if compared.risks:
        console.print(_risks(compared.risks))
    for name, reason in result.unsupported.items():
        if name not in result.inapplicable:
            console.print(f"{name}: {reason}")
    if result.inapplicable:
        names = ", ".join(result.inapplicable)
        console.print(f"No bound for this mechanism and unit: {names}. `--json` says why.")
    notes = [f"{row.bound.method}: {note}" for row in result.rows for note in row.notes]
    notes += [note for panel in compared.panels for note in panel.notes]
    for note in dict.fromkeys((*notes, *compared.assumptions)):
        console.print(f"Note: {note}")
    if compared.figure is not None:
        console.print(f"Figure: {compared.figure}")


def _taken_for(compared: Compared) -> str:
    """What the run would cost if it were what it is often accounted as, and whether that is too little."""
    from dpassay.base.number_format import format_lower, format_number

    assert compared.taken_for is not None
    words, claimed = compared.taken_for.words, compared.taken_for.bound.value
    least = max((row.bound.interval.lower for row in compared.comparison.rows if row.bound.interval), default=0.0)
    result = f"Accounted as {words}, which this is not, it would have ε ≤ {format_upper(claimed)}"
    if least > claimed > 0:
        times = format_number(round(least / claimed, 1))
        return f"{result}. What ran has ε ≥ {format_lower(least)} for some data, {times} times that."
    return f"{result}; whether that holds for what ran is not known."


def _risks(risks: Sequence[Risk]) -> Table:
    """What the loss means, as a table."""
    from rich.table import Table

    from dpassay.reports import text

    table = Table(title=f"In other words, by lattice ({text.RIGOR[risks[0].rigor]})")
    for column in ("", "bound", "interval"):
        table.add_column(column)
    for risk in risks:
        table.add_row(text.risk_name(risk), text.risk_value(risk), text.risk_interval(risk))
    return table
