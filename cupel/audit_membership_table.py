"""The numbers of `cupel audit membership` as a table for people."""

from __future__ import annotations

from typing import Any


def print_audit(found: dict[str, Any]) -> None:
    """Areas, rates and guesses of every attack as a table, and the conclusion."""
    from rich.console import Console
    from rich.table import Table

    audit = found["audits"][0]
    details, rates = audit["details"], audit["rates"]
    table = Table(title=f"{details['candidates']} candidates, {details['included']} in the data", title_justify="left")
    columns = (
        "attack",
        "area",
        "interval",
        *(f"found at {share}" for share in ("0.1 %", "1 %", "10 %")),
        "right",
        "ε ≥",
    )
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for place, (name, area) in enumerate(details["areas"].items()):
        low, high = area["interval"]
        found_at = [f"{rate['hits']}/{rate['trials']}" for rate in rates[6 * place : 6 * place + 6 : 2]]
        tries = [attempt for attempt in details["attempts"] if attempt["attack"] == name]
        right = [f"{attempt['correct']}/{attempt['guesses']}" for attempt in tries]
        epsilons = [f"{attempt['epsilon']:.4g}" for attempt in tries]
        cells = (f"{area['value']:.3f}", f"{low:.3f} to {high:.3f}", *found_at, "\n".join(right) or "–")
        table.add_row(name, *cells, "\n".join(epsilons) or "–")
    console = Console()
    console.print(f"PRIVATE. {found['private']}", markup=False, highlight=False)
    console.print(table)
    console.print(audit["conclusion"], markup=False, highlight=False)
