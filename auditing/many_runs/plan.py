"""Plans an audit by many runs: makes neighbouring data sets, and fixes what is tested."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpassay import __version__
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.black_box.worst_cases import (
    NeighboringData,
    Row,
    Sample,
    data_sets_of,
    describe_columns,
    neighboring_data,
)
from dpassay.attacks.canaries.rows import ColumnRange
from dpassay.auditing.data import Data, write_rows
from dpassay.auditing.many_runs.files import (
    DATA,
    PLAN,
    Planned,
    PlannedColumn,
    PlannedEvent,
    PlannedPair,
    RunsPlan,
    data_file,
    read_plan,
)
from dpassay.auditing.plan_files import Claimed, guarantee
from dpassay.audits.games.many_runs import (
    LEAST_RUNS,
    MOST_RUNS,
    ManyRunsDesign,
    Power,
    detectable_leak,
    power,
    power_in_words,
    runs_needed,
)
from dpassay.audits.verdict import check_confidence
from dpassay.base import defaults, validate
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_confidence, format_lower, format_number, format_percent, format_upper
from dpassay.base.outputs import check_new_folder
from dpassay.base.private_files import new_folder, write_private
from dpassay.base.progress import Progress
from dpassay.data.cells import as_category, is_missing
from dpassay.data.records import read_rows
from dpassay.data.table_schema import Schema

RUNS = 300
"""The default number of runs, pilot runs included; more if the claim needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSettings:
    """The claim that an audit tests, and the neighbours that it may use.

    Attributes:
        like: file of the data that neighbours are made like.
        epsilon: claimed ε; None for no claim.
        delta: claimed δ; 0 for pure differential privacy.
        adjacency: ``add_remove`` or ``replace_one``.
        unit: ``record`` or ``group(k)``.
        runs: number of runs, pilot runs included; None for `RUNS`, or for twice as many as can refute the claim.
        confidence: of the bound.
        neighbors: names of strategies; None for all that apply.
        schema: the public domains of the columns; None to read types off the data.
        records: number of records of a data set; fewer if the file has fewer.
        label: column of classes.
        categorical: columns of numbers that are categories.
        texts: columns of prose.
        failures: whether a pair is tested on whose D′ every pilot run fails.
        progress: where to show progress.
    """

    like: Path
    epsilon: float | None = None
    delta: float = 0.0
    adjacency: str = "add_remove"
    unit: str = "record"
    runs: int | None = None
    confidence: float = defaults.CONFIDENCE
    neighbors: tuple[str, ...] | None = None
    schema: Schema | None = None
    records: int = defaults.MANY_RUNS_RECORDS
    label: str | None = None
    categorical: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    failures: bool = False
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class PlannedRuns:
    """A planned audit, and what it can show.

    Attributes:
        planned: the plan.
        power: of the test against leaks of known size.
    """

    planned: Planned
    power: tuple[Power, ...]

    def words(self) -> list[str]:
        """The plan in sentences."""
        plan = self.planned.plan
        design = plan.design()
        names = ", ".join(pair.name for pair in plan.pairs)
        lines = [
            f"{len(plan.pairs)} pairs of neighbours ({plan.adjacency}, unit {plan.unit}): {names}.",
            f"At most {plan.runs} runs: up to {design.pilots} to choose the pair, and the rest, "
            f"{2 * design.most_rounds} or more, to test it, at confidence {format_confidence(plan.confidence)}.",
            f"By simulation, the test {'refutes the claim' if plan.claim else 'shows ε > 0'} with this chance, if the "
            "search finds an event that tells D′ from D",
        ]
        lines += [
            f"  {one.leak}: {format_percent(one.chance)}; the bound is {format_lower(one.median)} in the median"
            for one in self.power
        ]
        half = power_in_words(detectable_leak(design, design.most_rounds, design.usual_pilots))
        return [*lines, f"{half} Leaks that only other neighbours would reveal are not counted.", *self.warnings]

    @property
    def warnings(self) -> list[str]:
        """That no outcome could refute the claim, if none could."""
        needed, design = self.runs_needed, self.planned.plan.design()
        if design.claim is None:
            return []
        claim = f"ε = {format_number(design.limit)}"
        if needed is None or needed > MOST_RUNS:
            return [f"Warning: no outcome of {MOST_RUNS} runs, the most that are possible, refutes a claim of {claim}."]
        if needed > design.runs:
            return [
                f"Warning: no outcome of {design.runs} runs refutes a claim of {claim}; at least {needed} are needed "
                "(--runs)."
            ]
        if design.state(design.usual_pilots).ceiling(design.most_rounds) <= design.limit:
            return [
                f"Warning: if the search uses all its runs, no outcome of the test refutes a claim of {claim}; plan "
                "more runs (--runs)."
            ]
        return []

    @property
    def runs_needed(self) -> int | None:
        """A number of runs that the claim needs at least, without those of a search; None if no number would do."""
        return runs_needed(self.planned.plan.design())

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON types, without the data."""
        plan = self.planned.plan
        design = plan.design()
        body = plan.model_dump(exclude={"seed", "pairs", "columns", "like"})
        return {
            **body,
            "sha256": self.planned.sha256,
            "pairs": [pair.name for pair in plan.pairs],
            "runs_needed": self.runs_needed if plan.claim else None,
            "power": [dataclasses.asdict(one) for one in self.power],
            "detectable": detectable_leak(design, design.most_rounds, design.usual_pilots).to_json(),
        }


def plan(settings: RunsSettings, folder: Path) -> PlannedRuns:
    """Makes neighbouring data sets and writes the folder of an audit atomically.

    Args:
        settings: claim and neighbours.
        folder: of the audit; it must not exist, or be empty.

    Raises:
        InputError: one line, if a setting, the data or the folder is invalid.
    """
    check_new_folder(folder, (settings.like,))
    with input_errors():
        _check(settings)
        unit = Unit.parse(settings.unit)
        rows = _sample(settings)
        columns = describe_columns(
            rows,
            schema=settings.schema,
            categorical=settings.categorical,
            texts=settings.texts,
            most=_largest_numbers(settings.like),
        )
        sample = Sample(rows, columns, Adjacency(settings.adjacency), unit.size, settings.label)
        pairs = neighboring_data(sample, np.random.default_rng(secrets.randbits(64)), settings.neighbors)
        _check_texts(settings.like, pairs)
    data_sets, places = data_sets_of(pairs)
    planned_pairs = [
        PlannedPair(
            name=pair.name,
            data=data,
            neighbor=neighbor,
            target={name: _plain(cell) for name, cell in pair.target.items()},
            novel=list(pair.novel),
            events=[PlannedEvent(feature=event.feature, threshold=event.threshold) for event in pair.events],
        )
        for pair, (data, neighbor) in zip(pairs, places, strict=True)
    ]
    return _write(settings, data_sets, planned_pairs, sample, folder)


def _check_texts(path: Path, pairs: Sequence[NeighboringData]) -> None:
    """Raises `ValueError` if a target cannot be written into the plan, which is UTF-8."""
    for name, cell in (item for pair in pairs for item in pair.target.items()):
        if any("\ud800" <= letter <= "\udfff" for text in (name, cell) if isinstance(text, str) for letter in text):
            raise ValueError(f"{path}: column {name!r} holds half of a surrogate pair, which is no text; take it out")


def _check(settings: RunsSettings) -> None:
    if settings.epsilon is not None:
        guarantee(settings.epsilon, settings.delta)
        validate.open_probability(confidence=settings.confidence)
        check_confidence(settings.confidence, settings.epsilon)
    elif settings.delta:
        raise ValueError("a δ belongs to a claim; give --epsilon too")
    unit = Unit.parse(settings.unit)
    if unit.is_secret or unit.needs_user:
        raise ValueError(
            f"neighbours differ in a record or a group of records, not in unit {unit}; for a user give 'group(k)' with "
            "the most records that a user may have"
        )
    if settings.adjacency not in ("add_remove", "replace_one"):
        raise ValueError(f"adjacency must be add_remove or replace_one, not {settings.adjacency!r}")
    validate.integer(minimum=unit.size + 4, records=settings.records)
    if settings.runs is not None:
        validate.integer(minimum=LEAST_RUNS, maximum=MOST_RUNS, runs=settings.runs)


def _sample(settings: RunsSettings) -> tuple[Row, ...]:
    """A uniform sample of the records of the file, in one pass and bounded memory."""
    kept: list[tuple[int, Row]] = []
    drawn = random.Random(secrets.randbits(64))
    with settings.progress.stage("Reading the data") as step:
        for number, (_, row) in enumerate(read_rows(settings.like)):
            if len(kept) < settings.records:  # reservoir sampling: Vitter 1985, algorithm R
                kept.append((number, dict(row)))
            elif (place := drawn.randrange(number + 1)) < settings.records:
                kept[place] = number, dict(row)
            if number % 1000 == 0:
                step(0, 1)  # the number of rows is unknown before the end
        step(1, 1)
    if not kept:
        raise ValueError(f"{settings.like}: holds no records; neighbours are made like records, so name a file of some")
    return tuple(row for _, row in sorted(kept, key=lambda one: one[0]))


def _largest_numbers(path: Path) -> dict[str, float]:
    """The largest number that each column of integers or decimals of a Parquet file can hold, and a float exactly."""
    if path.suffix.lower() != ".parquet":
        return {}
    import pyarrow
    import pyarrow.parquet

    found = {}
    for one in pyarrow.parquet.read_schema(path.absolute()):
        if pyarrow.types.is_integer(one.type):
            bits = one.type.bit_width - pyarrow.types.is_signed_integer(one.type)
            found[one.name] = float(2 ** min(bits, 53) - 1)
        elif pyarrow.types.is_decimal(one.type):
            found[one.name] = float(min(10 ** max(one.type.precision - one.type.scale, 0), 2**53) - 1)
    return found


def _plain(cell: Any) -> Any:
    """A cell in a type of JSON."""
    if cell is None or isinstance(cell, bool | int | str) or (isinstance(cell, float) and math.isfinite(cell)):
        return cell
    return None if is_missing(cell) else as_category(cell)


def _write(
    settings: RunsSettings,
    data_sets: Sequence[tuple[Row, ...]],
    pairs: list[PlannedPair],
    sample: Sample,
    folder: Path,
) -> PlannedRuns:
    """Writes a temporary folder, which is renamed when it is complete."""
    suffix = settings.like.suffix.lower()
    form = Data(settings.like, [ColumnRange(column.name, "other") for column in sample.columns])
    with new_folder(folder) as partial:
        (partial / "private" / DATA).mkdir(mode=0o700)
        hashes = []
        for place, rows in enumerate(data_sets):
            path = data_file(partial, place, suffix)
            write_rows(path, [dict(row) for row in rows], form)
            hashes.append(hashlib.sha256(path.read_bytes()).hexdigest())
        content = RunsPlan(
            dpassay=__version__,
            seed=secrets.randbits(63),
            like=str(settings.like),
            suffix=suffix,
            data_sets=hashes,
            columns=[
                PlannedColumn(
                    name=column.name,
                    kind=column.kind,
                    low=column.low,
                    high=column.high,
                    decimals=column.decimals,
                )
                for column in sample.columns
            ],
            pairs=pairs,
            runs=settings.runs or RUNS,
            confidence=settings.confidence,
            delta=settings.delta,
            claim=Claimed(epsilon=settings.epsilon, delta=settings.delta) if settings.epsilon is not None else None,
            adjacency=settings.adjacency,
            unit=settings.unit,
            failures=settings.failures,
        )
        if settings.runs is None:
            content = content.model_copy(update={"runs": _default_runs(content.design())})
        design = content.design()
        found = power(design, design.most_rounds, design.usual_pilots)
        write_private(partial / "private" / PLAN, content.model_dump_json(indent=1) + "\n")
        planned = PlannedRuns(read_plan(partial), found)
        write_private(partial / "README.md", _readme(planned))
    return PlannedRuns(read_plan(folder), found)


def _default_runs(design: ManyRunsDesign) -> int:
    """`RUNS`, or twice as many as the claim needs at least if that is more, so that a leak need not be perfect."""
    needed = runs_needed(design) if design.claim is not None else None
    return RUNS if needed is None or needed > MOST_RUNS else min(max(RUNS, 2 * needed), MOST_RUNS)


def _readme(found: PlannedRuns) -> str:
    plan = found.planned.plan
    claim = f"ε = {format_number(plan.claim.epsilon)}" if plan.claim else "no ε"
    if plan.claim and plan.delta:
        claim += f", δ = {format_upper(plan.delta)}"
    looks = "\n".join(f"- {line.strip()}" for line in found.words())
    return f"""# An audit by many runs

A generator is claimed to have {claim} ({plan.adjacency}, unit {plan.unit}). It is run many times on two data sets that
differ in one unit, and the audit looks for outputs that tell which of the two was read.

1. `dpassay audit runs run DIR --command "python gen.py {{input}} {{output}}"` makes the runs. Given again, it resumes.
   Where the generator runs on another machine, `dpassay audit runs score DIR` says which runs are needed
   (`private/todo.csv`), and reads their outputs from `private/outputs/`.
2. `dpassay audit runs bound DIR` says what the runs show, and `dpassay audit runs report DIR` writes a page.

Each run must be independent of the others: no fixed seed, no state that is kept from one run to the next. `private/`
holds records like those of `{plan.like}`; keep it as private as these.

## What it can show

{looks}

A result that shows nothing does not mean that nothing leaks: other neighbours and other features may show more.
"""
