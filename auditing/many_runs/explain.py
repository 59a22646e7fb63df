"""Why a claim was refuted: which single column of the target gives it away.

After a refutation the generator runs on data sets in which an ordinary record stands in the place of the target, as it
is, and with the cell of one column of the target at a time, each alone. How often the event that the result names
happens there says what carries it. This is an explanation and no bound: no confidence was spent on it, and none is
claimed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scipy import stats

from dpassay.attacks.black_box.column_facts import Row
from dpassay.attacks.black_box.feature_words import in_words
from dpassay.attacks.black_box.output_events import EXCHANGED, Event
from dpassay.attacks.black_box.output_features import Features
from dpassay.attacks.canaries.rows import ColumnRange
from dpassay.auditing.data import Data, write_rows
from dpassay.auditing.many_runs.files import PlannedRuns
from dpassay.auditing.many_runs.plan_content import PlannedPair
from dpassay.audits.games.many_runs_design import GeneratorRun
from dpassay.audits.result import AuditResult
from dpassay.base.private_files import write_private
from dpassay.data.reader import FOUND

EXPLANATION: Final = "explanation.json"
RUNS_EACH: Final = 10
MAX_COLUMNS: Final = 20
"""Columns that are tried alone, at most: those in which the target has what no record of D has come first."""
_CHANCE = 0.1  # that a column is named which makes no difference, at most
NO_BOUND: Final = "An explanation and no bound: these runs are not counted, and no confidence is claimed."


@dataclass(frozen=True, slots=True)
class Variant:
    """A data set of the explanation.

    Attributes:
        column: whose cell the ordinary record has of the target; empty for none.
        rows: its records.
    """

    column: str
    rows: tuple[Row, ...]


def variants(planned: PlannedRuns, pair: PlannedPair) -> tuple[list[Variant], int]:
    """The data sets that explain a pair: with an ordinary record in the place of the target, or the one that it
    replaces, and with one column of the target at a time; and how many columns were left out."""
    held, neighbor = planned.rows(pair.data), tuple(planned.rows(pair.neighbor))
    positions = _positions(planned, len(neighbor))
    own = planned.plan.own
    first = neighbor[min(positions) if own is None else own.target]
    ids = [column.name for column in planned.plan.columns if column.kind == "id"]
    names = [column.name for column in planned.plan.columns if column.kind != "id"]
    ordinary = held[-1] if _exchanges(pair) else _ordinary(held, first, names)
    different = [name for name in names if ordinary[name] != first[name]]
    different.sort(key=lambda name: name not in pair.novel)
    results = [
        Variant(column, _with_ordinary(neighbor, positions, ordinary, (*ids, *alone)))
        for column, alone in [("", ()), *((name, (name,)) for name in different[:MAX_COLUMNS])]
    ]
    return results, len(different) - len(results) + 1


def _exchanges(pair: PlannedPair) -> bool:
    """Whether what a pair expects is also about the record that the target replaces, the last one of D."""
    return any(item.feature == EXCHANGED for item in pair.events)


def _positions(planned: PlannedRuns, records: int) -> frozenset[int]:
    """The positions of the targets among so many records of D′, at the end of which strategies put them."""
    if planned.plan.own is not None:
        return frozenset(planned.plan.own.positions)
    return frozenset(range(records - planned.design.unit.size, records))


def _ordinary(held: Sequence[Row], target: Row, names: Sequence[str]) -> Row:
    """The record of D that differs from the target in fewest of these columns, but in some unless none does."""
    least: tuple[int, Row] | None = None
    for row in held:
        differ = sum(row[name] != target[name] for name in names) or len(names) + 1
        if least is None or differ < least[0]:
            least = differ, row
    assert least is not None
    return least[1]


def _with_ordinary(
    rows: Sequence[Row], positions: frozenset[int], ordinary: Row, kept: Sequence[str]
) -> tuple[Row, ...]:
    """Records in which an ordinary one, but for its cells in some columns, stands at some positions."""
    return tuple(
        {**ordinary, **{name: row[name] for name in kept}} if position in positions else row
        for position, row in enumerate(rows)
    )


def write_variant(planned: PlannedRuns, pair: PlannedPair, rows: Sequence[Row], path: Path) -> None:
    """Writes a data set as the others are."""
    reading = planned.plan.dialect.options if planned.plan.dialect is not None else FOUND
    columns = [ColumnRange(column.name, "other") for column in planned.plan.columns]
    write_rows(path, map(dict, rows), Data(planned.data_file(pair.data), columns, reading=reading))


class Explanation:
    """The runs that explain a refutation, in the form in which an audit asks for runs.

    Args:
        planned: the plan.
        result: of the audit that refuted the claim.
    """

    def __init__(self, planned: PlannedRuns, result: AuditResult) -> None:
        self._result = result
        self.pair = planned.pair(result.details["tested"]["pair"])
        self.variants, self._left_out = variants(planned, self.pair)
        self.first = len(planned.plan.data_sets) + planned.ladder_data_sets
        tested = result.details["tested"]
        self._event = Event(tested["feature"], tested["threshold"])
        self._happened: dict[GeneratorRun, bool] = {}

    def wanted(self, ahead: int = 1) -> list[GeneratorRun]:
        """The runs that have no result yet."""
        return [run for run in self._every if run not in self._happened]

    @property
    def _every(self) -> list[GeneratorRun]:
        sets = range(self.first, self.first + len(self.variants))
        return [GeneratorRun("pilot", data, number) for number in range(RUNS_EACH) for data in sets]

    def add(self, run: GeneratorRun, features: Mapping[str, Features]) -> None:
        """Adds the result of a run."""
        seen = {**features.get("", {}), **features.get(self.pair.name, {})}
        self._happened[run] = seen.get(self._event.feature, float("-inf")) >= self._event.threshold

    @property
    def progress(self) -> tuple[int, int]:
        """Runs that were made, and all."""
        return len(self._happened), len(self._every)

    def to_json(self) -> dict[str, Any]:
        """What the runs say, as plain JSON types."""
        on_d_prime, on_d = (rate.rate for rate in self._result.rates)
        hits = [
            sum(self._happened[GeneratorRun("pilot", self.first + index, number)] for number in range(RUNS_EACH))
            for index in range(len(self.variants))
        ]
        tried: list[dict[str, Any]] = [
            {
                "column": variant.column,
                "hits": count,
                "carries": abs(count / RUNS_EACH - on_d_prime) < abs(count / RUNS_EACH - on_d),
            }
            for variant, count in zip(self.variants, hits, strict=True)
        ]
        body = {"event": in_words(self._event), "runs_each": RUNS_EACH, "ordinary": tried[0], "columns": tried[1:]}
        record = "The record that the target replaces" if _exchanges(self.pair) else "An ordinary record"
        says = _says(record, tried[0], tried[1:], rarer=on_d > on_d_prime)
        return {**body, "left_out": self._left_out, "says": f"{says} {NO_BOUND}"}


def _says(record: str, ordinary: Mapping[str, Any], columns: Sequence[Mapping[str, Any]], *, rarer: bool) -> str:
    """What carries the event, in a sentence.

    Args:
        record: that stands in the place of the target, in words.
        ordinary, columns: the runs with it as it is, and with the target's cell in one column each.
        rarer: whether the event is rarer on D′, so that a run without it gives the target away.
    """

    def shown(item: Mapping[str, Any]) -> int:
        return RUNS_EACH - item["hits"] if rarer else int(item["hits"])

    without = f"{shown(ordinary)} of {RUNS_EACH} runs"
    if ordinary["carries"]:
        return (
            f"{record} in the place of the target gives itself away, too ({without}): it takes no value of the target."
        )
    carrying = [item for item in columns if item["carries"]]
    nearer = [item for item in columns if _by_chance(shown(item), shown(ordinary)) * len(columns) <= _CHANCE]
    if not carrying and not nearer:
        return "No single column of the target carries it: it takes several together."
    named = ", ".join(f"{item['column']!r} ({shown(item)} of {RUNS_EACH} runs)" for item in carrying or nearer)
    if not carrying:
        return (
            f"No single column of the target carries it as often. {record} with the target's value in one column alone "
            f"gives itself away less by {named}; without any it does in {without}."
        )
    return (
        f"{record} with the target's value in one column alone gives itself away by {named}; without any it does in "
        f"{without}."
    )


def _by_chance(more: int, less: int) -> float:
    """The probability that runs of equal rates show so many more hits on one of two data sets (Fisher's exact test)."""
    return float(stats.hypergeom.sf(more - 1, 2 * RUNS_EACH, more + less, RUNS_EACH))


def write_explanation(planned: PlannedRuns, explanation: Explanation) -> dict[str, Any]:
    """Keeps what the runs say in the private folder."""
    body = {"plan": planned.sha256, **explanation.to_json()}
    write_private(planned.private / EXPLANATION, json.dumps(body, indent=1) + "\n")
    return body


def read_explanation(planned: PlannedRuns) -> dict[str, Any] | None:
    """What was explained; None if nothing was, or of another plan."""
    try:
        body = json.loads((planned.private / EXPLANATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(body, dict) or body.pop("plan", None) != planned.sha256:
        return None
    return body
