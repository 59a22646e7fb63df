"""`dpassay accountants`: which accountants support which kinds of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dpassay.cli import completion
from dpassay.cli.options import Json, Quiet, show

if TYPE_CHECKING:
    from dpassay.accounting.comparison.comparison import Support


def accountants(
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="add_remove, replace_one, zero_out or secret. Default: all.", autocompletion=completion.any_adjacency
        ),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Shows which accountants support which kinds of events, with which rigor, and why others do not."""
    from dpassay.accounting.adjacency import Adjacency
    from dpassay.accounting.comparison.comparison import support
    from dpassay.base import validate
    from dpassay.base.errors import input_errors

    names = tuple(map(str, Adjacency))
    with input_errors():
        chosen = names if adjacency is None else (validate.one_of(names, adjacency=adjacency),)
    results = {name: support(name) for name in chosen}
    rows = [answer.to_json() for answers in results.values() for answer in answers]
    show(rows, lambda: _print(results, reasons=adjacency is not None), json_, quiet)


def _print(results: dict[str, tuple[Support, ...]], *, reasons: bool) -> None:
    """Prints a table for each adjacency, and below it the reasons of accountants without a bound."""
    from rich import box
    from rich.table import Table

    from dpassay.accounting.events import EXAMPLES
    from dpassay.accounting.registry import ACCOUNTANTS
    from dpassay.cli.table_console import TableConsole

    console = TableConsole()
    for adjacency, answers in results.items():
        methods = [name for name in ACCOUNTANTS if any(a.method == name and a.rigor for a in answers)]
        if not methods:
            console.print(f"{adjacency}: no accountant has a bound for any kind of event")
            continue
        table = Table(title=adjacency, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("event")
        for name in methods:
            table.add_column(name, justify="center")
        by_place = {(answer.example, answer.method): answer for answer in answers}
        for kind in EXAMPLES:
            rigors = [by_place[kind, name].rigor for name in methods]
            table.add_row(kind, *("–" if rigor is None else "C" if rigor == "certified" else "E" for rigor in rigors))
        console.print(table)
        if reasons:
            kinds: dict[tuple[str, str], list[str]] = {}
            for answer in answers:
                if answer.reason is not None:
                    kinds.setdefault((answer.method, answer.reason), []).append(answer.example)
            for (_, reason), examples in kinds.items():
                console.print(f"{'; '.join(examples)}: {reason}")
    console.print("C: certified, numerical error included. E: an estimate, which supports no claim. –: no bound.")
    if not reasons:
        console.print("With --adjacency the reasons of those without a bound are listed; --json has all of them.")
