"""`dpassay calibrate`: a subcommand for each mechanism, which finds the parameter that is not given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpassay.base import defaults
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number
from dpassay.base.terminal import say
from dpassay.cli.options import (
    REQUIRED,
    Adjacency,
    Json,
    Option,
    Quiet,
    options_of,
    show,
    unit_of_options,
    unit_options,
    with_options,
)
from dpassay.jobs.mechanisms import CALIBRATED, Command

app = typer.Typer(
    no_args_is_help=True,
    help="Finds the noise, rate, number of steps or clip whose certified bound meets a target.",
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
Method = Annotated[str | None, typer.Option(help="Accountant that computes the bound. Default: the certified lattice.")]
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
        ("find", Annotated[str, typer.Option(help=f"What to find: {choice}.")], next(iter(mechanism.finds))),
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
