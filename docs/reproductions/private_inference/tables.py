"""Fills the tables of the page from the JSON results, so that nobody types a number.

    python docs/reproductions/private_inference/tables.py [--check]

Between ``<!-- table NAME -->`` and ``<!-- end -->`` stands the table NAME of one of the JSON files. A page may show a
part of it: ``<!-- table NAME; columns: arm | auc; epsilon: 1 | 8 -->`` has two columns, by key and in this order, of
the rows whose ε is shown as 1 or 8. With --check nothing is written, and the exit code is 1 where a table of the page
differs.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

HERE = Path(__file__).parent
PAGE = HERE.parent / "private-inference.md"
CONFIDENCE = 0.95
_BLOCK = re.compile(r"(<!-- table ([\w.-]+)((?:; [^;\n]+)*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def read_tables(folder: Path = HERE / "results") -> dict[str, Any]:
    """All tables of the JSON files, by name.

    Raises:
        ValueError: where two have one name.
    """
    tables: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        for name, table in found["tables"].items():
            if name in tables:
                raise ValueError(f"{path}: table {name!r} is in another file too; rename one")
            tables[name] = table
    return tables


def number(value: float, digits: int) -> str:
    """With so many digits after the point, and a true minus."""
    return f"{value:.{digits}f}".replace("-", "−")


def cell(value: Any, digits: int) -> str:
    """A text as it is, a whole number whole, another with `digits`; a list of them as mean ± standard deviation.

    The deviation is the sample's, over seeds; {value, interval} shows both ends. What is missing is a dash.
    """
    match value:
        case None | []:
            return "–"
        case bool() | str():
            return str(value)
        case int():
            return str(value).replace("-", "−")
        case float():
            return number(value, digits)
        case {"value": middle, "interval": [low, high]}:
            return f"{number(middle, digits)} ({number(low, digits)} to {number(high, digits)})"
        case list():
            if any(one is None for one in value):
                return "–"
            if len(value) == 1 or len(set(value)) == 1:
                return cell(value[0], digits)
            return f"{number(statistics.fmean(value), digits)} ± {number(statistics.stdev(value), digits)}"
    raise ValueError(f"a table cell is a text, a number, a list of numbers or an interval, not {value!r}")


def interval(values: Sequence[Any]) -> Any:
    """The cell of a mean with its t-interval; of one value, or of equal ones, the value; None where one is missing."""
    if not values or any(value is None for value in values):
        return None
    if len(values) == 1 or len(set(values)) == 1:
        return values[0]
    middle = statistics.fmean(values)
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return {"value": middle, "interval": [middle - half, middle + half]}


def table(titles: Mapping[str, str], rows: Sequence[Mapping[str, Any]], **digits: int) -> dict[str, Any]:
    """A table of these columns, key → title; a column has three digits, or as many as it says."""
    columns = [{"title": title, "key": key, "digits": digits.get(key, 3)} for key, title in titles.items()]
    return {"columns": columns, "rows": list(rows)}


def render(table: Mapping[str, Any]) -> str:
    """A table in Markdown. A column without ``digits`` has 3 of them."""
    columns = table["columns"]
    lines = [[column["title"] for column in columns], ["---"] * len(columns)]
    lines += [[cell(row.get(of["key"]), of.get("digits", 3)) for of in columns] for row in table["rows"]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def part(whole: Mapping[str, Any], clauses: str) -> dict[str, Any]:
    """The columns and rows of a table that a page asks for.

    Args:
        whole: the table.
        clauses: ``; columns: KEY | KEY; KEY: TEXT | TEXT``; each but ``columns`` keeps the rows whose cell is one of
            its texts. Empty for all of the table.

    Raises:
        ValueError: for a column that the table has not, or a text that no row has left.
    """
    columns, rows = {column["key"]: column for column in whole["columns"]}, list(whole["rows"])
    shown = list(columns)
    for clause in clauses.split("; ")[1:]:
        key, _, words = clause.partition(": ")
        wanted = words.split(" | ")
        named = wanted if key == "columns" else [key]
        if unknown := [name for name in named if name not in columns]:
            raise ValueError(f"{clause!r}: there is no column {unknown[0]!r}; there are {', '.join(columns)}")
        if key == "columns":
            shown = wanted
            continue
        digits = columns[key].get("digits", 3)
        texts = [cell(row.get(key), digits) for row in rows]
        if unknown := [text for text in wanted if text not in texts]:
            raise ValueError(f"{clause!r}: no row has {unknown[0]!r}; rows have {', '.join(dict.fromkeys(texts))}")
        rows = [row for row, text in zip(rows, texts, strict=True) if text in wanted]
    return {"columns": [columns[key] for key in shown], "rows": rows}


def keep(results: Any, made: Mapping[str, Any]) -> None:
    """Keeps tables in a results file (`runs.Results`), and prints them."""
    results.tables = dict(made)
    results.save()
    for shown in made.values():
        print(render(shown))


def filled(page: str, tables: Mapping[str, Any]) -> str:
    """The page with all of its tables.

    Raises:
        ValueError: for a table, column or row that no JSON file has.
    """

    def block(found: re.Match[str]) -> str:
        if found[2] not in tables:
            raise ValueError(f"the page wants table {found[2]!r}, which no JSON file has; there are {sorted(tables)}")
        return f"{found[1]}{render(part(tables[found[2]], found[3]))}{found[5]}"

    return _BLOCK.sub(block, page)


def main(page: Path = PAGE, folder: Path = HERE / "results") -> int:
    """Fills the tables of a page from the JSON files of a folder, or checks them; the exit code."""
    return fill(page, read_tables(folder))


def fill(page: Path, tables: Mapping[str, Any]) -> int:
    """Fills the tables of a page from these, or checks them, as the command line says; the exit code."""
    parser = argparse.ArgumentParser(description="Fills the tables of the page from the JSON results.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a table differs")
    check = parser.parse_args().check
    before = page.read_text(encoding="utf-8")
    after = filled(before, tables)
    if not check:
        page.write_text(after, encoding="utf-8")
    elif before != after:
        print(f"{page.name}: tables differ from the results; run this without --check", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
