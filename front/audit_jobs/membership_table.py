"""The numbers of `cupel audit membership` as a table for people."""

from __future__ import annotations

from typing import Any

from cupel.accounting.number_format import format_interval, format_lower, format_number


def print_audit(found: dict[str, Any]) -> None:
    """Areas, rates and guesses of every attack as a table, and the conclusion."""
    from rich.table import Table

    from cupel.cli.table_console import TableConsole

    audit = found["audits"][0]
    details, rates = audit["details"], audit["rates"]
    title = (
        f"{details['candidates']} candidates, {details['included']} in the data; how many of those are found while at "
        "most so many of the others are taken for them"
    )
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(("attack", "area", "interval", "0.1 %", "1 %", "10 %", "right", "ε ≥")):
        table.add_column(column, justify="right" if number else "left", no_wrap=column not in ("attack", "interval"))
    for place, (name, area) in enumerate(details["areas"].items()):
        low, high = area["interval"]
        hits = [f"{rate['hits']}" for rate in rates[6 * place : 6 * place + 6 : 2]]
        tries = [attempt for attempt in details["attempts"] if attempt["attack"] == name]
        right = [f"{attempt['correct']}/{attempt['guesses']}" for attempt in tries]
        epsilons = [format_lower(attempt["epsilon"]) for attempt in tries if attempt["epsilon"] is not None]
        cells = (format_number(area["value"]), format_interval(low, high), *hits, "\n".join(right) or "–")
        table.add_row(name, *cells, "\n".join(epsilons) or "–")
    console = TableConsole()
    console.print(f"PRIVATE. {found['private']}", markup=False, highlight=False)
    console.print(table)
    console.print(audit["conclusion"], markup=False, highlight=False)
