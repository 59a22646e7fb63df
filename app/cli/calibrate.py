"""`dpassay calibrate`: a subcommand for claims, and one for each mechanism, which finds the parameter not given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpassay.base import defaults
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number
from dpassay.base.terminal import say
from dpassay.cli import completion
from dpassay.cli.completion import complete
from dpassay.cli.default_command import DefaultCommandGroup
from dpassay.cli.options import (
    REQUIRED,
    Adjacency,
    Device,
    Download,
    Json,
    Model,
    Option,
    Quiet,
    options_of,
    progress,
    show,
    unit_of_options,
    unit_options,
    with_options,
)
from dpassay.jobs.mechanisms import CALIBRATED, Command

if TYPE_CHECKING:
    from dpassay.jobs.choices import ClaimCalibration


class _ClaimByDefault(DefaultCommandGroup):
    """`dpassay calibrate CLAIM` is `dpassay calibrate claim CLAIM`."""

    default = "claim"


app = typer.Typer(
    cls=_ClaimByDefault,
    no_args_is_help=True,
    help="Finds the noise, rate, number of steps or clip whose certified bound meets a target.\n\n"
    "`dpassay calibrate CLAIM.yaml` shows what the generator of a claim can do at a target.",
    epilog="Example: dpassay calibrate dp-sgd --target-epsilon 1 --delta 1e-5 --sampling-probability .01 --steps 1000",
)

_P = "Largest probability of guessing it before the release, in (0, 1)."
_TARGETS: list[Option] = [
    (name, Annotated[float | None, typer.Option(help=text)], None)
    for name, text in {
        "target_epsilon": "ε of (ε, δ)-DP; with --delta.",
        "target_mu": "μ of Gaussian DP; with --delta, for δ(ε) above it only.",
        "target_beta": "Smallest type II error of any test; with --alpha.",
        "target_advantage": "Largest true positive rate less false positive rate of any membership test.",
        "target_tpr": "Largest true positive rate of any membership test; with --fpr.",
        "target_r": "Largest probability of guessing a secret after the release; with --p.",
        "delta": "δ in (0, 1).",
        "alpha": "Type I error, in (0, 1).",
        "fpr": "False positive rate, in (0, 1).",
        "p": _P,
    }.items()
]
_SECRET_TARGET: list[Option] = [
    (
        "target_r",
        Annotated[float, typer.Option(help="Largest probability of guessing the secret after the release.")],
        REQUIRED,
    ),
    ("p", Annotated[float, typer.Option(help=_P)], REQUIRED),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="Accountant that computes the bound. Default: the certified lattice.", autocompletion=completion.method
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Draw what attacks can do against the parameter: .svg, .pdf or .png."),
]
Title = Annotated[str, typer.Option(help="Of the figure. Default: the mechanism in words.")]
Tolerance = Annotated[float, typer.Option(help="Relative tolerance of the parameter that is found.")]


def _mechanism(name: str, command: Command) -> None:
    """Adds the command about a mechanism."""
    mechanism = command.mechanism
    *words, last = mechanism.finds
    choice = f"{', '.join(words)} or {last}" if words else last
    secret = mechanism.at == "p"
    parameters = options_of(mechanism, optional=mechanism.finds.values())

    def run(
        find: str, tolerance: float, output: Path | None, title: str, json_: bool, quiet: bool, **given: Any
    ) -> None:
        from dpassay.jobs.calibrate import Goal, calibrate_mechanism, in_words
        from dpassay.jobs.drawings import check_drawing

        with input_errors():
            check_drawing(output, title)
        parts = {name: given.pop(name) for name, _, _ in parameters}
        goal = {name.removeprefix("target_"): value for name, value in given.items()}
        goal.setdefault("adjacency", mechanism.adjacency)
        goal["unit"] = unit_of_options(mechanism, goal)
        asked = Goal(**goal, tolerance=tolerance)
        result = calibrate_mechanism(mechanism, asked, find, parts)
        follows = mechanism(**{**parts, mechanism.finds[find]: result.value}).derived()
        lines = in_words(result) + [
            f"{name.replace('_', ' ')}: {format_number(value)}" for name, value in follows.items()
        ]
        drawn: dict[str, Any] = {}
        if output is not None:
            from dpassay.jobs.calibration_figure import draw_calibration

            curves = draw_calibration(mechanism, asked, find, parts, result, output, title)
            drawn = {"risks": curves.to_json(), "figure": str(output)}
            lines.append(f"Figure: {output}")
        show({**result.to_json(), **follows, **drawn}, lambda: say("\n".join(lines)), json_, quiet)

    options = [
        *(option for option in parameters if option[2] is REQUIRED),
        *(_SECRET_TARGET if secret else _TARGETS),
        (
            "find",
            Annotated[str, typer.Option(help=f"What to find: {choice}.", autocompletion=complete(mechanism.finds))],
            next(iter(mechanism.finds)),
        ),
        *sorted(
            (option for option in parameters if option[2] is not REQUIRED),
            key=lambda option: option[0] in mechanism.finds.values(),
        ),
        *([] if secret else [("adjacency", Adjacency, mechanism.adjacency), *unit_options(mechanism)]),
        *([] if secret else [("method", Method, None)]),
        ("tolerance", Tolerance, defaults.TOLERANCE),
        ("output", Output, None),
        ("title", Title, ""),
        ("json_", Json, False),
        ("quiet", Quiet, False),
    ]
    app.command(name, epilog=f"Example: dpassay calibrate {name} {command.example}")(
        with_options(run, command.help, options)
    )


for _name, _row in CALIBRATED.items():
    _mechanism(_name, _row)


@app.command(
    epilog="Example: dpassay calibrate claim examples/claims/keys-mean.yaml --target-epsilon 1\n\n"
    "Example: dpassay calibrate examples/claims/notes-aug-pe.yaml --target-epsilon 2 --vary rounds=3,5,8"
)
def claim(
    claim: Annotated[Path, typer.Argument(help="A claim, a YAML file; the word `claim` may be left out.")],
    target_epsilon: Annotated[
        float | None, typer.Option(help="ε of the claim's guarantee; with --delta, of (ε, δ)-DP.")
    ] = None,
    target_rho: Annotated[float | None, typer.Option(help="ρ of zero-concentrated DP.")] = None,
    target_mu: Annotated[float | None, typer.Option(help="μ of Gaussian DP.")] = None,
    target_r: Annotated[
        float | None,
        typer.Option(help="At unit secret: largest probability of guessing a secret after the run, at the claim's p."),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="δ in (0, 1). Default: the claim's.")] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="Values to try for a parameter, between commas, such as batch_size=31,63; repeatable. Default: "
            "values around those of the claim.",
        ),
    ] = None,
    no_time: Annotated[
        bool, typer.Option("--no-time", help="Do not estimate times, for which a short run of the model is measured.")
    ] = False,
    model: Model = None,
    device: Device = "auto",
    download: Download = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Shows what the generator of a claim can do at a target: choices of its parameters, each with its certified bound.

    Without a target, that of the claim's own guarantee. No data are read, unless a plan depends on where secrets occur.
    """
    from dpassay.base.outputs import check_device
    from dpassay.jobs.choices import calibrate_claim, varied_values

    check_device(device)
    result = calibrate_claim(
        claim,
        target_epsilon=target_epsilon,
        target_rho=target_rho,
        target_mu=target_mu,
        target_r=target_r,
        delta=delta,
        vary=varied_values(vary) if vary else None,
        timed=not no_time,
        model=model,
        device=device,
        download=download,
        progress=progress(json_, quiet),
    )
    show(result.to_json(), lambda: _print_choices(result), json_, quiet)


def _print_choices(result: ClaimCalibration) -> None:
    """Prints the choices as a table, what each is in the claim, and what to know before one is chosen."""
    from rich.table import Table

    from dpassay.cli.table_console import TableConsole
    from dpassay.jobs.choices import in_words

    console = TableConsole()
    columns, rows = result.table()
    table = Table(title=f"{result.name}: {result.target}", title_justify="left")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for item in result.unmet:
        console.print(f"Not met: {in_words(item)}.", soft_wrap=True)
    for note in result.sentences():
        console.print(note, soft_wrap=True)
    console.print(f"In the claim:\n{result.guarantee_line}", soft_wrap=True)
    console.print("and one of:" if len(result.choices) > 1 else "and:")
    for choice in result.choices:
        console.print(result.parameters_line(choice), soft_wrap=True)
