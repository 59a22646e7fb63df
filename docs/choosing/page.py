"""The tables of the pages, from the committed results: every number, and which generator to take."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import inputs
import study
from arms import (
    LEFT_OUT,
    PUBLIC_ROWS,
    PUBLIC_TEXTS,
    SECRETS,
    TABLE_ARMS,
    TEXT_ARMS,
    UNPROTECTED,
    UNUSED_ROWS,
    UNUSED_TEXTS,
    Arm,
    Asked,
)
from paths import RESULTS, tables
from study import setting_of

from dpassay.generators.registry import make_claim

NOT_YET = "not measured yet"
LEAST_SEEDS = 2
"""One seed has no interval, so nothing is decided by it."""

Runs = Sequence[Mapping[str, Any]]
Cell = dict[str, Any] | float | int | str | None


@dataclass(frozen=True)
class Measure:
    """A column of numbers; `rises` says whether more is better, None that it is neither."""

    key: str
    title: str
    rises: bool | None = None
    digits: int = 2

    @property
    def largest(self) -> float:
        """That it can be: 1 of a share."""
        return 1.0 if self.key in SHARES else math.inf


FRECHET = Measure("frechet", "Fréchet ↓", False)
TOPICS = Measure("topic_distance", "topics TV ↓", False)
IN_GRAMMAR = Measure("in_grammar", "in grammar ↑", True)
DISTINCT = Measure("distinct_2", "distinct-2", None)
ACCURACY = Measure("accuracy", "accuracy ↑", True)
HISTOGRAMS = Measure("histograms", "columns ↑", True, 3)
PAIRS = Measure("pairs", "pairs ↑", True, 3)
ASSOCIATIONS = Measure("associations", "CorAcc ↑", True)
AUC = Measure("auc", "AUC ↑", True)
CPU = Measure("cpu_seconds", "CPU, s", False, 0)
SECONDS = Measure("seconds", "wall, s", False, 0)
MEMORY = Measure("memory", "memory, MiB", False, 0)
EPSILON = Measure("epsilon", "ε")
SHARES = {of.key for of in (TOPICS, IN_GRAMMAR, ACCURACY, HISTOGRAMS, PAIRS, ASSOCIATIONS, AUC)}
"""Keys of what lies in [0, 1]; all other measures are at least 0."""

SHOWN = {
    "topics": (EPSILON, Measure("documents", "texts", None, 0), FRECHET, TOPICS, IN_GRAMMAR, DISTINCT, ACCURACY),
    "notes": (EPSILON, Measure("documents", "texts", None, 0), FRECHET, IN_GRAMMAR, DISTINCT),
    "table": (EPSILON, HISTOGRAMS, PAIRS, ASSOCIATIONS, AUC),
}
COSTS = (CPU, SECONDS, MEMORY)


def middle_of(cell: Cell) -> float:
    """The mean of a cell."""
    return float(cell["value"]) if isinstance(cell, dict) else float(cell)  # type: ignore[arg-type]


class Numbers:
    """The runs of a kind of texts, or of a table."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.json"
        self.runs: Runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else []

    def of(self, setting: str, measure: Measure) -> Cell:
        """The cell of a measure of a setting; an interval is cut to what the measure can be."""
        found = sorted((run for run in self.runs if run["setting"] == setting), key=lambda run: int(run["seed"]))
        cell: Cell = tables.interval([run.get(measure.key) for run in found])
        if isinstance(cell, dict):
            cell["interval"] = [min(max(end, 0.0), measure.largest) for end in cell["interval"]]
        return cell

    def decisive(self, setting: str, measure: Measure) -> Cell:
        """The same, if there are seeds enough for an interval."""
        return self.of(setting, measure) if sum(run["setting"] == setting for run in self.runs) >= LEAST_SEEDS else None

    def clearly_better(self, first: str, second: str, measure: Measure) -> bool:
        """Whether the differences of two settings, seed by seed on equal data, have an interval on the better side."""
        values = [
            {int(run["seed"]): run.get(measure.key) for run in self.runs if run["setting"] == setting}
            for setting in (first, second)
        ]
        both = [(values[0][seed], values[1][seed]) for seed in sorted(values[0].keys() & values[1].keys())]
        if len(both) < LEAST_SEEDS or any(value is None for pair in both for value in pair):
            return False
        sign = 1 if measure.rises else -1
        cell = tables.interval([sign * (one - other) for one, other in both])
        return bool((cell["interval"][0] if isinstance(cell, dict) else cell) > 0)

    def measured(self, setting: str) -> bool:
        """Whether there is a run of it."""
        return any(run["setting"] == setting for run in self.runs)

    def refusal(self, setting: str) -> str | None:
        """Why the generator refuses the claim; None unless it does."""
        return next((run["refused"] for run in self.runs if run["setting"] == setting and "refused" in run), None)


def utility_table(
    numbers: Numbers, kind: str, rows: Sequence[tuple[str, float | None]], shown: Sequence[Measure]
) -> dict[str, Any]:
    """A row for each generator; what has not been measured yet says so."""
    made = []
    for name, epsilon in rows:
        setting = setting_of(kind, name, epsilon)
        row: dict[str, Any] = {"arm": name}
        if not numbers.measured(setting):
            row[shown[0].key] = NOT_YET
        elif why := numbers.refusal(setting):
            row[shown[0].key] = f"refused: {why}"
        else:
            row |= {of.key: numbers.of(setting, of) for of in shown}
        made.append(row)
    columns = [{"title": "", "key": "arm"}]
    return {
        "columns": columns + [{"title": of.title, "key": of.key, "digits": of.digits} for of in shown],
        "rows": made,
    }


@dataclass(frozen=True)
class Situation:
    """A row of the decision table.

    Attributes:
        have: the reader's situation.
        kind: of texts, or the table.
        epsilon: of the claims.
        measure: that decides.
        arms: generators to choose from.
        public: names of what needs no private record.
        ceiling: name of the real data beside them.
    """

    have: str
    kind: str
    epsilon: float
    measure: Measure
    arms: Sequence[Arm]
    public: Sequence[str]
    ceiling: str

    def cells(self, numbers: Numbers) -> dict[str, Cell]:
        """The cell of each generator that has one."""
        found = {
            arm.name: numbers.decisive(setting_of(self.kind, arm.name, self.epsilon), self.measure) for arm in self.arms
        }
        return {name: cell for name, cell in found.items() if cell is not None}

    def ordered(self, cells: Mapping[str, Cell]) -> list[str]:
        """The best first."""
        return sorted(cells, key=lambda name: middle_of(cells[name]), reverse=bool(self.measure.rises))

    def row(self, numbers: Numbers) -> dict[str, str]:
        """What to take, and why."""
        cells = self.cells(numbers)
        floors = {name: numbers.decisive(setting_of(self.kind, name, None), self.measure) for name in self.public}
        floors = {name: cell for name, cell in floors.items() if cell is not None}
        if not cells or not floors:
            return {"have": self.have, "take": NOT_YET, "because": NOT_YET}
        best, floor = self.ordered(cells)[0], self.ordered(floors)[0]
        settings = {name: setting_of(self.kind, name, self.epsilon) for name in cells}
        bottom = setting_of(self.kind, floor, None)
        even = [
            name
            for name in self.ordered(cells)[1:]
            if not numbers.clearly_better(settings[best], settings[name], self.measure)
        ]
        ceiling = numbers.decisive(setting_of(self.kind, self.ceiling, None), self.measure)
        said = [(best, cells[best]), *((name, cells[name]) for name in even), (floor, floors[floor])]
        said += [] if ceiling is None else [(self.ceiling, ceiling)]
        because = "; ".join(f"{name} {shown(cell, self.measure.digits)}" for name, cell in said)
        if not numbers.clearly_better(settings[best], bottom, self.measure):
            take = f"none of them by these numbers: none is clearly better than {floor}"
        else:
            better = [name for name in even if numbers.clearly_better(settings[name], bottom, self.measure)]
            take = f"**{best}**" + (f", or {' or '.join(better)}: none is clearly better" if better else "")
        unmeasured = [arm.name for arm in self.arms if arm.name not in cells]
        because += f"; without numbers of {LEAST_SEEDS} seeds: {', '.join(unmeasured)}" if unmeasured else ""
        return {"have": self.have, "take": take, "because": f"{self.measure.title} {because}"}

    def quickest(self, numbers: Numbers, have: str) -> dict[str, str]:
        """As `row`: of what is clearly better than any public row, what takes the least time."""
        cells = self.cells(numbers)
        floors = [setting_of(self.kind, name, None) for name in self.public]
        times = {name: numbers.decisive(setting_of(self.kind, name, self.epsilon), CPU) for name in cells}
        helps = {
            name: time
            for name, time in times.items()
            if time is not None
            and all(
                numbers.clearly_better(setting_of(self.kind, name, self.epsilon), floor, self.measure)
                for floor in floors
            )
        }
        if not helps:
            empty = NOT_YET if not cells else "none of them: none is clearly better than what needs no record"
            return {"have": have, "take": empty, "because": NOT_YET if not cells else f"{self.measure.title} above"}
        order = sorted(helps, key=lambda name: middle_of(helps[name]))
        said = "; ".join(
            f"{name} {shown(helps[name], 0)} s of CPU, {self.measure.title} {shown(cells[name], self.measure.digits)}"
            for name in order
        )
        return {"have": have, "take": f"**{order[0]}**", "because": said}


def shown(cell: Cell, digits: int) -> str:
    """A cell in words."""
    return str(tables.cell(cell, digits))


def situations() -> tuple[list[Situation], list[Situation]]:
    """Of texts and of tables."""
    approximate = [arm for arm in TEXT_ARMS if arm.guarantee == "approx_dp"]
    secret = [arm for arm in TEXT_ARMS if arm.name == SECRETS]
    of_texts, of_tables = [], []
    for epsilon in study.TEXTS["epsilons"]:
        at = f"ε = {epsilon:g}"
        for have, kind, measure, arms in (
            (f"texts of several kinds, with labels; {at} for a record", "topics", FRECHET, approximate),
            (f"the same, to train a classifier on them; {at}", "topics", ACCURACY, approximate),
            (f"texts of one form, which differ in their details; {at} for a record", "notes", FRECHET, approximate),
            ("texts in which only some words are secret, and all else is public", "topics", FRECHET, secret),
        ):
            of_texts.append(Situation(have, kind, epsilon, measure, arms, PUBLIC_TEXTS, UNUSED_TEXTS))
    for kind, size in (("randhie", "many rows and few columns"), ("star98", "few rows and many columns")):
        for epsilon in study.TABLES["epsilons"]:
            for use, measure in (("to look at pairs of columns", PAIRS), ("to train a classifier", AUC)):
                have = f"a table of {size}, {use}; ε = {epsilon:g} for a row"
                of_tables.append(Situation(have, kind, epsilon, measure, TABLE_ARMS, PUBLIC_ROWS, UNUSED_ROWS))
    return of_texts, of_tables


def decision(numbers: Mapping[str, Numbers]) -> dict[str, Any]:
    """The table on top of the guide."""
    of_texts, of_tables = situations()
    rows = [one.row(numbers[one.kind]) for one in of_texts]
    rows.append(of_texts[0].quickest(numbers[of_texts[0].kind], "texts of several kinds, and little time"))
    rows += [one.row(numbers[one.kind]) for one in of_tables]
    quick = "a table of many rows and few columns, and little time"
    rows.append(of_tables[0].quickest(numbers[of_tables[0].kind], quick))
    columns = [("have", "you have"), ("take", "take"), ("because", "because (95% intervals over seeds)")]
    return {"columns": [{"title": title, "key": key} for key, title in columns], "rows": rows}


def protection() -> dict[str, Any]:
    """Of each generator, by its claims: what is protected, and what has to be public or to hold."""
    rows, seen = [], set()
    for arm in (*TEXT_ARMS, *TABLE_ARMS):
        if arm.name == UNPROTECTED:
            continue
        of_texts = arm in TEXT_ARMS
        scale = study.TEXTS if of_texts else study.TABLES | study.TABLES["randhie"]
        names = inputs.LABELS["topics"]
        labels = dict.fromkeys(names, scale["records"] // len(names)) if of_texts else {}
        asked = Asked(scale, "topics" if of_texts else "randhie", labels, 0, 1.0, 1e-5)
        source = {"source": "file", "path": "records.jsonl", "label": "label"}
        claim = make_claim(arm.content(asked, 1, source if of_texts else {"source": "table", "name": "randhie"}))
        assumed = " ".join(claim.assumptions())
        if (arm.mechanism, arm.guarantee) in seen:
            continue
        seen.add((arm.mechanism, arm.guarantee))
        same = [other.name for other in (*TEXT_ARMS, *TABLE_ARMS) if other.mechanism == arm.mechanism]
        name = " and ".join(same) if arm in TABLE_ARMS else arm.name
        rows.append(
            {
                "arm": name,
                "mechanism": f"`{arm.mechanism}`",
                "unit": f"one {claim.unit}",
                "guarantee": GUARANTEES[arm.guarantee],
                "assumed": assumed,
            }
        )
    titles = {"arm": "", "mechanism": "mechanism", "unit": "protects", "guarantee": "guarantee", "assumed": "rests on"}
    return {"columns": [{"title": title, "key": key} for key, title in titles.items()], "rows": rows}


GUARANTEES = {
    "approx_dp": "(ε, δ) before the run",
    "ex_post": "ex-post ε of the one output, itself private; before the run far larger",
    "secret_protection": "(p, r): a guess of a secret is right with probability at most p before, and at most r after",
}


def sizes() -> dict[str, Any]:
    """The numbers of the study."""
    common = {key: value for key, value in study.TABLES.items() if not isinstance(value, dict)}
    rows = [{"of": "texts", "given": _written(study.TEXTS)}, {"of": "tables", "given": _written(common)}]
    rows += [{"of": name, "given": _written(study.TABLES[name])} for name in inputs.TARGETS]
    return {"columns": [{"title": "of", "key": "of"}, {"title": "parameters", "key": "given"}], "rows": rows}


def _written(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in given.items())


def machine(numbers: Mapping[str, Numbers]) -> dict[str, Any]:
    """Cores, load and versions of the runs."""
    rows = []
    for name, of in numbers.items():
        if not of.runs:
            rows.append({"of": name, "seeds": NOT_YET})
            continue
        cores = sorted({run["machine"]["cores"] for run in of.runs})
        loads = [run["load"] for run in of.runs if "load" in run]
        busy = max(loads) > min(cores) if loads else False
        versions = sorted({_written({k: v for k, v in run["machine"].items() if k != "cores"}) for run in of.runs})
        rows.append(
            {
                "of": name,
                "seeds": len({run["seed"] for run in of.runs}),
                "machine": " or ".join(f"{count} cores" for count in cores),
                "load": f"{'busy' if busy else 'idle'}: load {min(loads):.1f} to {max(loads):.1f}" if loads else "–",
                "versions": "; ".join(versions),
            }
        )
    titles = {
        "of": "of",
        "seeds": "seeds",
        "machine": "machine",
        "load": "other work beside it",
        "versions": "versions",
    }
    return {"columns": [{"title": title, "key": key} for key, title in titles.items()], "rows": rows}


def left_out() -> dict[str, Any]:
    """Mechanisms of the registry that are not measured."""
    rows = [{"mechanism": f"`{name}`", "why": why} for name, why in LEFT_OUT.items()]
    return {"columns": [{"title": "mechanism", "key": "mechanism"}, {"title": "why", "key": "why"}], "rows": rows}


def rows_of(arms: Sequence[Arm], public: Sequence[str], ceiling: str, epsilon: float) -> list[tuple[str, float | None]]:
    """What needs no record, the generators, and real data."""
    return [*((name, None) for name in public), *((arm.name, epsilon) for arm in arms), (ceiling, None)]


def page_tables(folder: Path = RESULTS) -> dict[str, Any]:
    """All tables of the pages."""
    numbers = {kind: Numbers(folder, kind) for kind in (*inputs.KINDS, *inputs.TARGETS)}
    made = {
        "decision": decision(numbers),
        "protection": protection(),
        "left_out": left_out(),
        "sizes": sizes(),
        "machine": machine(numbers),
    }
    for kind, of in numbers.items():
        texts = kind in inputs.KINDS
        columns = SHOWN[kind if texts else "table"]
        parts = (TEXT_ARMS, PUBLIC_TEXTS, UNUSED_TEXTS) if texts else (TABLE_ARMS, PUBLIC_ROWS, UNUSED_ROWS)
        for epsilon in (study.TEXTS if texts else study.TABLES)["epsilons"]:
            given = rows_of(*parts, epsilon)
            made[f"{kind}_{epsilon:g}"] = utility_table(of, kind, given, columns)
            costs = [row for row in given if row[1] is not None or row[0] in PUBLIC_TEXTS]
            made[f"{kind}_{epsilon:g}_cost"] = utility_table(of, kind, costs, COSTS)
    return made
