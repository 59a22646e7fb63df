"""The numbers of `cupel audit text` and `cupel audit table` as tables for people."""

from __future__ import annotations

from typing import Any

from cupel.accounting.number_format import format_confidence, format_lower, format_p_value, format_points


def print_audits(found: dict[str, Any]) -> None:
    """Every audit, what personal data were printed, and before them that all of it is private."""
    from cupel.cli.table_console import TableConsole

    console = TableConsole()
    console.print(f"PRIVATE. {found['private']}", markup=False, highlight=False)
    console.print(_audits(found))
    if "personal_data" in found:
        counts = {kind: of for kind, of in found["personal_data"]["counts"].items() if any(of.values())}
        console.print(
            _personal(counts) if counts else "No personal data on any side, of the kinds that are looked for."
        )
    for audit in found["audits"]:
        console.print(f"{audit['name']}: {audit['conclusion']}", markup=False, highlight=False)


def _audits(found: dict[str, Any]) -> Any:
    from rich.table import Table

    sure = format_confidence(found["confidence"])
    title = f"Units hit ({found['unit']}); all bounds together hold with confidence {sure}"
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(("audit", "source", "holdout", "difference in points", "p", "ε ≥")):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for audit in found["audits"]:
        rates = [f"{rate['hits']}/{rate['trials']}" for rate in audit["rates"][:2]]
        low, high = audit["difference"]
        bound = format_lower(audit["bounds"][0]["value"]) if audit["bounds"] else "–"
        points = f"{format_points(low, 'down')} to {format_points(high, 'up')}"
        table.add_row(audit["name"], *rates, points, format_p_value(audit["p_value"]), bound)
    return table


def _personal(counts: dict[str, dict[str, int]]) -> Any:
    from rich.table import Table

    table = Table(title="Distinct values in the synthetic texts, by where else they occur", title_justify="left")
    for number, column in enumerate(("kind", "source only", "holdout only", "both", "neither", "occurrences")):
        table.add_column(column, justify="right" if number else "left")
    for kind, of in counts.items():
        columns = ("source", "holdout", "both", "neither", "occurrences")
        table.add_row(kind.replace("_", " "), *(str(of[column]) for column in columns))
    return table
