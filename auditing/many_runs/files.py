"""The files of an audit by many runs: the plan, and the result of each run."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple

from pydantic import AliasChoices, Field, FiniteFloat, ValidationError

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.black_box.output_features import FAILED, Features, OutputFeatures
from dpassay.attacks.black_box.own_neighbors import own_neighbors
from dpassay.attacks.black_box.probes import FINDS as PROBE_FINDS
from dpassay.attacks.black_box.probes import MAX_LEVEL, Ladder, pair_name
from dpassay.attacks.black_box.worst_cases import (
    FINDS,
    OWN,
    ColumnFacts,
    Event,
    NeighboringData,
    Row,
    Use,
    difference_in_words,
)
from dpassay.attacks.canaries.rows import ColumnRange
from dpassay.auditing.data import Data, write_rows
from dpassay.auditing.files import MANIFEST, PLAN, Claimed, Part, version_error
from dpassay.auditing.many_runs.audited import AuditedGenerator, now
from dpassay.auditing.many_runs.own_files import FileRows, PlannedOwn, copied
from dpassay.auditing.many_runs.probes import PlannedProbe, ladder_rows, marks_of, pair_named, place
from dpassay.audits.games.many_runs import (
    MAX_RUNS,
    GeneratorRun,
    ManyRuns,
    ManyRunsDesign,
    Pair,
    Power,
    detectable_leak,
    power,
    power_in_words,
    runs_needed,
)
from dpassay.audits.verdict import may_refute
from dpassay.base import validate
from dpassay.base.errors import InputError, input_errors, naming
from dpassay.base.former_name import FORMER_NAME
from dpassay.base.number_format import format_confidence, format_lower, format_number, format_percent
from dpassay.data.column_summary import ColumnSummary
from dpassay.data.columns import Column, Form, Kind
from dpassay.data.reader import FOUND, Dialect, FileOptions

RESULTS: Final = "results.jsonl"
DATA: Final = "data"
ARMS: Final = ("claimed", "unprotected")
"""The generator as it is claimed to be, and with its protection off."""

TRIAL: Final = 2**32 - 1
"""The number of the first run that only tries a generator, and is not counted. Further ones count down from it."""
TRIALS: Final = 3
"""So many times a generator is tried before it counts as one that cannot run."""

_VERSION = 1


class PlannedColumn(Part):
    """A column of the data: what features need of `ColumnFacts`, how its numbers are written, and which words in it
    mean that a cell is missing. Plans of earlier versions have neither."""

    name: str
    kind: Use
    low: FiniteFloat
    high: FiniteFloat
    decimals: int = Field(ge=0, le=300)
    form: Form | None = None
    marks: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, facts: ColumnFacts) -> PlannedColumn:
        """The column that strategies knew."""
        known = facts.column
        return cls(
            name=facts.name,
            kind=facts.kind,
            low=facts.low,
            high=facts.high,
            decimals=facts.decimals,
            form=None if known is None else known.form,
            marks=[] if known is None else sorted(known.marks),
        )

    @property
    def facts(self) -> ColumnFacts:
        """The column in the form that features take."""
        form = Form.POINT if self.form is None and self.kind == "number" else self.form
        kind = Kind.CATEGORY if form is None else form.kind
        column = Column(self.name, kind, form, 0, 0, 0, 0, marks=frozenset(self.marks))
        return ColumnFacts(self.name, self.kind, self.low, self.high, self.decimals, column=column)


class PlannedDialect(Part):
    """How the data, if they are CSV, and so the data sets are written (`dpassay.data.reader.Dialect`)."""

    separator: str
    encoding: str
    header: bool

    @classmethod
    def of(cls, dialect: Dialect) -> PlannedDialect:
        """What the reader of the data found, or was told."""
        return cls(separator=dialect.separator, encoding=dialect.encoding, header=dialect.header)

    @property
    def options(self) -> FileOptions:
        """The same as options of the reader."""
        return FileOptions(separator=self.separator, encoding=self.encoding, header=self.header)


_BEFORE: Final = PlannedDialect(separator=",", encoding="utf-8", header=True)
"""Of plans of earlier versions."""


class UnderstoodColumn(Part):
    """What was understood of a column (`ColumnSummary`)."""

    name: str
    kind: str
    form: str
    missing: dict[str, int]
    distinct: dict[str, int]
    used: bool
    why: str
    warnings: tuple[str, ...]


class Understood(Part):
    """What was understood of the data: how they are written, in words, and each column."""

    written: str
    columns: list[UnderstoodColumn]

    @property
    def summaries(self) -> tuple[ColumnSummary, ...]:
        """The columns."""
        return tuple(ColumnSummary(**dict(column)) for column in self.columns)


class PlannedEvent(Part):
    """An event that a strategy expects."""

    feature: str
    threshold: FiniteFloat

    @property
    def event(self) -> Event:
        """The event in the form that audits take."""
        return Event(self.feature, self.threshold)


class PlannedPair(Part):
    """A pair of neighbours: D, D′, and where they differ."""

    name: str
    data: int
    neighbor: int
    target: dict[str, Any]
    novel: list[str]
    events: list[PlannedEvent]


class RunsPlan(Part):
    """What is fixed before the first run (``private/plan.json``).

    Attributes:
        schema_version: of this file.
        dpassay: version that planned.
        seed: from which each run has its own, so that functions and commands that take one can be repeated.
        like: the file of the data.
        suffix: of data sets and outputs.
        data_sets: SHA-256 of each data set, ``private/data/NN``.
        columns: of the data.
        pairs: of neighbours.
        runs: number of runs, pilot runs included.
        confidence: of the bound.
        delta: δ of the bound.
        claim: or None.
        adjacency, unit: of the claim.
        failures: whether pairs are tested on whose D′ every pilot run fails.
        dialect: of the data; None if they are no CSV.
        header: whether it was stated that the first line of CSV names the columns; None if it was not.
        understood: of the data; None for plans of earlier versions.
        held: the features of each data set itself, by pair, as those of an output; empty for plans of earlier versions,
            in which the first of events that are equally good is tested, not the plainest.
        title: what the user calls the audit; empty for none.
        probe: the probing data set; None for none, and for plans of earlier versions.
        by_growth: how pairs are ranked (`ManyRunsDesign`); false for plans of earlier versions.
        own: the only pair, if the user gave it; None if strategies made the pairs.
    """

    schema_version: Literal[1] = 1
    dpassay: str = Field(validation_alias=AliasChoices("dpassay", FORMER_NAME))
    seed: int = Field(ge=0)
    like: str
    suffix: str = Field(pattern=r"^\.(jsonl|csv|tsv|parquet)(\.gz|\.zst)?$")
    data_sets: list[str]
    columns: list[PlannedColumn]
    pairs: list[PlannedPair]
    runs: int
    confidence: float
    delta: float
    claim: Claimed | None
    adjacency: str
    unit: str
    failures: bool
    dialect: PlannedDialect | None = None
    header: bool | None = None
    understood: Understood | None = None
    held: list[dict[str, dict[str, FiniteFloat]]] = Field(default_factory=list)
    title: str = ""
    probe: PlannedProbe | None = None
    by_growth: bool = False
    own: PlannedOwn | None = None

    @property
    def names(self) -> frozenset[str]:
        """The columns of the data."""
        return frozenset(column.name for column in self.columns)

    @property
    def is_csv(self) -> bool:
        """Whether data sets and outputs are text with a separator between cells."""
        return self.suffix.startswith((".csv", ".tsv"))

    def design(self, *, stop: bool = True) -> ManyRunsDesign:
        """The design of the audit."""
        return ManyRunsDesign(
            pairs=tuple(
                Pair(
                    pair.name,
                    pair.data,
                    pair.neighbor,
                    tuple(item.event for item in pair.events),
                    FINDS[pair.name],
                    self._differs(pair.name),
                    self._held(pair),
                )
                for pair in self.pairs
            ),
            runs=self.runs,
            confidence=self.confidence,
            adjacency=Adjacency(self.adjacency),
            unit=Unit.parse(self.unit),
            claim=None if self.claim is None else self.claim.guarantee,
            delta=self.delta,
            failures=self.failures,
            stop=stop,
            plainest=bool(self.held),
            probe=None if self.probe is None else self.probe.design(len(self.data_sets)),
            by_growth=self.by_growth,
        )

    def _differs(self, name: str) -> str:
        """What D and D′ of a pair are, as one sentence."""
        adjacency = Adjacency(self.adjacency)
        if self.own is not None:
            return self.own.differs(adjacency)
        return difference_in_words(name, adjacency, Unit.parse(self.unit).size)

    def _held(self, pair: PlannedPair) -> tuple[Features, Features] | None:
        """The features of a pair's data sets."""
        if not self.held:
            return None
        first, second = ({**self.held[data][""], **self.held[data][pair.name]} for data in (pair.data, pair.neighbor))
        return first, second

    def pairs_of(self, data: int) -> list[str]:
        """The names of the pairs, or ladders, that a data set belongs to."""
        if self.probe is not None and data == self.probe.data:
            return [ladder.name for ladder in self.probe.ladders]
        if self.probe is not None and data >= len(self.data_sets):
            at = place(data, len(self.data_sets))
            return [pair_name(self.probe.ladders[at.ladder].name, at.level)]
        return [pair.name for pair in self.pairs if data in (pair.data, pair.neighbor)]

    def check(self) -> None:
        """Raises `ValueError` or `LookupError` if fields are inconsistent."""
        design = self.design()
        if design.claim is not None and not may_refute(design.confidence):
            raise ValueError("no audit of this confidence refutes a claim")
        if self.dialect is not None:
            self.dialect.options  # noqa: B018 - raises if there is no such way to write a file
        if self.own is not None:
            self.own.check()
            if [pair.name for pair in self.pairs] != [OWN] or self.probe is not None:
                raise ValueError("the user's own pair is the only one")
        names = {column.name for column in self.columns}
        if self.probe is not None:
            numbers = [self.probe.data, *(ladder.data for ladder in self.probe.ladders)]
            if max(numbers) >= len(self.data_sets) or not all(ladder.marks for ladder in self.probe.ladders):
                raise ValueError("a probe names a data set that is not there")
        for pair in self.pairs:
            if not names <= pair.target.keys() or not names.issuperset(pair.novel):
                raise ValueError("a target lacks a column")
            if not 0 <= pair.data < len(self.data_sets) or not 0 <= pair.neighbor < len(self.data_sets):
                raise ValueError("a pair names a data set that is not there")
        if self.held:
            if len(self.held) != len({number for pair in self.pairs for number in (pair.data, pair.neighbor)}):
                raise ValueError("features belong to data sets")
            for data, features in enumerate(self.held):
                _checked(features, self.pairs_of(data))


@dataclass(frozen=True)
class PlannedRuns:
    """A planned audit in its folder, and what it can show.

    Attributes:
        folder: of the audit.
        plan: its content.
        sha256: hash of ``private/plan.json``.
    """

    folder: Path
    plan: RunsPlan
    sha256: str

    def asks_for(self, made: MadeRun) -> bool:
        """Whether a run may be one of this plan."""
        return (
            made.arm in ARMS
            and made.run.phase in ("pilot", "test")
            and 0 <= made.run.data < len(self.plan.data_sets) + self.ladder_data_sets
            and 0 <= made.run.number < self.plan.runs
        )

    @property
    def ladder_data_sets(self) -> int:
        """The number of data sets that the pairs of ladders may have."""
        return 0 if self.plan.probe is None else 2 * MAX_LEVEL * len(self.plan.probe.ladders)

    @property
    def private(self) -> Path:
        """The private folder."""
        return self.folder / "private"

    def data_file(self, data: int) -> Path:
        """The file of a data set."""
        return data_file(self.folder, data, self.plan.suffix)

    def content(self, data: int) -> bytes:
        """The file of a data set.

        Raises:
            InputError: if it was changed.
        """
        path = self.data_file(data)
        if data >= len(self.plan.data_sets):
            return self._written(data)
        with input_errors():
            content = path.read_bytes()
        self._check_unchanged(data, hashlib.sha256(content).hexdigest())
        return content

    def copy(self, data: int, target: Path) -> None:
        """Copies the file of a data set of the plan, in pieces.

        Raises:
            InputError: if it was changed.
        """
        with input_errors():
            digest = copied(self.data_file(data), target)
        self._check_unchanged(data, digest)

    def _check_unchanged(self, data: int, digest: str) -> None:
        if digest != self.plan.data_sets[data]:
            raise InputError(f"{self.data_file(data)}: was changed since it was planned; put it back, or plan anew")

    def rows(self, data: int) -> Sequence[Row]:
        """The records of a data set; those of a user's own pair are read anew each time.

        Raises:
            InputError: if its file was changed.
        """
        if data >= len(self.plan.data_sets):
            return ladder_rows(data, len(self.plan.data_sets), lambda position: self.ladders[position])
        path = self.data_file(data)
        with input_errors(), path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._check_unchanged(data, digest)
        with input_errors():
            rows = FileRows(path, self._stated)
            return rows if self.plan.own is not None else tuple(rows)

    @property
    def _stated(self) -> FileOptions:
        """How data sets are read."""
        return (self.plan.dialect or _BEFORE).options if self.plan.is_csv else FOUND

    @functools.cached_property
    def ladders(self) -> tuple[Ladder, ...]:
        """The ladders of the probe, with their records.

        Raises:
            InputError: if the file of one was changed.
        """
        plan = self.plan
        return tuple(
            Ladder(
                ladder.name,
                PROBE_FINDS[ladder.name],
                tuple(mark.mark for mark in ladder.marks),
                tuple(self.rows(ladder.data)),
                ladder.filler,
                ladder.levels,
                tuple(ladder.novel),
                tuple(Event(event.feature, event.threshold) for event in ladder.events),
                Adjacency(plan.adjacency),
                Unit.parse(plan.unit).size,
            )
            for ladder in (plan.probe.ladders if plan.probe is not None else ())
        )

    def pair(self, name: str) -> PlannedPair:
        """A pair of the plan or of a ladder."""
        for pair in self.plan.pairs:
            if pair.name == name:
                return pair
        known = next(pair for pair in self.design.possible_pairs if pair.name == name)
        made = pair_named(name, self.ladders)
        return PlannedPair(
            name=name,
            data=known.data,
            neighbor=known.neighbor,
            target=dict(made.target),
            novel=list(made.novel),
            events=[PlannedEvent.model_validate(event, from_attributes=True) for event in made.events],
        )

    def _written(self, data: int) -> bytes:
        """The file of a data set of a ladder, which is written anew from the records of the ladder.

        Raises:
            InputError: if the two of its pair are no neighbours.
        """
        probe, path = self.plan.probe, self.data_file(data)
        assert probe is not None
        at = place(data, len(self.plan.data_sets))
        pair = self.ladders[at.ladder].pair(at.level)
        self._check_neighbors(pair.name, pair.data, pair.neighbor)
        like = self.data_file(probe.ladders[at.ladder].data)
        columns = [ColumnRange(name, "other") for name in pair.target]
        with input_errors():
            write_rows(path, [dict(row) for row in self.rows(data)], Data(like, columns, reading=self._stated))
            return path.read_bytes()

    def _check_neighbors(self, name: str, data: Sequence[Row], neighbor: Sequence[Row]) -> None:
        unit, adjacency, own = Unit.parse(self.plan.unit), Adjacency(self.plan.adjacency), self.plan.own
        if own is not None:
            try:
                again = own_neighbors(data, neighbor, adjacency, unit)
                are = list(again.positions) == own.positions and not again.swapped
            except ValueError:
                are = False
        else:
            are = _are_neighbors(data, neighbor, adjacency, unit.size)
        if not are:
            raise InputError(f"{self.folder}: the data sets of {name} are not neighbours; make a new plan")

    def readings_of(self, output: Path) -> tuple[FileOptions, ...]:
        """How an output may be read: as it itself shows, and if that shows no column of the data, as they are."""
        plan = self.plan
        if not plan.is_csv:
            return (FOUND,)
        dialect = plan.dialect or _BEFORE
        encoding = dialect.encoding if dialect.encoding == "latin-1" and not _is_utf8(output) else None
        separators = (None, dialect.separator)
        return tuple(FileOptions(separator=sign, encoding=encoding, header=plan.header) for sign in separators)

    def features(self) -> OutputFeatures:
        """The features of outputs.

        Raises:
            InputError: if a data set was changed, or two of a pair are no neighbours.
        """
        held = {
            data: self.rows(data) for data in {item for pair in self.plan.pairs for item in (pair.data, pair.neighbor)}
        }
        for pair in self.plan.pairs:
            self._check_neighbors(pair.name, held[pair.data], held[pair.neighbor])
        return OutputFeatures(
            [column.facts for column in self.plan.columns],
            [
                NeighboringData(
                    pair.name,
                    FINDS[pair.name],
                    held[pair.data],
                    held[pair.neighbor],
                    pair.target,
                    tuple(pair.novel),
                    tuple(item.event for item in pair.events),
                )
                for pair in self.plan.pairs
            ],
            marks_of(self.ladders),
            lambda name: pair_named(name, self.ladders),
            of_first_plans=self.plan.understood is None,
        )

    @functools.cached_property
    def design(self) -> ManyRunsDesign:
        """The design of the audit."""
        return self.plan.design()

    @functools.cached_property
    def power(self) -> tuple[Power, ...]:
        """What the test shows of leaks of known size."""
        return power(self.design, self.design.most_rounds, self.design.usual_pilots)

    def words(self) -> list[str]:
        """The plan in sentences."""
        plan, design = self.plan, self.design
        lines = [
            self._about_pairs,
            *self._about_probes,
            f"At most {plan.runs} runs: up to {design.pilots} to choose the {'pair' if plan.own is None else 'event'}, "
            f"and the rest, {2 * design.most_rounds} or more, to test it, at confidence "
            f"{format_confidence(plan.confidence)}.",
            f"By simulation, the test {'refutes the claim' if plan.claim else 'shows ε > 0'} with this chance, if the "
            "search finds an event that tells D′ from D",
        ]
        lines += [
            f"  {item.leak}: {format_percent(item.chance)}; the bound is {format_lower(item.median)} in the median"
            for item in self.power
        ]
        half = power_in_words(detectable_leak(design, design.most_rounds, design.usual_pilots))
        return [*lines, f"{half} Leaks that only other neighbours would reveal are not counted.", *self.warnings]

    @property
    def _about_pairs(self) -> str:
        plan, of = self.plan, f"({self.plan.adjacency}, unit {self.plan.unit})"
        if plan.own is not None:
            return f"One pair of neighbours {of}, your own. {plan.own.in_words(Adjacency(plan.adjacency))}"
        count = len(plan.pairs)
        return f"{count} pair{'s'[: count != 1]} of neighbours {of}: {', '.join(pair.name for pair in plan.pairs)}."

    @property
    def _about_probes(self) -> list[str]:
        """What the probe looks for, if there is one that has runs."""
        if self.plan.probe is None or not self.design.probe_runs:
            return []
        finds = "; ".join(PROBE_FINDS[ladder.name] for ladder in self.plan.probe.ladders)
        return [f"{self.design.probe_runs} runs of a probe may add pairs that aim at: {finds}."]

    @property
    def warnings(self) -> list[str]:
        """That hardly a column is used, and that no outcome could refute the claim, if that is so."""
        columns = self.plan.columns
        used = [column.name for column in columns if column.kind in ("number", "category", "text")]
        few = [
            f"Warning: of {len(columns)} columns {f'only {used[0]!r}' if used else 'none'} is used; say what the "
            "others hold (--number, --categorical, --text), or how the file is written (--separator)."
        ] * (len(used) < min(len(columns), 2))
        return few + self._about_the_claim

    @property
    def _about_the_claim(self) -> list[str]:
        needed, design = self.runs_needed, self.design
        if design.claim is None:
            return []
        claim = f"ε = {format_number(design.limit)}"
        if needed is None or needed > MAX_RUNS:
            return [f"Warning: no outcome of {MAX_RUNS} runs, the most that are possible, refutes a claim of {claim}."]
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
        return runs_needed(self.design)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON types, without the data."""
        plan, design = self.plan, self.design
        left_out: dict[str, Any] = dict.fromkeys(("seed", "pairs", "columns", "like", "held", "probe"), True)
        body = plan.model_dump(exclude={**left_out, "own": {"positions"}})
        return {
            **body,
            "sha256": self.sha256,
            "pairs": [pair.name for pair in plan.pairs],
            "probes": [ladder.name for ladder in plan.probe.ladders] if plan.probe is not None else [],
            "runs_needed": self.runs_needed if plan.claim else None,
            "power": [dataclasses.asdict(item) for item in self.power],
            "detectable": detectable_leak(design, design.most_rounds, design.usual_pilots).to_json(),
        }


def _are_neighbors(data: Sequence[Row], neighbor: Sequence[Row], adjacency: Adjacency, size: int) -> bool:
    """Whether D′ has at most so many records more than D, or as many in the place of others."""
    first, second = (Counter(repr(list(row.items())) for row in rows) for rows in (data, neighbor))
    fewer, more = (first - second).total(), (second - first).total()
    return more <= size and fewer == (more if adjacency is Adjacency.REPLACE_ONE else 0)


def _is_utf8(path: Path) -> bool:
    """Whether a file is UTF-8, or not to be looked at."""
    try:
        with path.open("rb") as file:
            if path.suffix in (".gz", ".zst"):
                return True
            decoder = codecs.getincrementaldecoder("utf-8")()
            for piece in iter(lambda: file.read(1 << 20), b""):
                decoder.decode(piece)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    except OSError:
        return True
    return True


def data_file(folder: Path, data: int, suffix: str) -> Path:
    """Where a data set of an audit is."""
    return folder / "private" / DATA / f"{data:02d}{suffix}"


def read_plan(folder: Path) -> PlannedRuns:
    """The plan of a folder.

    Raises:
        InputError: if the folder holds none, or one of another version.
    """
    path = folder / "private" / PLAN
    if not path.is_file():
        if (folder / "private" / MANIFEST).is_file():
            raise InputError(f"{folder}: holds an audit by canaries; give the command without `runs`")
        raise InputError(f"{folder}: holds no plan of runs; make one with `dpassay audit runs plan … -o {folder}`")
    with input_errors():
        content = path.read_bytes()
    try:
        plan = RunsPlan.model_validate_json(content)
        plan.check()
    except ValidationError as error:
        raise version_error(path, error) from None
    except (ValueError, TypeError, LookupError):
        raise InputError(f"{path}: was not written by this version of dpassay; make a new plan") from None
    return PlannedRuns(folder, plan, hashlib.sha256(content).hexdigest())


class MadeRun(NamedTuple):
    """A run of one of the two generators.

    Attributes:
        arm: ``claimed`` or ``unprotected``.
        run: its place in the audit.
    """

    arm: str
    run: GeneratorRun

    @property
    def is_trial(self) -> bool:
        """Whether it only tries the generator."""
        return TRIAL - TRIALS < self.run.number <= TRIAL

    @property
    def name(self) -> str:
        """Of the run's files."""
        if self.is_trial:
            return f"{self.arm}-trial-{TRIAL - self.run.number + 1}"
        return f"{self.arm}-{self.run.phase}-{self.run.data:02d}-{self.run.number:05d}"

    @property
    def spawn_key(self) -> int:
        """A number that no other run has, from which it has its seed."""
        index = 2 * ARMS.index(self.arm) + (self.run.phase == "test")
        return (index << 48) | (self.run.data << 32) | self.run.number


class Results:
    """The results of runs, appended to ``private/results.jsonl`` as they arrive.

    Args:
        planned: the plan that they belong to.
    """

    def __init__(self, planned: PlannedRuns) -> None:
        self._planned, self._path = planned, planned.private / RESULTS
        self._header = {"runs": _VERSION, "plan": planned.sha256}
        self._file: BinaryIO | None = None
        self._synced = time.monotonic()
        self.generators: dict[str, str] = {}
        self.audited: dict[str, list[AuditedGenerator]] = {}
        self.ended = ""
        self.by_run: dict[MadeRun, dict[str, Features]] = {}
        self.seconds: dict[str, float] = {}
        if self._path.is_file():
            self._whole = self._read()
        else:
            self._whole = 0

    def _read(self) -> int:
        whole = 0
        with input_errors(), self._path.open("rb") as file:
            for number, line in enumerate(file):
                if not line.endswith(b"\n"):
                    break  # a process was killed while it wrote this line; its run is made again
                try:
                    row = json.loads(line)
                    if number == 0:
                        if {key: row[key] for key in self._header} != self._header:
                            raise InputError(f"{self._path}: belongs to another plan; delete it, or put back the plan")
                    elif "generator" in row:
                        self.generators[str(row["arm"])] = str(row["generator"])
                        if "audited" in row:
                            said = AuditedGenerator.model_validate(row["audited"])
                            self.audited.setdefault(str(row["arm"]), []).append(said)
                    elif "ended" in row:
                        self.ended = str(row["ended"])
                    else:
                        made = MadeRun(
                            str(row["arm"]), GeneratorRun(row["phase"], int(row["data"]), int(row["number"]))
                        )
                        if made in self.by_run or not self._planned.asks_for(made):
                            raise ValueError("no run of the plan, or one that is there already")
                        self.by_run[made] = _checked(row["features"], self._planned.plan.pairs_of(made.run.data))
                        self._spend(made.arm, validate.non_negative(seconds=float(row.get("seconds", 0.0))))
                except InputError:
                    raise
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                    raise InputError(f"{self._path}: line {number + 1} is not a result; delete the file") from None
                whole += len(line)
        return whole

    @contextlib.contextmanager
    def writing(self) -> Iterator[Results]:
        """Opens the file for new results. A line that was cut off is dropped."""
        with input_errors():
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = open(descriptor, "r+b")  # noqa: SIM115 - closed below, where its errors name it
        try:
            self._file.seek(self._whole)
            self._file.truncate()
            if self._whole == 0:
                self._append(self._header)
            yield self
        finally:
            with naming(self._path):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
            self._file = None

    def begin(self, arm: str, generator: str, audited: AuditedGenerator) -> None:
        """Records which generator the runs of an arm are of, with the files that it consists of; refuses another later.

        Raises:
            InputError: if runs of another one were recorded.
        """
        digest = hashlib.sha256(generator.encode()).hexdigest()
        if self.generators.setdefault(arm, digest) != digest:
            raise InputError(
                f"{self._path.parent.parent}: its runs were made by another command, or by files that were changed "
                "since; give the same ones, or plan anew"
            )
        self.audited.setdefault(arm, []).append(audited)
        self._append({"arm": arm, "generator": digest, "audited": audited.model_dump()})

    def end(self) -> None:
        """Records when the last run had ended."""
        self.ended = now()
        self._append({"ended": self.ended})

    def failures(self, arm: str) -> dict[str, dict[str, int]]:
        """How many runs of an arm were made and failed, by phase."""
        counts = {phase: {"made": 0, "failed": 0} for phase in ("pilot", "test")}
        for item, features in self.of(arm).items():
            counts[item.phase]["made"] += 1
            counts[item.phase]["failed"] += bool(features[""].get(FAILED))
        return counts

    def add(self, made: MadeRun, features: dict[str, Features], seconds: float = 0.0) -> None:
        """Appends the result of a run. It is flushed at once, and synced to disk within a second.

        Args:
            made: the run.
            features: of its output.
            seconds: that the generator took; 0 if unknown.
        """
        self.by_run[made] = features
        self._spend(made.arm, seconds)
        self._append({"arm": made.arm, **made.run._asdict(), "features": features, "seconds": round(seconds, 3)})

    def _spend(self, arm: str, seconds: float) -> None:
        self.seconds[arm] = self.seconds.get(arm, 0.0) + seconds

    def _append(self, row: Mapping[str, Any]) -> None:
        assert self._file is not None
        with naming(self._path):
            self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            self._file.flush()
            if time.monotonic() - self._synced > 1:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def of(self, arm: str) -> dict[GeneratorRun, dict[str, Features]]:
        """The results of one arm."""
        return {made.run: features for made, features in self.by_run.items() if made.arm == arm}

    def audit(self, arm: str, *, stop: bool = True) -> ManyRuns:
        """The audit of one arm by its results so far."""
        audit = ManyRuns(self._planned.plan.design(stop=stop))
        for item, features in self.of(arm).items():
            audit.add(item, features)
        return audit


def _checked(features: Any, pairs: Sequence[str]) -> dict[str, Features]:
    """Features as they were written: those of each of these pairs, and those of every pair.

    Raises:
        ValueError: if they are something else.
    """
    if set(features) != {"", *pairs}:
        raise ValueError("features belong to the pairs of a data set")
    results = {str(pair): {str(name): float(value) for name, value in item.items()} for pair, item in features.items()}
    if not all(math.isfinite(value) for item in results.values() for value in item.values()):
        raise ValueError("a feature is a number")
    return results
