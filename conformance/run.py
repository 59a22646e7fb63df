"""Runs wrappers over all cases: ``python conformance/run.py WRAPPER… [--out results.json]``.

A WRAPPER is a command (README.md, *The protocol*); one that ends in ``.py`` is run by this Python. It prints where a
program differs from the cases, and exits with 1 if one does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GROUPS = ("certificate/accept", "certificate/reject", "epsilon/accept", "epsilon/reject")
ACCEPTED, REJECTED, UNSUPPORTED = 0, 1, 3
AGREES, DIFFERS, NOT_SUPPORTED = "agrees", "differs", "not supported"


@dataclass(frozen=True)
class Case:
    """A folder with a ``case.json``.

    Attributes:
        name: its path in this folder.
        about: the content of its ``case.json``.
    """

    name: str
    about: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Where it is."""
        return HERE / self.name

    @property
    def group(self) -> str:
        """Its kind, and what is expected of it."""
        return self.name.rpartition("/")[0]

    def arguments(self) -> list[str]:
        """The command for a wrapper."""
        if self.name.startswith("epsilon/"):
            options = ["--delta", str(self.about["delta"]), "--adjacency", self.about["adjacency"]]
            return ["epsilon", str(self.folder / self.about["input"]), *options]
        options = ["--key", self.about["key"]] if "key" in self.about else []
        options += ["--ledger", str(self.folder / self.about["ledger"])] if "ledger" in self.about else []
        return ["verify", str(self.folder / "release"), *options]

    def judged(self, code: int, line: str) -> str:
        """Whether an answer agrees with what is expected."""
        if code == UNSUPPORTED:
            return NOT_SUPPORTED
        if self.about["expected"] == "reject":
            return AGREES if code == REJECTED else DIFFERS
        if code != ACCEPTED:
            return DIFFERS
        return AGREES if "interval" not in self.about or self._holds(line) else DIFFERS

    def _holds(self, line: str) -> bool:
        """Whether an interval, or an upper bound, is compatible with the interval that contains the exact ε."""
        lower, upper = map(float, self.about["interval"])
        try:
            ends = [float(word) for word in line.split()]
        except ValueError:
            return False
        least = ends[0] if len(ends) == 2 else 0.0
        return len(ends) in (1, 2) and not any(map(math.isnan, ends)) and least <= upper and ends[-1] >= lower

    def excess(self, line: str) -> float | None:
        """By how much an upper bound is above the interval, relative; None if either is infinite or zero."""
        upper, bound = float(self.about["interval"][1]), float(line.split()[-1])
        return max(0.0, bound / upper - 1) if upper and math.isfinite(upper) and math.isfinite(bound) else None


def cases() -> list[Case]:
    """All cases, in the order of their names."""
    return [
        Case(path.parent.relative_to(HERE).as_posix(), json.loads(path.read_text(encoding="utf-8")))
        for group in GROUPS
        for path in sorted((HERE / group).glob("*/case.json"))
    ]


def answers(wrapper: str, commands: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
    """The exit code and the line of each command: of one process if the wrapper can do that, or of one for each."""
    program = [sys.executable, wrapper] if wrapper.endswith(".py") else shlex.split(wrapper)
    lines = "".join(json.dumps(command) + "\n" for command in commands)
    whole = subprocess.run([*program, "batch"], input=lines, capture_output=True, text=True, check=False)
    results = whole.stdout.splitlines()
    if whole.returncode == 0 and len(results) == len(commands):
        yield from (tuple(json.loads(result)) for result in results)
        return
    for command in commands:
        done = subprocess.run([*program, *command], capture_output=True, text=True, check=False)
        yield done.returncode, done.stdout.strip()


def results_of(wrapper: str, every: Sequence[Case]) -> dict[str, Any]:
    """What a wrapper answers to each case."""
    (code, versions), *given = answers(wrapper, [["version"], *(case.arguments() for case in every)])
    if code != ACCEPTED:
        raise SystemExit(f"{wrapper}: cannot be run: {versions}")
    rows = {}
    for case, (code, line) in zip(every, given, strict=True):
        result = case.judged(code, line)
        rows[case.name] = {"result": result, "code": code, "line": line.replace(f"{HERE}{os.sep}", "")}
    return {"versions": versions, "cases": rows}


def table(title: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A table, as docs/reproductions/private_inference/tables.py shows it."""
    return {"columns": [{"title": words, "key": key} for key, words in title.items()], "rows": list(rows)}


def tables(every: Sequence[Case], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many cases there are, and with how many each program agrees."""
    columns = {"versions": "program", **{group: group.replace("/", ", ") for group in GROUPS}}
    columns["excess"] = "largest excess of an ε"
    sizes = {group: sum(case.group == group for case in every) for group in GROUPS}
    rows: list[dict[str, Any]] = [{"versions": "cases", **sizes}]
    differences = []
    for tool in tools:
        row: dict[str, Any] = {"versions": tool["versions"]}
        for group in GROUPS:
            results = [tool["cases"][case.name]["result"] for case in every if case.group == group]
            row[group] = None if set(results) <= {NOT_SUPPORTED} else _counted(results)
        row["excess"] = _largest_excess(every, tool["cases"])
        rows.append(row)
        for case in every:
            given = tool["cases"][case.name]
            if given["result"] == DIFFERS:
                words = case.about["about"], given["line"][:120].replace("|", " ") or f"exit code {given['code']}"
                differences.append(
                    {
                        "program": tool["versions"].partition(",")[0],
                        "case": f"`{case.name}`",
                        "about": words[0],
                        "answer": words[1],
                    }
                )
    named = {"program": "program", "case": "case", "about": "what it tests", "answer": "answer"}
    return {"agreement": table(columns, rows), "differences": table(named, differences)}


def _largest_excess(every: Sequence[Case], answered: Mapping[str, Any]) -> str | None:
    """By how much upper bounds that agree are above the exact ε at most, relative."""
    found = [
        case.excess(answered[case.name]["line"])
        for case in every
        if case.group == "epsilon/accept" and answered[case.name]["result"] == AGREES
    ]
    known = [excess for excess in found if excess is not None]
    return f"{max(known):.0e}" if known else None


def _counted(results: Sequence[str]) -> str:
    agree, differ, without = (results.count(name) for name in (AGREES, DIFFERS, NOT_SUPPORTED))
    parts = [
        f"{agree} agree",
        *([f"{differ} differ"] if differ else []),
        *([f"{without} not supported"] if without else []),
    ]
    return ", ".join(parts)


def _without_agreement(answered: Mapping[str, Any]) -> dict[str, Any]:
    """The answers that do not agree with what is expected; all others do."""
    return {name: given for name, given in answered.items() if given["result"] != AGREES}


def main() -> int:
    """Runs the command; its exit code."""
    parser = argparse.ArgumentParser(description="Runs wrappers over all cases.")
    parser.add_argument("wrappers", nargs="+", metavar="WRAPPER")
    parser.add_argument("--out", type=Path, help="where to write the results, as JSON")
    given = parser.parse_args()
    every = cases()
    tools = [results_of(wrapper, every) for wrapper in given.wrappers]
    shown = tables(every, tools)
    for row in shown["agreement"]["rows"]:
        print("; ".join(str(row[key]) for key in ("versions", *GROUPS, "excess") if row.get(key) is not None))
    for row in shown["differences"]["rows"]:
        print(f"{row['program']}: {row['case']}: {row['about']} It answers: {row['answer']}")
    if given.out is not None:
        system = f"{platform.system()} {platform.machine()}"
        others = [{**tool, "cases": _without_agreement(tool["cases"])} for tool in tools]
        results = {"system": system, "tools": others, "tables": shown}
        given.out.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 1 if shown["differences"]["rows"] else 0


if __name__ == "__main__":
    sys.exit(main())
