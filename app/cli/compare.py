"""`dpassay compare`: a subcommand for each mechanism; any other word is taken for the path of a ledger."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from dpassay.base import defaults
from dpassay.base.number_format import format_interval, format_number, format_upper
from dpassay.cli.options import (
    Adjacency,
    Anchor,
    Conditions,
    Delta,
    FileAdjacency,
    FileUnit,
    Json,
    Normalizer,
    Occurrences,
    Quiet,
    Records,
    Sampler,
    SamplingProbability,
    Weights,
    progress,
    show,
)

if TYPE_CHECKING:
    from dpassay.jobs.compare import Compared, ComparisonSettings


class _LedgerByDefault(TyperGroup):
    """A group whose `ledger` command may be left out: `dpassay compare PATH` is `dpassay compare ledger PATH`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            if re.fullmatch(r"[a-z-]+", args[0].lower()) and not args[0].startswith("-") and not Path(args[0]).exists():
                ctx.fail(f"{args[0]!r} is neither a ledger nor one of {', '.join(self.commands)}.")
            args = ["ledger", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_LedgerByDefault,
    no_args_is_help=True,
    help="Compares all accountants that support a mechanism, in a table and a figure.\n\n"
    "`dpassay compare LEDGER` compares them on what a ledger was charged.",
    epilog="Example: dpassay compare dp-sgd --noise-multiplier 1 --sampling-probability .01 --steps 10000 --delta 1e-5",
)

Method = Annotated[list[str] | None, typer.Option(help="Use this accountant; repeatable. Default: all.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Draw all curves into this .svg file.")]
Seconds = Annotated[float, typer.Option(help="Time limit of each accountant in each panel of the figure.")]


def _settings(
    method: list[str] | None, output: Path | None, seconds: float, json_: bool, quiet: bool
) -> ComparisonSettings:
    from dpassay.jobs.compare import ComparisonSettings

    return ComparisonSettings(tuple(method or ()), output, seconds, progress(json_, quiet))


def _show(compared: Compared, json_: bool, quiet: bool) -> None:
    show(compared.to_json(), lambda: _print(compared), json_, quiet)


@app.command(
    "dp-sgd",
    epilog="Example: dpassay compare dp-sgd --noise-multiplier 1 --sampling-probability .01 --steps 10000 --delta 1e-5",
)
def dp_sgd(
    noise_multiplier: Annotated[float, typer.Option(help="σ over the clipping norm, above 0.")],
    sampling_probability: Annotated[float, typer.Option(help="Probability that a record is in a batch, in (0, 1].")],
    steps: Annotated[int, typer.Option(help="Number of steps, at least 1.")],
    delta: Delta,
    adjacency: Adjacency = "add_remove",
    method: Method = None,
    output: Output = None,
    seconds: Seconds = defaults.COMPARISON_SECONDS,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares the accountants on DP-SGD with Poisson-sampled batches."""
    from dpassay.jobs import compare as job

    settings = _settings(method, output, seconds, json_, quiet)
    compared = job.dp_sgd(
        noise_multiplier, sampling_probability, steps, adjacency=adjacency, delta=delta, settings=settings
    )
    _show(compared, json_, quiet)


@app.command(epilog="Example: dpassay compare gaussian --noise-multiplier 5 --count 10 --delta 1e-5 -o figure.svg")
def gaussian(
    noise_multiplier: Annotated[float, typer.Option(help="σ over the L2 sensitivity to one record, above 0.")],
    delta: Delta,
    count: Annotated[int, typer.Option(help="Number of releases, at least 1.")] = 1,
    adjacency: Adjacency = "add_remove",
    method: Method = None,
    output: Output = None,
    seconds: Seconds = defaults.COMPARISON_SECONDS,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares the accountants on Gaussian releases of the whole data set."""
    from dpassay.jobs import compare as job

    settings = _settings(method, output, seconds, json_, quiet)
    _show(job.gaussian(noise_multiplier, count, adjacency=adjacency, delta=delta, settings=settings), json_, quiet)


@app.command(
    epilog="Example: dpassay compare selection --clip 9 --temperature 1.5 --batch-size 64 --count 367 --delta 1e-5"
)
def selection(
    count: Annotated[int, typer.Option(help="Number of selections, at least 1.")],
    delta: Delta,
    eta: Annotated[float | None, typer.Option(help="The bounded range of one selection, above 0.")] = None,
    clip: Annotated[float | None, typer.Option(help="Instead of --eta: logits are clipped to ± this.")] = None,
    temperature: Annotated[float | None, typer.Option(help="With --clip: the temperature of the softmax.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="With --clip: the public denominator of the mean.")] = None,
    adjacency: Adjacency = "add_remove",
    method: Method = None,
    output: Output = None,
    seconds: Seconds = defaults.COMPARISON_SECONDS,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares the accountants on bounded-range selections, such as tokens drawn from a mean of clipped logits."""
    from dpassay.base.errors import InputError, input_errors
    from dpassay.jobs import compare as job

    given = [value is not None for value in (clip, temperature, batch_size)]
    if (eta is None) != all(given) or (eta is not None and any(given)):
        raise InputError("give either --eta, or all of --clip, --temperature and --batch-size")
    if eta is None:
        assert clip is not None
        assert temperature is not None
        assert batch_size is not None
        with input_errors():
            eta = job.softmax_range(clip, temperature, batch_size, adjacency)
    settings = _settings(method, output, seconds, json_, quiet)
    _show(job.selection(eta, count, adjacency=adjacency, delta=delta, settings=settings), json_, quiet)


@app.command(
    epilog="Example: dpassay compare secret --occurrences 80 --sampling-probability .01 --sigma 2 --p 1e-4 --rounds 10"
)
def secret(
    sigma: Annotated[
        float, typer.Option(help="Standard deviation of the noise, where an occurrence contributes at most 1.")
    ],
    p: Annotated[float, typer.Option(help="Largest probability of guessing the secret before, in (0, 1).")],
    occurrences: Occurrences = None,
    sampling_probability: SamplingProbability = None,
    weights: Weights = None,
    rounds: Annotated[int, typer.Option(help="Number of releases, each with fresh noise and sampling.")] = 1,
    method: Method = None,
    output: Output = None,
    seconds: Seconds = defaults.COMPARISON_SECONDS,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares bounds on the probability of guessing a secret: exact, by composed curves, by a single Gaussian."""
    from dpassay.jobs import compare as job

    release = job.secret_of(sigma, occurrences, sampling_probability, weights)
    about = f"a secret in {occurrences} records, each drawn with probability {format_number(sampling_probability)}"
    about = "a secret with given occurrences" if weights is not None else about
    about += f", σ = {format_number(sigma)}, {rounds} round{'s' if rounds != 1 else ''}"
    settings = _settings(method, output, seconds, json_, quiet)
    _show(job.secret(release, p=p, rounds=rounds, about=about, settings=settings), json_, quiet)


@app.command(
    epilog="Example: dpassay compare vectors --layers 4 --clip 1 --records 1000 --epsilon 5 --delta 1e-5",
)
def vectors(
    layers: Annotated[int, typer.Option(help="Number of layers, at least 1.")],
    clip: Annotated[float, typer.Option(help="Largest L2 norm of a record's vector in each layer, above 0.")],
    records: Annotated[int, typer.Option(help="The public divisor of the means, at least 1.")],
    delta: Delta,
    epsilon: Annotated[float | None, typer.Option(help="ε of all layers together: the noise is computed.")] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Instead of --epsilon: standard deviation of the noise on each coordinate.")
    ] = None,
    adjacency: Adjacency = "replace_one",
    method: Method = None,
    output: Output = None,
    seconds: Seconds = defaults.COMPARISON_SECONDS,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares the noise for mean vectors of several layers: exact for all jointly, or layer by layer."""
    from dpassay.jobs import compare as job

    compared = job.vectors(
        layers,
        clip,
        records,
        epsilon=epsilon,
        sigma=sigma,
        adjacency=adjacency,
        delta=delta,
        settings=_settings(method, output, seconds, json_, quiet),
    )
    _show(compared, json_, quiet)


@app.command(epilog="Example: dpassay compare ledger report/private/ledger.sqlite --delta 1e-5")
def ledger(
    ledgers: Annotated[
        list[Path],
        typer.Argument(help="Ledgers of runs on one data set, and files of other libraries about it; they compose."),
    ],
    delta: Delta,
    sampler: Sampler = None,
    records: Records = None,
    adjacency: FileAdjacency = None,
    unit: FileUnit = None,
    normalizer: Normalizer = None,
    condition: Conditions = None,
    method: Method = None,
    anchor: Anchor = None,
    output: Output = None,
    seconds: Seconds = defaults.COMPARISON_SECONDS,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares the accountants on what ledgers were charged, and on files of other libraries; the word `ledger` may be
    left out."""
    from dpassay.jobs import compare as job

    settings = _settings(method, output, seconds, json_, quiet)
    compared = job.ledgers(
        ledgers,
        delta=delta,
        settings=settings,
        adjacency=adjacency,
        sampler=sampler,
        records=records,
        unit=unit,
        normalizer=normalizer,
        conditions=condition or (),
        anchor=anchor,
    )
    _show(compared, json_, quiet)


def _print(compared: Compared) -> None:
    """Prints the comparison as a table, and below it which accountants have no bound, and why."""
    from rich.table import Table

    from dpassay.cli.table_console import TableConsole
    from dpassay.jobs.compare import duration, relation_in_words
    from dpassay.reports.text import SYMBOLS

    found = compared.comparison
    sign = SYMBOLS.get(found.quantity, found.quantity.replace("_", " "))
    table = Table(title=f"{compared.about}\n{relation_in_words(found)}")
    least = sign if found.quantity == "noise_multiplier" else f"{sign} at most"
    for column in ("accountant", least, "certified interval", "rigor", "time"):
        table.add_column(column)
    for row in found.rows:
        bound = row.bound
        interval = format_interval(bound.interval.lower, bound.interval.upper) if bound.interval else "–"
        table.add_row(bound.method, format_upper(bound.value), interval, bound.rigor, duration(row.seconds))
    console = TableConsole()
    console.print(table)
    for name, reason in found.unsupported.items():
        if name not in found.inapplicable:
            console.print(f"{name}: {reason}", markup=False, highlight=False)
    if found.inapplicable:
        names = ", ".join(found.inapplicable)
        console.print(
            f"No bound for mechanisms of this kind: {names} (`dpassay accountants` says why).", highlight=False
        )
    told = [f"{row.bound.method}: {note}" for row in found.rows for note in row.notes]
    told += [note for panel in compared.panels for note in panel.notes]
    for note in dict.fromkeys((*told, *compared.assumptions)):
        console.print(f"Note: {note}", markup=False, highlight=False)
    if compared.figure is not None:
        console.print(f"Figure: {compared.figure}", markup=False, highlight=False)
