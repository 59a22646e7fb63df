"""The registry as a table: which accountant has a bound for which event, at which adjacency, with which rigor."""

from __future__ import annotations

from collections.abc import Sequence

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.comparison.comparison import EXAMPLES, Support, support
from cupel.accounting.registry import ACCOUNTANTS
from cupel.errors import input_errors

_MARKS = {None: "–", "certified": "C"}


def supported(adjacency: str | None) -> dict[Adjacency, tuple[Support, ...]]:
    """What every accountant says to every kind of event, at one adjacency or at all.

    Raises:
        InputError: for an unknown adjacency.
    """
    with input_errors():
        names = tuple(map(str, Adjacency))
        chosen = names if adjacency is None else (validate.one_of(names, adjacency=adjacency),)
    return {Adjacency(name): support(name) for name in chosen}


def print_tables(found: dict[Adjacency, tuple[Support, ...]], *, reasons: bool) -> None:
    """One table an adjacency, and below it the reasons of those that have no bound."""
    from rich import box
    from rich.table import Table

    from cupel.cli.table_console import TableConsole

    console = TableConsole()
    for adjacency, answers in found.items():
        methods = [name for name in ACCOUNTANTS if any(a.method == name and a.rigor for a in answers)]
        if not methods:
            console.print(f"{adjacency}: no accountant has a bound for any kind of event", highlight=False)
            continue
        table = Table(title=str(adjacency), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("event")
        for name in methods:
            table.add_column(name, justify="center")
        by_place = {(answer.example, answer.method): answer for answer in answers}
        for kind in EXAMPLES:
            table.add_row(kind, *(_mark(by_place[kind, name]) for name in methods))
        console.print(table)
        if reasons:
            _print_reasons(console, answers)
    console.print("C: certified, numerical error included. E: an estimate, which supports no claim. –: no bound.")
    if not reasons:
        console.print("With --adjacency the reasons of those without a bound are listed; --json has all of them.")


def _mark(answer: Support) -> str:
    return _MARKS.get(answer.rigor, "E")


def _print_reasons(console: object, answers: Sequence[Support]) -> None:
    kinds: dict[tuple[str, str], list[str]] = {}
    for answer in answers:
        if answer.reason is not None:
            kinds.setdefault((answer.method, answer.reason), []).append(answer.example)
    for (_, reason), examples in kinds.items():
        console.print(f"{'; '.join(examples)}: {reason}", markup=False, highlight=False)  # type: ignore[attr-defined]
