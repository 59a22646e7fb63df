"""`dpassay gate`: whether a total privacy cost is within a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.accounting.adjacency import RECORD_UNITS
from dpassay.base.terminal import say
from dpassay.cli import completion
from dpassay.cli.exit_codes import ExitCode
from dpassay.cli.options import Anchor, Json, Quiet, Statements, show, unit_of_files, with_fields


@with_fields
def gate(
    files: Annotated[
        list[Path],
        typer.Argument(help="Ledgers of runs on one data set, files of other libraries about it, and claims (.yaml)."),
    ],
    max_epsilon: Annotated[float, typer.Option(help="The largest ε that the policy allows.")],
    delta: Annotated[float, typer.Option(help="The δ of the policy, in (0, 1).")],
    *,
    unit: Annotated[
        str | None,
        typer.Option(
            help=f"Privacy unit of the policy: {RECORD_UNITS}. Default: that of the files. Files of other "
            "libraries that record no unit are taken to be about this one.",
            autocompletion=completion.unit,
        ),
    ] = None,
    records_per_user: Annotated[
        int | None,
        typer.Option(help="With --unit user: the most records of a user, where events are charged for one record."),
    ] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="Neighbouring relation of the policy: add_remove, replace_one or zero_out. Default: that of the "
            "files.",
            autocompletion=completion.adjacency,
        ),
    ] = None,
    statements: Statements,
    assume: Annotated[
        bool,
        typer.Option(
            "--assume", help="Assume every condition that neither the files nor you state; the answer lists them."
        ),
    ] = False,
    summary: Annotated[
        Path | None, typer.Option(help="Append the answer to this file in Markdown, such as $GITHUB_STEP_SUMMARY.")
    ] = None,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Exits with 0 if the total privacy cost is proven to be within a policy, with 1 if not, and with 2 if the inputs
    cannot be read or do not compose, or if the proof rests on a condition that neither the files nor you state.

    Only certified bounds count. An unfinished run counts with its whole plan, and a claim as if it had run.
    """
    from dpassay.jobs import gate as job

    policy = job.Policy(max_epsilon, delta, unit_of_files(unit, records_per_user), adjacency)
    result = job.gate(files, policy, assume=assume, anchor=anchor, summary=summary, **statements.words())
    show(result.to_json(), lambda: say(result.in_words()), json_, quiet)
    if not result.passed:
        raise typer.Exit(ExitCode.REFUTED)
