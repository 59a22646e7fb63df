"""Fills the tables of the gallery and of the page on its runs from the results, so that nobody types a number.

    python docs/gallery/fill_page.py [--check]

With --check nothing is written, and the exit code is 1 where a table of a page differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "reproductions" / "private_inference")]

import tables  # noqa: E402
from entries import ENTRIES, Entry  # noqa: E402

from dpassay.base.number_format import format_ceiling, format_lower, format_number, format_percent, format_upper  # noqa: E402

PAGES = [HERE.parent / "measurements" / f"{name}.md" for name in ("gallery", "gallery-runs")]
RESULTS = HERE / "results"

Audited = tuple[Entry, dict[str, Any]]


def results() -> list[Audited]:
    """The entries in the order of the page, each with its result. FileNotFoundError where one was not audited."""
    return [(entry, json.loads((RESULTS / f"{entry.name}.json").read_text(encoding="utf-8"))) for entry in ENTRIES]


def page_tables() -> dict[str, Any]:
    """The tables of the pages, by name."""
    found = results()
    refuted = [item for item in found if item[1]["refuted"]]
    others = [item for item in found if not item[1]["refuted"]]
    return {
        "claims": _table(
            {"generator": "", "claims": "claims", "public": "public"},
            [{"generator": entry.title, "claims": entry.claims, "public": entry.public} for entry in ENTRIES],
        ),
        "found": _table(
            {
                "generator": "",
                "result": "result",
                "lower": "ε ≥",
                "ceiling": "ceiling",
                "runs": "runs",
                "failed": "failed",
                "seconds": "processor, s",
                "date": "date",
            },
            [_found(*item) for item in found],
        ),
        "causes": _table(
            {"generator": "", "cause": "what gave the record away", "pair": "neighbours", "reading": "in its code"},
            [_cause(*item) for item in refuted],
        ),
        "seen": _table(
            {
                "generator": "",
                "detectable": "would have been found, in half of all audits",
                "tested": "rounds",
                "control": "without protection",
                "reading": "remarks",
            },
            [_seen(*item) for item in others],
        ),
        "versions": _table(
            {"generator": "", "versions": "versions", "machine": "on", "audit": "audited by"},
            [_versions(*item) for item in found],
        ),
    }


def _table(titles: dict[str, str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"columns": [{"title": title, "key": key} for key, title in titles.items()], "rows": rows}


def _result(entry: Entry, result: dict[str, Any]) -> str:
    """What follows for the claim, or beside the nominal one."""
    if result["refuted"] is None:
        return "no conclusion"
    if entry.private:
        return "**refuted**" if result["refuted"] else "not refuted"
    return "claims nothing; ε = 1 is refuted" if result["refuted"] else "claims nothing; ε = 1 is not refuted"


def _found(entry: Entry, result: dict[str, Any]) -> dict[str, Any]:
    failed = sum(stage["failed"] for stage in result["failures"].values())
    return {
        "generator": entry.title,
        "result": _result(entry, result),
        "lower": format_lower(result["lower"]),
        "ceiling": format_ceiling(result["ceiling"], result["lower"]),
        "runs": f"{result['runs']} of {result['planned_runs']}",
        "failed": str(failed),
        "seconds": format_number(round(result["processor_seconds"], 1)),
        "date": result["date"],
    }


def _cause(entry: Entry, result: dict[str, Any]) -> dict[str, Any]:
    (on_neighbor, made), (on_data, made_without) = result["counted"]
    cause = f"{result['cause']}, in {on_neighbor} of {made} runs on D′ and in {on_data} of {made_without} on D"
    return {
        "generator": entry.title,
        "cause": f"{cause}. {_explained(result['explanation'])}".strip(),
        "pair": f"`{result['pair']}`",
        "reading": entry.reading or "–",
    }


def _explained(explanation: dict[str, Any] | None) -> str:
    """In how many runs an ordinary record in the place of the target shows the same, with one value of it at most."""
    if explanation is None:
        return ""
    of = f"of {explanation['runs_each']}"
    most_first = sorted(explanation["columns"].items(), key=lambda item: -item[1])
    columns = ", ".join(f"`{name}` {hits} {of}" for name, hits in most_first if hits > explanation["ordinary"])
    return f"One column of the target alone: {columns or 'none'}. No column: {explanation['ordinary']} {of}."


def _seen(entry: Entry, result: dict[str, Any]) -> dict[str, Any]:
    half, control = result["detectable"], result["control"]
    shares = [] if half["epsilon"] is None else [f"randomised response of ε = {format_upper(half['epsilon'], 3)}"]
    if half["share"] is not None:
        shares.append(f"an event in {format_percent(half['share'])} of the runs on D′ and in none on D")
    shown = "not run"
    if control["lower"] is not None:
        shown = f"ε ≥ {format_lower(control['lower'])} in {control['runs']} runs"
        shown += f": {control['cause']}" if control["lower"] > 0 else ""
    return {
        "generator": entry.title,
        "detectable": ", or ".join(shares) or "nothing",
        "tested": f"{result['rounds']} on {len(result['tried'])} pairs",
        "control": shown,
        "reading": entry.reading or "–",
    }


def _versions(entry: Entry, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "generator": entry.title,
        "versions": ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "machine": result["machine"],
        "audit": result["audit"],
    }


if __name__ == "__main__":
    made = page_tables()
    sys.exit(max([tables.fill(page, made) for page in PAGES]))
